"""The emulated screen of a session whose backend has none: fed when a caller reads it, or a program queries it.

The emulator works in a thread, without the interpreter's lock, and for a limited time: a few bytes of output can make
it draw a screen a thousand times.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from ai_session.errors import BackendUnavailable, OutputExpired, SessionNotFound
from ai_session.models import ScreenSnapshot
from ai_session.system.turns import SLICE_SECONDS, Steps, Turns, finished
from ai_session.terminal import screen
from ai_session.terminal.log import MappedLog, OutputLog
from ai_session.terminal.screen import QUERY_TAIL_BYTES, Screen, has_query

AT_ONCE = 32
"""If a program has printed at most this many times what is fed quickly since the last update, its query is answered
before anything else can be typed."""

SETTLE_SECONDS = 1.0

MOST_SIZES = 16
"""The changes of size that are remembered until the screen is fed; of more, the newest."""

Result = TypeVar("Result")


class Drawn(NamedTuple):
    """What draws a screen, and the offset of the first byte of the log that is not on it."""

    data: bytes
    offset: int


class Display:
    """A screen over ``log``; costs nothing until it is needed. Its work counts towards ``party``'s share."""

    def __init__(self, log: OutputLog, rows: int, cols: int, turns: Turns, party: Hashable) -> None:
        self._log = log
        self._size = (rows, cols)
        self._sizes: deque[tuple[int, int, int]] = deque(maxlen=MOST_SIZES)
        self._turns = turns
        self._party = party
        self._screen: Screen | None = None
        self._tail = b""
        self._asked: int | None = None
        self._stale = 0
        self._reply: Callable[[bytes], None] | None = None
        self._answering: asyncio.Task[None] | None = None
        self._busy = asyncio.Lock()
        self._updates: set[asyncio.Task[object]] = set()

    def make_ready(self) -> None:
        """Start loading the emulator if nothing else knows the screen: a program may query it at once."""
        if isinstance(self._log, MappedLog):
            preload()

    def answer(self, chunk: bytes, reply: Callable[[bytes], None]) -> None:
        """Answer the queries in ``chunk``, the newest bytes of the log. ``reply`` is called with the terminal's
        answers: at once if that takes no time, otherwise from the running loop, which ``settled`` waits for."""
        asked = has_query(chunk, self._tail)
        self._tail = (self._tail + chunk[-QUERY_TAIL_BYTES:])[-QUERY_TAIL_BYTES:]
        if not asked:
            return
        if self._asked is None:
            self._asked = self._log.end - len(chunk)
        self._reply = reply
        if self._answering is None and not self._answer_at_once():
            self._answering = asyncio.ensure_future(self._answer())

    def forget_questions(self, before: int) -> None:
        """Do not answer queries before this offset of the log any more: the program no longer waits."""
        self._stale = before

    async def settled(self) -> None:
        """Return when earlier queries have been answered, or after a second."""
        if waited := {*self._updates, *filter(None, (self._answering,))}:
            await asyncio.wait(waited, timeout=SETTLE_SECONDS)

    def _answer_at_once(self) -> bool:
        """Answer now if that is quick, in steps of which even the slowest take little more than a slice."""
        screen = self._screen
        if screen is None or self._sizes or self._busy.locked():
            return False
        quick = screen.quick_bytes
        if self._log.end - screen.offset > AT_ONCE * quick:
            return False
        with contextlib.suppress(OSError):
            begun = time.perf_counter()
            while self._asked is not None and time.perf_counter() - begun < SLICE_SECONDS:
                first, end = self._log.first, min(self._log.end, screen.offset + quick)
                answer_from = min(max(self._asked, self._stale), end)
                finished(screen.catch_up(self._log.read, first, end, answer_from=answer_from))
                if end == self._log.end:
                    self._asked = None
            self._send_replies(screen)
        return self._asked is None

    async def _answer(self) -> None:
        try:
            # Without an emulator for this machine, queries stay unanswered and commands work all the same. The log may
            # have been closed.
            with contextlib.suppress(BackendUnavailable, SessionNotFound, OSError):
                while self._asked is not None:
                    await self._read(lambda _: None)
        finally:
            self._answering = None

    async def snapshot(self) -> ScreenSnapshot:
        """Return the visible grid as it is now."""
        return await self._read(Screen.snapshot)

    async def drawn(self) -> Drawn:
        """Return bytes that draw the screen on a terminal of the same size."""
        return await self._read(lambda screen: Drawn(screen.ansi(), screen.offset))

    def resize(self, rows: int, cols: int) -> None:
        """Change the size of the screen, as of the newest byte of the log."""
        if self._screen is None:
            self._size = (rows, cols)
        else:
            self._sizes.append((self._log.end, rows, cols))

    async def _read(self, read: Callable[[Screen], Result]) -> Result:
        """Update the screen and return ``read`` of it."""
        await asyncio.wrap_future(preload())
        update = asyncio.ensure_future(self._take_turn(read))
        # A cancelled caller leaves the update running: a thread may be working on the screen.
        self._updates.add(update)
        update.add_done_callback(self._update_done)
        return await asyncio.shield(update)

    def _update_done(self, update: asyncio.Task[object]) -> None:
        self._updates.discard(update)
        if not update.cancelled():
            update.exception()  # was reported to the callers that still wait

    async def _take_turn(self, read: Callable[[Screen], Result]) -> Result:
        async with self._busy:
            return await self._turns.run(self._party, self._updated(read))

    def _updated(self, read: Callable[[Screen], Result]) -> Steps[Result]:
        screen = self._screen = self._screen or (yield functools.partial(Screen, *self._size))
        while self._sizes:
            offset, rows, cols = self._sizes.popleft()
            yield from self._catch_up(screen, offset, self._asked)
            yield functools.partial(screen.resize, rows, cols)
        asked = self._asked
        self._asked = None
        yield from self._catch_up(screen, self._log.end, asked)
        self._send_replies(screen)
        return (yield functools.partial(read, screen))

    def _send_replies(self, screen: Screen) -> None:
        if (replies := screen.replies()) and self._reply and screen.offset > self._stale:
            self._reply(replies)

    def _catch_up(self, screen: Screen, end: int, asked: int | None) -> Steps[None]:
        while True:
            first = self._log.first
            try:
                answer_from = end if asked is None else min(max(asked, self._stale), end)
                return (yield from screen.catch_up(self._log.read, first, end, answer_from=answer_from))
            except OutputExpired:
                if first == self._log.first:
                    raise


@functools.cache
def preload() -> Future[None]:
    """Load the emulator (130 ms) in a thread, once per process. Done when it is loaded or known to be missing."""
    loading = Future[None]()
    loading.set_running_or_notify_cancel()  # a cancelled caller does not cancel it for others
    threading.Thread(target=_load, args=(loading,), name="emulator", daemon=True).start()
    return loading


def _load(loading: Future[None]) -> None:
    with contextlib.suppress(BackendUnavailable):
        screen.preload()
    loading.set_result(None)
