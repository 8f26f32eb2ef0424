"""What the HTTP front answers where: MCP at /mcp behind its checks, /health, and what signing in needs.

The checks of a request come in this order, each with its status: is the name it calls us by ours (421), may the page
it comes from use us (403), whom does its token speak for (401), has that user too much under way (429), what does the
protocol say (400, 404, 406, 413), may the token do that (403, once the gate has recorded the refusal).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from ai_session import plugins
from ai_session.errors import AiSessionError
from ai_session.http_exchange import Asgi, Protected, Receive, Scope, Send, refusal

if TYPE_CHECKING:
    from ai_session.settings import HttpSettings

MCP_PATH, HEALTH_PATH, STREAM_PATH, MESSAGES_PATH = "/mcp", "/health", "/sse", "/messages/"
HEALTH_SECONDS = 5.0
HEARTBEAT_SECONDS = 10.0
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
MCP_HEADERS = ("Mcp-Session-Id", "WWW-Authenticate")


class Tokens:
    """Tokens as the SDK finds them and ``access`` challenges for them."""

    def __init__(self, mcp: Any, access: Any) -> None:
        self._mcp = mcp
        self._access = access

    def token(self, scope: Scope) -> Any:
        """As http_exchange.Tokens."""
        return self._mcp.token(scope)

    def subject(self, scope: Scope) -> str:
        """As http_exchange.Tokens."""
        return self._mcp.subject(scope)

    def insufficient_scope(self, required: str, granted: list[str]) -> str:
        """As http_exchange.Tokens."""
        return self._access.challenges.insufficient_scope(required, granted)


class OwnNames:
    """Requests that call this server by a name of its own: what keeps a web page from reaching it by rebinding its own
    name to this machine."""

    def __init__(self, app: Asgi, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and host_name(Headers(scope=scope).get("host", "")) not in self._names:
            await refusal(421, -32600, "this server is not called so")(scope, receive, send)
        else:
            await self._app(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Application:
    """What a server runs."""

    asgi: Any
    listened_to: tuple[Callable[[], None], ...]

    def leave(self) -> None:
        """The server begins to leave: what clients listen to ends in order."""
        for end in self.listened_to:
            end()


def application(
    settings: HttpSettings,
    host: str,
    base_url: str,
    gate: Any,
    access: Any | None,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
    registry: Any | None = None,
) -> Application:
    """The application of a front that listens on ``host`` and is found at ``base_url``.

    ``gate`` is a RemoteGate, a ``registry`` of the SDK is served instead of its tools; without ``access`` nobody has to
    sign in.
    """
    mcp = plugins.load("servers", "mcp_http")
    endpoint = mcp.endpoint(
        gate,
        max_body_bytes=settings.max_body_bytes,
        max_sessions=settings.max_connections,
        messages_path=MESSAGES_PATH,
        heartbeat_seconds=heartbeat_seconds,
        registry=registry,
    )
    protected = protection(settings, base_url, access, mcp.exchange)
    streamable = protected(endpoint.streamable)
    routes = [Route(MCP_PATH, streamable)]
    if settings.legacy_sse:
        routes.append(Route(STREAM_PATH, protected(endpoint.stream), methods=["GET"]))
        routes.append(Route(MESSAGES_PATH, protected(endpoint.messages), methods=["POST"]))
    app = framed(settings, host, base_url, gate, access, routes, endpoint.run)
    return Application(app, (endpoint.leave, streamable.leave))


def protection(settings: HttpSettings, base_url: str, access: Any | None, exchange: str) -> Callable[[Asgi], Protected]:
    """What puts an application behind the checks of its requests."""
    tokens = Tokens(plugins.load("servers", "mcp_http"), access) if access else None
    origins = frozenset(map(str.lower, (base_url, *settings.allowed_origins)))

    def protected(app: Asgi) -> Protected:
        return Protected(app, exchange, tokens, origins, settings.max_requests)

    return protected


def framed(
    settings: HttpSettings,
    host: str,
    base_url: str,
    gate: Any,
    access: Any | None,
    routes: Sequence[Route],
    run: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
) -> Any:
    """``routes`` with all that a front has besides: its names, /health, what signing in needs. They serve while ``run``
    is entered."""

    async def health(request: Request) -> Response:
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                await gate.started()
        except (AiSessionError, TimeoutError):
            return JSONResponse({"status": "unavailable"}, 503)
        return JSONResponse({"status": "ok"})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with run():
            yield

    own = [*(access.routes if access else ()), Route(HEALTH_PATH, health, methods=["GET"])]
    middleware = [Middleware(OwnNames, names=own_names(settings, host, base_url)), *for_pages(settings)]
    if access:
        authentication = plugins.load("servers", "mcp_http").authentication(access)
        middleware.append(Middleware(AuthenticationMiddleware, backend=authentication))
    app: Any = Starlette(routes=[*own, *routes], middleware=middleware, lifespan=lifespan)
    if access:
        app = access.around(app)
    if settings.trusted_proxies:
        app = ProxyHeadersMiddleware(app, list(settings.trusted_proxies))
    return app


def for_pages(settings: HttpSettings) -> list[Middleware]:
    """What tells browsers which pages may use this server; nothing where none may."""
    if not settings.allowed_origins:
        return []
    origins, methods = settings.allowed_origins, ("GET", "POST", "DELETE")
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=methods,
            allow_headers=("*",),
            expose_headers=MCP_HEADERS,
        )
    ]


def own_names(settings: HttpSettings, host: str, base_url: str) -> frozenset[str]:
    """What the server may be called by, without ports."""
    names = (*LOOPBACK_NAMES, host, urlsplit(base_url).hostname or "", *settings.allowed_hosts)
    return frozenset(host_name(name) for name in names) - {"", "0.0.0.0", "::"}  # noqa: S104 - nobody's name


def host_name(host: str) -> str:
    """The name or address in a Host header, in lower case; empty where there is none."""
    if "@" in host:
        return ""
    try:
        return urlsplit(f"//{host}" if host.count(":") < 2 or host.startswith("[") else f"//[{host}]").hostname or ""
    except ValueError:
        return ""
