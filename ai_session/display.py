"""The emulated screen of a session whose backend keeps none: fed when somebody looks, or a program asks."""

from __future__ import annotations

import contextlib
import functools
import threading

from ai_session import screen
from ai_session.errors import BackendUnavailable
from ai_session.models import ScreenSnapshot
from ai_session.output_log import MappedLog, OutputLog
from ai_session.screen import QUERY_TAIL_BYTES, Screen, has_query


class Display:
    """A screen over ``log``; costs nothing until it is needed."""

    def __init__(self, log: OutputLog, rows: int, cols: int) -> None:
        self._log = log
        self._size = (rows, cols)
        self._screen: Screen | None = None
        self._tail = b""
        if isinstance(log, MappedLog):
            preload()  # nobody but this log knows the screen, and a program may ask about it at once

    def answer(self, chunk: bytes) -> bytes:
        """What the terminal replies to the queries in ``chunk``, the newest bytes of the log."""
        asked = has_query(chunk, self._tail)
        self._tail = (self._tail + chunk)[-QUERY_TAIL_BYTES:]
        if not asked:
            return b""
        try:
            return self._now(answer_from=self._log.end - len(chunk)).replies()
        except BackendUnavailable:
            # No emulator for this machine: programs that ask go unanswered, commands work all the same.
            return b""

    def _now(self, answer_from: int = 0) -> Screen:
        if self._screen is None:
            self._screen = Screen(*self._size)
        self._screen.catch_up(self._log.read, self._log.first, self._log.end, answer_from=answer_from)
        return self._screen

    def snapshot(self) -> ScreenSnapshot:
        """The visible grid now."""
        return self._now(answer_from=self._log.end).snapshot()

    def ansi(self) -> bytes:
        """Bytes that draw it on a terminal of the same size."""
        return self._now(answer_from=self._log.end).ansi()

    def resize(self, rows: int, cols: int) -> None:
        """Change the size of what is shown."""
        self._size = (rows, cols)
        if self._screen is not None:
            self._now(answer_from=self._log.end).resize(rows, cols)


@functools.cache
def preload() -> None:
    """Load the emulator (130 ms) in a thread, once per process. Does nothing where there is none for this machine."""
    threading.Thread(target=_load, name="emulator", daemon=True).start()


def _load() -> None:
    with contextlib.suppress(BackendUnavailable):
        screen.preload()
