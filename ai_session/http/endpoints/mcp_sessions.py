"""How many MCP sessions each user of a front may have open: a share of all, so that no user blocks another.

Sessions belong to the handshakes before 2026-07-28. Clients seldom end theirs, so the one that has been idle longest
makes room for the next; its client then gets a 404 and initializes again.
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
    """A session, or a request that may open one. ``requests`` is the number in progress in it."""

    subject: str
    scope: Scope
    session_id: str = ""
    requests: int = field(default=0)


class Shares:
    """The sessions of ``app``, which ends one upon DELETE; ``subject`` returns the user of a request."""

    def __init__(self, app: Asgi, subject: Callable[[Scope], str], most: int, of_one: int) -> None:
        self._app = app
        self._subject = subject
        self._most = most
        self._of_one = of_one
        self._all: dict[OpenSession, None] = {}
        """The most recently used one is last."""
        self._known: dict[str, OpenSession] = {}

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._all)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        subject = self._subject(scope)
        if headers.get(MCP_PROTOCOL_VERSION_HEADER, HANDSHAKE_PROTOCOL_VERSIONS[0]) not in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._app(scope, receive, send)
        elif session_id := headers.get(MCP_SESSION_ID_HEADER):
            session = self._known.get(session_id)
            if session is None or session.subject != subject:
                await self._app(scope, receive, send)
            else:
                await self._continue(session, scope, receive, send)
        elif await self._make_room(subject):
            await self._begin(OpenSession(subject, scope), receive, send)
        else:
            await self._refusal()(scope, receive, send)

    async def _begin(self, session: OpenSession, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                session.session_id = Headers(raw=message["headers"]).get(MCP_SESSION_ID_HEADER, "")
                if session.session_id:
                    self._known[session.session_id] = session
            await send(message)

        with self._using(session):
            try:
                await self._app(session.scope, receive, note)
            finally:
                session.scope = _without_body(session.scope)
                if not session.session_id:
                    self._forget(session)

    async def _continue(self, session: OpenSession, scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            ended = message["type"] == "http.response.start" and (
                message["status"] == 404 or (scope["method"] == "DELETE" and message["status"] < 400)
            )
            if ended:
                self._forget(session)
            await send(message)

        with self._using(session):
            await self._app(scope, receive, note)

    @contextmanager
    def _using(self, session: OpenSession) -> Generator[None]:
        session.requests += 1
        self._all.setdefault(session)
        try:
            yield
        finally:
            session.requests -= 1
            if session in self._all:
                del self._all[session]
                self._all[session] = None

    def _forget(self, session: OpenSession) -> None:
        self._all.pop(session, None)
        self._known.pop(session.session_id, None)

    async def _make_room(self, subject: str) -> bool:
        """Report whether this user may open one more. If necessary, an idle one of the user with most is ended."""
        while True:
            count: dict[str, int] = {}
            for session in self._all:
                count[session.subject] = count.get(session.subject, 0) + 1
            if count.get(subject, 0) >= self._of_one:
                count = {subject: self._of_one}
            elif len(self._all) < self._most:
                return True
            idle = [session for session in self._all if session.subject in count and not session.requests]
            longest = max(idle, key=lambda session: count[session.subject], default=None)  # the first of equal ones
            if longest is None:
                return False
            self._forget(longest)
            await self._app(_ending(longest), _nothing_more, _discard)

    def _refusal(self) -> JSONResponse:
        message = (
            f"too many MCP sessions are in use at once, {self._of_one} of one user and {self._most} of all;"
            " end one with DELETE, or use MCP 2026-07-28, which has no sessions"
        )
        error = {"code": BUSY, "message": message, "data": {"retryAfterMs": 1000}}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 429, {"Retry-After": "1"})


def _without_body(scope: Scope) -> Scope:
    """Return what is needed of a request to act for its user later."""
    names = ("type", "asgi", "http_version", "scheme", "path", "raw_path", "root_path", "server", "user")
    return {name: scope[name] for name in names if name in scope}


def _ending(session: OpenSession) -> Scope:
    headers = [(MCP_SESSION_ID_HEADER.encode(), session.session_id.encode())]
    return {**session.scope, "method": "DELETE", "query_string": b"", "headers": headers, "client": None}


async def _nothing_more() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _discard(message: Message) -> None:
    """Discard the answer."""
