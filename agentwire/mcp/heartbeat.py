"""Rising progress for a client that waits for an answer."""

from __future__ import annotations

import asyncio
from typing import Protocol, Self

from agentwire.json_lines import Message


class Exchange(Protocol):
    """A request on its way to be answered; ``token`` is None where its client wants no progress."""

    token: int | str | None

    def report(self, progress: float, message: str) -> None:
        """One progress notification."""


def progress_notification(token: int | str, progress: float, message: str) -> Message:
    """What ``report`` sends."""
    params = {"progressToken": token, "progress": progress, "message": message}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


class Heartbeat:
    """Rising progress, every so often as long as the block runs, for a client that gave a token. ``doing`` says what
    is in progress."""

    def __init__(self, exchange: Exchange, seconds: float, doing: str) -> None:
        self._exchange = exchange
        self._seconds = seconds
        self._doing = doing
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        if self._exchange.token is not None:
            self._timer = self._loop.call_later(self._seconds, self._beat)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer:
            self._timer.cancel()

    def report(self, message: str) -> None:
        """Progress with these words, in order with the beats."""
        self._last = max(round(self._loop.time() - self._began, 3), round(self._last + 0.001, 3))
        self._exchange.report(self._last, message)

    def _beat(self) -> None:
        self.report(f"{self._doing} after {self._loop.time() - self._began:.0f} s")
        self._timer = self._loop.call_later(self._seconds, self._beat)
