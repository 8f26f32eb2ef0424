"""The HTTP front's application: MCP at /mcp behind its checks, /health, and what signing in needs.

The checks of a request have this order, each with its status: can its head be parsed in only one way (400), is the name
in its Host ours (421), may the page it comes from use us (403), is its content type accepted (415), whose is its token
(401), has that user too many requests in progress (429), what does the protocol require (400, 404, 406, 413), does the
token allow it (403, once the gate has recorded the refusal).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from agentwire.http.wire import LOOPBACK_NAMES, Site, host_of
from ai_session.errors import AiSessionError
from ai_session.http.endpoints.mcp import ENDPOINT as MCP
from ai_session.http.gate_client import RemoteGate
from ai_session.http.guard import INVALID_REQUEST, Asgi, Protected, Receive, Scope, Send, Token, refusal
from ai_session.system.shares import share

if TYPE_CHECKING:
    from ai_session.config.settings import HttpSettings
    from ai_session.http.endpoints.mcp import McpHttp
    from ai_session.http.oauth.access import Access

MCP_PATH = "/mcp"
HEALTH_PATH = "/health"
STREAM_PATH = "/sse"
MESSAGES_PATH = "/messages/"
HEALTH_SECONDS = 5.0
HEARTBEAT_SECONDS = 10.0
PAGES, FORMS = ("/authorize",), ("/authorize", "/token", "/revoke")
"""The paths to which another site may send a person's browser, and those that accept forms."""
MCP_HEADERS = ("Mcp-Session-Id", "WWW-Authenticate")


class Tokens:
    """Tokens as the SDK verifies them and ``access`` challenges for them."""

    def __init__(self, mcp: McpHttp, access: Access) -> None:
        self._mcp = mcp
        self._access = access

    def token(self, scope: Scope) -> Token | None:
        """Return the verified token of the request, or None."""
        return self._mcp.token(scope)

    def subject(self, scope: Scope) -> str:
        """Return the subject the token was issued to."""
        return self._mcp.subject(scope)

    def insufficient_scope(self, required: str, granted: list[str]) -> str:
        """Return the value of ``WWW-Authenticate`` that requests the missing scopes."""
        return self._access.challenges.insufficient_scope(required, granted)


class Guard:
    """Refuses requests that must not be answered at all: see Site."""

    def __init__(self, app: Asgi, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._site.refusal(scope) if scope["type"] == "http" else None
        if refused:
            closing = {"Connection": "close"}
            await refusal(refused.status, INVALID_REQUEST, refused.why, headers=closing)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Application:
    """What a server runs."""

    asgi: Asgi
    listened_to: tuple[Callable[[], None], ...]

    def leave(self) -> None:
        """End the responses to which clients listen, because the server shuts down."""
        for end in self.listened_to:
            end()


def application(
    settings: HttpSettings,
    host: str,
    base_url: str,
    gate: RemoteGate,
    access: Access | None,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
    registry: Any | None = None,
) -> Application:
    """Return the application of a front that listens on ``host`` and is reached at ``base_url``.

    A ``registry`` of the SDK is served instead of the gate's tools. Without ``access``, no sign-in is required.
    """
    endpoint = MCP.endpoint(
        gate,
        max_body_bytes=settings.max_body_bytes,
        max_sessions=settings.max_connections,
        sessions_of_one=share(settings.max_connections, settings.max_user_sessions),
        messages_path=MESSAGES_PATH,
        heartbeat_seconds=heartbeat_seconds,
        registry=registry,
    )
    protected = protection(settings, access)
    streamable = protected(endpoint.streamable)
    routes = [Route(MCP_PATH, streamable)]
    if settings.legacy_sse:
        routes.append(Route(STREAM_PATH, protected(endpoint.stream), methods=["GET"]))
        routes.append(Route(MESSAGES_PATH, protected(endpoint.messages), methods=["POST"]))
    app = with_front(settings, host, base_url, gate, access, routes, endpoint.run)
    return Application(app, (endpoint.leave, streamable.leave))


def protection(
    settings: HttpSettings, access: Access | None, advice: str = "sign in first"
) -> Callable[[Asgi], Protected]:
    """Return a function that puts an application behind the checks of its requests."""
    tokens = Tokens(MCP, access) if access else None

    def protected(app: Asgi) -> Protected:
        return Protected(app, tokens, share(settings.max_connections, settings.max_requests), advice)

    return protected


def with_front(
    settings: HttpSettings,
    host: str,
    base_url: str,
    gate: RemoteGate,
    access: Access | None,
    routes: Sequence[Route],
    run: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    first: Sequence[Middleware] = (),
) -> Any:
    """Return ``routes`` with everything else a front has: host checks, /health, sign-in. They are served while ``run``
    is entered; ``first`` handles requests after the guard and before their tokens are verified."""

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
    middleware = [Middleware(Guard, site=site_of(settings, host, base_url)), *for_pages(settings), *first]
    if access:
        authentication = MCP.authentication(access)
        middleware.append(Middleware(AuthenticationMiddleware, backend=authentication))
    app: Any = Starlette(routes=[*own, *routes], middleware=middleware, lifespan=lifespan)
    if access:
        app = access.with_challenges(app)
    if settings.trusted_proxies:
        app = ProxyHeadersMiddleware(app, list(settings.trusted_proxies))
    return app


def for_pages(settings: HttpSettings) -> list[Middleware]:
    """Return the middleware that informs browsers which pages may use this server (CORS); none if no page may."""
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


def site_of(settings: HttpSettings, host: str, base_url: str) -> Site:
    """Return the names of the server, and which pages may use it."""
    names = (host, urlsplit(base_url).hostname or "", *settings.allowed_hosts)
    given = (f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name for name in names)
    own = frozenset((*LOOPBACK_NAMES, *map(host_of, given))) - {"", "0.0.0.0", "::"}  # noqa: S104 - nobody's name
    origins = frozenset(map(str.lower, (base_url, *settings.allowed_origins)))
    return Site(own, origins=origins, pages=PAGES, forms=FORMS)
