"""The events of a run as they happen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ccswarm.errors import RunNotFound
from ccswarm.runs.events import RunEvent, ended_execution, started_executions

if TYPE_CHECKING:
    from ccswarm.engines.base import Engine


class EventStream:
    """The events of a run, its tasks and their parts, in order and each once: an execution's events come before its
    end. Start and end of delegated work are reported by the delegating agent."""

    def __init__(self, engine: Engine, run: str, offsets: Mapping[str, int] | None = None) -> None:
        """``offsets`` are the numbers of events returned before, of the run and of each execution in progress."""
        self.run = run
        self._engine = engine
        self._offsets = dict(offsets or {run: 0})
        self._over: set[str] = set()

    async def past(self) -> list[RunEvent]:
        """Return the events recorded by now that were not returned before."""
        async with self._reading(follow=False) as queue:
            found: list[RunEvent] = []
            while (run_event := await queue.get()) is not None:
                found.append(run_event)
            return found

    @asynccontextmanager
    async def follow(self) -> AsyncGenerator[asyncio.Queue[RunEvent | None]]:
        """Yield a queue of the events that were not returned before, as they happen, with the time at which they were
        read; None when the run is over."""
        async with self._reading(follow=True) as queue:
            yield queue

    @asynccontextmanager
    async def _reading(self, *, follow: bool) -> AsyncGenerator[asyncio.Queue[RunEvent | None]]:
        reader = _Reader(self._engine, self.run, self._offsets, self._over, follow=follow)
        work = asyncio.create_task(reader.read_all())
        try:
            yield reader.queue
            if not follow:
                await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


class _Reader:
    """A reader of all event streams of a run into one queue."""

    def __init__(self, engine: Engine, run: str, offsets: dict[str, int], over: set[str], *, follow: bool) -> None:
        self.queue: asyncio.Queue[RunEvent | None] = asyncio.Queue()
        self._engine = engine
        self._run = run
        self._follow = follow
        self._offsets = offsets
        self._over = over
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def read_all(self) -> None:
        try:
            for execution in [one for one in self._offsets if one != self._run and one not in self._over]:
                self._start(execution)
            await self._read(self._run)
            while reading := [task for task in self._tasks.values() if not task.done()]:
                await asyncio.gather(*reading)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self.queue.put_nowait(None)

    def _start(self, execution: str) -> None:
        self._offsets.setdefault(execution, 0)
        if execution not in self._tasks:
            self._tasks[execution] = asyncio.create_task(self._read_task(execution))

    async def _read_task(self, execution: str) -> None:
        try:
            await self._read(execution)
        except RunNotFound:
            return  # removed in the meantime, as old runs are

    async def _read(self, execution: str) -> None:
        events = self._engine.events(execution, offset=self._offsets[execution], follow=self._follow)
        async for facts in events:
            self._offsets[execution] += 1
            for other in started_executions(execution, facts):
                self._start(other)
            if ended := ended_execution(execution, facts):
                if ended in self._tasks:
                    await self._tasks[ended]
                    if not self._follow:  # it may have been read before its last event
                        await self._read_task(ended)
                self._over.add(ended)
            if execution == self._run or facts.get("event") not in ("run.started", "run.ended"):
                at = float(facts.get("at") or (time.time() if self._follow else 0.0))
                self.queue.put_nowait(RunEvent(self._run, execution, facts, at, self._offsets[execution]))
