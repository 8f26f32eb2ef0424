"""Who works next on the event loop: one slice at a time, and whoever has had the least of it first.

Nothing that a program prints, and nothing that is asked about what it printed, may hold the loop for longer than a
slice. What takes longer is done in slices, each in a pass of the loop of its own, so that connections, timers and
everybody whose work is short come in between.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeVar

SLICE_SECONDS = 0.001
"""After so much work the loop goes to others."""

AT_ONCE = 0.5
"""What is done out of line takes at most this part of the loop's time, but for a slice now and then."""

CREDIT_SECONDS = 0.002
"""So far ahead of those who work flat out is whoever was quiet."""

ECHO_SECONDS = 0.001
"""So long the line waits for the echo of what somebody typed, and then continues for at least as long."""

REMEMBERED = 1024
"""So many parties, before those that did nothing for longest are forgotten."""

THREADS = 2
"""For jobs, of which each party has at most one under way: one of them is never all that works."""

Work = Callable[[], object]
Job = Callable[[], Any]
Result = TypeVar("Result")
Steps = Generator[Job | None, Any, Result]
"""Work that can be left off between any two of its steps, each of which is well below a slice.

A step that cannot be is yielded as a job, which runs in a thread and whose result comes back from the ``yield``: a call
into a library that works without the interpreter's lock.
"""


class Turns:
    """The line of those who have more to do. One for each event loop; all methods belong to it.

    A party is whoever work is counted for: a session, a caller. Each of its turns is one call of what it put in line,
    which has to come back within about a slice.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._line: dict[Hashable, deque[Work]] = {}
        self._had: dict[Hashable, float] = {}
        self._least = 0.0
        self._spare = SLICE_SECONDS
        self._spare_at = clock()
        self._begun = False
        self._scheduled = False
        self._waits_until = -math.inf
        self._most = REMEMBERED
        self._jobs = _Jobs()

    def __len__(self) -> int:
        """How many parties wait."""
        return len(self._line)

    def at_once(self, party: Hashable, work: Work) -> bool:
        """Does ``work`` now where it would be next and little was done just before; else False, and nothing is done."""
        if not self._is_next(party) or not self._has_spare():
            return False
        begun = self._clock()
        work()
        self._spend(party, self._clock() - begun)
        return True

    def add(self, party: Hashable, work: Work) -> None:
        """Puts ``work`` in line. Work of one party keeps its order."""
        if party in self._line:
            self._line[party].append(work)
        else:
            self._line[party] = deque((work,))
            self._had[party] = max(self._had.get(party, 0.0), self._least - CREDIT_SECONDS)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def await_echo(self) -> None:
        """Somebody has typed and looks for what comes of it: let the line wait for that, a moment at most."""
        if (now := self._clock()) >= self._waits_until + ECHO_SECONDS:
            self._waits_until = now + ECHO_SECONDS

    async def begin(self, party: Hashable, seconds: float) -> None:
        """Waits until ``party`` may begin what takes about so long: one beginning in each pass of the loop."""
        if self._line or self._begun:
            await self.take(party)
        if not self._begun:
            self._begun = True
            asyncio.get_running_loop().call_soon(self._passed)
        self._charge(party, seconds)

    def _passed(self) -> None:
        self._begun = False

    async def take(self, party: Hashable) -> None:
        """Waits for the next turn of ``party``, which lasts until its caller waits again."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add(party, lambda: turn.done() or turn.set_result(None))
        await turn

    async def run(self, party: Hashable, steps: Steps[Result]) -> Result:
        """Runs ``steps`` to their end and gives their result; what takes longer than a slice waits for turns."""
        await self._in_turn(party)
        begun = self._clock()
        answer: Any = None
        failure: Exception | None = None
        try:
            while True:
                try:
                    job = steps.throw(failure) if failure else steps.send(answer)
                except StopIteration as end:
                    return end.value
                answer = failure = None
                if job is not None:
                    self._charge(party, self._clock() - begun)
                    begun = math.inf
                    try:
                        answer = await self._jobs.run(party, job)
                    except Exception as problem:
                        failure = problem
                    begun = self._clock()
                elif (now := self._clock()) - begun >= SLICE_SECONDS:
                    self._charge(party, now - begun)
                    begun = math.inf
                    await self.take(party)
                    begun = self._clock()
        finally:
            if begun < (ended := self._clock()):  # else it was given up while it waited
                self._spend(party, ended - begun)
            steps.close()

    async def _in_turn(self, party: Hashable) -> None:
        if self._line or not self._has_spare():
            await self.take(party)

    def _is_next(self, party: Hashable) -> bool:
        """Whether nobody waits who had less."""
        if not self._line:
            return True
        had = max(self._had.get(party, 0.0), self._least - CREDIT_SECONDS)
        return party not in self._line and all(had < self._had[other] for other in self._line)

    def _has_spare(self) -> bool:
        now = self._clock()
        self._spare = min(SLICE_SECONDS, self._spare + (now - self._spare_at) * AT_ONCE)
        self._spare_at = now
        return self._spare > 0

    def _spend(self, party: Hashable, seconds: float) -> None:
        self._spare -= seconds
        self._charge(party, seconds)

    def _next(self) -> None:
        if (left := self._waits_until - self._clock()) > 0:
            asyncio.get_running_loop().call_later(left, self._next)
            return
        self._scheduled = False
        if not self._line:
            return
        party = min(self._line, key=self._had.__getitem__)
        waiting = self._line[party]
        work = waiting.popleft()
        if not waiting:
            del self._line[party]
        if self._line:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)
        self._least = max(self._least, self._had[party])
        begun = self._clock()
        try:
            work()
        finally:
            self._charge(party, self._clock() - begun)

    def _charge(self, party: Hashable, seconds: float) -> None:
        had = max(self._had.pop(party, 0.0), self._least - CREDIT_SECONDS)
        self._had[party] = had + seconds
        if not self._line:
            # What took nothing from anybody is not held against whoever did it.
            self._least = max(self._least, had + seconds)
        if len(self._had) > self._most:
            newest = set(list(self._had)[-REMEMBERED // 2 :])
            self._had = {name: had for name, had in self._had.items() if name in newest or name in self._line}
            self._most = max(REMEMBERED, 2 * len(self._had))


class _Jobs:
    """Runs jobs in threads, one of each party at a time; parties come in turn."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[tuple[Job, asyncio.Future[Any]]]] = {}
        self._running: set[Hashable] = set()

    async def run(self, party: Hashable, job: Job) -> Any:
        """The job's result. Whoever gives up waiting leaves it to its end."""
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(party, deque()).append((job, result))
        self._fill()
        return await result

    def _fill(self) -> None:
        for party in list(self._waiting):
            if len(self._running) >= THREADS:
                return
            if party in self._running:
                continue
            waiting = self._waiting.pop(party)
            job, result = waiting.popleft()
            if waiting:
                self._waiting[party] = waiting
            if not result.done():
                self._start(party, job, result)

    def _start(self, party: Hashable, job: Job, result: asyncio.Future[Any]) -> None:
        try:
            # The daemon's own threads, which run before a session can leave no room for one.
            done = asyncio.get_running_loop().run_in_executor(None, job)
        except RuntimeError as problem:  # the system gives no thread
            result.set_exception(OSError(str(problem)))
            asyncio.get_running_loop().call_soon(self._fill)
            return
        self._running.add(party)
        done.add_done_callback(lambda _: self._ended(party, done, result))

    def _ended(self, party: Hashable, done: asyncio.Future[Any], result: asyncio.Future[Any]) -> None:
        self._running.discard(party)
        problem = done.exception()
        if not result.done():
            if problem is None:
                result.set_result(done.result())
            else:
                result.set_exception(problem)
        self._fill()


async def within(waiter: asyncio.Future[bool], seconds: float | None) -> bool:
    """What ``waiter``, which is its caller's alone, is set to; False after so many seconds. asyncio.wait would take a
    turn of the loop more."""
    if seconds is None:
        return await waiter
    timer = asyncio.get_running_loop().call_later(max(0.0, seconds), resolve, waiter, False)
    try:
        return await waiter
    finally:
        timer.cancel()


def resolve(waiter: asyncio.Future[bool], value: bool) -> None:
    """Sets a waiter that nobody has set or given up."""
    if not waiter.done():
        waiter.set_result(value)


def pausing(steps: Steps[Result]) -> Generator[None, None, Result]:
    """``steps`` with their jobs done on the way."""
    answer: Any = None
    failure: Exception | None = None
    while True:
        try:
            job = steps.throw(failure) if failure else steps.send(answer)
        except StopIteration as end:
            return end.value
        answer = failure = None
        try:
            answer = job() if job is not None else None
        except Exception as problem:
            failure = problem
        yield


def finished(steps: Steps[Result]) -> Result:
    """The result of ``steps``, run in one go: off the loop, or where they are known to be few."""
    going = pausing(steps)
    while True:
        try:
            next(going)
        except StopIteration as end:
            return end.value
