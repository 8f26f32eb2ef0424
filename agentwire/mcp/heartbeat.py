"""Progress notifications for a client that waits for a response."""

from __future__ import annotations

import asyncio
from typing import Protocol, Self

from agentwire.json_lines import Message


class Exchange(Protocol):
    """A request that is being handled; ``token`` is None if its client wants no progress."""

    token: int | str | None

    def report(self, progress: float, message: str) -> None:
        """Send one progress notification."""


def progress_notification(token: int | str, progress: float, message: str) -> Message:
    """Return the notification that ``Exchange.report`` sends."""
    params = {"progressToken": token, "progress": progress, "message": message}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


class Heartbeat:
    """A context that reports progress every ``seconds`` if the client gave a token. ``doing`` names the activity."""

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
        """Report progress with this message; values keep rising across messages and beats."""
        self._last = max(round(self._loop.time() - self._began, 3), round(self._last + 0.001, 3))
        self._exchange.report(self._last, message)

    def _beat(self) -> None:
        self.report(f"{self._doing} after {self._loop.time() - self._began:.0f} s")
        self._timer = self._loop.call_later(self._seconds, self._beat)
