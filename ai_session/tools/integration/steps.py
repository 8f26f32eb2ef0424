"""The steps of one integration for a person, with the commands of the repository's own package manager. No I/O."""

from __future__ import annotations

from typing import Any

from ai_session.tools.integration.frameworks import Framework
from ai_session.tools.integration.project.profile import NODE, PYTHON, Profile
from ai_session.tools.integration.recipes.clients import location_of
from ai_session.tools.integration.recipes.node import SDK

ADD = {
    "pnpm": "pnpm add {}",
    "yarn": "yarn add {}",
    "bun": "bun add {}",
    "npm": "npm install {}",
    "uv": "uv add {}",
    "poetry": "poetry add {}",
    "pip": "pip install {}",
}
"""How each package manager installs."""

INSTALL = "pipx install ."
"""For ai-session itself, which is in no package index yet."""

NEEDS = {**dict.fromkeys(NODE, f"'{SDK}@^1.32'"), **dict.fromkeys(PYTHON, "'mcp>=1.10,<3'")}
OTHERS = {"fastapi": "the entry points", "nestjs": "src/main.ts", "express": "the entry points", "nextjs": "the routes"}
WHERE = {"nextjs": "/api/terminal"}


def steps(framework: Framework, profile: Profile) -> dict[str, Any]:
    """Return the steps in order. ``package_manager`` is empty if nothing has to be installed in the project."""
    manager, warnings = manager_of(framework, profile)
    rows = _client(framework) if framework.is_client else _app(framework, manager)
    if profile.entry_points == () and not framework.is_client and framework.name != "nextjs":
        warnings.append(f"no entry points are known; find where the app is created in {OTHERS[framework.name]}")
    if len(profile.entry_points) > 1 and not framework.is_client:
        warnings.append(f"several entry points; propose_edit_plan uses the first that fits: {profile.entry_points[0]}")
    return {
        "framework": framework.name,
        "runner_pattern": framework.pattern,
        "steps": [
            {"id": name, "title": title, "details": details, "doc_ref": framework.doc} for name, title, details in rows
        ],
        "package_manager": manager,
        "warnings": warnings,
    }


def manager_of(framework: Framework, profile: Profile) -> tuple[str, list[str]]:
    """Return the repository's package manager for this framework, and warnings if it is uncertain."""
    if framework.is_client:
        return "", []
    fitting = [name for name in profile.package_managers if name in framework.managers]
    if not fitting:
        usual = framework.managers[-1]
        return usual, [f"no package manager of its kind was found in the repository; {usual} is assumed"]
    several = [f"several package managers: {', '.join(fitting)}; {fitting[0]} is used"] if len(fitting) > 1 else []
    return fitting[0], several


def _app(framework: Framework, manager: str) -> list[tuple[str, str, str]]:
    install = ADD[manager].format(NEEDS[manager])
    path = WHERE.get(framework.name, "/terminal")
    return [
        (
            "install_ai_session",
            "Install ai-session where the app runs",
            (
                f"In a clone of ai-session: {INSTALL}; then ai-session doctor reports whether this machine can"
                " contain a shell."
                " The app finds ai-session by PATH."
            ),
        ),
        ("install_client", "Install the MCP client library", install),
        (
            "apply_edits",
            "Apply the edit plan",
            (
                f"propose_edit_plan with framework {framework.name!r}, validate_edit_plan, then apply the edits: a new "
                "file with the terminal, and the lines that mount it."
            ),
        ),
        (
            "set_token",
            "Open it to callers with the token",
            (
                "Set AI_SESSION_TERMINAL_TOKEN to 16 characters or more where the app runs, never in the repository;"
                " openssl rand -hex 32 makes one. Without it the terminal answers 503 and runs nothing."
            ),
        ),
        (
            "try_it",
            "Run a command",
            (
                f"curl -sS -H \"Authorization: Bearer $AI_SESSION_TERMINAL_TOKEN\" -H 'Content-Type: application/json' "
                f'-d \'{{"command": "pwd"}}\' http://127.0.0.1:PORT{path}'
            ),
        ),
    ]


def _client(framework: Framework) -> list[tuple[str, str, str]]:
    install = (
        "install_ai_session",
        "Install ai-session",
        f"In a clone of ai-session: {INSTALL}; then ai-session doctor.",
    )
    if framework.name == "ccswarm":
        return [
            install,
            ("apply_edits", "Apply the edit plan", "It writes ccswarm.toml, or adds ai-session to its tool servers."),
            ("check", "Check it", "ccswarm doctor; then ccswarm run --dry-run shows what it would do."),
            ("run", "Run it", "ccswarm run"),
        ]
    path = location_of(framework.name)[1]
    return [
        install,
        (
            "apply_edits",
            "Apply the edit plan",
            (
                f"It adds ai-session to {path}, for everybody who works on this project. For one person only: "
                f"ai-session mcp install --client {framework.name}"
            ),
        ),
        (
            "restart",
            "Restart the client in this folder",
            (
                "It shows the server ai-session and its tools; many clients first ask whether the project's servers may"
                " start."
            ),
        ),
        (
            "swarm",
            "Add the swarm too, if there is one",
            (
                "With a ccswarm.toml, a second server of the command ccswarm and the arguments mcp-server, --stdio "
                "offers its runs to the client."
            ),
        ),
    ]
