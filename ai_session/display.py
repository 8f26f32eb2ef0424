"""The emulated screen of a session whose backend keeps none: fed when somebody looks, or a program asks."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future

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
        self._asked: int | None = None
        if isinstance(log, MappedLog):
            preload()  # nobody but this log knows the screen, and a program may ask about it at once

    def answer(self, chunk: bytes, reply: Callable[[bytes], None]) -> None:
        """``reply`` is told what the terminal answers to the queries in ``chunk``, the newest bytes of the log; on the
        running loop, and later when the emulator is still being loaded.
        """
        asked = has_query(chunk, self._tail)
        self._tail = (self._tail + chunk)[-QUERY_TAIL_BYTES:]
        if not asked:
            return
        if self._asked is None:
            self._asked = self._log.end - len(chunk)
        loading = preload()
        if loading.done():
            self._reply(reply)
            return
        loop = asyncio.get_running_loop()

        def loaded(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._reply, reply)

        loading.add_done_callback(loaded)

    def _reply(self, reply: Callable[[bytes], None]) -> None:
        # No emulator for this machine: programs that ask go unanswered, commands work all the same. Or no log any more.
        with contextlib.suppress(BackendUnavailable, OSError):
            if said := self._now().replies():
                reply(said)

    def _now(self) -> Screen:
        if self._screen is None:
            self._screen = Screen(*self._size)
        end = self._log.end
        asked, self._asked = self._asked, None
        self._screen.catch_up(self._log.read, self._log.first, end, answer_from=end if asked is None else asked)
        return self._screen

    def snapshot(self) -> ScreenSnapshot:
        """The visible grid now."""
        return self._now().snapshot()

    def ansi(self) -> bytes:
        """Bytes that draw it on a terminal of the same size."""
        return self._now().ansi()

    def resize(self, rows: int, cols: int) -> None:
        """Change the size of what is shown."""
        self._size = (rows, cols)
        if self._screen is not None:
            self._now().resize(rows, cols)


@functools.cache
def preload() -> Future[None]:
    """Load the emulator (130 ms) in a thread, once per process; done when it is there or known to be missing."""
    loading = Future[None]()
    threading.Thread(target=_load, args=(loading,), name="emulator", daemon=True).start()
    return loading


def _load(loading: Future[None]) -> None:
    with contextlib.suppress(BackendUnavailable):
        screen.preload()
    loading.set_result(None)
