"""The console's process: a listener on the loopback address, for programs of this user."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import uvicorn

from agentwire.http.connections import MAX_HEAD_BYTES, StrictProtocol
from agentwire.http.listening import SignalledServer, open_listener
from ai_session.errors import ConfigInvalid
from ai_session.http.console.app import Console, application
from ai_session.http.console.logins import Logins, Tab
from ai_session.http.console.runs import Runs

HOST = "127.0.0.1"
USUAL_PORT = 8768
LEAVE_SECONDS = 2
MAX_MESSAGE_BYTES = 1 << 20


class OwnProtocol(StrictProtocol):
    """A connection. If the system reports its user, another user's connection is closed before it is read. Each one
    except a WebSocket is closed after ``seconds``, so that slow clients do not hold resources."""

    seconds = 60.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.peer is not None and self.peer != os.getuid():
            transport.abort()
        self._limit = self.loop.call_later(self.seconds, self._expire)

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit.cancel()
        super().connection_lost(exc)

    def _expire(self) -> None:
        if self.transport.get_protocol() is self:
            self.transport.abort()


class Server(SignalledServer):
    """A server that calls ``ready`` when it listens."""

    ready: Callable[[], None] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then call ``ready``."""
        await super().startup(sockets)
        self.ready()


def listen(port: int | None) -> socket.socket:
    """Listen on ``port``; without it on the usual one, or any other if that is taken. Raises ConfigInvalid."""
    try:
        return open_listener(HOST, USUAL_PORT if port is None else port)
    except OSError as error:
        if port is None:
            return listen(0)
        reason = error.strerror or error
        raise ConfigInvalid(
            f"cannot listen on {HOST} port {port}: {reason}", suggestion="choose another port with --port"
        ) from None


async def serve(
    listener: socket.socket,
    *,
    read_only: bool,
    link_seconds: float,
    runs: Runs,
    ready: Callable[[Callable[[], str]], None],
    on_sign_in: Callable[[Tab], None],
) -> None:
    """Serve until SIGINT or SIGTERM, then end ``runs``, too. ``ready`` gets a function that returns links, each for one
    tab; ``on_sign_in`` is called with each tab that signs in."""
    logins = Logins(link_seconds)
    host = f"{HOST}:{listener.getsockname()[1]}"
    scopes = ("look",) if read_only else ("look", "type", "approve")
    config = uvicorn.Config(
        application(Console(logins, scopes, on_sign_in, runs), host),
        http=OwnProtocol,
        ws="wsproto",
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=LEAVE_SECONDS,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    server = Server(config)
    server.ready = lambda: ready(lambda: f"http://{host}/#k={logins.code()}")
    try:
        await server.serve(sockets=[listener])
    finally:
        listener.close()
        await runs.close()
