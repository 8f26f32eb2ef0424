"""Ends what the shell of a session leaves running, whatever it is and wherever it went.

Nothing outlives the first process of a box's own process namespace, so that one is held and all else ends with it.
Without a namespace, processes are found by their cookie among those of the whole machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from ai_session.models import SandboxLevel
from ai_session.sandbox.limits import processes as box_processes
from ai_session.system import processes
from ai_session.system.events import Process, process_ended
from ai_session.system.kernel_files import newest_pid
from ai_session.system.membership import Identity, Membership, all_there

NAMESPACED = (SandboxLevel.BWRAP, SandboxLevel.BWRAP_NOPROC)
KILL_SECONDS = 5.0
"""What is killed and still there then waits in the kernel, for a disk or a server that does not answer."""
FEW_BIRTHS = 100
"""Processes that can as well be asked one by one as looked for again: 1 ms."""

T = TypeVar("T")


class Leftovers:
    """What one shell started, and the box it is in. All methods belong to the event loop and never block it."""

    def __init__(self, cookie: str, looks: Looks) -> None:
        self._cookie = cookie
        self._looks = looks
        self._root = 0
        self._root_started = 0
        self._first: Process | None = None
        self._ending = asyncio.Lock()
        self._ended = False

    def hold(self, root: int, level: SandboxLevel) -> None:
        """Takes hold of the box that ``root`` made once it stands; before that, and without namespace, of nothing."""
        if self._first is None and level in NAMESPACED and (first := _first_of_namespace(root)) is not None:
            self._first = first
            self._root = root
            self._root_started = box_processes.began(root)

    def release(self) -> None:
        """Lets go without ending anything. Can be called twice."""
        if self._first is not None and not self._ending.locked():
            self._first.close()
            self._first = None

    async def end(self, grace_seconds: float) -> None:
        """Asks all of it to leave, and kills after the grace what is still there; without a grace at once."""
        async with self._ending:
            if not self._ended:
                await (self._end_by_cookie(grace_seconds) if self._first is None else self._end_box(grace_seconds))
            self._ended = True
        self.release()

    async def _end_box(self, grace_seconds: float) -> None:
        assert self._first is not None
        if grace_seconds > 0 and not self._first.reaped():
            await asyncio.to_thread(_ask_to_leave, self._first)
            await _within(grace_seconds, self._first.ended())
        self._first.send_signal(signal.SIGKILL)
        await _within(KILL_SECONDS, self._first.ended())
        if processes.alive(self._root, self._root_started):
            # It ends with the box, unless it was stopped.
            box_processes.kill((self._root,))

    async def _end_by_cookie(self, grace_seconds: float) -> None:
        if grace_seconds > 0:
            asked = await self._looks.ask_to_leave(self._cookie)
            # Not in a thread: there are few, and whoever closes many sessions would have them all for the whole grace.
            await _within(grace_seconds, _all_ended(asked))
        await self._looks.sweep(self._cookie)


class Looks:
    """Looks at the processes of the whole machine; all sessions that end share those that begin after they asked."""

    def __init__(self) -> None:
        self.ask_to_leave: Rounds[list[int]] = Rounds(lambda cookies: self._membership(cookies).ask_to_leave())
        self.sweep: Rounds[int] = Rounds(lambda cookies: self._membership(cookies).sweep())
        self._there: frozenset[Identity] = frozenset()
        self._newest = 0
        """The number given last when it was seen who is there."""
        self._earlier: dict[str, frozenset[Identity]] = {}

    async def begin(self, cookie: str) -> None:
        """To be called before any process has the cookie: who is there already need not be asked for it later, which
        takes a tenth of the time."""
        newest = newest_pid()
        if not 0 <= newest - self._newest < FEW_BIRTHS or not self._there:
            self._there, self._newest = frozenset(await asyncio.to_thread(all_there)), newest
        self._earlier[cookie] = self._there

    def forget(self, cookie: str) -> None:
        """Nobody asks for it any more."""
        self._earlier.pop(cookie, None)

    def _membership(self, cookies: Sequence[str]) -> Membership:
        first, *others = (self._earlier.get(cookie, frozenset[Identity]()) for cookie in cookies)
        return Membership(cookies, first.intersection(*others))


class Rounds(Generic[T]):
    """Blocking work that is as quick for many as for one: all that is asked for during a round is done in the next."""

    def __init__(self, work: Callable[[Sequence[str]], dict[str, T]]) -> None:
        self._work = work
        self._waiting: dict[str, asyncio.Future[T]] = {}
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, name: str) -> T:
        """What the work has for ``name``, from a round that began after this call."""
        if name not in self._waiting:
            self._waiting[name] = asyncio.get_running_loop().create_future()
        mine = self._waiting[name]
        if self._task is None:
            self._task = asyncio.create_task(self._go())
        return await asyncio.shield(mine)

    async def _go(self) -> None:
        try:
            while self._waiting:
                waiting = self._waiting
                self._waiting = {}
                try:
                    done = await asyncio.to_thread(self._work, list(waiting))
                except Exception as problem:
                    for future in waiting.values():
                        future.set_exception(problem)
                else:
                    for name, future in waiting.items():
                        future.set_result(done[name])
        finally:
            self._task = None


def _first_of_namespace(root: int) -> Process | None:
    """The first process of the box that ``root`` made, held; None where there is none yet, or any more."""
    overseers = box_processes.overseers(root)
    if len(overseers) < 2:
        return None
    try:
        first = Process(overseers[1])
    except OSError:
        return None
    if overseers[1] in box_processes.children(root):
        return first
    first.close()
    return None


def _ask_to_leave(first: Process) -> None:
    """SIGTERM for all that descends from the first process. Blocks for some 20 µs for each."""
    asked = box_processes.descendants(first.pid)
    if first.reaped():
        # Its number may be another's by now, and with it what was found.
        return
    for pid in asked:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)


async def _all_ended(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            await process_ended(pid)


async def _within(seconds: float, wanted: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wanted
