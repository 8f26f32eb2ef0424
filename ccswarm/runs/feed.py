"""The events of a run as they happen, for who follows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ccswarm.errors import RunNotFound
from ccswarm.runs.events import RunEvent, begun, ended

if TYPE_CHECKING:
    from ccswarm.engines.base import Engine


class EventStream:
    """The events of a run, its tasks and their parts, in order and each once: an execution's events come before its
    end. Start and end of delegated work are reported by the delegating agent."""

    def __init__(self, engine: Engine, run: str, offsets: Mapping[str, int] | None = None) -> None:
        """``offsets`` say how many events were given before, of the run and of each execution in progress in it."""
        self.run = run
        self._engine = engine
        self._offsets = dict(offsets or {run: 0})
        self._over: set[str] = set()

    async def past(self) -> list[RunEvent]:
        """What is recorded by now and was not given before."""
        async with self._reading(follow=False) as queue:
            found: list[RunEvent] = []
            while (run_event := await queue.get()) is not None:
                found.append(run_event)
            return found

    @asynccontextmanager
    async def coming(self) -> AsyncGenerator[asyncio.Queue[RunEvent | None]]:
        """What was not given before, as it happens, with the time it was heard of; None when the run is over."""
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
    """Reads the streams of a run side by side into one queue."""

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
                self._begin(execution)
            await self._read(self._run)
            while left := [task for task in self._tasks.values() if not task.done()]:
                await asyncio.gather(*left)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self.queue.put_nowait(None)

    def _begin(self, execution: str) -> None:
        self._offsets.setdefault(execution, 0)
        if execution not in self._tasks:
            self._tasks[execution] = asyncio.create_task(self._read_task(execution))

    async def _read_task(self, execution: str) -> None:
        try:
            await self._read(execution)
        except RunNotFound:
            return  # removed meanwhile, as runs are that were over long ago

    async def _read(self, execution: str) -> None:
        events = self._engine.events(execution, offset=self._offsets[execution], follow=self._follow)
        async for facts in events:
            self._offsets[execution] += 1
            for other in begun(execution, facts):
                self._begin(other)
            if over := ended(execution, facts):
                if over in self._tasks:
                    await self._tasks[over]
                    if not self._follow:  # it may have been read before its last event
                        await self._read_task(over)
                self._over.add(over)
            if execution == self._run or facts.get("event") not in ("run.started", "run.ended"):
                at = float(facts.get("at") or (time.time() if self._follow else 0.0))
                self.queue.put_nowait(RunEvent(self._run, execution, facts, at, self._offsets[execution]))
