"""Operations on the database that need no worker in this process."""

from __future__ import annotations

import asyncio
import os
import platform
from asyncio import Event
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
from ccswarm.errors import EngineUnavailable, RunNotFound
from ccswarm.models import Execution, Json, Priority

T = TypeVar("T")
PAGE = 100
"""The events read at once."""
QUIET_SECONDS = 1.0


class Client:
    """An open engine. Implements ``Engine``."""

    def __init__(self, settings: EngineSettings, directory: Path, kinds: Mapping[str, tuple[Durable, str]]) -> None:
        harden()
        self._settings = settings
        self._directory = directory
        self._shared = Shared(settings, Store(settings, directory), kinds)

    async def open(self, limits: Limits) -> None:
        """Open the store. Its limits apply to all workers; those given are stored only if there are none."""
        await self._shared.call(self._make, self._shared.store, limits)

    async def work(self, worker_id: str, stop: Event, limits: Limits, known: Event) -> None:
        """Run a worker. Without an id its name is that in the settings, else that of the host and process."""
        await self._shared.call(self._limit, self._shared.store, limits, "always_update")
        name = worker_id or self._settings.worker_id or f"{platform.node()}.{os.getpid()}"
        await Worker(self._shared, name).run(stop, known)

    async def close(self) -> None:
        """Release the database."""
        await self._shared.close()

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

    async def submit(self, kind: str, execution_id: str, payload: Json, *, agent: str, priority: Priority) -> None:
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

    async def list(self, kind: str, prefix: str, limit: int, *, top: bool, unfinished: bool) -> Sequence[Execution]:
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

    async def stop(self, execution_id: str, why: str) -> None:
        """Stop an execution. ``why`` is cancelled or paused."""
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

    async def send(self, execution_id: str, topic: str, message: Json, key: str) -> bool:
        new = await self._shared.call(self._shared.send, execution_id, topic, message, key)
        self._shared.activity.ring()
        return new

    async def sent(self, execution_id: str, topic: str, key: str) -> Json | None:
        return await self._shared.call(self._shared.store.sent, execution_id, topic, key)

    async def messages(self, execution_id: str, topic: str) -> Mapping[str, Json]:
        return await self._shared.call(self._shared.store.messages, execution_id, topic)

    async def events(self, execution_id: str, offset: int, follow: bool) -> AsyncGenerator[Mapping[str, Any]]:
        shared = self._shared
        bell = self._shared.bell(execution_id)
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
