"""The verb mcp-server: the swarm, or one agent's tools, for MCP clients."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from agentwire.cli.output import leave
from ccswarm.cli.parameters import Config, report_first_use
from ccswarm.errors import UsageInvalid

OFF = ("", "0", "false", "no", "off")


def mcp_server(
    stdio: Annotated[bool, typer.Option("--stdio", help="Speak MCP on standard input and output.")] = False,
    config: Config = None,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-w", help="Directory to work in; clients cannot leave it.")
    ] = None,
    agent: Annotated[str, typer.Option("--agent", metavar="NAME", help="Offer only this agent's tools.")] = "",
    runs_only: Annotated[
        bool,
        typer.Option("--runs-only", help="Offer only the tools for runs, not those that analyze and plan projects."),
    ] = False,
    debug: Annotated[str, typer.Option(envvar="ORCHESTRE_DEBUG", hidden=True)] = "",
) -> None:
    """Serve the swarm to an MCP client, which starts and ends this: runs are started, followed and read.

    Runs are carried out by this process. When the client disconnects, they continue if a worker is running, else they
    are paused.

    Exit codes: 0 the client left, 1 it could not be served, 2 wrong usage or configuration, or no such agent, 5 the
    configuration changed since a person used it and nobody agreed (only with --agent).
    """
    from agentwire import plugins
    from ccswarm.config import trust
    from ccswarm.config.programs import commands_in, tables_in
    from ccswarm.servers.base import ServerOptions

    if not stdio:
        raise UsageInvalid("--stdio is required: it is the only transport", suggestion="ccswarm mcp-server --stdio")
    if workspace and not workspace.is_dir():
        raise UsageInvalid(f"the workspace {workspace} is not a directory", suggestion="create it, or use another one")
    where = (config and config.absolute(), workspace and workspace.resolve())
    options = ServerOptions(*where, agent, trace=debug.lower() not in OFF, runs_only=runs_only)
    # Before the first response to the client: after that its agents may write where the configuration is.
    begun = trust.remember_now(options.config, workspace=options.workspace)
    if begun:
        report_first_use(begun.path, [shlex.join(one.words) for one in commands_in(tables_in(begun.data))])
    leave(plugins.load("ccswarm.servers", "guest" if agent else "mcp").main(options))
