"""The starters of initialize_project: what each is, and its files with a project's name in them."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "templates"
NAME_MARK = "__PROJECT_NAME__"
REQUIREMENTS_MARK = "__REQUIREMENTS__"
HIDDEN = "dot-"
"""How the name of a file begins that is hidden in a project, and must not be where it is kept."""

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
"""What to type in the project's folder."""


def files_of(template: str, name: str, requirements: str = "") -> dict[str, str]:
    """Each file's text by its path in the project, sorted."""
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
