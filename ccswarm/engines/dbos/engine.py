"""Stores and executes runs with dbos: in a SQLite file without a server, or in PostgreSQL for many machines.

dbos exists once in a process, so a process has at most one worker at a time. Other operations use the database directly
and do not need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccswarm.engines.base import TASKS, Durable, Limits, Step
from ccswarm.errors import EngineUnavailable, UsageInvalid
from ccswarm.models import Execution, Json, Priority

if TYPE_CHECKING:
    from types import ModuleType

    from ccswarm.config.settings import EngineSettings
    from ccswarm.engines.dbos.client import Client

NO_LIMITS = Limits()
WORKING: list[str] = []
"""The worker of this process."""


def _client() -> ModuleType:
    from ccswarm.engines.dbos import client as dbos_client

    return dbos_client


class DbosEngine:
    """Implements ``Engine``. Counts ``open`` and ``close``, so that a worker and its watcher may share one."""

    def __init__(self, settings: EngineSettings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._kinds: dict[str, tuple[Durable, str]] = {}
        self._users = 0
        self._opening = asyncio.Lock()
        self._open: Client | None = None

    @property
    def _client(self) -> Client:
        if self._open is None:
            raise EngineUnavailable("the engine is not open", suggestion="open it first")
        return self._open

    def define(self, kind: str, function: Durable, *, queue: str = TASKS) -> None:
        self._kinds[kind] = (function, queue)

    async def open(self, *, limits: Limits = NO_LIMITS) -> None:
        """Implements ``Engine``. Importing dbos takes a third of a second and is done on a thread."""
        async with self._opening:
            if self._open is None:
                client: Client = (await asyncio.to_thread(_client)).Client(self._settings, self._directory, self._kinds)
                try:
                    await client.open(limits)
                except BaseException:
                    await client.close()
                    raise
                self._open = client
            self._users += 1

    async def close(self) -> None:
        async with self._opening:
            self._users = max(0, self._users - 1)
            if self._users == 0 and self._open is not None:
                client = self._open
                self._open = None
                await client.close()

    async def run_worker(
        self, worker_id: str, stop: asyncio.Event, *, limits: Limits = NO_LIMITS, known: asyncio.Event | None = None
    ) -> None:
        if WORKING:
            raise UsageInvalid(f"this process is already worker {WORKING[0]!r}", suggestion="start another process")
        WORKING.append(worker_id)
        try:
            await self.open(limits=limits)
            try:
                await self._client.work(worker_id, stop, limits, known or asyncio.Event())
            finally:
                await self.close()
        finally:
            WORKING.clear()

    async def submit(
        self, kind: str, execution_id: str, payload: Json, *, agent: str = "", priority: Priority = "medium"
    ) -> None:
        await self._client.submit(kind, execution_id, payload, agent=agent, priority=priority)

    async def status(self, execution_id: str) -> Execution:
        return await self._client.status(execution_id)

    async def list(
        self, *, kind: str = "", prefix: str = "", top: bool = False, unfinished: bool = False, limit: int = 100
    ) -> Sequence[Execution]:
        return await self._client.list(kind, prefix, limit, top=top, unfinished=unfinished)

    async def wait(self, execution_id: str) -> Execution:
        return await self._client.wait(execution_id)

    async def cancel(self, execution_id: str) -> None:
        await self._client.stop(execution_id, "cancelled")

    async def pause(self, execution_id: str) -> None:
        await self._client.stop(execution_id, "paused")

    async def resume(self, execution_id: str) -> None:
        await self._client.resume(execution_id)

    async def send(self, execution_id: str, topic: str, message: Json, *, key: str = "") -> bool:
        return await self._client.send(execution_id, topic, message, key)

    async def sent(self, execution_id: str, topic: str, key: str) -> Json | None:
        return await self._client.sent(execution_id, topic, key)

    async def messages(self, execution_id: str, topic: str) -> Mapping[str, Json]:
        return await self._client.messages(execution_id, topic)

    def events(self, execution_id: str, *, offset: int = 0, follow: bool = True) -> AsyncIterator[Mapping[str, Any]]:
        return self._client.events(execution_id, offset, follow)

    async def steps(self, execution_id: str) -> Sequence[Step]:
        return await self._client.steps(execution_id)

    async def spent(self, scope: str) -> Mapping[str, float]:
        return await self._client.spent(scope)

    async def recover(self, worker_id: str) -> int:
        return await self._client.recover(worker_id)

    async def retain(self, before: float) -> int:
        return await self._client.retain(before)

    async def health(self) -> Mapping[str, Any]:
        return await self._client.health()
