"""Verbs that tell MCP clients of us: mcp install, uninstall, status."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from agentwire.cli.options import Group, Json, Option
from agentwire.cli.output import say, show_json, show_rows
from ai_session.cli.output import write_text
from ai_session.errors import ConfigInvalid, InvalidArguments

if TYPE_CHECKING:
    from agentwire.mcp.clients import Place

CLIENTS = ("claude-desktop", "claude-code", "codex", "cursor", "vscode", "gemini")
SERVE = ["mcp-server", "--stdio"]

app = Group("Set MCP clients up.")


def complete_clients(incomplete: str) -> list[str]:
    """Clients we can set up, for the shell's completion."""
    return [name for name in CLIENTS if name.startswith(incomplete)]


Client = Annotated[
    str, Option("--client", "-c", help=", ".join(CLIENTS), complete=complete_clients, show_default=False)
]
Scope = Annotated[
    str, Option("--scope", help="user (everywhere), project (this directory's file), local (claude-code only).")
]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would change and change nothing.")]


@app.command()
def install(
    client: Client,
    scope: Scope = "user",
    dry_run: DryRun = False,
    show: Annotated[bool, Option("--print", help="Print the entry, to be added by hand.")] = False,
    relative: Annotated[
        bool, Option("--relative", help="Write just 'ai-session'; desktop clients may not find it in their PATH.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add this server to a client's configuration; all else in it stays, and a backup is kept next to it."""
    from agentwire.mcp import clients as mcp_clients

    command, args = ("ai-session", SERVE) if relative else launch_line()
    place = find_place(client, scope)
    if show:
        write_text(mcp_clients.snippet(place, command, args).rstrip("\n") + "\n")
        return
    before = mcp_clients.read(place)
    change(place, before, mcp_clients.with_entry(place, before, command, args), dry_run, as_json)
    if (line := mcp_clients.UNATTENDED.get(client)) and not (dry_run or as_json):
        say(f"To let it run commands with nobody to ask, add to the entry: {line}")


@app.command()
def uninstall(client: Client, scope: Scope = "user", dry_run: DryRun = False, as_json: Json = False) -> None:
    """Take this server out of a client's configuration."""
    from agentwire.mcp import clients as mcp_clients

    place = find_place(client, scope)
    before = mcp_clients.read(place)
    change(place, before, mcp_clients.without_entry(place, before), dry_run, as_json)


@app.command()
def status(as_json: Json = False) -> None:
    """List the clients' files and whether this server is in them."""
    rows = states()
    if as_json:
        show_json(rows)
    else:
        show_rows(rows, ("client", "scope", "state", "path", "command"))


def states() -> list[dict[str, Any]]:
    """Each known file, as installed, absent (no entry), no file, invalid, or broken (no such command)."""
    from agentwire.mcp import clients as mcp_clients

    rows: list[dict[str, Any]] = []
    for place in all_places():
        row: dict[str, Any] = {"client": place.client, "scope": place.scope, "path": str(place.path), "command": ""}
        try:
            found = mcp_clients.entry(place, mcp_clients.read(place))
        except ConfigInvalid as error:
            rows.append({**row, "state": "invalid", "problem": error.message})
            continue
        if found is None:
            row["state"] = "absent" if place.path.exists() else "no file"
        else:
            command = str(found.get("command", ""))
            row["command"] = " ".join([command, *map(str, found.get("args", []))])
            row["state"] = "installed" if shutil.which(command) else "broken"
        rows.append(row)
    return rows


def all_places() -> list[Place]:
    """Where this user's clients, in this directory, keep their servers."""
    from agentwire.mcp import clients as mcp_clients
    from ai_session.config import config

    return mcp_clients.places("ai-session", config.home_directory(), Path.cwd(), config.environment())


def find_place(client: str, scope: str) -> Place:
    """The file meant. Raises InvalidArguments."""
    if client not in CLIENTS:
        raise InvalidArguments(f"no client {client!r}", suggestion=f"use one of: {', '.join(CLIENTS)}")
    scopes = {place.scope: place for place in all_places() if place.client == client}
    if scope not in scopes:
        raise InvalidArguments(f"{client} has no scope {scope!r}", suggestion=f"use one of: {', '.join(scopes)}")
    return scopes[scope]


def launch_line() -> tuple[str, list[str]]:
    """An absolute command: desktop clients start servers with hardly any PATH."""
    from ai_session.config import config

    found = shutil.which("ai-session", path=os.pathsep.join((config.outside_path(), os.path.dirname(sys.executable))))
    if found:
        return str(Path(found).absolute()), SERVE
    return sys.executable, ["-P", "-m", "ai_session", *SERVE]


def change(place: Place, before: str, after: str, dry_run: bool, as_json: bool) -> None:
    """Write ``after``, or show how it differs."""
    changed = after != before
    backup = ""
    if changed and not dry_run:
        backup = write(place.path.resolve(), after)
    path = str(place.path)
    diff = "".join(
        line if line.endswith("\n") else line + "\n"
        for line in difflib.unified_diff(before.splitlines(True), after.splitlines(True), path, path)
    )
    if as_json:
        show_json({"client": place.client, "path": path, "changed": changed, "backup": backup, "diff": diff})
    elif dry_run:
        write_text(diff or f"{path} stays as it is\n")
    else:
        write_text(f"{'changed' if changed else 'unchanged'}\t{path}\n")
        if backup:
            say(f"The file as it was: {backup}")
        if changed:
            say(f"Restart {place.client} to see it.")


def write(path: Path, text: str) -> str:
    """Replace the file in one step, with the mode it had; the old one is kept, its path returned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = path.with_name(path.name + ".before-ai-session") if path.exists() else None
    if backup:
        shutil.copy2(path, backup)
    fd, temporary = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with open(fd, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(fd)
        if backup:
            shutil.copymode(path, temporary)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return str(backup or "")
