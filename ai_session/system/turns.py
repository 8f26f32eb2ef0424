"""A queue of work for the event loop: one slice at a time, the party that has used the least time first.

Neither the output of programs nor requests for it may hold the loop for longer than a slice. Longer work is done in
slices, each in its own pass of the loop, so that connections, timers and short work run in between.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeVar

SLICE_SECONDS = 0.001
"""After so much work the loop is released to others."""

AT_ONCE = 0.5
"""The fraction of the loop's time that work outside of the queue takes at most, apart from an occasional slice."""

CREDIT_SECONDS = 0.002
"""The advantage of a party that was idle over those that work continuously."""

ECHO_SECONDS = 0.001
"""The queue waits this long for the echo of typed input, and then continues for at least as long."""

REMEMBERED = 1024
"""The number of parties that are remembered, before those that were idle longest are forgotten."""

THREADS = 2
"""The threads for jobs. A party has at most one job running, so that it never occupies all of them."""

Work = Callable[[], object]
Job = Callable[[], Any]
Result = TypeVar("Result")
Steps = Generator[Job | None, Any, Result]
"""Work that can be interrupted between any two of its steps, each of which takes much less than a slice.

A longer step is yielded as a job, which runs in a thread and whose result is returned by the ``yield``: a call into a
library that releases the interpreter's lock.
"""


class Turns:
    """The queue of one event loop; all methods must be called on it.

    A party is the session or caller for which time is counted. Each of its turns is one call of the work it added,
    which has to return within about a slice.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._queue: dict[Hashable, deque[Work]] = {}
        self._used: dict[Hashable, float] = {}
        self._floor = 0.0
        self._spare = SLICE_SECONDS
        self._spare_at = clock()
        self._begun = False
        self._scheduled = False
        self._waits_until = -math.inf
        self._most = REMEMBERED
        self._jobs = _Jobs()

    def __len__(self) -> int:
        """Return how many parties wait."""
        return len(self._queue)

    def at_once(self, party: Hashable, work: Work) -> bool:
        """Do ``work`` now if it would be next and little was done just before; else do nothing and return False."""
        if not self._is_next(party) or not self._has_spare():
            return False
        begun = self._clock()
        work()
        self._spend(party, self._clock() - begun)
        return True

    def add(self, party: Hashable, work: Work) -> None:
        """Queue ``work``. Work of one party keeps its order."""
        if party in self._queue:
            self._queue[party].append(work)
        else:
            self._queue[party] = deque((work,))
            self._used[party] = max(self._used.get(party, 0.0), self._floor - CREDIT_SECONDS)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def await_echo(self) -> None:
        """Delay the queue for a moment: a person has typed and waits for the echo."""
        if (now := self._clock()) >= self._waits_until + ECHO_SECONDS:
            self._waits_until = now + ECHO_SECONDS

    async def begin(self, party: Hashable, seconds: float) -> None:
        """Wait until ``party`` may start work of about ``seconds``: one start in each pass of the loop."""
        if self._queue or self._begun:
            await self.take(party)
        if not self._begun:
            self._begun = True
            asyncio.get_running_loop().call_soon(self._passed)
        self._charge(party, seconds)

    def _passed(self) -> None:
        self._begun = False

    async def take(self, party: Hashable) -> None:
        """Wait for the next turn of ``party``, which lasts until its caller waits again."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add(party, lambda: turn.done() or turn.set_result(None))
        await turn

    async def run(self, party: Hashable, steps: Steps[Result]) -> Result:
        """Run ``steps`` to their end and return their result; after each slice they wait for the next turn."""
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
            if begun < (ended := self._clock()):  # else it was cancelled while it waited
                self._spend(party, ended - begun)
            steps.close()

    async def _in_turn(self, party: Hashable) -> None:
        if self._queue or not self._has_spare():
            await self.take(party)

    def _is_next(self, party: Hashable) -> bool:
        """Report whether no waiting party has used less."""
        if not self._queue:
            return True
        used = max(self._used.get(party, 0.0), self._floor - CREDIT_SECONDS)
        return party not in self._queue and all(used < self._used[other] for other in self._queue)

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
        if not self._queue:
            return
        party = min(self._queue, key=self._used.__getitem__)
        waiting = self._queue[party]
        work = waiting.popleft()
        if not waiting:
            del self._queue[party]
        if self._queue:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)
        self._floor = max(self._floor, self._used[party])
        begun = self._clock()
        try:
            work()
        finally:
            self._charge(party, self._clock() - begun)

    def _charge(self, party: Hashable, seconds: float) -> None:
        used = max(self._used.pop(party, 0.0), self._floor - CREDIT_SECONDS)
        self._used[party] = used + seconds
        if not self._queue:
            # Time that no other party was waiting for does not count against this one.
            self._floor = max(self._floor, used + seconds)
        if len(self._used) > self._most:
            newest = set(list(self._used)[-REMEMBERED // 2 :])
            self._used = {name: used for name, used in self._used.items() if name in newest or name in self._queue}
            self._most = max(REMEMBERED, 2 * len(self._used))


class _Jobs:
    """Runs jobs in threads, one of each party at a time; parties take turns."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[tuple[Job, asyncio.Future[Any]]]] = {}
        self._running: set[Hashable] = set()

    async def run(self, party: Hashable, job: Job) -> Any:
        """Return the job's result. The job continues if the caller is cancelled."""
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
            # The daemon's own threads, which are started before sessions can exhaust the limit of threads.
            done = asyncio.get_running_loop().run_in_executor(None, job)
        except RuntimeError as problem:  # the system allows no more threads
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
    """Return the value that ``waiter``, which belongs to the caller alone, is set to; False after ``seconds``. Unlike
    asyncio.wait, this needs no additional pass of the loop."""
    if seconds is None:
        return await waiter
    timer = asyncio.get_running_loop().call_later(max(0.0, seconds), resolve, waiter, False)
    try:
        return await waiter
    finally:
        timer.cancel()


def resolve(waiter: asyncio.Future[bool], value: bool) -> None:
    """Set the result of a waiter that is neither set nor cancelled."""
    if not waiter.done():
        waiter.set_result(value)


def pausing(steps: Steps[Result]) -> Generator[None, None, Result]:
    """Yield after each step of ``steps``, whose jobs run in between, and return their result."""
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
    """Run ``steps`` without pauses and return their result: for use off the loop, or for few steps."""
    going = pausing(steps)
    while True:
        try:
            next(going)
        except StopIteration as end:
            return end.value
