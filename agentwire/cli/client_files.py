"""What the verbs ``mcp install``, ``mcp uninstall`` and ``mcp status`` have in common: clients' files, shown and
changed."""

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
    """Clients we can set up, for the shell's completion."""
    return [name for name in CLIENTS if name.startswith(incomplete)]


Scope = Annotated[
    str, Option("--scope", help="user (everywhere), project (this directory's file), local (claude-code only).")
]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would change and change nothing.")]


def find_location(
    locations: Sequence[ConfigLocation], client: str, scope: str, refusal: type[CallerError]
) -> ConfigLocation:
    """The one of ``locations`` that is meant. Raises ``refusal``."""
    if client not in CLIENTS:
        raise refusal(f"no client {client!r}", suggestion=f"use one of: {', '.join(CLIENTS)}")
    scopes = {location.scope: location for location in locations if location.client == client}
    if scope not in scopes:
        raise refusal(f"{client} has no scope {scope!r}", suggestion=f"use one of: {', '.join(scopes)}")
    return scopes[scope]


def show_states(locations: Sequence[ConfigLocation], *, as_json: bool) -> None:
    """List the files and whether the entry is in them."""
    rows = [state(location) for location in locations]
    if as_json:
        show_json(rows)
    else:
        show_rows(rows, ("client", "scope", "state", "path", "command"))


def state(location: ConfigLocation) -> dict[str, Any]:
    """One file, as installed, absent (no entry), no file, invalid, or broken (no such command)."""
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
    """Have the client start ``launch``, or ``show`` the entry; with what to add for ``doing`` so without questions."""
    from agentwire.mcp import clients

    if show:
        _show_text(clients.snippet(location, *launch).rstrip("\n") + "\n")
        return
    _change(location, lambda text: clients.with_entry(location, text, *launch), dry_run=dry_run, as_json=as_json)
    if (line := clients.UNATTENDED.get(location.client)) and not (dry_run or as_json):
        say(f"To let it {doing} without asking, add to the entry: {line}")


def take_out(location: ConfigLocation, *, dry_run: bool, as_json: bool) -> None:
    """Have the client start it no more."""
    from agentwire.mcp import clients

    _change(location, lambda text: clients.without_entry(location, text), dry_run=dry_run, as_json=as_json)


def _change(location: ConfigLocation, change: Callable[[str], str], *, dry_run: bool, as_json: bool) -> None:
    """Write the file as ``change`` makes it, or show how that differs."""
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
        _show_text(diff or f"{path} stays as it is\n")
    else:
        _show_text(f"{'changed' if changed else 'unchanged'}\t{path}\n")
        if backup:
            say(f"The file as it was: {backup}")
        if changed:
            say(f"Restart {location.client} to see it.")


def _show_text(text: str) -> None:
    """Text of a file: in a pipe as it is, on a terminal with every character seen."""
    write_bytes((visible(text.expandtabs(4), lines=True) if to_person() else text).encode("utf-8", "replace"))


def _write(location: ConfigLocation, before: str, after: str) -> str | None:
    """Replace the file in one step, with the mode it had; the old one is kept, its path returned. None where it no
    longer holds ``before``."""
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
