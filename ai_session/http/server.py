"""`ai-session mcp-server --http` or `serve`: the process between HTTP clients and the daemon. It holds no terminal."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn

from agentwire.http.connections import MAX_HEAD_BYTES
from agentwire.http.listening import SignalledServer, open_listener
from agentwire.system.peers import is_loopback
from ai_session.errors import ConfigInvalid, DaemonUnavailable
from ai_session.http.app import Application, application
from ai_session.http.connections import KEEP_ALIVE_SECONDS, ConnectionLimiter, LimitedProtocol, raise_limits
from ai_session.http.endpoints.base import Front, MakeEndpoint
from ai_session.http.endpoints.mcp import MCP_PATH, McpEndpoint
from ai_session.http.gate_client import RemoteGate

if TYPE_CHECKING:
    from ai_session.config.settings import HttpSettings

BACKLOG = 1024
HANDSHAKE_SECONDS = 10.0
LEAVE_SECONDS = 3
SPARE_DESCRIPTORS = 64

GetAccess = Callable[[str], Any]
"""Makes from the base URL what ``oauth.access`` returns: who may reach the front."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address at which a front listens and that of its clients. ``listener`` is already bound."""

    host: str
    base_url: str
    listener: socket.socket
    tls: ssl.SSLContext | None
    path: str = MCP_PATH

    @property
    def url(self) -> str:
        """The URL for the clients' configuration."""
        return self.base_url + self.path


def bind(settings: HttpSettings, *, authenticated: bool, path: str = MCP_PATH) -> ListenAddress:
    """Bind the configured address. Raises ConfigInvalid for one that would expose tokens, or everything."""
    host = settings.host
    loopback = is_loopback(host)
    public = settings.public_url.rstrip("/")
    if not authenticated and not (loopback and (not public or is_loopback(urlsplit(public).hostname or ""))):
        raise ConfigInvalid(
            f"without authentication {public or host} would let anybody who can reach it run commands",
            suggestion="listen on 127.0.0.1, or leave --no-auth out",
        )
    tls = make_tls(settings)
    if not loopback and not tls and not public:
        raise ConfigInvalid(
            f"on {host} tokens would pass over the network in the clear",
            suggestion="set http.tls_certificate, or http.public_url to the https:// address of the proxy in front",
        )
    listener = listen(host, settings.port)
    port: int = listener.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    base_url = public or f"{'https' if tls else 'http'}://{name}:{port}"
    return ListenAddress(host, base_url, listener, tls, path)


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket. Raises ConfigInvalid."""
    try:
        return open_listener(host, port)
    except OSError as error:
        raise ConfigInvalid(
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            suggestion="choose another port with --port",
        ) from None


def make_tls(settings: HttpSettings) -> ssl.SSLContext | None:
    """Return a TLS context with the configured certificate, or None without one. Raises ConfigInvalid."""
    if not settings.tls_certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigInvalid(
            f"the certificate {settings.tls_certificate} cannot be used: {error.strerror or error}",
            suggestion="http.tls_certificate and http.tls_key must name matching PEM files",
        ) from None
    return context


class HttpServer(SignalledServer):
    """Serves an application at an address, with a connection limiter, and ends on request within limited time."""

    def __init__(self, app: Application, address: ListenAddress, limiter: ConnectionLimiter) -> None:
        config = uvicorn.Config(
            app.asgi,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="on",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=LEAVE_SECONDS,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        super().__init__(config)
        self.limiter = limiter
        self._leave = app.leave
        self._address = address
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, at our address and with a limit on handshakes."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise DaemonUnavailable("the HTTP server cannot start", suggestion="see its output above")
        address = self._address
        server = await asyncio.get_running_loop().create_server(
            lambda: LimitedProtocol(self.limiter, self.config, self.server_state, self.lifespan.state),
            sock=address.listener,
            ssl=address.tls,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if address.tls else None,
            backlog=BACKLOG,
        )
        self.servers = [server]
        self.started = True
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, after subscribers have been notified."""
        self._leave()
        await super().shutdown(sockets)


async def serve(
    settings: HttpSettings,
    address: ListenAddress,
    get_access: GetAccess | None,
    ready: Callable[[HttpServer], None],
    make: MakeEndpoint = McpEndpoint,
    *,
    own_calls: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM. ``ready`` is called when clients are served. Without ``get_access``, no sign-in is
    required; with ``own_calls``, the application determines itself which requests are this user's own. Raises
    DaemonUnavailable, ConfigInvalid."""
    limit = min(settings.max_connections, max(8, raise_limits() - SPARE_DESCRIPTORS))
    if limit < settings.max_connections:
        log.warning("only %d connections at once: this process may not open more files (ulimit -n)", limit)
    gate = RemoteGate(authenticated=get_access is not None and not own_calls)
    access = await asyncio.to_thread(get_access, address.base_url) if get_access else None
    try:
        await gate.started()
        front = Front(settings, address.host, address.base_url, gate, access)
        server = HttpServer(application(front, make(front)), address, ConnectionLimiter(limit))
        serving = asyncio.create_task(server.serve())
        listening = asyncio.create_task(server.listening.wait())
        await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        if server.started:
            ready(server)
        await serving
    finally:
        address.listener.close()
        await gate.close()
        if access:
            await asyncio.to_thread(access.close)
