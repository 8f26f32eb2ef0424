"""Verbs that register ai-session with MCP clients: mcp install, uninstall, status."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from agentwire.cli.client_files import DryRun, Scope, add, client_option, find_location, remove, show_states
from agentwire.cli.options import Group, Json, Option
from ai_session.errors import InvalidArguments

if TYPE_CHECKING:
    from agentwire.mcp.clients import ConfigLocation

SERVE = ["mcp-server", "--stdio"]

app = Group("Set MCP clients up.")


Client = Annotated[str, client_option("--client", "-c")]


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
    """Add this server to a client's configuration; its other settings stay, and a backup is kept next to it."""
    launch = ("ai-session", SERVE) if relative else launch_line()
    location = find_location(all_locations(), client, scope, InvalidArguments)
    add(location, launch, "run commands", show=show, dry_run=dry_run, as_json=as_json)


@app.command()
def uninstall(client: Client, scope: Scope = "user", dry_run: DryRun = False, as_json: Json = False) -> None:
    """Remove this server from a client's configuration."""
    location = find_location(all_locations(), client, scope, InvalidArguments)
    remove(location, dry_run=dry_run, as_json=as_json)


@app.command()
def status(as_json: Json = False) -> None:
    """List the clients' files and whether this server is in them."""
    show_states(all_locations(), as_json=as_json)


def all_locations() -> list[ConfigLocation]:
    """Return where this user's clients, in this directory, configure their servers."""
    from agentwire.mcp import clients as mcp_clients
    from ai_session.config import config

    return mcp_clients.locations("ai-session", config.home_directory(), Path.cwd(), config.environment())


def launch_line() -> tuple[str, list[str]]:
    """Return an absolute command: desktop clients start servers with hardly any PATH."""
    from ai_session.config import config

    found = shutil.which("ai-session", path=os.pathsep.join((config.outside_path(), os.path.dirname(sys.executable))))
    if found:
        return str(Path(found).absolute()), SERVE
    return sys.executable, ["-P", "-m", "ai_session", *SERVE]
