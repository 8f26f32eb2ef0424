"""How many MCP sessions each user of a front may have open: a share of all, so that nobody is kept out by somebody.

Sessions belong to the handshakes before 2026-07-28. Clients seldom end theirs, so the one that was idle for longest
makes room for the next; its client is answered 404 then, upon which it shakes hands again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

BUSY = -32600


@dataclass(eq=False, slots=True)
class OpenSession:
    """A session, or a request that may open one. ``requests``: how many are under way in it."""

    subject: str
    scope: Scope
    session_id: str = ""
    requests: int = field(default=0)


class Shares:
    """The sessions of ``app``, which ends one upon DELETE; ``subject`` says whose request one is."""

    def __init__(self, app: Asgi, subject: Callable[[Scope], str], most: int, of_one: int) -> None:
        self._app = app
        self._subject = subject
        self._most = most
        self._of_one = of_one
        self._all: dict[OpenSession, None] = {}
        """The one that was used last comes last."""
        self._known: dict[str, OpenSession] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._all)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        subject = self._subject(scope)
        if headers.get(MCP_PROTOCOL_VERSION_HEADER, HANDSHAKE_PROTOCOL_VERSIONS[0]) not in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._app(scope, receive, send)
        elif session_id := headers.get(MCP_SESSION_ID_HEADER):
            held = self._known.get(session_id)
            if held is None or held.subject != subject:
                await self._app(scope, receive, send)
            else:
                await self._go_on(held, scope, receive, send)
        elif await self._make_room(subject):
            await self._begin(OpenSession(subject, scope), receive, send)
        else:
            await self._refusal()(scope, receive, send)

    async def _begin(self, held: OpenSession, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                held.session_id = Headers(raw=message["headers"]).get(MCP_SESSION_ID_HEADER, "")
                if held.session_id:
                    self._known[held.session_id] = held
            await send(message)

        with self._using(held):
            try:
                await self._app(held.scope, receive, note)
            finally:
                held.scope = _without_body(held.scope)
                if not held.session_id:
                    self._forget(held)

    async def _go_on(self, held: OpenSession, scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            ended = message["type"] == "http.response.start" and (
                message["status"] == 404 or (scope["method"] == "DELETE" and message["status"] < 400)
            )
            if ended:
                self._forget(held)
            await send(message)

        with self._using(held):
            await self._app(scope, receive, note)

    @contextmanager
    def _using(self, held: OpenSession) -> Generator[None]:
        held.requests += 1
        self._all.setdefault(held)
        try:
            yield
        finally:
            held.requests -= 1
            if held in self._all:
                del self._all[held]
                self._all[held] = None

    def _forget(self, held: OpenSession) -> None:
        self._all.pop(held, None)
        self._known.pop(held.session_id, None)

    async def _make_room(self, subject: str) -> bool:
        """Whether one more of this user may begin: an idle one ends for it, the longest idle of who has most."""
        while True:
            count: dict[str, int] = {}
            for held in self._all:
                count[held.subject] = count.get(held.subject, 0) + 1
            if count.get(subject, 0) >= self._of_one:
                count = {subject: self._of_one}
            elif len(self._all) < self._most:
                return True
            idle = [held for held in self._all if held.subject in count and not held.requests]
            longest = max(idle, key=lambda held: count[held.subject], default=None)  # of equal ones the first
            if longest is None:
                return False
            self._forget(longest)
            await self._app(_ending(longest), _nothing_more, _unheard)

    def _refusal(self) -> JSONResponse:
        message = (
            f"too many MCP sessions are in use at once, {self._of_one} of one user and {self._most} of all;"
            " end one with DELETE, or use MCP 2026-07-28, which has no sessions"
        )
        error = {"code": BUSY, "message": message, "data": {"retryAfterMs": 1000}}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 429, {"Retry-After": "1"})


def _without_body(scope: Scope) -> Scope:
    """What of a request is needed to speak for its user later."""
    kept = ("type", "asgi", "http_version", "scheme", "path", "raw_path", "root_path", "server", "user")
    return {name: scope[name] for name in kept if name in scope}


def _ending(held: OpenSession) -> Scope:
    headers = [(MCP_SESSION_ID_HEADER.encode(), held.session_id.encode())]
    return {**held.scope, "method": "DELETE", "query_string": b"", "headers": headers, "client": None}


async def _nothing_more() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unheard(message: Message) -> None:
    """Nobody waits for the answer."""
