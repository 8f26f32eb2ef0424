"""Verbs that tell MCP clients of the swarm: mcp install, uninstall, status."""

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
from ccswarm.cli.output import show_text
from ccswarm.cli.parameters import Config
from ccswarm.errors import ConfigInvalid, UsageInvalid

if TYPE_CHECKING:
    from agentwire.mcp.clients import Place

SERVE = ("mcp-server", "--stdio")
DESKTOP = "claude-desktop"
"""It starts its servers in /, so that the directory of the work has to be named."""

app = Group("Set MCP clients up.")

CLIENTS = ("claude-desktop", "claude-code", "codex", "cursor", "vscode", "gemini")


def complete_clients(incomplete: str) -> list[str]:
    """Clients we can set up, for the shell's completion."""
    return [name for name in CLIENTS if name.startswith(incomplete)]


ClientName = Annotated[str, Option("--client", help=", ".join(CLIENTS), complete=complete_clients, show_default=False)]
Scope = Annotated[
    str, Option("--scope", help="user (everywhere), project (this directory's file), local (claude-code only).")
]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would change and change nothing.")]


@app.command()
def install(
    client: ClientName,
    scope: Scope = "user",
    config: Config = None,
    workspace: Annotated[
        Path | None,
        Option("--workspace", "-w", help="Directory of the work; claude-desktop: this one, if nothing is said."),
    ] = None,
    dry_run: DryRun = False,
    show: Annotated[bool, Option("--print", help="Print the entry, to be added by hand.")] = False,
    as_json: Json = False,
) -> None:
    """Add the swarm to a client's configuration; all else in it stays, and a backup is kept next to it.

    Exit codes: 0 it is there, 2 the client's file cannot be edited, or no such scope.
    """
    from agentwire.mcp import clients as mcp_clients

    command, args = _launch_line(client, config, workspace)
    place = _place(client, scope)
    if show:
        show_text(mcp_clients.snippet(place, command, args).rstrip("\n") + "\n")
        return
    before = mcp_clients.read(place)
    _change(place, before, mcp_clients.with_entry(place, before, command, args), dry_run, as_json)
    if (line := mcp_clients.UNATTENDED.get(client)) and not (dry_run or as_json):
        say(f"To let it start runs with nobody to ask, add to the entry: {line}")


@app.command()
def uninstall(client: ClientName, scope: Scope = "user", dry_run: DryRun = False, as_json: Json = False) -> None:
    """Take the swarm out of a client's configuration.

    Exit codes: 0 it is not there any more, 2 the client's file cannot be edited, or no such scope.
    """
    from agentwire.mcp import clients as mcp_clients

    place = _place(client, scope)
    before = mcp_clients.read(place)
    _change(place, before, mcp_clients.without_entry(place, before), dry_run, as_json)


@app.command()
def status(as_json: Json = False) -> None:
    """List the clients' files and whether the swarm is in them.

    Exit code: 0.
    """
    rows = [_state(place) for place in _places()]
    if as_json:
        show_json(rows)
    else:
        show_rows(rows, ("client", "scope", "state", "path", "command"))


def _state(place: Place) -> dict[str, Any]:
    from agentwire.mcp import clients as mcp_clients

    row: dict[str, Any] = {"client": place.client, "scope": place.scope, "path": str(place.path), "command": ""}
    try:
        found = mcp_clients.entry(place, mcp_clients.read(place))
    except ConfigInvalid as error:
        return {**row, "state": "invalid", "problem": error.message}
    if found is None:
        return {**row, "state": "absent" if place.path.exists() else "no file"}
    command = str(found.get("command", ""))
    words = " ".join([command, *map(str, found.get("args", []))])
    return {**row, "command": words, "state": "installed" if shutil.which(command) else "broken"}


def _places() -> list[Place]:
    from agentwire.mcp import clients as mcp_clients
    from ccswarm.config import config

    return mcp_clients.places("ccswarm", Path.home(), Path.cwd(), config.server_environment())


def _place(client: str, scope: str) -> Place:
    if client not in CLIENTS:
        raise UsageInvalid(f"no client {client!r}", suggestion=f"use one of: {', '.join(CLIENTS)}")
    scopes = {place.scope: place for place in _places() if place.client == client}
    if scope not in scopes:
        raise UsageInvalid(f"{client} has no scope {scope!r}", suggestion=f"use one of: {', '.join(scopes)}")
    return scopes[scope]


def _launch_line(client: str, config: Path | None, workspace: Path | None) -> tuple[str, list[str]]:
    """An absolute command: desktop clients start servers with hardly any PATH, and in a directory of their own."""
    from agentwire.system import program_path
    from ccswarm.config import config as files

    here = Path.cwd()
    if workspace is None and client == DESKTOP and not Path.home().resolve().is_relative_to(here):
        workspace = here
    words = list(SERVE)
    if config is None and workspace is not None and (workspace / "ccswarm.toml").exists():
        config = workspace / "ccswarm.toml"
    words += ["--config", str(config.absolute())] if config else []
    words += ["--workspace", str(workspace.resolve())] if workspace else []
    # Not where agents leave programs, but where this one lies, which runs already.
    places = (program_path.environment(files.server_environment())["PATH"], os.path.dirname(sys.executable))
    if found := shutil.which("ccswarm", path=os.pathsep.join(places)):
        return str(Path(found).absolute()), words
    return sys.executable, ["-P", "-m", "ccswarm", *words]


def _change(place: Place, before: str, after: str, dry_run: bool, as_json: bool) -> None:
    """Write ``after``, or show how it differs."""
    changed, path = after != before, str(place.path)
    backup = _write(place.path.resolve(), after) if changed and not dry_run else ""
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), path, path)
    diff = "".join(line if line.endswith("\n") else line + "\n" for line in lines)
    if as_json:
        show_json({"client": place.client, "path": path, "changed": changed, "backup": backup, "diff": diff})
    elif dry_run:
        show_text(diff or f"{path} stays as it is\n")
    else:
        show_text(f"{'changed' if changed else 'unchanged'}\t{path}\n")
        if backup:
            say(f"The file as it was: {backup}")
        if changed:
            say(f"Restart {place.client} to see it.")


def _write(path: Path, text: str) -> str:
    """Replace the file in one step, with the mode it had; the old one is kept, its path returned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = path.with_name(path.name + ".before-ccswarm") if path.exists() else None
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
