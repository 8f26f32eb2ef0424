"""The recording that a tab plays, and what it asks of it. A tab has one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import isnan
from pathlib import Path
from typing import Any

from ai_session.console.recordings import Facts, Recording

MOST_CLOCKS = 2000


class Refused(Exception):
    """``facts`` as an error of the protocol has them."""

    def __init__(self, code: str, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.facts = {"code": code, "message": message, "suggestion": suggestion}


class Replays:
    """``record`` has the daemon make a recording of a session: where it lies, when it began, and
    the ids of its commands. It raises Refused."""

    def __init__(self, record: Callable[[str], Awaitable[tuple[Path, float, list[str]]]]) -> None:
        self._record = record
        self._turns = asyncio.Lock()
        self._opened: Recording | None = None
        self._closed = False

    async def ask(self, method: str, params: Mapping[str, Any]) -> tuple[Facts, bytes]:
        """The answer of one of ``METHODS``. Raises Refused."""
        carried = asyncio.ensure_future(self._carried_out(method, params))
        return await asyncio.shield(carried)  # a file that was made for a tab that has gone is removed all the same

    async def _carried_out(self, method: str, params: Mapping[str, Any]) -> tuple[Facts, bytes]:
        async with self._turns:
            try:
                return await METHODS[method](self, params)
            except (KeyError, TypeError, ValueError, IndexError, OverflowError):
                raise Refused("invalid_arguments", f"{method} was called with wrong parameters") from None
            finally:
                if self._closed:
                    self._let_go()

    def close(self) -> None:
        """The tab has gone."""
        self._closed = True
        if not self._turns.locked():
            self._let_go()

    def _let_go(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened = None

    def _recording(self) -> Recording:
        if self._opened is None:
            raise Refused("no_recording", "no recording is open", "open it again")
        return self._opened

    async def _open(self, params: Mapping[str, Any]) -> tuple[Facts, bytes]:
        self._let_go()
        made = await self._record(_checked(params["session"], str))
        try:
            self._opened = await asyncio.to_thread(Recording, *made)
        except (OSError, ValueError, KeyError, TypeError):
            raise Refused("no_recording", "the recording cannot be read", "ai-session replay plays it") from None
        return self._opened.facts(), b""

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
