"""The emulated screen of a session whose backend keeps none: fed when somebody looks, or a program asks.

The emulator works in a thread, without the interpreter's lock, and for a bounded time: a few bytes of output can ask
it to draw a screen a thousand times.
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
"""A program that has printed no more than so many times what is fed quickly, since the last look, is answered before
anything else can be typed."""

SETTLE_SECONDS = 1.0

MOST_SIZES = 16
"""Changes of size that are remembered until the screen is fed; of more, the newest."""

Result = TypeVar("Result")


class Drawn(NamedTuple):
    """What draws a screen, and the offset of the first byte of the log that is not on it."""

    data: bytes
    offset: int


class Display:
    """A screen over ``log``; costs nothing until it is needed. What it does is counted for ``party``."""

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
        self._looking: set[asyncio.Task[object]] = set()

    def make_ready(self) -> None:
        """Load the emulator where nobody but the log knows the screen: a program may ask about it at once."""
        if isinstance(self._log, MappedLog):
            preload()

    def answer(self, chunk: bytes, reply: Callable[[bytes], None]) -> None:
        """``reply`` is called with the terminal's answers to the queries in ``chunk``, the newest bytes of the log:
        immediately if that takes no time, else from the running loop, which ``settled`` waits for."""
        asked = has_query(chunk, self._tail)
        self._tail = (self._tail + chunk[-QUERY_TAIL_BYTES:])[-QUERY_TAIL_BYTES:]
        if not asked:
            return
        if self._asked is None:
            self._asked = self._log.end - len(chunk)
        self._reply = reply
        if self._answering is None and not self._answered_at_once():
            self._answering = asyncio.ensure_future(self._answer())

    def forget_questions(self, before: int) -> None:
        """What was asked before this offset of the log is not answered any more: who asked does not listen."""
        self._stale = before

    async def settled(self) -> None:
        """Returns when what was asked before is answered, or after a second."""
        if self._looking:
            await asyncio.wait(self._looking, timeout=SETTLE_SECONDS)

    def _answered_at_once(self) -> bool:
        """Done here, in steps of so few bytes that the worst takes no longer than a slice or some."""
        shown = self._screen
        if shown is None or self._sizes or self._busy.locked():
            return False
        quick = shown.quick_bytes
        if self._log.end - shown.offset > AT_ONCE * quick:
            return False
        with contextlib.suppress(OSError):
            begun = time.perf_counter()
            while self._asked is not None and time.perf_counter() - begun < SLICE_SECONDS:
                first, end = self._log.first, min(self._log.end, shown.offset + quick)
                answer_from = min(max(self._asked, self._stale), end)
                finished(shown.catch_up(self._log.read, first, end, answer_from=answer_from))
                if end == self._log.end:
                    self._asked = None
            self._say(shown)
        return self._asked is None

    async def _answer(self) -> None:
        try:
            # No emulator for this machine: programs that ask go unanswered, commands work all the same. Or no log any
            # more.
            with contextlib.suppress(BackendUnavailable, SessionNotFound, OSError):
                while self._asked is not None:
                    await self._look(lambda _: None)
        finally:
            self._answering = None

    async def snapshot(self) -> ScreenSnapshot:
        """The visible grid now."""
        return await self._look(Screen.snapshot)

    async def drawn(self) -> Drawn:
        """Bytes that draw it on a terminal of the same size."""
        return await self._look(lambda shown: Drawn(shown.ansi(), shown.offset))

    def resize(self, rows: int, cols: int) -> None:
        """Change the size of what is shown, as of the newest byte of the log."""
        if self._screen is None:
            self._size = (rows, cols)
        else:
            self._sizes.append((self._log.end, rows, cols))

    async def _look(self, see: Callable[[Screen], Result]) -> Result:
        """What ``see`` finds on the screen as it is now."""
        await asyncio.wrap_future(preload())
        looking = asyncio.ensure_future(self._update(see))
        # Whoever gives up waiting leaves it to its end: a thread may be at work on the screen.
        self._looking.add(looking)
        looking.add_done_callback(self._looked)
        return await asyncio.shield(looking)

    def _looked(self, looking: asyncio.Task[object]) -> None:
        self._looking.discard(looking)
        if not looking.cancelled():
            looking.exception()  # was reported to those who still wait

    async def _update(self, see: Callable[[Screen], Result]) -> Result:
        async with self._busy:
            return await self._turns.run(self._party, self._seen(see))

    def _seen(self, see: Callable[[Screen], Result]) -> Steps[Result]:
        shown = self._screen = self._screen or (yield functools.partial(Screen, *self._size))
        while self._sizes:
            offset, rows, cols = self._sizes.popleft()
            yield from self._catch_up(shown, offset, self._asked)
            yield functools.partial(shown.resize, rows, cols)
        asked = self._asked
        self._asked = None
        yield from self._catch_up(shown, self._log.end, asked)
        self._say(shown)
        return (yield functools.partial(see, shown))

    def _say(self, shown: Screen) -> None:
        if (said := shown.replies()) and self._reply and shown.offset > self._stale:
            self._reply(said)

    def _catch_up(self, shown: Screen, end: int, asked: int | None) -> Steps[None]:
        while True:
            first = self._log.first
            try:
                answer_from = end if asked is None else min(max(asked, self._stale), end)
                return (yield from shown.catch_up(self._log.read, first, end, answer_from=answer_from))
            except OutputExpired:
                if first == self._log.first:
                    raise


@functools.cache
def preload() -> Future[None]:
    """Load the emulator (130 ms) in a thread, once per process; done when it is there or known to be missing."""
    loading = Future[None]()
    loading.set_running_or_notify_cancel()  # whoever gives up waiting gives up for itself only
    threading.Thread(target=_load, args=(loading,), name="emulator", daemon=True).start()
    return loading


def _load(loading: Future[None]) -> None:
    with contextlib.suppress(BackendUnavailable):
        screen.preload()
    loading.set_result(None)
