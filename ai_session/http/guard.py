"""One request to a protected path, from its checks to the status of its response."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ai_session.http.endpoints.tokens import subject_of, token_of

if TYPE_CHECKING:
    from ai_session.http.oauth.challenges import Challenges

HOLD_SECONDS = 5.0
"""How long a stream's status waits for the gate's decision on the token's scopes, which precedes any execution."""

LEAST_SECONDS = 60.0
"""The least time for a request whose token is about to expire; no call takes longer."""

BUSY, INVALID_REQUEST = 429, -32600
OWN = "ai_session_own"
"""The key in a scope of a request that is this user's own and needs no token; servers read it by this name."""


@dataclass(frozen=True, slots=True)
class MissingScope:
    """A scope that the token of a request lacks, and the refusal of the request ``request_id``."""

    scope: str
    request_id: Any
    message: str


@dataclass(slots=True)
class Exchange:
    """What the endpoint reports about a request: calls to cancel with it, and the scope its token lacks."""

    waits: set[asyncio.Future[Any]] = field(default_factory=set[asyncio.Future[Any]])
    missing: MissingScope | None = None

    @classmethod
    def of(cls, scope: Scope) -> Exchange:
        """Return the exchange of a request, created at first use."""
        return scope.setdefault("ai_session", cls())


class Protected:
    """An application behind the checks of its requests. ``challenges`` is None if no sign-in is required; ``advice``
    is the message for a client that did not sign in."""

    def __init__(self, app: ASGIApp, challenges: Challenges | None, max_requests: int, advice: str) -> None:
        self._app = app
        self._challenges = challenges
        self._max_requests = max_requests
        self._advice = advice
        self._in_progress: Counter[str] = Counter()
        self._listening: set[asyncio.Timeout] = set()

    def leave(self) -> None:
        """End the responses to which clients only listen."""
        for listening in self._listening:
            listening.reschedule(asyncio.get_running_loop().time())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        subject = subject_of(scope)
        if self._challenges and token_of(scope) is None and not scope.get(OWN):
            answer = refusal(401, INVALID_REQUEST, self._advice, headers={"WWW-Authenticate": "Bearer"})
            await answer(scope, receive, send)
        elif self._in_progress[subject] >= self._max_requests:
            answer = refusal(429, BUSY, "too many requests in progress", {"retryAfterMs": 1000}, {"Retry-After": "1"})
            await answer(scope, receive, send)
        else:
            self._in_progress[subject] += 1
            try:
                await self._serve(scope, receive, send)
            finally:
                self._in_progress[subject] -= 1
                if not self._in_progress[subject]:
                    del self._in_progress[subject]

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = token_of(scope)
        exchange = Exchange.of(scope)
        answer = Answer(send, exchange, hold=token is not None and scope["method"] == "POST")
        left = token.expires_at - time.time() if token is not None and token.expires_at else None
        try:
            async with asyncio.timeout(None if left is None else max(left, LEAST_SECONDS)) as bound:
                listening = {bound} if scope["method"] == "GET" else set[asyncio.Timeout]()
                self._listening |= listening
                try:
                    await self._app(scope, receive, answer.send)
                finally:
                    self._listening -= listening
        except TimeoutError:
            await answer.cut()
        except ClientDisconnect:
            pass  # it disconnected before its request was complete
        finally:
            if not answer.complete:
                for wait in list(exchange.waits):
                    wait.cancel()
            answer.close()
        if answer.refused and self._challenges and token is not None and (missing := exchange.missing):
            challenge = self._challenges.insufficient_scope(missing.scope, list(token.scopes))
            headers, data = {"WWW-Authenticate": challenge}, {"required_scope": missing.scope}
            forbidden = refusal(403, INVALID_REQUEST, missing.message, data, headers, missing.request_id)
            await forbidden(scope, receive, send)


class Answer:
    """Sends a response, and holds back its status until it is known whether the token's scopes suffice."""

    def __init__(self, send: Send, exchange: Exchange, *, hold: bool) -> None:
        self._send = send
        self._exchange = exchange
        self._hold = hold
        self._held: Message | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._releasing: asyncio.Task[None] | None = None
        self._started = False
        self.complete = False
        self.refused = False
        """Whether nothing was sent, so that another response must be sent instead."""

    async def send(self, message: Message) -> None:
        """Send a message of the response, or hold back its head until its status is known."""
        if message["type"] == "http.response.start" and self._hold:
            self._held = message
            self._timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, self._release_soon)
            return
        if self._held and self._exchange.missing:
            self._held = None
            self.refused = True
        if self.refused:
            self.complete = self.complete or not message.get("more_body", False)
            return
        await self._release()
        self._started = True
        await self._send(message)
        if message["type"] == "http.response.body":
            self.complete = self.complete or not message.get("more_body", False)

    async def cut(self) -> None:
        """End a response that has begun."""
        if self._started and not self.complete and not self.refused:
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    def close(self) -> None:
        """Cancel what would still be sent."""
        for pending in (self._timer, self._releasing):
            if pending:
                pending.cancel()

    def _release_soon(self) -> None:
        self._releasing = asyncio.ensure_future(self._release())

    async def _release(self) -> None:
        held = self._held
        self._held = None
        if held:
            self._started = True
            await self._send(held)


def refusal(
    status: int,
    code: int,
    message: str,
    data: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    request_id: Any = None,
) -> Response:
    """Return a response with that status and a JSON-RPC error for clients that read the body."""
    error = {"code": code, "message": message} | ({"data": data} if data else {})
    body = {"jsonrpc": "2.0", "id": request_id, "error": error}
    return JSONResponse(body, status, headers)
