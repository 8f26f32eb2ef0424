"""The verb serve: tools for programs that connect to an address and do not use MCP."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentwire.cli.options import Json
from agentwire.cli.output import to_person
from ai_session.errors import InvalidArguments, SandboxRefused

if TYPE_CHECKING:
    from agentwire.http.access_token import AccessToken
    from ai_session.config.settings import Settings
    from ai_session.http.server import ListenAddress

RPC_PORT = 8766


def serve(
    rpc: Annotated[bool, typer.Option("--rpc", help="AgentVault: JSON-RPC over HTTP, tools as methods.")] = False,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default=False)] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = RPC_PORT,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Require no token: every user of this machine can act as you.")
    ] = False,
    workspace: Annotated[
        Path | None,
        typer.Option("--workspace", "-w", help="Directory of files and code, instead of the current one."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Serve files, Python and sessions to programs over HTTP until ended; sessions keep running.

    Programs of the user who starts it need no token. Those of other users, and all programs if the system does not
    report their user, send the token that ai-session token shows, or sign in. The other settings in [http] of the
    configuration apply as for mcp-server --http.

    Exit codes: 0 ended on request, 1 the address or the daemon cannot be used, 2 wrong usage or configuration.
    """
    if not rpc:
        raise InvalidArguments("no protocol to serve was given", suggestion="ai-session serve --rpc")
    from agentwire.http.access_token import AccessToken
    from ai_session.cli import http as cli_http
    from ai_session.config import config
    from ai_session.http.endpoints.rpc import RPC_PATH, RpcEndpoint

    settings = config.load(overrides={"http.host": host, "http.port": port})
    if workspace is not None:
        enter(workspace)
    root = root_of(settings, chosen=workspace is not None)

    runtime = config.runtime_directory(config.home_directory(), os.getuid())
    token = None if no_auth else AccessToken(runtime, "ai_session_")
    if token:
        token.make()

    def greet(address: ListenAddress) -> str:
        if as_json:
            return json.dumps(facts(address, root, token)) + "\n"
        return greeting(address, root, cli_http.NO_AUTH if token is None else token_note(settings, token))

    make = partial(RpcEndpoint, token=token)
    cli_http.run(settings, RPC_PATH, make, greet, no_auth=no_auth, own_calls=True)


def enter(workspace: Path) -> None:
    """Change to this server's workspace. Raises InvalidArguments."""
    try:
        os.chdir(workspace)
    except OSError as error:
        reason = error.strerror or "it cannot be entered"
        raise InvalidArguments(
            f"the workspace {str(workspace)!r} cannot be used: {reason}", suggestion="create it, or name another one"
        ) from None


def root_of(settings: Settings, *, chosen: bool) -> str:
    """Return the workspace, found as the daemon finds it. Raises SandboxRefused if a ``chosen`` one is unfit; otherwise
    DirectoryUnusable, SandboxRefused."""
    from ai_session.config import config
    from ai_session.sessions.workspaces import Workspaces

    home = config.home_directory()
    known = Workspaces(settings.sandbox.workspaces, str(home), [str(config.runtime_directory(home, os.getuid()))])
    here = os.getcwd()
    if chosen and (reason := known.unfit(here)):
        raise SandboxRefused(
            f"{here!r} cannot be a workspace: {reason}", suggestion="name the directory of one project"
        )
    return known.start_directory("", here).workspace


def facts(address: ListenAddress, root: str, token: AccessToken | None) -> dict[str, Any]:
    """Return what a program that started the server needs to know."""
    health = f"{address.base_url}/health"
    found = {"url": address.url, "health": health, "workspace": root, "authenticated": token is not None}
    return found if token is None else {**found, "token_file": str(token.file)}


def token_note(settings: Settings, token: AccessToken) -> str:
    """Return a sentence about who needs a token. The token itself is shown only once, when it was created, and only on
    a terminal: anything else may be a log."""
    from agentwire.system.peers import can_identify

    shown = f"Authorization: Bearer {token.read()}" if token.is_new and to_person() else "ai-session token shows it"
    if settings.http.public_url or settings.http.trusted_proxies:
        return f"Every client behind the proxy needs a token: {shown}."
    if not can_identify():
        return f"This system does not report which user connects, so every client needs a token: {shown}."
    return f"Your own programs need no token, all others do: {shown}."


def greeting(address: ListenAddress, root: str, access: str) -> str:
    """Return what the person who started the server needs to know."""
    servers = dict.fromkeys(("filesystem", "code", "session"), address.base_url)
    lines = [
        f"Serving AgentVault's tools at {address.url}",
        access,
        "Ctrl-C ends it; sessions keep running.",
        f"Files and code: {root}",
        "",
        f"proxy agent   MCP_SERVER_MAP='{json.dumps(servers)}'",
    ]
    return "\n".join(lines) + "\n"
