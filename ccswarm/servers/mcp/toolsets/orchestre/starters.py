"""The starters of initialize_project: their descriptions, and their files with a project's name."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "templates"
NAME_MARK = "__PROJECT_NAME__"
REQUIREMENTS_MARK = "__REQUIREMENTS__"
HIDDEN = "dot-"
"""The prefix, in the templates, of files that are hidden in a project."""

ABOUT = {
    "cloudflare-hono": "a JSON API with Hono, for Cloudflare Workers and Node",
    "makerkit-nextjs": "a Next.js app for a product that teams subscribe to: pages, plans, an API",
    "react-native-expo": "an app for phones with Expo",
}

NEXT = {
    "cloudflare-hono": ["npm install", "npm test", "npm run dev"],
    "makerkit-nextjs": ["npm install", "npm test", "npm run dev"],
    "react-native-expo": ["npm install", "npm test", "npm start"],
}
"""The commands to run in the project's directory."""


def files_of(template: str, name: str, requirements: str = "") -> dict[str, str]:
    """Return the text of each file by its path in the project, sorted."""
    section = f"\n## Requirements\n\n{requirements}" if requirements else ""
    root, found = FOLDER / template, dict[str, str]()
    for file in root.rglob("*"):
        if file.is_file():
            relative = file.relative_to(root)
            hidden = relative.with_name("." + relative.name.removeprefix(HIDDEN))
            shown = hidden if relative.name.startswith(HIDDEN) else relative
            text = file.read_text(encoding="utf-8").replace(NAME_MARK, name).replace(f"{REQUIREMENTS_MARK}\n", section)
            found[shown.as_posix()] = text if text.endswith("\n") else f"{text}\n"
    return dict(sorted(found.items()))
