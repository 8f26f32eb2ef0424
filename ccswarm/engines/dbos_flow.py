"""What a durable function does on dbos, and what every execution of a process shares."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from dbos import DBOS, SetEnqueueOptions, SetWorkflowID
from dbos._context import DBOSContext
from dbos._context import _set_local_dbos_context as set_context  # pyright: ignore[reportPrivateUsage]
from dbos._error import (
    DBOSException,
    DBOSNonExistentWorkflowError,
    DBOSWorkflowCancelledError,
    DBOSWorkflowConflictIDError,
)
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ccswarm.engines import dbos_accounts as accounts
from ccswarm.engines.base import Durable, Execution, Outcome
from ccswarm.engines.dbos_store import Store
from ccswarm.engines.dbos_values import NUMBERS, Recorded, error_of, text_of, words_of
from ccswarm.errors import EngineUnavailable, RunNotFound, StorageFull, UsageInvalid
from ccswarm.models import Json, Priority, RunStatus
from ccswarm.settings import EngineSettings

T = TypeVar("T")
STATUS = {
    "ENQUEUED": RunStatus.QUEUED,
    "DELAYED": RunStatus.QUEUED,
    "PENDING": RunStatus.RUNNING,
    "SUCCESS": RunStatus.SUCCEEDED,
    "ERROR": RunStatus.FAILED,
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": RunStatus.FAILED,
    "CANCELLED": RunStatus.CANCELLED,
    "PAUSED": RunStatus.PAUSED,
}
PRIORITY: dict[int, Priority] = {number: name for name, number in NUMBERS.items()}
LANE = 50_000
"""Calls of one asyncio task on the flow; dbos numbers steps up to 2**31, so there may be 42,949 such tasks."""
UNOWNED = "~"
"""Begins the partition of an execution that is no agent's: each is alone in its own."""


class Bell:
    """Wakes who waits in this process, so that polling is for what other processes did."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake everybody who waits now."""
        self._event.set()
        self._event = asyncio.Event()

    async def heard(self, seconds: float) -> None:
        """Until it rings, but no longer than that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()


class Shared:
    """Of one engine in one process: ``changed`` rings when an execution here got on, ``stopped`` when one was stopped
    here. ``registered`` are the kinds as dbos knows them, while a worker runs."""

    def __init__(self, settings: EngineSettings, store: Store, kinds: Mapping[str, tuple[Durable, str]]) -> None:
        self.settings, self.store, self.kinds = settings, store, kinds
        self.changed, self.stopped = Bell(), Bell()
        self.registered: dict[str, Callable[..., Any]] = {}
        self._threads = ThreadPoolExecutor(4, "ccswarm-store")

    async def call(self, function: Callable[..., T], *given: Any, threads: ThreadPoolExecutor | None = None) -> T:
        """``function`` on a thread; raises EngineUnavailable and StorageFull for what the database says."""
        try:
            return await asyncio.get_running_loop().run_in_executor(threads or self._threads, function, *given)
        except (SQLAlchemyError, sqlite3.Error, OSError, DBOSException) as error:
            text = str(getattr(error, "orig", None) or error)
            if "disk is full" in text or "No space left" in text:
                raise StorageFull(f"the store of the runs is full: {text}", suggestion="free disk space") from error
            raise EngineUnavailable(
                f"the store of the runs cannot be used: {text}", suggestion="look at engine.database_url and the disk"
            ) from error

    def queue(self, kind: str) -> str:
        """Where executions of that kind wait."""
        if kind not in self.kinds:
            raise UsageInvalid(f"no kind of execution is called {kind!r}", suggestion=f"known: {', '.join(self.kinds)}")
        return self.kinds[kind][1]

    def execution(self, execution_id: str) -> Execution:
        """As it is now; on a thread."""
        found = self.executions(workflow_ids=[execution_id])
        if not found:
            raise RunNotFound(f"no execution is called {execution_id!r}")
        return found[0]

    def executions(self, **which: Any) -> list[Execution]:
        """What ``list_workflows`` of dbos finds; on a thread."""
        rows = self.store.client.list_workflows(**which)
        why, shown = self.store.notes([row.workflow_id for row in rows])
        return [seen(row, why.get(row.workflow_id, ""), shown.get(row.workflow_id)) for row in rows]

    def send(self, execution_id: str, topic: str, message: Json, key: str) -> None:
        """With ``key`` only once; on a thread."""
        try:
            self.store.client.send(execution_id, message, topic, f"{execution_id}/{topic}/{key}" if key else None)
        except DBOSNonExistentWorkflowError as error:
            raise RunNotFound(f"no execution is called {execution_id!r}") from error

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=False)


def seen(row: Any, why: str, shown: Mapping[str, Any] | None) -> Execution:
    """A row of dbos as an execution. Of an execution that waits dbos names the worker that queued it."""
    paused = row.status == "CANCELLED" and why == "paused"
    given: Any = row.input
    status = RunStatus.PAUSED if paused else STATUS[row.status]
    agent = row.queue_partition_key or ""
    return Execution(
        id=row.workflow_id,
        kind=row.name,
        status=status,
        parent=row.parent_workflow_id or "",
        agent="" if agent.startswith(UNOWNED) else agent,
        priority=PRIORITY.get(row.priority, "medium"),
        worker=(row.executor_id or "") if status is RunStatus.RUNNING or status.over else "",
        created_at=(row.created_at or 0) / 1000,
        ended_at=(row.completed_at or 0) / 1000 if status.over else 0.0,
        payload=given["args"][0] if isinstance(given, dict) else None,
        result=row.output if status is RunStatus.SUCCEEDED else None,
        error=text_of(row.error),
        shown=shown,
    )


def partition(agent: str, execution_id: str) -> str:
    """The part of a queue that is one agent's."""
    return agent or UNOWNED + execution_id


class DbosFlow:
    """Every asyncio task that calls a flow is a lane with numbers of its own, so that what goes on side by side gets
    the same numbers again whatever ended first: only the first calls of the tasks must come in the same order."""

    def __init__(self, shared: Shared, context: DBOSContext) -> None:
        task = asyncio.current_task()
        assert task
        self._shared, self._context, self._main = shared, context, task
        self._numbers = itertools.count(1)
        self._lanes = WeakKeyDictionary[asyncio.Task[Any], int]({task: 0})
        self._contexts = WeakKeyDictionary[asyncio.Task[Any], DBOSContext]({task: context})

    @property
    def id(self) -> str:
        """The same whoever runs it."""
        return self._context.workflow_id

    def stop(self) -> None:
        """Cancel the function and everything it does side by side."""
        for task in list(self._lanes):
            task.cancel()

    async def end(self) -> None:
        """After the function: what it left running is cancelled."""
        left = [task for task in self._lanes if task is not self._main and not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def step(
        self, name: str, function: Callable[[str], Awaitable[Json]], *, timeout_seconds: float | None = None
    ) -> Json:
        """See Flow."""

        async def run() -> Recorded:
            bound = asyncio.timeout(timeout_seconds)
            try:
                try:
                    async with bound:
                        value = await function(f"{DBOS.workflow_id}/{DBOS.step_id}")
                except TimeoutError:
                    if not bound.expired():
                        raise
                    raise TimeoutError(f"{name} took longer than {timeout_seconds:g} s") from None
                return Recorded(json.dumps({"value": value}))
            except Exception as error:  # the flow's, now and whenever the step is replayed
                return Recorded(json.dumps({"error": words_of(error)}))

        answer: Any = await self._do(lambda: DBOS.run_step_async({"name": f"step {name}"}, run))
        if isinstance(answer, Recorded):
            answer = json.loads(answer)
        if "error" in answer:
            raise error_of(answer["error"])
        return answer["value"]

    async def first(self, tasks: Collection[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        """See Flow."""
        await asyncio.sleep(0)  # tasks that were just made get their numbers before this call gets its own
        for task in tasks:
            if task not in self._lanes and isinstance(tasks, AbstractSet):
                raise UsageInvalid("a set of tasks has no order that is always the same", suggestion="give a list")
            self._lane(task)
        ordered: list[Any] = sorted(tasks, key=self._lane)
        done, _ = await self._do(lambda: DBOS.asyncio_wait(ordered, return_when=asyncio.FIRST_COMPLETED))
        return done

    async def start(
        self, kind: str, execution_id: str, payload: Json, *, agent: str, priority: Priority = "medium"
    ) -> None:
        """See Flow."""
        queue, function = self._shared.queue(kind), self._shared.registered[kind]
        key = partition(agent, execution_id)
        with SetWorkflowID(execution_id), SetEnqueueOptions(priority=NUMBERS[priority], queue_partition_key=key):
            await self._do(lambda: DBOS.enqueue_workflow_async(queue, function, payload))
        self._shared.changed.ring()

    async def first_of(self, ids: Sequence[str]) -> str:
        """See Flow."""

        async def run() -> str:
            while True:
                states = await self._ask(self._shared.store.states, ids)
                for one in ids:
                    if one in states and STATUS[states[one]].over:
                        return one
                await self._shared.changed.heard(self._shared.settings.poll_seconds)

        return await self._do(lambda: DBOS.run_step_async({"name": "first_of"}, run))

    async def outcome(self, execution_id: str) -> Outcome:
        """See Flow."""

        async def run() -> list[Json]:
            while True:
                child = await self._ask(self._shared.execution, execution_id)
                if child.status.over:
                    return [child.status.value, child.result, child.error]
                await self._shared.changed.heard(self._shared.settings.poll_seconds)

        given = await self._do(lambda: DBOS.run_step_async({"name": f"outcome {execution_id}"}, run))
        return Outcome(RunStatus(given[0]), given[1], given[2])

    async def receive(self, topic: str, timeout_seconds: float) -> Json | None:
        """See Flow."""
        return await self._do(lambda: DBOS.recv_async(topic, timeout_seconds))

    async def send(self, execution_id: str, topic: str, message: Json) -> None:
        """See Flow."""
        sender = self.id

        async def run() -> None:
            key = f"{sender}/{DBOS.step_id}"
            with suppress(RunNotFound):
                await self._ask(self._shared.send, execution_id, topic, message, key)

        await self._do(lambda: DBOS.run_step_async({"name": f"send {topic}"}, run))
        self._shared.changed.ring()

    async def sleep(self, seconds: float) -> None:
        """See Flow."""
        await self._do(lambda: DBOS.sleep_async(seconds))

    async def emit(self, event: Mapping[str, Any]) -> None:
        """See Flow."""
        await self._do(lambda: DBOS.write_stream_async("events", dict(event)))
        self._shared.changed.ring()

    async def publish(self, status: Mapping[str, Any]) -> None:
        """See Flow."""
        await self._do(lambda: DBOS.set_event_async("shown", dict(status)))
        self._shared.changed.ring()

    async def spend(self, scope: str, amounts: Mapping[str, float], caps: Mapping[str, float]) -> str:
        """See Flow."""
        store, execution = self._shared.store, self.id

        async def run() -> str:
            step = f"{execution}/{DBOS.step_id}"
            return await self._ask(accounts.spend, store, step, execution, scope, amounts, caps)

        return await self._do(lambda: DBOS.run_step_async({"name": f"spend {scope}"}, run))

    def _lane(self, task: asyncio.Task[Any]) -> int:
        if task not in self._lanes:
            self._lanes[task] = next(self._numbers)
        return self._lanes[task]

    async def _ask(self, function: Callable[..., T], *given: Any) -> T:
        """The store, however long it cannot be reached: a worker that loses it for too long ends by itself."""
        while True:
            try:
                return await self._shared.call(function, *given)
            except EngineUnavailable as error:
                if not isinstance(error.__cause__, OperationalError | InterfaceError | PoolTimeout):
                    raise
                await self._shared.changed.heard(1.0)

    async def _do(self, make: Callable[[], Awaitable[T]]) -> T:
        """Every call goes through here: in its task's lane, and as a cancellation once the execution is not ours."""
        task = asyncio.current_task()
        assert task
        number = self._lane(task)
        if task not in self._contexts:
            self._contexts[task] = context = copy.copy(self._context)
            context.function_id = number * LANE
            set_context(context)
        if self._contexts[task].function_id > (number + 1) * LANE - 8:
            raise UsageInvalid(f"more than {LANE} calls of one task on the flow of {self.id}")
        try:
            return await make()
        except (DBOSWorkflowConflictIDError, DBOSWorkflowCancelledError):
            for other in list(self._lanes):
                if other is not task:
                    other.cancel()
            raise asyncio.CancelledError from None
