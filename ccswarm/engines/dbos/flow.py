"""The operations of a durable function, on dbos."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from dbos import DBOS, SetEnqueueOptions, SetWorkflowID
from dbos._context import DBOSContext
from dbos._context import _set_local_dbos_context as set_context  # pyright: ignore[reportPrivateUsage]
from dbos._error import DBOSWorkflowCancelledError, DBOSWorkflowConflictIDError

from ccswarm.engines.base import Outcome
from ccswarm.engines.dbos import budgets
from ccswarm.engines.dbos.rows import NUMBERS
from ccswarm.engines.dbos.serializer import Recorded, decode_error, encode_error
from ccswarm.engines.dbos.shared import Shared, partition, unreachable
from ccswarm.errors import EngineUnavailable, RunNotFound, UsageInvalid
from ccswarm.models import Json, Priority, RunStatus

T = TypeVar("T")
LANE = 50_000
"""The most calls of one asyncio task on the flow. dbos numbers steps up to 2**31, so 42,949 such tasks are possible."""


class DbosFlow:
    """A flow on dbos. Implements ``Flow``. Every asyncio task that calls a flow is a lane with step numbers of its own.
    So concurrent steps get the same numbers in a replay whatever ended first: only the first calls of the tasks must
    come in the same order."""

    def __init__(self, shared: Shared, context: DBOSContext) -> None:
        task = asyncio.current_task()
        assert task
        self._shared = shared
        self._context = context
        self._main = task
        self._numbers = itertools.count(1)
        self._lanes = WeakKeyDictionary[asyncio.Task[Any], int]({task: 0})
        self._contexts = WeakKeyDictionary[asyncio.Task[Any], DBOSContext]({task: context})

    @property
    def id(self) -> str:
        """The id of the execution, the same in every process."""
        return self._context.workflow_id

    def stop(self) -> None:
        """Cancel the function and all its concurrent tasks."""
        for task in list(self._lanes):
            task.cancel()

    async def end(self) -> None:
        """Cancel the tasks that the function left running."""
        left = [task for task in self._lanes if task is not self._main and not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def step(
        self, name: str, function: Callable[[str], Awaitable[Json]], *, timeout_seconds: float | None = None
    ) -> Json:

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
            except Exception as error:  # raised to the flow, now and in each replay
                return Recorded(json.dumps({"error": encode_error(error)}))

        answer: Any = await self._call(lambda: DBOS.run_step_async({"name": f"step {name}"}, run))
        if isinstance(answer, Recorded):
            answer = json.loads(answer)
        if "error" in answer:
            raise decode_error(answer["error"])
        return answer["value"]

    async def first(self, tasks: Collection[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        await asyncio.sleep(0)  # new tasks get their numbers before this call gets its own
        for task in tasks:
            if task not in self._lanes and isinstance(tasks, AbstractSet):
                raise UsageInvalid("a set of tasks has no stable order", suggestion="pass a list")
            self._lane(task)
        ordered: list[Any] = sorted(tasks, key=self._lane)
        done, _ = await self._call(lambda: DBOS.asyncio_wait(ordered, return_when=asyncio.FIRST_COMPLETED))
        return done

    async def start(
        self, kind: str, execution_id: str, payload: Json, *, agent: str, priority: Priority = "medium"
    ) -> None:
        queue, function = self._shared.queue(kind), self._shared.registered[kind]
        key = partition(agent, execution_id)
        with SetWorkflowID(execution_id), SetEnqueueOptions(priority=NUMBERS[priority], queue_partition_key=key):
            await self._call(lambda: DBOS.enqueue_workflow_async(queue, function, payload))

    async def outcome(self, execution_id: str) -> Outcome:

        async def run() -> list[Json]:
            await self._retry(lambda: self._shared.ends.first([execution_id]))
            child = await self._retry(lambda: self._shared.call(self._shared.execution, execution_id))
            return [child.status.value, child.result, child.error]

        status, result, error = await self._call(lambda: DBOS.run_step_async({"name": f"outcome {execution_id}"}, run))
        return Outcome(RunStatus(status), result, error)

    async def payload_of(self, execution_id: str) -> Json:
        return await self._retry(lambda: self._shared.payload_of(execution_id))

    async def receive(self, topic: str, timeout_seconds: float) -> Json | None:
        return await self._call(lambda: DBOS.recv_async(topic, timeout_seconds))

    async def send(self, execution_id: str, topic: str, message: Json) -> None:
        sender = self.id

        async def run() -> None:
            key = f"{sender}/{DBOS.step_id}"
            with suppress(RunNotFound):
                await self._retry(lambda: self._shared.call(self._shared.send, execution_id, topic, message, key))

        await self._call(lambda: DBOS.run_step_async({"name": f"send {topic}"}, run))
        self._shared.activity.ring()

    async def sleep(self, seconds: float) -> None:
        await self._call(lambda: DBOS.sleep_async(seconds))

    async def emit(self, event: Mapping[str, Any]) -> None:
        await self._call(lambda: DBOS.write_stream_async("events", dict(event)))
        self._shared.bell(self.id).ring()

    async def publish(self, status: Mapping[str, Any]) -> None:
        await self._call(lambda: DBOS.set_event_async("shown", dict(status)))

    async def spend(
        self, scope: str, amounts: Mapping[str, float], caps: Mapping[str, float], *, anyway: bool = False
    ) -> str:
        store, execution = self._shared.store, self.id

        async def run() -> str:
            step = f"{execution}/{DBOS.step_id}"
            call = self._shared.call
            return await self._retry(lambda: call(budgets.spend, store, step, execution, scope, amounts, caps, anyway))

        return await self._call(lambda: DBOS.run_step_async({"name": f"spend {scope}"}, run))

    async def spent(self, scope: str) -> Mapping[str, float]:

        async def run() -> dict[str, float]:
            return await self._retry(lambda: self._shared.call(budgets.spent, self._shared.store, scope))

        return await self._call(lambda: DBOS.run_step_async({"name": f"spent {scope}"}, run))

    def _lane(self, task: asyncio.Task[Any]) -> int:
        if task not in self._lanes:
            self._lanes[task] = next(self._numbers)
        return self._lanes[task]

    async def _retry(self, make: Callable[[], Awaitable[T]]) -> T:
        """Call the store, and retry while it cannot be reached: a worker without it for too long ends by itself."""
        while True:
            try:
                return await make()
            except EngineUnavailable as error:
                if not unreachable(error):
                    raise
                await self._shared.ended.wait(1.0, self._shared.ended.count)

    async def _call(self, make: Callable[[], Awaitable[T]]) -> T:
        """Make a call of dbos in its task's lane. Raises CancelledError once another worker owns the execution."""
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
