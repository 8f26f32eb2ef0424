"""The common part of the verbs ``mcp install``, ``mcp uninstall`` and ``mcp status``, which show and change the
configuration files of MCP clients."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from agentwire.cli.options import Option
from agentwire.cli.output import say, show_json, show_rows, to_person, write_bytes
from agentwire.errors import CallerError, ConfigInvalid
from agentwire.system import whole_files
from agentwire.visible import visible

if TYPE_CHECKING:
    from agentwire.mcp.clients import ConfigLocation

CLIENTS = ("claude-desktop", "claude-code", "codex", "cursor", "vscode", "gemini")


def complete_clients(incomplete: str) -> list[str]:
    """Return the supported clients that begin with ``incomplete``, for the shell's completion."""
    return [name for name in CLIENTS if name.startswith(incomplete)]


def client_option(*names: str) -> Option:
    """Return the option that names a client."""
    return Option(*names, help=", ".join(CLIENTS), complete=complete_clients, show_default=False)


Scope = Annotated[
    str, Option("--scope", help="user (everywhere), project (this directory's file), local (claude-code only).")
]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would change and change nothing.")]


def find_location(
    locations: Sequence[ConfigLocation], client: str, scope: str, refusal: type[CallerError]
) -> ConfigLocation:
    """Return the location of that client and scope. Raises ``refusal`` if there is none."""
    if client not in CLIENTS:
        raise refusal(f"no client {client!r}", suggestion=f"use one of: {', '.join(CLIENTS)}")
    scopes = {location.scope: location for location in locations if location.client == client}
    if scope not in scopes:
        raise refusal(f"{client} has no scope {scope!r}", suggestion=f"use one of: {', '.join(scopes)}")
    return scopes[scope]


def show_states(locations: Sequence[ConfigLocation], *, as_json: bool) -> None:
    """List the files and whether each contains the entry."""
    rows = [state(location) for location in locations]
    if as_json:
        show_json(rows)
    else:
        show_rows(rows, ("client", "scope", "state", "path", "command"))


def state(location: ConfigLocation) -> dict[str, Any]:
    """Describe one file: its state is installed, absent (no entry), no file, invalid, or broken (no such command)."""
    from agentwire.mcp import clients

    row: dict[str, Any] = {
        "client": location.client,
        "scope": location.scope,
        "path": str(location.path),
        "command": "",
    }
    try:
        found = clients.entry(location, clients.read(location))
    except ConfigInvalid as error:
        return {**row, "state": "invalid", "problem": error.message}
    if found is None:
        return {**row, "state": "absent" if location.path.exists() else "no file"}
    command = str(found.get("command", ""))
    words = " ".join([command, *map(str, found.get("args", []))])
    return {**row, "command": words, "state": "installed" if shutil.which(command) else "broken"}


def add(
    location: ConfigLocation, launch: tuple[str, list[str]], doing: str, *, show: bool, dry_run: bool, as_json: bool
) -> None:
    """Make the client start ``launch``, or ``show`` the entry. A remark says how to allow ``doing`` unattended."""
    from agentwire.mcp import clients

    if show:
        text = clients.snippet(location, *launch).rstrip("\n") + "\n"
        if as_json:
            show_json({"client": location.client, "path": str(location.path), "text": text})
        else:
            _show_text(text)
        return
    _change(location, lambda text: clients.with_entry(location, text, *launch), dry_run=dry_run, as_json=as_json)
    if (line := clients.UNATTENDED.get(location.client)) and not (dry_run or as_json):
        say(f"To let it {doing} without asking, add to the entry: {line}")


def remove(location: ConfigLocation, *, dry_run: bool, as_json: bool) -> None:
    """Remove our entry from the client's file."""
    from agentwire.mcp import clients

    _change(location, lambda text: clients.without_entry(location, text), dry_run=dry_run, as_json=as_json)


def _change(location: ConfigLocation, change: Callable[[str], str], *, dry_run: bool, as_json: bool) -> None:
    """Write the file as ``change`` returns it, or show the difference with ``dry_run``."""
    from agentwire.mcp import clients

    while True:
        before = clients.read(location)
        after = change(before)
        changed, path = after != before, str(location.path)
        backup = _write(location, before, after) if changed and not dry_run else ""
        if backup is not None:
            break
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), path, path)
    diff = "".join(line if line.endswith("\n") else line + "\n" for line in lines)
    if as_json:
        show_json({"client": location.client, "path": path, "changed": changed, "backup": backup, "diff": diff})
    elif dry_run:
        _show_text(diff or f"{path} would not change\n")
    else:
        _show_text(f"{'changed' if changed else 'unchanged'}\t{path}\n")
        if backup:
            say(f"A copy of the previous file: {backup}")
        if changed:
            say(f"Restart {location.client} to see it.")


def _show_text(text: str) -> None:
    """Print the text of a file: unchanged to a pipe, with every character visible on a terminal."""
    write_bytes((visible(text.expandtabs(4), lines=True) if to_person() else text).encode("utf-8", "replace"))


def _write(location: ConfigLocation, before: str, after: str) -> str | None:
    """Replace the file atomically, preserving its mode, and return the path of a copy of the old one (empty if there
    was none). Returns None if the file no longer contains ``before``."""
    from agentwire.mcp import clients

    path = location.path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        with suppress(FileExistsError):
            whole_files.create(path, after.encode())
            return ""
        return None
    backup = path.with_name(f"{path.name}.before-{location.name}")
    shutil.copy2(path, backup)
    return str(backup) if whole_files.exchange(path, after.encode(), lambda: clients.read(location) == before) else None
