"""The verbs mcp install, uninstall and status, which register the swarm with MCP clients."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from agentwire.cli.client_files import DryRun, Scope, add, client_option, find_location, remove, show_states
from agentwire.cli.options import Group, Json, Option
from ccswarm.cli.parameters import Config
from ccswarm.errors import UsageInvalid

if TYPE_CHECKING:
    from agentwire.mcp.clients import ConfigLocation

SERVE = ("mcp-server", "--stdio")
DESKTOP = "claude-desktop"
"""This client starts its servers in /, so that the directory of the work must be given."""

app = Group("Set MCP clients up.")


ClientName = Annotated[str, client_option("--client")]


@app.command()
def install(
    client: ClientName,
    scope: Scope = "user",
    config: Config = None,
    workspace: Annotated[
        Path | None,
        Option("--workspace", "-w", help="Directory of the work; claude-desktop: this one by default."),
    ] = None,
    dry_run: DryRun = False,
    show: Annotated[bool, Option("--print", help="Print the entry, to be added by hand.")] = False,
    as_json: Json = False,
) -> None:
    """Add the swarm to a client's configuration; its other settings stay, and a backup is kept next to it.

    Exit codes: 0 it is there, 2 the client's file cannot be edited, or no such scope.
    """
    launch = _launch_line(client, config, workspace)
    location = find_location(_locations(), client, scope, UsageInvalid)
    add(location, launch, "start runs", show=show, dry_run=dry_run, as_json=as_json)


@app.command()
def uninstall(client: ClientName, scope: Scope = "user", dry_run: DryRun = False, as_json: Json = False) -> None:
    """Remove the swarm from a client's configuration.

    Exit codes: 0 it is not there any more, 2 the client's file cannot be edited, or no such scope.
    """
    location = find_location(_locations(), client, scope, UsageInvalid)
    remove(location, dry_run=dry_run, as_json=as_json)


@app.command()
def status(as_json: Json = False) -> None:
    """List the clients' files and whether they contain the swarm.

    Exit code: 0.
    """
    show_states(_locations(), as_json=as_json)


def _locations() -> list[ConfigLocation]:
    from agentwire.mcp import clients as mcp_clients
    from ccswarm.config import config

    return mcp_clients.locations("ccswarm", Path.home(), Path.cwd(), config.server_environment())


def _launch_line(client: str, config: Path | None, workspace: Path | None) -> tuple[str, list[str]]:
    """Return an absolute command and its arguments: desktop clients start servers with hardly any PATH, and in a
    directory of their own."""
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
    # The directories exclude those where agents write, and include that of this running program.
    directories = (program_path.environment(files.server_environment())["PATH"], os.path.dirname(sys.executable))
    if found := shutil.which("ccswarm", path=os.pathsep.join(directories)):
        return str(Path(found).absolute()), words
    return sys.executable, ["-P", "-m", "ccswarm", *words]
