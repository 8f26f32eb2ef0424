"""Stores and executes runs with dbos: in a SQLite file without a server, or in PostgreSQL for many machines.

dbos exists once in a process, so a process has at most one worker at a time. Other operations use the database directly
and do not need it.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ccswarm.config.settings import EngineSettings
from ccswarm.engines.base import RUNS, TASKS, Durable, Limits, Step
from ccswarm.engines.dbos import budgets
from ccswarm.engines.dbos.rows import NUMBERS, STATUS
from ccswarm.engines.dbos.serializer import harden
from ccswarm.engines.dbos.shared import Shared, partition, unreachable
from ccswarm.engines.dbos.store import Store
from ccswarm.engines.dbos.workers import VERSION, Worker
from ccswarm.errors import EngineUnavailable, RunNotFound, UsageInvalid
from ccswarm.models import Execution, Json, Priority

T = TypeVar("T")
PAGE = 100
"""The events read at once."""
QUIET_SECONDS = 1.0
NO_LIMITS = Limits()
WORKING: list[str] = []
"""The worker of this process."""


class DbosEngine:
    """Implements ``Engine``. Counts ``open`` and ``close``, so that a worker and its watcher may share one."""

    def __init__(self, settings: EngineSettings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._kinds: dict[str, tuple[Durable, str]] = {}
        self._users = 0
        self._opening = asyncio.Lock()
        self._open: Shared | None = None

    @property
    def _shared(self) -> Shared:
        if self._open is None:
            raise EngineUnavailable("the engine is not open", suggestion="open it first")
        return self._open

    def define(self, kind: str, function: Durable, *, queue: str = TASKS) -> None:
        self._kinds[kind] = (function, queue)

    async def open(self, *, limits: Limits = NO_LIMITS) -> None:
        """Implements ``Engine``. The limits apply to all workers, and are stored only if there are none."""
        async with self._opening:
            if self._open is None:
                harden()
                shared = Shared(self._settings, Store(self._settings, self._directory), self._kinds)
                try:
                    await shared.call(self._make, shared.store, limits)
                except BaseException:
                    await shared.close()
                    raise
                self._open = shared
            self._users += 1

    async def close(self) -> None:
        async with self._opening:
            self._users = max(0, self._users - 1)
            if self._users == 0 and self._open is not None:
                shared = self._open
                self._open = None
                await shared.close()

    async def run_worker(
        self, worker_id: str, stop: asyncio.Event, *, limits: Limits = NO_LIMITS, known: asyncio.Event | None = None
    ) -> None:
        """Implements ``Engine``. Without an id the worker's name is that in the settings, else that of the host and
        process."""
        if WORKING:
            raise UsageInvalid(f"this process is already worker {WORKING[0]!r}", suggestion="start another process")
        WORKING.append(worker_id)
        try:
            await self.open(limits=limits)
            try:
                await self._shared.call(self._limit, self._shared.store, limits, "always_update")
                name = worker_id or self._settings.worker_id or f"{platform.node()}.{os.getpid()}"
                await Worker(self._shared, name).run(stop, known or asyncio.Event())
            finally:
                await self.close()
        finally:
            WORKING.clear()

    def _make(self, store: Store, limits: Limits) -> None:
        store.create()
        if not store.has_queues((RUNS, TASKS)):
            self._limit(store, limits, "never_update")

    def _limit(self, store: Store, limits: Limits, conflict: Any) -> None:
        """Store the limits of tasks. Runs have none: they wait for their tasks, and would keep these from starting."""
        poll = self._settings.poll_seconds
        store.client.register_queue(RUNS, polling_interval_sec=poll, on_conflict=conflict)
        period = {"limit": limits.starts, "period": limits.period_seconds}
        limited: Any = period if limits.starts and limits.period_seconds else None
        at_once, per_worker = limits.at_once or None, limits.per_worker or None
        fewest = min(limits.per_agent or 0, limits.at_once or limits.per_agent)
        store.client.register_queue(
            TASKS,
            global_concurrency=at_once,
            worker_concurrency=min(per_worker, at_once or per_worker) if per_worker else None,
            partition_concurrency=fewest or None,
            limiter=limited,
            polling_interval_sec=poll,
            on_conflict=conflict,
        )

    async def submit(
        self, kind: str, execution_id: str, payload: Json, *, agent: str = "", priority: Priority = "medium"
    ) -> None:
        options: Any = {
            "queue_name": self._shared.queue(kind),
            "workflow_name": kind,
            "workflow_id": execution_id,
            "app_version": VERSION,
            "priority": NUMBERS[priority],
            "queue_partition_key": partition(agent, execution_id),
        }
        await self._shared.call(self._shared.store.client.enqueue, options, payload)

    async def status(self, execution_id: str) -> Execution:
        return await self._shared.call(self._shared.execution, execution_id)

    async def list(
        self, *, kind: str = "", prefix: str = "", top: bool = False, unfinished: bool = False, limit: int = 100
    ) -> Sequence[Execution]:
        which: dict[str, Any] = {"name": kind or None, "workflow_id_prefix": prefix or None, "limit": limit}
        which |= {"has_parent": False if top else None, "sort_desc": True, "load_input": False}
        return await self._shared.call(self._unfinished if unfinished else self._shared.executions, which)

    def _unfinished(self, which: Mapping[str, Any]) -> Sequence[Execution]:
        """Return executions that have not ended. Paused ones are cancelled in dbos."""
        active = self._shared.executions({**which, "status": list(budgets.ACTIVE)})
        paused = self._shared.store.paused()
        stopped = self._shared.executions({**which, "workflow_ids": paused}) if paused else []
        found = {one.id: one for one in (*active, *stopped) if not one.status.over}
        return sorted(found.values(), key=lambda one: one.created_at, reverse=True)[: which["limit"]]

    async def wait(self, execution_id: str) -> Execution:
        await self._retry(lambda: self._shared.ends.first([execution_id]))
        return await self._retry(lambda: self.status(execution_id))

    async def cancel(self, execution_id: str) -> None:
        await self._stop(execution_id, "cancelled")

    async def pause(self, execution_id: str) -> None:
        await self._stop(execution_id, "paused")

    async def _stop(self, execution_id: str, why: str) -> None:
        await self._shared.call(self._stop_now, execution_id, why)
        self._shared.activity.ring()
        self._shared.ended.ring()

    def _stop_now(self, root: str, why: str) -> None:
        """Mark the family before and after dbos cancels it, because it may start more executions meanwhile. dbos
        cancels from the parents down, and a cancelled parent starts nothing more."""
        store = self._shared.store

        def mark() -> None:
            family = store.family(root)
            if not family:
                raise RunNotFound(f"no execution {root!r}")
            unmarked = [row for row in family if row.status not in ("SUCCESS", "ERROR") and row.why is None]
            again = [row for row in family if row.status == "CANCELLED" and row.why == "paused" and why == "cancelled"]
            store.mark([row.workflow_uuid for row in (*unmarked, *again)], root, why)

        mark()
        store.client.cancel_workflow(root, cancel_children=True)
        mark()
        ended = [row.workflow_uuid for row in store.family(root) if row.status in ("SUCCESS", "ERROR") and row.why]
        store.unmark(ended)

    async def resume(self, execution_id: str) -> None:
        await self._shared.call(self._resume_now, execution_id)

    def _resume_now(self, execution_id: str) -> None:
        """Resume children before their parents, which would otherwise see them as cancelled."""
        store = self._shared.store
        family = store.family(execution_id)
        if not family:
            raise RunNotFound(f"no execution {execution_id!r}")
        top = family[0]
        again = [row for row in family if row.status == "CANCELLED" and (row is top or row.root == top.root)]
        for row in reversed(again):
            store.client.resume_workflow(row.workflow_uuid, queue_name=self._shared.queue(row.name))
        store.unmark([row.workflow_uuid for row in again])  # earlier, paused ones would seem to have ended
        if STATUS[top.status].over and top.status not in ("SUCCESS", "CANCELLED"):
            store.retry(execution_id, self._shared.queue(top.name))

    async def send(self, execution_id: str, topic: str, message: Json, *, key: str = "") -> bool:
        new = await self._shared.call(self._shared.send, execution_id, topic, message, key)
        self._shared.activity.ring()
        return new

    async def sent(self, execution_id: str, topic: str, key: str) -> Json | None:
        return await self._shared.call(self._shared.store.sent, execution_id, topic, key)

    async def messages(self, execution_id: str, topic: str) -> Mapping[str, Json]:
        return await self._shared.call(self._shared.store.messages, execution_id, topic)

    async def events(
        self, execution_id: str, *, offset: int = 0, follow: bool = True
    ) -> AsyncGenerator[Mapping[str, Any]]:
        shared = self._shared
        bell = shared.bell(execution_id)
        pause = self._settings.poll_seconds
        read = shared.store.system.read_stream_values
        decode = shared.store.system.serializer.deserialize
        status = partial(self._retry, partial(self.status, execution_id))
        while True:
            count = bell.count
            state, values = await self._retry(partial(shared.call, read, execution_id, "events", offset, PAGE))
            for text, _ in values:
                offset += 1
                yield decode(text or "null")
            if values:
                pause = self._settings.poll_seconds
                continue
            if state is None or not follow or (STATUS[state].over and (await status()).status.over):
                await status()
                return
            # Quiet executions are polled less often: there may be one for each of many tasks.
            pause = self._settings.poll_seconds if await bell.wait(pause, count) else min(pause * 2, QUIET_SECONDS)

    async def _retry(self, make: Callable[[], Awaitable[T]]) -> T:
        """Retry while the server cannot be reached, for as long as workers do."""
        now = asyncio.get_running_loop().time
        until = 0.0
        while True:
            try:
                return await make()
            except EngineUnavailable as error:
                until = until or now() + self._settings.lost_after_seconds
                if not (self._shared.store.remote and unreachable(error)) or now() >= until:
                    raise
                await self._shared.ended.wait(QUIET_SECONDS, self._shared.ended.count)

    async def steps(self, execution_id: str) -> Sequence[Step]:
        return await self._shared.call(self._shared.store.steps, execution_id)

    async def spent(self, scope: str) -> Mapping[str, float]:
        return await self._shared.call(budgets.spent, self._shared.store, scope)

    async def recover(self, worker_id: str) -> int:
        return await self._shared.call(self._shared.store.recover, worker_id, VERSION)

    async def retain(self, before: float) -> int:
        return await self._shared.call(budgets.retain, self._shared.store, before)

    async def health(self) -> Mapping[str, Any]:
        shared = self._shared
        workers, counts = await shared.call(lambda: (shared.store.workers(), shared.store.count()))
        return {
            "store": "postgresql" if shared.store.remote else f"sqlite {self._directory / 'engine.db'}",
            "workers": {worker: age for worker, (_, _, age) in workers.items()},
            "queued": counts.get("ENQUEUED", 0) + counts.get("DELAYED", 0),
            "running": counts.get("PENDING", 0),
        }
