"""A complete engine in memory, which records and replays as a durable one does.

Two ``MemoryEngine`` on one ``MemoryStore`` represent two processes; ``kill`` represents kill -9.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from ccswarm.engines.base import TASKS, Durable, Limits, Step
from ccswarm.models import PRIORITIES, Execution, Json, Priority, RunStatus
from tests.ccswarm.support.engine_double_flow import MemoryFlow, MemoryStore, Row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

NO_LIMITS = Limits()


class MemoryEngine:
    """One process. ``kill`` ends its executions in the middle; another one's ``run_worker`` then takes them over."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.kinds: dict[str, tuple[Durable, str]] = {}
        self.killed = False
        self._worker = ""
        self._running: dict[str, asyncio.Task[None]] = {}

    def define(self, kind: str, function: Durable, *, queue: str = TASKS) -> None:
        self.kinds[kind] = (function, queue)

    async def open(self, *, limits: Limits = NO_LIMITS) -> None:
        assert limits.per_agent >= 0

    async def close(self) -> None:
        assert not self._running, "closed while it works"

    async def run_worker(
        self, worker_id: str, stop: asyncio.Event, *, limits: Limits = NO_LIMITS, known: asyncio.Event | None = None
    ) -> None:
        assert worker_id not in self.store.beats, f"a worker {worker_id} is alive"
        self._worker = worker_id
        self.store.beats[worker_id] = time.time()
        if known:
            known.set()
        stopped = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set() and not self.killed:
                seen = self.store.version
                self._take_over()
                self._end_stopped()
                self._take(limits)
                changed = asyncio.create_task(self.store.change(seen))
                await asyncio.wait([stopped, changed], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        finally:
            stopped.cancel()
            running = list(self._running.values())
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            if not self.killed:
                self.store.beats.pop(worker_id)
                await self.recover(worker_id)

    def kill(self) -> None:
        """End as by kill -9: work in progress is neither recorded nor handed back."""
        self.killed = True
        self.store.beats.pop(self._worker, None)
        for task in self._running.values():
            task.cancel()
        self.store.changed()

    def _take_over(self) -> None:
        for row in self.store.rows.values():
            if row.status is RunStatus.RUNNING and row.worker not in self.store.beats:
                row.status = RunStatus.QUEUED
                row.worker = ""

    def _take(self, limits: Limits) -> None:
        rows = [row for row in self.store.rows.values() if row.status is RunStatus.QUEUED and row.kind in self.kinds]
        for row in sorted(rows, key=lambda row: PRIORITIES.index(row.priority)):
            busy = [other for other in self.store.rows.values() if other.status is RunStatus.RUNNING]
            busy = [other for other in busy if self.kinds[other.kind][1] == TASKS]
            full = 0 < limits.at_once <= len(busy)
            full |= 0 < limits.per_worker <= len([other for other in busy if other.worker == self._worker])
            full |= bool(row.agent) and 0 < limits.per_agent <= len([b for b in busy if b.agent == row.agent])
            if (self.kinds[row.kind][1] != TASKS or not full) and row.id not in self._running:
                row.status = RunStatus.RUNNING
                row.worker = self._worker
                self._running[row.id] = asyncio.create_task(self._execute(row))

    async def _execute(self, row: Row) -> None:
        outcome: tuple[RunStatus, str, str] | None = None
        flow = MemoryFlow(self.kinds, lambda: not self.killed, self.store, row)
        try:
            result = await self.kinds[row.kind][0](flow, json.loads(row.payload))
            outcome = (RunStatus.SUCCEEDED, json.dumps(result), "")
        except Exception as error:
            outcome = (RunStatus.FAILED, "null", f"{type(error).__name__}: {error}")
        finally:
            await flow.end()
            del self._running[row.id]
            if outcome and not self.killed and row.status is RunStatus.RUNNING and row.worker == self._worker:
                (row.status, row.result, row.error) = outcome
                row.ended_at = time.time()
            self.store.changed()

    async def submit(
        self, kind: str, execution_id: str, payload: Json, *, agent: str = "", priority: Priority = "medium"
    ) -> None:
        assert kind in self.kinds, f"no kind is called {kind}"
        self.store.add(Row(execution_id, kind, json.dumps(payload), agent, priority))

    async def status(self, execution_id: str) -> Execution:
        return self.store.row(execution_id).seen()

    async def list(
        self, *, kind: str = "", prefix: str = "", top: bool = False, unfinished: bool = False, limit: int = 100
    ) -> Sequence[Execution]:
        rows = [row for row in self.store.rows.values() if kind in ("", row.kind) and row.id.startswith(prefix)]
        rows = [row for row in rows if not (top and row.parent) and not (unfinished and row.status.over)]
        return [row.seen(payload=False) for row in reversed(rows)][:limit]

    async def wait(self, execution_id: str) -> Execution:
        return (await self.store.over(execution_id)).seen()

    def _stop(self, execution_id: str, status: RunStatus) -> None:
        for row in self.store.family(execution_id):
            if row.status in (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.PAUSED) and row.status is not status:
                row.status = status
                row.stopped_by = execution_id
                row.worker = ""
                row.ended_at = time.time() if status.over else 0.0
        self.store.changed()

    def _end_stopped(self) -> None:
        for execution_id, task in self._running.items():
            row = self.store.rows[execution_id]
            if (row.status, row.worker) != (RunStatus.RUNNING, self._worker) and not task.cancelling():
                task.cancel()

    async def cancel(self, execution_id: str) -> None:
        self._stop(execution_id, RunStatus.CANCELLED)

    async def pause(self, execution_id: str) -> None:
        self._stop(execution_id, RunStatus.PAUSED)

    async def resume(self, execution_id: str) -> None:
        first, *others = self.store.family(execution_id)
        ended = (RunStatus.PAUSED, RunStatus.CANCELLED, RunStatus.FAILED)
        for row in [first, *(other for other in others if other.stopped_by and other.stopped_by == first.stopped_by)]:
            if row.status in ended:
                row.status = RunStatus.QUEUED
                row.stopped_by = ""
                row.error = ""
                row.ended_at = 0.0
        self.store.changed()

    async def send(self, execution_id: str, topic: str, message: Json, *, key: str = "") -> bool:
        row = self.store.row(execution_id)
        new = not key or (topic, key) not in row.keyed
        if new:
            row.take_in(topic, json.dumps(message))
            row.keyed |= {(topic, key): json.dumps(message)} if key else {}
        self.store.changed()
        return new

    async def sent(self, execution_id: str, topic: str, key: str) -> Json | None:
        row = self.store.rows.get(execution_id)
        return json.loads(row.keyed.get((topic, key), "null")) if row else None

    async def messages(self, execution_id: str, topic: str) -> Mapping[str, Json]:
        sent = self.store.rows[execution_id].sent if execution_id in self.store.rows else []
        return {f"m{number}": json.loads(text) for number, (on, text) in enumerate(sent) if on == topic}

    async def events(
        self, execution_id: str, *, offset: int = 0, follow: bool = True
    ) -> AsyncIterator[Mapping[str, Any]]:
        row = self.store.row(execution_id)
        while True:
            while offset < len(row.events):
                offset += 1
                yield json.loads(row.events[offset - 1])
            if row.status.over or not follow:
                return
            await self.store.change()

    async def steps(self, execution_id: str) -> Sequence[Step]:
        recorded = self.store.row(execution_id).records.values()
        found = [(name.removeprefix("step "), json.loads(text)) for name, text in recorded if name.startswith("step ")]
        return [Step(name, one.get("value"), ": ".join(one.get("error", ())[:2])) for name, one in found]

    async def spent(self, scope: str) -> Mapping[str, float]:
        return dict(self.store.used.get(scope, {}))

    async def recover(self, worker_id: str) -> int:
        left = [r for r in self.store.rows.values() if r.status is RunStatus.RUNNING and r.worker == worker_id]
        for row in left:
            row.status = RunStatus.QUEUED
            row.worker = ""
        self.store.changed()
        return len(left)

    async def retain(self, before: float) -> int:
        old = [row for row in self.store.rows.values() if row.status.over and row.ended_at < before]
        families = [self.store.family(row.id) for row in old if row.parent not in self.store.rows]
        gone = [row.id for family in families if all(row.status.over for row in family) for row in family]
        for execution_id in gone:
            del self.store.rows[execution_id]
        return len(gone)

    async def health(self) -> Mapping[str, Any]:
        states = [row.status for row in self.store.rows.values()]
        beats = {worker: time.time() - beat for worker, beat in self.store.beats.items()}
        counts = {"queued": states.count(RunStatus.QUEUED), "running": states.count(RunStatus.RUNNING)}
        return {"store": "memory", "workers": beats, **counts}
