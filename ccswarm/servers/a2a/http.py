"""HTTP for A2A's routes: authentication and limits, responses and streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    MutableMapping,
)
from typing import TYPE_CHECKING, Any, NoReturn, cast

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from agentwire.http.connections import MAX_HEAD_BYTES, StrictProtocol, peer_of
from agentwire.http.wire import Site, tokens_in
from ccswarm.servers._rate_limit import Rates
from ccswarm.servers.base import Admission

if TYPE_CHECKING:
    import socket

MOST_BODY_BYTES = 1 << 20
MOST_DEPTH = 100
"""The maximal nesting of values."""
HEAD_SECONDS = 10.0
"""The time for the headers of a request, and for the rest of one that was answered already."""
BODY_SECONDS = 30.0
IDLE_SECONDS = 60
HEARTBEAT_SECONDS = 15.0
"""The silence in a stream after which a comment shows that it is alive."""
LEAVE_SECONDS = 3

UNKNOWN_SHARE = 2
"""Unauthenticated clients may have one in this many connections."""

UNKNOWN_ADVICE = (
    "send the token of this server as Authorization: Bearer or as X-Api-Key; the user who started it"
    " gets it with: ccswarm token"
)
HOST_ADVICE = "add its other names to a2a.allowed_hosts in the server's configuration"
FULL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger(__name__)


class Unreadable(Exception):
    """A body that is not JSON, or too large, or too slow. ``status`` is HTTP's."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


async def read_json(request: Request) -> Any:
    """Return the body's JSON value, with integers of any size. Raises Unreadable."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BODY_BYTES:
                    raise Unreadable(413, f"more than {MOST_BODY_BYTES} bytes")
    except TimeoutError:
        raise Unreadable(408, f"not received within {BODY_SECONDS:g} s") from None
    except ClientDisconnect:
        raise Unreadable(400, "the client is gone") from None
    try:
        message = json.loads(body.decode(), parse_constant=_refuse, parse_float=_finite)
        if b"\\ud" in body or b"\\uD" in body:
            to_bytes(message, errors="strict")
    except RecursionError:
        raise Unreadable(400, "nested too deeply") from None
    except ValueError as problem:
        problem_text = "not UTF-8" if isinstance(problem, UnicodeError) else str(problem).partition(":")[0]
        raise Unreadable(400, problem_text) from None
    if is_deep(message):
        raise Unreadable(400, "nested too deeply")
    return message


def is_deep(value: Any) -> bool:
    """Report whether values are nested more deeply than allowed."""
    level: list[Any] = [value]
    for _ in range(MOST_DEPTH):
        objects = [cast("dict[str, Any]", one) for one in level if isinstance(one, dict)]
        lists = [cast("list[Any]", one) for one in level if isinstance(one, list)]
        level = [inner for one in objects for inner in one.values()] + [inner for one in lists for inner in one]
        if not level:
            return False
    return True


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return number


def to_bytes(value: Any, errors: str = "replace") -> bytes:
    """Return compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors=errors)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response. If the request was not read completely, the connection ends."""
    ends = {"Connection": "close"} if status in (408, 413) else {}
    return Response(to_bytes(value), status, {**(headers or {}), **ends}, media_type="application/json")


def stream_response(events: AsyncGenerator[tuple[str, Any]], heartbeat_seconds: float = HEARTBEAT_SECONDS) -> Response:
    """Return a stream of server-sent events from pairs of name, which may be empty, and JSON value. A client that has
    disconnected is noticed when writing; then ``events`` is closed."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(events, heartbeat_seconds), headers=headers, media_type="text/event-stream")


async def _events(events: AsyncGenerator[tuple[str, Any]], heartbeat_seconds: float) -> AsyncIterator[bytes]:
    following = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            done, _ = await asyncio.wait([following], timeout=heartbeat_seconds)
            if not done:
                yield b": here\n\n"
                continue
            if (event := following.result()) is None:
                return
            name, value = event
            yield (f"event: {name}\n".encode() if name else b"") + b"data: " + to_bytes(value) + b"\n\n"
            following = asyncio.ensure_future(anext(events, None))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await events.aclose()


class Guard:
    """The checks before any route: whether a request with such a header may be answered (see Site), whether its address
    sends too many (429), and whether it has a token if it needs one (401). The scope's ``caller`` is that of the token,
    empty for this user; None is an unknown one, who only reaches ``open_paths``. ``free``: the caller needs no
    token."""

    def __init__(
        self, app: Asgi, *, site: Site, admission: Admission, open_paths: Collection[str], requests: float
    ) -> None:
        self._app = app
        self._site = site
        self._admission = admission
        self._open = open_paths
        self._rates = Rates(requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal_of(scope) if scope["type"] == "http" else None
        await (refused or self._app)(scope, receive, send)

    def _refusal_of(self, scope: Scope) -> Response | None:
        if refusal := self._site.refusal(scope):
            return _refusal(refusal.status, refusal.why, HOST_ADVICE if refusal.status == 421 else "")
        address = str((scope.get("client") or ("?",))[0])
        if not self._rates.take(address, asyncio.get_running_loop().time()):
            return _refusal(429, "Rate limit exceeded", headers={"Retry-After": "1"})
        shown = tokens_in(scope["headers"])
        scope["free"] = self._admission.is_free(peer_of(scope))
        scope["caller"] = "" if scope["free"] else self._admission.caller(shown)
        if scope["caller"] is None and scope["path"] not in self._open:
            return _refusal(401, "Authentication required", UNKNOWN_ADVICE, {"WWW-Authenticate": "Bearer"})
        return None


def _refusal(status: int, words: str, advice: str = "", headers: dict[str, str] | None = None) -> Response:
    error: dict[str, Any] = {"code": -32000, "message": words}
    if advice:
        error["data"] = {"message": advice}
    body = {"jsonrpc": "2.0", "id": None, "error": error}
    return json_response(body, status, {**(headers or {}), "Connection": "close"})


class LimitedProtocol(StrictProtocol):
    """A connection with a time limit for each request, also for its rest after the response. Their number is limited,
    that of unauthenticated clients to half as many."""

    most = 0
    seconds = HEAD_SECONDS
    admission = Admission()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late: asyncio.TimerHandle | None = None
        self._update_time_limit()
        if len(self.connections) > self.most or not self._has_room():
            transport.write(FULL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_time_limit(off=True)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_time_limit()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_time_limit()

    def _has_room(self) -> bool:
        """Report whether the connection is within the limits; programs without a token have fewer."""
        if self.admission.named or self.admission.is_free(self.peer):
            return True
        others = cast("set[LimitedProtocol]", self.connections) - {self}
        unknown = sum(not self.admission.is_free(one.peer) for one in others)
        return unknown < max(1, self.most // UNKNOWN_SHARE)

    def _update_time_limit(self) -> None:
        """Start or stop the time limit. Between requests, uvicorn's limit applies, and within a complete one that of
        its route."""
        cycle: Any = self.cycle  # None before the first request
        begun = bool(self.conn.trailing_data[0])
        owes = cycle is None or (cycle.response_complete and (begun or cycle.more_body))
        self._set_time_limit(off=not owes or self.transport.is_closing())

    def _set_time_limit(self, *, off: bool) -> None:
        if off and self._late:
            self._late.cancel()
            self._late = None
        elif not off and not self._late:
            self._late = self.loop.call_later(self.seconds, self.transport.close)


class Server(uvicorn.Server):
    """An HTTP server on a bound socket, until ``stop`` is set; then ``leave`` is awaited, which ends all streams.
    ``ready`` is called when it listens."""

    def __init__(
        self,
        app: Asgi,
        listener: socket.socket,
        stop: asyncio.Event,
        *,
        admission: Admission,
        most: int,
        ready: Callable[[], None],
        leave: Callable[[], Awaitable[None]],
        head_seconds: float = HEAD_SECONDS,
    ) -> None:
        kind = type(
            "LimitedConnection", (LimitedProtocol,), {"most": most, "seconds": head_seconds, "admission": admission}
        )
        config = uvicorn.Config(
            app,
            http=kind,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=LEAVE_SECONDS,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        super().__init__(config)
        config.load()
        self._listener = listener
        self._stop = stop
        self._ready = ready
        self._leave = leave

    async def run_until_stopped(self) -> None:
        """Serve until ``stop`` is set."""
        await self.serve(sockets=[self._listener])

    async def main_loop(self) -> None:
        """Wait for ``stop``: uvicorn's main loop without its one-second tick."""
        self._ready()
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down like uvicorn, after work in progress had its time."""
        for server in self.servers:
            server.close()
        await self._leave()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Do nothing: signals belong to the process, which has other servers."""
        yield
