"""Connections of the HTTP front: how many there may be, and how long each may take to send its request.

A client that connects and sends nothing, or one byte a second, uses only a descriptor: at the limit of connections, the
one that has been silent for longest is closed for the next.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from agentwire.http.connections import StrictProtocol

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

HEAD_SECONDS = 10.0
"""The time from the first byte of a request, or the connection's beginning, to the end of its headers."""

BODY_SECONDS = 60.0
REST_SECONDS = 2.0
"""How long what a client still sends after its response is read and dropped."""

KEEP_ALIVE_SECONDS = 60

TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
FULL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"

Expected = Literal["", "head", "body", "rest"]
ALLOWED_SECONDS: Mapping[Expected, float] = {"head": HEAD_SECONDS, "body": BODY_SECONDS, "rest": REST_SECONDS}


class ConnectionLimiter:
    """Accepts connections, up to ``limit``, and limits how long they may take."""

    def __init__(self, limit: int, seconds: Mapping[Expected, float] = ALLOWED_SECONDS) -> None:
        self._limit = limit
        self.seconds = seconds
        self._all: set[LimitedProtocol] = set()
        self._silent: dict[LimitedProtocol, None] = {}

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._all)

    def enter(self, connection: LimitedProtocol) -> bool:
        """Report whether a new connection may stay; if necessary, the longest silent one is closed."""
        while len(self._all) >= self._limit:
            silent = next(iter(self._silent), None)
            if silent is None:
                return False
            silent.close_silent()
        self._all.add(connection)
        self._silent[connection] = None
        return True

    def leave(self, connection: LimitedProtocol) -> None:
        """Remove a closed connection."""
        self._all.discard(connection)
        self._silent.pop(connection, None)

    def note(self, connection: LimitedProtocol, *, silent: bool) -> None:
        """Record whether the client is silent or the server is working."""
        if not silent:
            self._silent.pop(connection, None)
        elif connection in self._all and connection not in self._silent:
            self._silent[connection] = None


class LimitedProtocol(StrictProtocol):
    """One connection of an HTTP client."""

    def __init__(
        self, limiter: ConnectionLimiter, config: Config, state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, state, app_state)
        self._limiter = limiter
        self._expected: Expected = ""
        self._begun = False
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._limiter.enter(self):
            self._expect("head")
        else:
            transport.write(FULL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limiter.leave(self)
        self._expect("")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._expected == "":
            self._begun = False
        self._begun = self._begun or bool(data)
        super().data_received(data)
        self._update()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._begun = bool(self.conn.trailing_data[0])
        self._update()

    def close_silent(self) -> None:
        """Close the connection without a response, to make room for another."""
        self._limiter.leave(self)
        self.transport.abort()

    def _update(self) -> None:
        """Determine what the client must send now. Between two requests it may be silent as long as uvicorn allows."""
        cycle: Any = self.cycle  # None before the first request
        if self.transport.is_closing():
            self._expect("", silent=True)  # the client may never read what is still buffered
        elif cycle is None:
            self._expect("head")
        elif cycle.more_body:
            self._expect("rest" if cycle.response_complete else "body")
        elif cycle.response_complete:
            self._expect("head" if self._begun else "", silent=True)
        else:
            self._expect("")

    def _expect(self, expected: Expected, *, silent: bool = False) -> None:
        self._limiter.note(self, silent=bool(expected) or silent)
        if expected == self._expected:
            return
        self._expected = expected
        if self._limit:
            self._limit.cancel()
        self._limit = self.loop.call_later(self._limiter.seconds[expected], self._too_late) if expected else None

    def _too_late(self) -> None:
        cycle: Any = self.cycle
        answered = self._expected == "rest" or (self._expected == "body" and cycle.response_started)
        if not answered and not self.transport.is_closing():
            self.transport.write(TOO_LATE)
        self.transport.close()


def raise_limits() -> int:
    """Allow this process its maximum of descriptors and return that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS reports unlimited but allows 10240
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft
