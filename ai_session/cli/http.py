"""`ai-session mcp-server --http`: starts the HTTP server, and prints its address and how to configure clients.

`ai-session serve` also starts its HTTP server here.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ai_session.cli.output import write_error_text, write_text

if TYPE_CHECKING:
    from ai_session.config.settings import Settings
    from ai_session.http.endpoints.base import MakeEndpoint
    from ai_session.http.server import HttpServer, ListenAddress

NOISY = (
    "uvicorn.error",
    "mcp.server.auth",
    "mcp.server.streamable_http_manager",
    "mcp.server.sse",
    "mcp.server.runner",
)

NO_AUTH = "No token is required (--no-auth): every user of this machine can run commands as you."

log = logging.getLogger(__name__)


def serve(flags: Mapping[str, Any], *, no_auth: bool) -> None:
    """Serve MCP until Ctrl-C or SIGTERM. Raises ConfigInvalid, DaemonUnavailable."""
    from ai_session.config import config
    from ai_session.http.endpoints.mcp import MCP_PATH, McpEndpoint

    settings = config.load(overrides=flags)
    run(settings, MCP_PATH, McpEndpoint, lambda address: greeting(address, settings, no_auth=no_auth), no_auth=no_auth)


def run(
    settings: Settings,
    path: str,
    make: MakeEndpoint,
    greet: Callable[[ListenAddress], str],
    *,
    no_auth: bool,
    own_calls: bool = False,
) -> None:
    """Serve the application that ``make`` returns at ``path``, and print what ``greet`` returns once clients are
    answered. ``own_calls`` is that of http.server.serve."""
    from ai_session.http import server

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in NOISY:  # anyone who can reach the port could fill the disk with their warnings
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("mcp.server.streamable_http").addFilter(is_not_disconnect)
    address = server.bind(settings.http, authenticated=not no_auth, path=path)

    def get_access(base_url: str) -> Any:
        return access(settings, base_url, path)

    def ready(front: HttpServer) -> None:
        write_text(greet(address))

    serving = server.serve(settings.http, address, None if no_auth else get_access, ready, make, own_calls=own_calls)
    asyncio.run(serving)


def is_not_disconnect(record: logging.LogRecord) -> bool:
    """Report whether the record is about more than a client that disconnected."""
    return not (record.exc_info and type(record.exc_info[1]).__name__ == "ClientDisconnect")


def access(settings: Settings, base_url: str, path: str) -> Any:
    """Return who may use what the server at ``base_url`` serves at ``path``."""
    from ai_session.config import config
    from ai_session.http.oauth import access as oauth
    from ai_session.http.oauth.fetch import Fetcher

    dependencies = oauth.OAuthDependencies(
        directory=config.runtime_directory(config.home_directory(), os.getuid()),
        variables=config.environment(),
        event=note,
        announce=lambda line: write_error_text(f"{line}\n"),
        fetcher=Fetcher(),
    )
    return oauth.access(settings.oauth, base_url, dependencies, path)


def note(name: str, facts: Mapping[str, Any]) -> None:
    """Log an event about tokens; it never contains a secret."""
    log.warning("%s %s", name, json.dumps(dict(facts), default=str))


def greeting(address: ListenAddress, settings: Settings, *, no_auth: bool) -> str:
    """Return what the person who started the server needs to know."""
    entry = {"mcpServers": {"ai-session": {"type": "http", "url": address.url}}}
    signing = NO_AUTH if no_auth else "Clients sign in on their first use."
    lines = [
        f"Serving MCP at {address.url}",
        f"{signing} Ctrl-C ends it; sessions keep running.",
        "",
        f"Claude Code   claude mcp add --transport http ai-session {address.url}",
        f"Codex         codex mcp add ai-session --url {address.url}",
        f"others        {json.dumps(entry)}",
    ]
    if settings.http.legacy_sse:
        lines.append(f"of 2024       {address.base_url}/sse")
    return "\n".join(lines) + "\n"
