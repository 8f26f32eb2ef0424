"""The verb mcp-server: MCP for the client that starts it, or over HTTP for many."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from agentwire.cli.output import leave
from ai_session.client import relay
from ai_session.errors import InvalidArguments


def mcp_server(
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve on standard input and output (the default without --http).")
    ] = False,
    dialect: Annotated[
        Literal["auto", "mcp", "fluxloop"],
        typer.Option(help="What the client speaks; auto: what its first line shows."),
    ] = "auto",
    no_daemon: Annotated[
        bool, typer.Option("--no-daemon", help="Serve in this process; sessions end with it.")
    ] = False,
    http: Annotated[bool, typer.Option("--http", help="Serve many clients over HTTP instead, until ended.")] = False,
    host: Annotated[str | None, typer.Option(help="Address to listen on, with --http.", show_default=False)] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on, with --http.", show_default=False)] = None,
    no_auth: Annotated[
        bool,
        typer.Option("--no-auth", help="With --http: require no token; every user of this machine can act as you."),
    ] = False,
    legacy_sse: Annotated[
        bool, typer.Option("--legacy-sse", help="With --http: serve clients of 2024-11-05 too, at /sse.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Answer --query as FluxLoop does, and exit.")] = False,
    query: Annotated[
        str | None, typer.Option(help="With --once: a question about ai-session or ccswarm.", show_default=False)
    ] = None,
) -> None:
    """Serve MCP to the client that starts it, or over HTTP."""
    if once or query is not None:
        if query is None or not once:
            raise InvalidArguments("--once and --query must be given together")
        if http or no_daemon or dialect == "mcp":
            raise InvalidArguments("--once cannot be combined with --http, --no-daemon or --dialect mcp")
        from ai_session.cli import once as cli_once

        leave(cli_once.ask(query))
    if http:
        if stdio or no_daemon or dialect != "auto":
            raise InvalidArguments("--http cannot be combined with --stdio, --no-daemon or --dialect")
        from ai_session.cli import http as cli_http

        cli_http.serve({"http.host": host, "http.port": port, "http.legacy_sse": legacy_sse or None}, no_auth=no_auth)
        return
    if host is not None or port is not None or no_auth or legacy_sse:
        raise InvalidArguments(
            "--host, --port, --no-auth and --legacy-sse require --http", suggestion="ai-session mcp-server --http"
        )
    role = "fluxloop" if dialect == "fluxloop" else "mcp"
    more = ',"dialect":"mcp"' if dialect == "mcp" else ""
    if no_daemon:
        from ai_session.daemon import host as daemon

        daemon.serve_stdio(role=role, more=more)
    relay.main(role, more)
