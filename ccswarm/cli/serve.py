"""The verb serve: the swarm for programs that connect to an address, in one dialect or several at once."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentwire.cli.output import remark
from agentwire.visible import visible
from ccswarm.cli.parameters import Config, load, with_agents
from ccswarm.config import starters
from ccswarm.errors import UsageInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ccswarm.config.settings import Settings
    from ccswarm.servers.base import Dialect, Listening, ServerOptions

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(
    dialect: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DIALECT]…", help="Other dialects, such as those of other distributions; on --port."),
    ] = None,
    tcp: Annotated[bool, typer.Option("--tcp", help="VisionFlow: JSON-RPC, one message per line, port 9500.")] = False,
    a2a: Annotated[bool, typer.Option("--a2a", help="A2A, and AgentVault's profile of it: HTTP, port 41241.")] = False,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that other machines can reach needs a token.")
    ] = "",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on, instead of the default; 0: any free one.")
    ] = None,
    tcp_port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of --tcp if both are served.")] = None,
    a2a_port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of --a2a if both are served.")] = None,
    connections: Annotated[
        int, typer.Option(min=1, max=100_000, help="Maximum number of connections at the same time.")
    ] = 50,
    requests: Annotated[
        float, typer.Option(min=0, help="Maximum number of requests per second from one address; 0: no limit.")
    ] = 100.0,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Require no token: every user of this machine can act as you.")
    ] = False,
    agent: Annotated[str, typer.Option("--agent", "-a", help="Agent whose tools AgentVault's clients call.")] = "",
    config: Config = None,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-w", help="Directory to work in; clients cannot leave it.")
    ] = None,
) -> None:
    """Serve the swarm to other programs, until SIGTERM or Ctrl-C, in one dialect or in several at once.

    Runs are carried out by this process; what is unfinished when it ends is handed back, and continues with the next
    worker. Programs of the user who starts it need no token; those of other users need the one that ccswarm token
    shows, and so do all programs if the system does not report their user. Tokens of your own are read from the
    environment only; then every program needs one.

    Exit codes: 0 ended on request, 1 the address or the store cannot be used, 2 wrong usage or configuration, 5 the
    configuration changed since a person used it and nobody agreed.
    """
    from ccswarm.servers.base import Listening, ServerOptions

    requested = {"visionflow": (tcp, tcp_port), "a2a": (a2a, a2a_port)}
    ports = {name: own for name, (wanted, own) in requested.items() if wanted or name in (dialect or ())}
    ports |= {name: None for name in dialect or () if name not in requested}
    if not ports:
        raise UsageInvalid("no dialect to serve was given", suggestion="ccswarm serve --tcp, or --a2a, or both")
    if port is not None and sum(own is None for own in ports.values()) > 1:
        raise UsageInvalid(
            "--port is ambiguous with several dialects",
            suggestion="use --tcp-port and --a2a-port, and --port for at most one other dialect",
        )
    chosen = {
        name: Listening(host, port if own is None else own, connections, requests, no_auth)
        for name, own in ports.items()
    }
    if workspace and not workspace.is_dir():
        raise UsageInvalid(f"the workspace {workspace} is not a directory", suggestion="create it, or use another one")
    types = tuple(starters.agents_for("visionflow" if "visionflow" in ports else "a2a"))
    options = ServerOptions(config and config.absolute(), workspace and workspace.resolve(), agent, types=types)
    loaded = load(options.config, executes=True, workspace=options.workspace)
    from agentwire import plugins
    from ccswarm.config import config as files

    environ, settings = files.server_environment(), loaded.settings
    dialects: dict[str, Dialect] = {name: plugins.load("ccswarm.servers", name) for name in chosen}
    if unsuitable := [name for name, one in dialects.items() if getattr(one, "serve", None) is None]:
        raise UsageInvalid(
            f"{unsuitable[0]} does not listen on a port", suggestion="ccswarm serve --tcp, or --a2a, or both"
        )
    for one in dialects.values():
        settings = one.settings(settings, environ)
    settings = _with_agents(settings, with_agents(loaded, types).settings)
    asyncio.run(_serve(options, settings, chosen, dialects))


def _with_agents(settings: Settings, defaults: Settings) -> Settings:
    """Return ``settings`` with the default servers and agents, next to those that variables name."""
    names = {server.name for server in settings.mcp.servers}
    more = [server for server in defaults.mcp.servers if server.name not in names]
    mcp = settings.mcp.model_copy(update={"servers": (*settings.mcp.servers, *more)})
    return settings.model_copy(update={"mcp": mcp, "agents": settings.agents or defaults.agents})


async def _serve(
    options: ServerOptions, settings: Settings, chosen: Mapping[str, Listening], dialects: Mapping[str, Dialect]
) -> None:
    from agentwire.http.access_token import AccessToken
    from ccswarm.cli.worker import execution_reports
    from ccswarm.config import config
    from ccswarm.runs import app
    from ccswarm.servers.base import ServeContext

    # A configured name is that of `ccswarm worker`.
    engine = settings.engine.model_copy(update={"worker_id": ""})
    settings = settings.model_copy(update={"engine": engine})
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    environ = config.server_environment()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.set)

    def tell(message: str) -> None:
        remark(visible(message))

    def report(event: str, message: str, **facts: Any) -> None:
        tell(message)

    with execution_reports(report):
        async with app.working(settings, config.state_directory(), environ, on_swept=lambda _: None) as opened:
            token = AccessToken(opened.state_directory, "ccswarm_")
            context = ServeContext(options, opened, environ, tell, token, sys.stderr.isatty())
            servings = [dialects[name].serve(context, at, stop) for name, at in chosen.items()]
            served = [asyncio.create_task(one) for one in servings]
            try:
                await asyncio.gather(*served)
            finally:
                stop.set()
                for number in SIGNALS:
                    loop.remove_signal_handler(number)  # a second one ends the process at once
                await asyncio.gather(*served, return_exceptions=True)
