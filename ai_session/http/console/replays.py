"""The recording that a tab plays, and requests about it. A tab has one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

from ai_session.http.console.recordings import Facts, Recording

MOST_CLOCKS = 2000


class Refused(Exception):
    """A failed request; ``facts`` are those of a protocol error."""

    def __init__(self, code: str, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.facts = {"code": code, "message": message, "suggestion": suggestion}


class Recorded(NamedTuple):
    """What the daemon says of a recording; ``commands`` are the ids of the session's commands."""

    path: Path
    began: float
    commands: list[str]


class Replays:
    """The recording of one tab. ``record`` requests one of a session from the daemon, or raises Refused."""

    def __init__(self, record: Callable[[str], Awaitable[Recorded]]) -> None:
        self._record = record
        self._turns = asyncio.Lock()
        self._current: Recording | None = None
        self._closed = False

    async def ask(self, method: str, params: Mapping[str, Any]) -> tuple[Facts, bytes]:
        """Answer one of ``METHODS``. Raises Refused."""
        running = asyncio.ensure_future(self._run(method, params))
        return await asyncio.shield(running)  # the file is removed even if the tab is closed meanwhile

    async def _run(self, method: str, params: Mapping[str, Any]) -> tuple[Facts, bytes]:
        async with self._turns:
            try:
                return await METHODS[method](self, params)
            except (KeyError, TypeError, ValueError, IndexError, OverflowError):
                raise Refused("invalid_arguments", f"{method} was called with wrong parameters") from None
            finally:
                if self._closed:
                    self._release()

    def close(self) -> None:
        """Release the recording, because the tab is closed."""
        self._closed = True
        if not self._turns.locked():
            self._release()

    def _release(self) -> None:
        if self._current is not None:
            self._current.close()
        self._current = None

    def _recording(self) -> Recording:
        if self._current is None:
            raise Refused("no_recording", "no recording is open", "open it again")
        return self._current

    async def _open(self, params: Mapping[str, Any]) -> tuple[Facts, bytes]:
        self._release()
        recorded = await self._record(_checked(params["session"], str))
        try:
            self._current = await asyncio.to_thread(Recording, *recorded)
        except (OSError, ValueError, KeyError, TypeError):
            raise Refused("no_recording", "the recording cannot be read", "ai-session replay plays it") from None
        return self._current.facts(), b""

    async def _screen(self, params: Mapping[str, Any]) -> tuple[Facts, bytes]:
        at = float(_checked(params.get("at", 0), int, float))
        command = _checked(params.get("command", ""), str)
        return await asyncio.to_thread(self._recording().screen, at, command)

    async def _piece(self, params: Mapping[str, Any]) -> tuple[Facts, bytes]:
        number = _checked(params["number"], int)
        if number < 0:
            raise ValueError
        return await asyncio.to_thread(self._recording().piece, number)

    async def _positions(self, params: Mapping[str, Any]) -> tuple[Facts, bytes]:
        clocks = [float(_checked(one, int, float)) for one in _checked(params["clocks"], list)]
        if len(clocks) > MOST_CLOCKS:
            raise ValueError
        return {"places": self._recording().positions(clocks)}, b""


METHODS: Mapping[str, Callable[[Replays, Mapping[str, Any]], Awaitable[tuple[Facts, bytes]]]] = {
    "open": Replays._open,  # pyright: ignore[reportPrivateUsage]
    "screen": Replays._screen,  # pyright: ignore[reportPrivateUsage]
    "piece": Replays._piece,  # pyright: ignore[reportPrivateUsage]
    "places": Replays._positions,  # pyright: ignore[reportPrivateUsage]
}


def _checked(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or isinstance(value, bool) or (isinstance(value, float) and isnan(value)):
        raise TypeError
    return value
