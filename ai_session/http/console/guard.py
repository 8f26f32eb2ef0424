"""The requests that reach the console: those of its own pages, by its one address, from this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from agentwire.http.wire import Headers, is_passed_on

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

EMPTY = [(b"content-length", b"0"), (b"connection", b"close")]


class Guard:
    """An application behind a filter. ``host`` is address and port; any other name, even ``localhost``, is refused,
    because a name can be made to mean another address while a page is open."""

    def __init__(self, app: Asgi, host: str) -> None:
        self._app = app
        self._host = host.encode()
        self._origin = b"http://" + self._host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = self._refusal(scope["type"], scope["headers"])
        if not status:
            await self._app(scope, receive, send)
            return
        kind = "websocket.http" if scope["type"] == "websocket" else "http"
        await send({"type": f"{kind}.response.start", "status": status, "headers": EMPTY})
        await send({"type": f"{kind}.response.body", "body": b""})

    def _refusal(self, kind: str, headers: Headers) -> int:
        given = dict(headers)
        origins = [value for name, value in headers if name == b"origin"]
        if [value for name, value in headers if name == b"host"] != [self._host]:
            return 421
        if is_passed_on(headers):
            return 403
        if (kind == "websocket" or origins) and origins != [self._origin]:
            return 403
        visited = (given.get(b"sec-fetch-mode"), given.get(b"sec-fetch-dest")) == (b"navigate", b"document")
        own = given.get(b"sec-fetch-site", b"same-origin") == b"same-origin"
        return 0 if own or visited else 403
