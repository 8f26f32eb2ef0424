"""What the executions of one process share: the store, threads for it, and one question for all who wait."""

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
from ccswarm.engines.dbos.rows import STATUS, UNOWNED, seen
from ccswarm.engines.dbos.serializer import text_of
from ccswarm.engines.dbos.store import Store
from ccswarm.errors import EngineUnavailable, RunNotFound, StorageFull, UsageInvalid
from ccswarm.models import Execution, Json

T = TypeVar("T")
MOST_PAYLOADS = 16
"""That are kept at hand."""


class Bell:
    """Wakes who waits in this process, so that polling is for what other processes did. ``count`` goes up with every
    ring: who looks somewhere and then waits says which rings came before the look."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake everybody who waits now."""
        self.count += 1
        self._event.set()
        self._event = asyncio.Event()

    async def heard(self, seconds: float, count: int) -> bool:
        """Until it rang more often than ``count`` times, but no longer than that; whether it did."""
        if self.count == count:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._event.wait()
        return self.count != count


class Ends:
    """Who waits for the end of executions: one question to the store for all of them."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._waiting: dict[asyncio.Future[str], Sequence[str]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def first(self, ids: Sequence[str]) -> str:
        """The first of ``ids`` that is over, or does not exist. Raises EngineUnavailable."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = ids
        self._shared.ended.ring()
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask(), context=contextvars.Context())
        try:
            return await waiter
        finally:
            del self._waiting[waiter]

    async def close(self) -> None:
        """Nobody waits any more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self) -> None:
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
                await shared.ended.heard(shared.settings.poll_seconds, count)
        except Exception as error:  # theirs who wait
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_exception(error)
        finally:
            self._asking = None


class Shared:
    """Of one engine in one process: ``ended`` rings when an execution here was over, ``stirred`` when something here
    was stopped or written to. ``registered`` are the kinds as dbos knows them, while a worker runs."""

    def __init__(self, settings: EngineSettings, store: Store, kinds: Mapping[str, tuple[Durable, str]]) -> None:
        self.settings = settings
        self.store = store
        self.kinds = kinds
        self.ended = Bell()
        self.stirred = Bell()
        self.ends = Ends(self)
        self.registered: dict[str, Callable[..., Any]] = {}
        self._payloads: dict[str, Json] = {}
        self._bells = WeakValueDictionary[str, Bell]()
        self._threads = ThreadPoolExecutor(4, "ccswarm-store")

    def bell(self, execution_id: str) -> Bell:
        """Rings when that execution emitted something here."""
        return self._bells.setdefault(execution_id, Bell())

    async def call(self, function: Callable[..., T], *given: Any, threads: ThreadPoolExecutor | None = None) -> T:
        """``function`` on a thread; raises EngineUnavailable and StorageFull for what the database says."""
        try:
            return await asyncio.get_running_loop().run_in_executor(threads or self._threads, function, *given)
        except (SQLAlchemyError, sqlite3.Error, OSError, DBOSException) as error:
            text = str(getattr(error, "orig", None) or error)
            if "disk is full" in text or "No space left" in text:
                raise StorageFull(f"the store of the runs is full: {text}", suggestion="free disk space") from error
            raise EngineUnavailable(
                f"the store of the runs cannot be used: {text}", suggestion="check engine.database_url and the disk"
            ) from error

    def queue(self, kind: str) -> str:
        """Where executions of that kind wait."""
        if kind not in self.kinds:
            raise UsageInvalid(f"no kind of execution {kind!r}", suggestion=f"known: {', '.join(self.kinds)}")
        return self.kinds[kind][1]

    def execution(self, execution_id: str) -> Execution:
        """The current state. Blocks: call it on a worker thread."""
        found = self.executions({"workflow_ids": [execution_id]})
        if not found:
            raise RunNotFound(f"no execution {execution_id!r}")
        return found[0]

    async def given(self, execution_id: str) -> Json:
        """What it was queued with, which is asked for by each of its parts."""
        if execution_id not in self._payloads:
            found = (await self.call(self.execution, execution_id)).payload
            self._payloads = {**dict(list(self._payloads.items())[1 - MOST_PAYLOADS :]), execution_id: found}
        return self._payloads[execution_id]

    def executions(self, which: Mapping[str, Any]) -> list[Execution]:
        """What ``list_workflows`` of dbos finds; on a thread."""
        rows = self.store.client.list_workflows(**which)
        why, shown = self.store.notes([row.workflow_id for row in rows])
        return [seen(row, text_of(row.error), why.get(row.workflow_id, ""), shown.get(row.workflow_id)) for row in rows]

    def send(self, execution_id: str, topic: str, message: Json, key: str) -> bool:
        """With ``key`` only once: whether it is the first; on a thread."""
        try:
            return self.store.send(execution_id, topic, message, key)
        except DBOSNonExistentWorkflowError as error:
            raise RunNotFound(f"no execution {execution_id!r}") from error

    async def close(self) -> None:
        """Lets go of the database."""
        await self.ends.close()
        await self.call(self.store.bare.dispose)
        self._threads.shutdown(wait=False)


def unreachable(error: EngineUnavailable) -> bool:
    """Whether the store may be there again in a moment, as when its server is started again."""
    return isinstance(error.__cause__, OperationalError | InterfaceError | PoolTimeout)


def partition(agent: str, execution_id: str) -> str:
    """The part of a queue that is one agent's."""
    return agent or UNOWNED + execution_id
