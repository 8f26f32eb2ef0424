"""The HTTP front's application: its endpoint behind its checks, /health, and what signing in needs.

The checks of a request have this order, each with its status: can its head be parsed in only one way (400), is the name
in its Host ours (421), may the page it comes from use us (403), is its content type accepted (415), whose is its token
(401), has that user too many requests in progress (429), what does the protocol require (400, 404, 406, 413), does the
token allow it (403, once the gate has recorded the refusal).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
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
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from agentwire.http.wire import LOOPBACK_NAMES, Site, host_of
from ai_session.errors import AiSessionError
from ai_session.http.endpoints.base import Endpoint, Front
from ai_session.http.endpoints.tokens import authentication
from ai_session.http.guard import INVALID_REQUEST, Protected, refusal
from ai_session.system.shares import share

if TYPE_CHECKING:
    from ai_session.config.settings import HttpSettings

HEALTH_PATH = "/health"
HEALTH_SECONDS = 5.0
PAGES, FORMS = ("/authorize",), ("/authorize", "/token", "/revoke")
"""The paths to which another site may send a person's browser, and those that accept forms."""
MCP_HEADERS = ("Mcp-Session-Id", "WWW-Authenticate")


class Guard:
    """Refuses requests that must not be answered at all: see Site."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
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

    asgi: ASGIApp
    listened_to: tuple[Callable[[], None], ...]

    def leave(self) -> None:
        """End the responses to which clients listen, because the server shuts down."""
        for end in self.listened_to:
            end()


def application(front: Front, endpoint: Endpoint) -> Application:
    """Return the application of a front: what ``endpoint`` serves behind the checks of its requests, /health, and what
    signing in needs."""
    settings, access = front.settings, front.access

    async def health(request: Request) -> Response:
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                await front.gate.started()
        except (AiSessionError, TimeoutError):
            return JSONResponse({"status": "unavailable"}, 503)
        return JSONResponse({"status": "ok"})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with endpoint.run():
            yield

    challenges = access.challenges if access else None
    most = share(settings.max_connections, settings.max_requests)
    protected = [(one, Protected(one.app, challenges, most, endpoint.advice)) for one in endpoint.paths]
    routes = [Route(one.path, app, methods=list(one.methods) or None) for one, app in protected]
    own = [*(access.routes if access else ()), Route(HEALTH_PATH, health, methods=["GET"])]
    site = site_of(settings, front.host, front.base_url)
    middleware = [Middleware(Guard, site=site), *for_pages(settings), *endpoint.middleware]
    if access:
        middleware.append(Middleware(AuthenticationMiddleware, backend=authentication(access)))
    app: Any = Starlette(routes=[*own, *routes], middleware=middleware, lifespan=lifespan)
    if access:
        app = access.with_challenges(app)
    if settings.trusted_proxies:
        app = ProxyHeadersMiddleware(app, list(settings.trusted_proxies))
    return Application(app, (endpoint.leave, *(app.leave for _, app in protected)))


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
