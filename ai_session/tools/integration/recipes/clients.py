"""ai-session as a tool server of a client, in the project's own file for that client, and in ccswarm.toml."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, cast

from agentwire.mcp.clients import ConfigLocation, locations, snippet
from ai_session.config.config import read_toml
from ai_session.tools.integration.project.edits import Edit, Proposal
from ai_session.tools.integration.project.source_text import anchor, members, newline_of
from ai_session.tools.integration.project.tree import Tree

NAME = "ai-session"
COMMAND, ARGS = NAME, ["mcp-server", "--stdio"]
"""Found by PATH, because a project's file is for everybody who works on it."""

SWARM = "ccswarm.toml"
SERVER = f"""\
[[mcp.servers]]
name = "{NAME}"
command = "{COMMAND} {" ".join(ARGS)}"
"""

WHOLE = (
    SERVER
    + """\

[swarm]
name = "project"

[[agents]]
name = "builder"
type = "coder"
grants = ["ai-session.*"]

# The work, step by step: ai-session docs playbooks.
[[tasks]]
id = "look"
text = "Say which commit this is."
agent = "builder"

[[tasks.steps]]
id = "open"
tool = "ai-session.create_session"
args = { name = "${run.id}-look", working_directory = "${workspace}" }
gate = true

[[tasks.steps]]
id = "commit"
tool = "ai-session.execute_command"
args = { session_id = "${steps.open.session_id}", command = "git log -1 --oneline" }
expect = { exit_code = 0 }

[[tasks.steps]]
id = "close"
tool = "ai-session.close_session"
args = { session_id = "${steps.open.session_id}" }
"""
)


def clients() -> list[str]:
    """Return the names of the clients that have a file in a project."""
    from pathlib import Path

    return [one.client for one in locations(NAME, Path("/"), Path("/"), {}) if one.scope == "project"]


def location_of(client: str) -> tuple[ConfigLocation, str]:
    """Return the project's file of a client: its format, and its path from the root."""
    from pathlib import Path

    here = Path("/")
    found = next(one for one in locations(NAME, here, here, {}) if (one.client, one.scope) == (client, "project"))
    return found, str(PurePosixPath(found.path).relative_to("/"))


def propose(tree: Tree, client: str) -> Proposal:
    """Propose the edit that adds ai-session to the client's servers."""
    location, path = location_of(client)
    text = tree.read(path)
    by_hand = f"{path} cannot be edited safely; add by hand: {snippet(location, COMMAND, ARGS)}"
    if text is None and tree.kind(path):
        return Proposal(f"No edits for {client}.", warnings=(by_hand,))
    data = _data(path, text or "")
    if data is None or (table := _table(data, location.keys)) is None:
        return Proposal(f"No edits for {client}.", warnings=(f"{path} is not valid or contains comments. {by_hand}",))
    if NAME in table:
        return Proposal(f"No edits for {client}.", present=True)
    edit = _edit(location, path, text)
    if edit is None:
        return Proposal(f"No edits for {client}.", warnings=(by_hand,))
    return Proposal(
        f"Add ai-session to the tool servers of {client} in {path}.",
        (edit,),
        (f"restart {client} in this folder; it shows the server {NAME} with its tools", "ai-session doctor"),
        (f"{path} uses {COMMAND!r} from PATH; a client that is started from a desktop may need the full path",),
    )


def propose_swarm(tree: Tree) -> Proposal:
    """Propose the edit that gives a swarm's agents terminals, or a ccswarm.toml that runs if there is none."""
    text = tree.read(SWARM)
    if text is None and tree.kind(SWARM):
        return Proposal("No edits for ccswarm.", warnings=(f"{SWARM} cannot be read",))
    checks = ("ccswarm config check", "ccswarm run --dry-run")
    if text is None or not text.strip():
        edit = Edit(SWARM, "create_file" if text is None else "append", WHOLE)
        return Proposal(f"Write a {SWARM} with one agent that works in a terminal of ai-session.", (edit,), checks)
    data = _data(SWARM, text)
    if data is None:
        return Proposal("No edits for ccswarm.", warnings=(f"{SWARM} is not valid; fix it first",))
    if NAME in _servers(data):
        return Proposal("No edits for ccswarm.", present=True)
    edit = _addition(SWARM, text, SERVER)
    if edit is None:
        return Proposal("No edits for ccswarm.", warnings=(f"add to mcp.servers of {SWARM} by hand: {SERVER}",))
    grant = 'agents see only granted tools: grants = ["ai-session.*"]'
    return Proposal(f"Add ai-session to the tool servers of {SWARM}.", (edit,), checks, (grant,))


def _servers(data: dict[str, Any]) -> list[object]:
    """Return the names of a swarm's tool servers."""
    listed = (_table(data, ("mcp",)) or {}).get("servers")
    rows = cast("list[object]", listed) if isinstance(listed, list) else []
    return [cast("dict[str, object]", row).get("name") for row in rows if isinstance(row, dict)]


def _edit(location: ConfigLocation, path: str, text: str | None) -> Edit | None:
    entry = {**location.extra, "command": COMMAND, "args": ARGS}
    if text is None or not text.strip():
        whole = snippet(location, COMMAND, ARGS).partition("# lets it run")[0].rstrip("\n") + "\n"
        return Edit(path, "create_file" if text is None else "append", whole)
    if path.endswith(".toml"):
        return _addition(path, text, snippet(location, COMMAND, ARGS).partition("# lets it run")[0])
    for depth in range(len(location.keys), -1, -1):
        try:
            found = members(text, location.keys[:depth])
        except (ValueError, RecursionError):
            return None
        if found is not None:
            value: Any = entry
            for key in reversed((*location.keys[depth:], NAME)):
                value = {key: value}
            return _insertion(path, text, found, value)
    return None


def _insertion(path: str, text: str, found: list[tuple[str, int]], value: Mapping[str, Any]) -> Edit | None:
    """Insert the value's one member as the object's last or first one, whichever has the shorter anchor."""
    (name, inner) = next(iter(value.items()))
    empty = len(found) == 1
    opens, last = found[0][1], found[-1][1]
    before = text[text.rfind("\n", 0, opens) + 1 : opens]
    outer = before[: len(before) - len(before.lstrip())]
    first = text[opens:last].lstrip(" \t\r")
    step = "  " if empty or not first.startswith("\n") else _indentation(first)[len(outer) :] or "  "
    lines = f"{json.dumps(name)}: {json.dumps(inner, indent=step)}".replace("\n", f"\n{outer}{step}")
    newline = newline_of(text)
    entry = f"\n{outer}{step}{lines}"
    if empty:
        rest = "" if text[opens:].lstrip(" \t\r").startswith("\n") else f"\n{outer}"
        choices = [(opens, entry + rest)]
    else:
        choices = [(last, "," + entry), (opens, entry + ",")]
    named = [(anchor(text, text.rfind("\n", 0, position) + 1, position), code) for position, code in choices]
    pattern, code = min((row for row in named if row[0]), key=lambda row: len(row[0]), default=("", ""))
    return Edit(path, "insert", code.replace("\n", newline), "", pattern) if pattern else None


def _indentation(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "")
    return line[: len(line) - len(line.lstrip())]


def _addition(path: str, text: str, tables: str) -> Edit | None:
    """Append tables to a TOML file, if the result is valid."""
    newline = newline_of(text)
    code = ("" if text.endswith("\n") else "\n") + "\n" + tables
    edit = Edit(path, "append", code.replace("\n", newline))
    return edit if _data(path, edit.applied(text)) is not None else None


def _data(path: str, text: str) -> dict[str, Any] | None:
    """Parse the file; None if it is invalid."""
    if not text.strip():
        return {}
    try:
        data: Any = read_toml(text) if path.endswith(".toml") else json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _table(data: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any] | None:
    for key in keys:
        found = data.get(key, {})
        if not isinstance(found, dict):
            return None
        data = found  # pyright: ignore[reportUnknownVariableType]
    return data
