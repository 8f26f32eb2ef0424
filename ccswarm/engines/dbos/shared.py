"""State shared by the executions of one process: the store, its threads, and one query for all waiting tasks."""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from dbos._error import DBOSException, DBOSNonExistentWorkflowError
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ccswarm.config.settings import EngineSettings
from ccswarm.engines.base import Durable
from ccswarm.engines.dbos.rows import STATUS, UNOWNED, to_execution
from ccswarm.engines.dbos.serializer import describe_error
from ccswarm.engines.dbos.store import Store
from ccswarm.errors import EngineUnavailable, RunNotFound, StorageFull, UsageInvalid
from ccswarm.models import Execution, Json

T = TypeVar("T")
MOST_PAYLOADS = 16
"""The number of payloads cached."""


class Bell:
    """Wakes the tasks that wait in this process, so that only changes by other processes need polling. ``count`` grows
    with every ring. A task that checks something and then waits passes the count from before the check."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake all tasks that are waiting."""
        self.count += 1
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float, count: int) -> bool:
        """Wait until it has rung more than ``count`` times, or that long. Report whether it has."""
        if self.count == count:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._event.wait()
        return self.count != count


class Ends:
    """The tasks that wait for executions to end, with one query for all of them."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._waiting: dict[asyncio.Future[str], Sequence[str]] = {}
        self._query: asyncio.Task[None] | None = None

    async def first(self, ids: Sequence[str]) -> str:
        """Return the first of ``ids`` that has ended or does not exist. Raises EngineUnavailable."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = ids
        self._shared.ended.ring()
        if self._query is None:
            self._query = asyncio.create_task(self._poll(), context=contextvars.Context())
        try:
            return await waiter
        finally:
            del self._waiting[waiter]

    async def close(self) -> None:
        """Cancel the query."""
        if self._query is not None:
            self._query.cancel()
            await asyncio.gather(self._query, return_exceptions=True)

    async def _poll(self) -> None:
        shared = self._shared
        try:
            while self._waiting:
                count = shared.ended.count
                wanted = sorted({one for ids in self._waiting.values() for one in ids})
                states = await shared.call(shared.store.states, wanted)
                for waiter, ids in self._waiting.items():
                    over = next((one for one in ids if one in wanted and STATUS[states.get(one, "ERROR")].over), None)
                    if over is not None and not waiter.done():
                        waiter.set_result(over)
                await shared.ended.wait(shared.settings.poll_seconds, count)
        except Exception as error:  # raised in the waiting tasks
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_exception(error)
        finally:
            self._query = None


class Shared:
    """The shared state of one engine in one process. ``ended`` rings when an execution ends here, ``activity`` when one
    is stopped or gets a message here. ``registered`` are the kinds as dbos knows them, while a worker runs."""

    def __init__(self, settings: EngineSettings, store: Store, kinds: Mapping[str, tuple[Durable, str]]) -> None:
        self.settings = settings
        self.store = store
        self.kinds = kinds
        self.ended = Bell()
        self.activity = Bell()
        self.ends = Ends(self)
        self.registered: dict[str, Callable[..., Any]] = {}
        self._payloads: dict[str, Json] = {}
        self._bells = WeakValueDictionary[str, Bell]()
        self._threads = ThreadPoolExecutor(4, "ccswarm-store")

    def bell(self, execution_id: str) -> Bell:
        """Return the bell that rings when that execution emits an event here."""
        return self._bells.setdefault(execution_id, Bell())

    async def call(self, function: Callable[..., T], *args: Any, threads: ThreadPoolExecutor | None = None) -> T:
        """Run ``function`` on a thread. Raises EngineUnavailable and StorageFull for errors of the database."""
        try:
            return await asyncio.get_running_loop().run_in_executor(threads or self._threads, function, *args)
        except (SQLAlchemyError, sqlite3.Error, OSError, DBOSException) as error:
            text = str(getattr(error, "orig", None) or error)
            if "disk is full" in text or "No space left" in text:
                raise StorageFull(f"the store of the runs is full: {text}", suggestion="free disk space") from error
            raise EngineUnavailable(
                f"the store of the runs cannot be used: {text}", suggestion="check engine.database_url and the disk"
            ) from error

    def queue(self, kind: str) -> str:
        """Return the queue for executions of that kind. Raises UsageInvalid for an unknown one."""
        if kind not in self.kinds:
            raise UsageInvalid(f"no kind of execution {kind!r}", suggestion=f"known: {', '.join(self.kinds)}")
        return self.kinds[kind][1]

    def execution(self, execution_id: str) -> Execution:
        """Return the current state. Blocks: call it on a worker thread. Raises RunNotFound."""
        found = self.executions({"workflow_ids": [execution_id]})
        if not found:
            raise RunNotFound(f"no execution {execution_id!r}")
        return found[0]

    async def payload_of(self, execution_id: str) -> Json:
        """Return the payload of an execution. Cached, because each of its parts reads it."""
        if execution_id not in self._payloads:
            found = (await self.call(self.execution, execution_id)).payload
            self._payloads = {**dict(list(self._payloads.items())[1 - MOST_PAYLOADS :]), execution_id: found}
        return self._payloads[execution_id]

    def executions(self, which: Mapping[str, Any]) -> list[Execution]:
        """Return the executions that dbos's ``list_workflows`` finds. Blocks."""
        rows = self.store.client.list_workflows(**which)
        why, shown = self.store.notes([row.workflow_id for row in rows])
        return [
            to_execution(row, describe_error(row.error), why.get(row.workflow_id, ""), shown.get(row.workflow_id))
            for row in rows
        ]

    def send(self, execution_id: str, topic: str, message: Json, key: str) -> bool:
        """Send a message, only once with a ``key``, and report whether this was the first. Blocks."""
        try:
            return self.store.send(execution_id, topic, message, key)
        except DBOSNonExistentWorkflowError as error:
            raise RunNotFound(f"no execution {execution_id!r}") from error

    async def close(self) -> None:
        """Release the database."""
        await self.ends.close()
        await self.call(self.store.bare.dispose)
        self._threads.shutdown(wait=False)


def unreachable(error: EngineUnavailable) -> bool:
    """Report whether the store may be available again soon, as when its server restarts."""
    return isinstance(error.__cause__, OperationalError | InterfaceError | PoolTimeout)


def partition(agent: str, execution_id: str) -> str:
    """Return the part of a queue that belongs to one agent."""
    return agent or UNOWNED + execution_id
