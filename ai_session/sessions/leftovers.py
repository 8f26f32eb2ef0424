"""The end of all processes that a session's shell leaves running, including those that detached from it.

When the first process of a box's process namespace ends, so do all others in it, so a handle of that one is enough.
Without a namespace, processes are found by their cookie among those of the whole machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from ai_session.models import SandboxLevel
from ai_session.sandbox.limits import processes as box_processes
from ai_session.system import processes
from ai_session.system.events import Process, process_ended
from ai_session.system.kernel_files import newest_pid
from ai_session.system.membership import Identity, Membership, all_there

NAMESPACED = (SandboxLevel.BWRAP, SandboxLevel.BWRAP_NOPROC)
KILL_SECONDS = 5.0
"""A killed process that still exists then waits in the kernel, for a disk or a server that does not answer."""
FEW_BIRTHS = 100
"""As many new processes are inspected one by one in the time of a new listing: 1 ms."""

T = TypeVar("T")


class Leftovers:
    """The processes that one shell started, and its box. All methods run on the event loop and never block it."""

    def __init__(self, cookie: str, looks: Looks) -> None:
        self._cookie = cookie
        self._looks = looks
        self._root = 0
        self._root_started = 0
        self._first: Process | None = None
        self._ending = asyncio.Lock()
        self._ended = False

    def hold(self, root: int, level: SandboxLevel) -> None:
        """Open a handle of the namespace that ``root`` created. Does nothing if there is none, or not yet."""
        if self._first is None and level in NAMESPACED and (first := _first_of_namespace(root)) is not None:
            self._first = first
            self._root = root
            self._root_started = box_processes.began(root)

    def release(self) -> None:
        """Close the handle without ending a process. Idempotent."""
        if self._first is not None and not self._ending.locked():
            self._first.close()
            self._first = None

    async def end(self, grace_seconds: float, hang_up: Callable[[], Awaitable[None]] | None = None) -> None:
        """Ask all processes to end, as ``processes.ask_to_leave`` does, then ``hang_up`` their terminal, and kill those
        left after ``grace_seconds``."""
        async with self._ending:
            asked: Sequence[int] = ()
            try:
                if not self._ended:
                    asked = await self._ask_to_leave()
            finally:
                if hang_up is not None:
                    await hang_up()
            if not self._ended:
                # Not on a thread: closing many sessions would occupy all of the few threads for the whole grace.
                await _within(grace_seconds, self._first.ended() if self._first is not None else _all_ended(asked))
                await self._kill()
                self._ended = True
        self.release()

    async def _ask_to_leave(self) -> Sequence[int]:
        if self._first is None:
            return await self._looks.ask_to_leave(self._cookie)
        if not self._first.reaped():
            await asyncio.to_thread(_ask_to_leave, self._first)
        return ()

    async def _kill(self) -> None:
        if self._first is None:
            await self._looks.sweep(self._cookie)
        else:
            self._first.send_signal(signal.SIGKILL)
            await _within(KILL_SECONDS, self._first.ended())
            if processes.alive(self._root, self._root_started):
                # It ends after the box, unless it was stopped.
                box_processes.kill((self._root,))
                await _within(KILL_SECONDS, process_ended(self._root))


class Looks:
    """Searches of the machine's processes by cookie. Sessions that end at the same time share a search."""

    def __init__(self) -> None:
        self.ask_to_leave: Rounds[list[int]] = Rounds(lambda cookies: self._membership(cookies).ask_to_leave())
        self.sweep: Rounds[int] = Rounds(lambda cookies: self._membership(cookies).sweep())
        self._there: frozenset[Identity] = frozenset()
        self._newest = 0
        """The newest process id when ``_there`` was listed."""
        self._earlier: dict[str, frozenset[Identity]] = {}
        self._ended = set[Identity]()

    async def begin(self, cookie: str) -> None:
        """Note the present processes, before any has the cookie: skipping them makes searches ten times as fast."""
        newest = newest_pid()
        if not 0 <= newest - self._newest < FEW_BIRTHS or not self._there:
            self._there, self._newest = frozenset(await asyncio.to_thread(all_there)), newest
        self._earlier[cookie] = self._there

    def forget(self, cookie: str) -> None:
        """Free what ``begin`` stored for ``cookie``."""
        self._earlier.pop(cookie, None)

    def _membership(self, cookies: Sequence[str]) -> Membership:
        first, *others = (self._earlier.get(cookie, frozenset[Identity]()) for cookie in cookies)
        return Membership(cookies, first.intersection(*others), self._ended)


class Rounds(Generic[T]):
    """Blocking work that takes as long for many names as for one: calls during a round are served by the next."""

    def __init__(self, work: Callable[[Sequence[str]], dict[str, T]]) -> None:
        self._work = work
        self._waiting: dict[str, asyncio.Future[T]] = {}
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, name: str) -> T:
        """Return the work's result for ``name``, from a round that begins after this call. Raises its exceptions."""
        if name not in self._waiting:
            self._waiting[name] = asyncio.get_running_loop().create_future()
        mine = self._waiting[name]
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await asyncio.shield(mine)

    async def _run(self) -> None:
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
    """Return a handle of the first process of the namespace that ``root`` created; None if there is none."""
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
    """Ask all descendants of the first process to end. Blocks for some 20 µs for each."""
    found = box_processes.descendants(first.pid)
    # Once it is reaped its process id may be another's, and so may the descendants.
    if not first.reaped():
        processes.ask_to_leave(found)


async def _all_ended(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            await process_ended(pid)


async def _within(seconds: float, wanted: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wanted
