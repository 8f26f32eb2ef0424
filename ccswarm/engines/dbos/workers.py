"""A worker: executes queued work, sends heartbeats, and takes over the work of lost workers."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn

from dbos import DBOS, DBOSConfig
from dbos import _dbos as dbos_module  # pyright: ignore[reportPrivateUsage]
from dbos._context import assert_current_dbos_context
from dbos._queue import queue_thread as poll_queues

from ccswarm.engines.base import Durable
from ccswarm.engines.dbos import budgets
from ccswarm.engines.dbos.bell import Doorbell
from ccswarm.engines.dbos.flow import DbosFlow
from ccswarm.engines.dbos.serializer import AsciiJson, Recorded
from ccswarm.engines.dbos.shared import Shared
from ccswarm.engines.dbos.store import NAME
from ccswarm.errors import EngineUnavailable, UsageInvalid
from ccswarm.models import Json

VERSION = "1"
"""The version of the durable functions. Work queued by another version waits for a worker of that version."""
ATTEMPTS = 1000
"""How often an execution may be taken over before it fails, in case it kills its worker each time."""
FENCED = 75
WATCH_SECONDS = 0.5
"""The interval of checks whether another process stopped an execution that runs here."""
RETAIN_SECONDS = 3600
GRACE_SECONDS = 10
"""The time for steps to end when the worker stops."""
log = logging.getLogger(__name__)


class Worker:
    """The worker of a process, which has only one because dbos exists once in a process."""

    def __init__(self, shared: Shared, worker_id: str) -> None:
        self._shared = shared
        self.id = worker_id
        self._host = platform.node()
        self._stopping = asyncio.Event()
        self._flows: dict[tuple[str, str], tuple[DbosFlow, asyncio.Task[Any]]] = {}
        self._pulse = ThreadPoolExecutor(1, "ccswarm-pulse")

    async def run(self, stop: asyncio.Event, known: asyncio.Event) -> None:
        """Work until ``stop`` is set. ``known`` is set when the store has the first heartbeat."""
        await self._shared.call(self._announce)
        known.set()
        try:
            await self._launch()
            duties = [asyncio.create_task(duty()) for duty in (self._send_heartbeats, self._watch, self._clean)]
            duties.append(asyncio.create_task(stop.wait()))  # pyright: ignore[reportArgumentType]
            try:
                done, _ = await asyncio.wait(duties, return_when=asyncio.FIRST_COMPLETED)
                for duty in done:
                    duty.result()
            finally:
                self._stopping.set()
                for duty in duties:
                    duty.cancel()
                await asyncio.gather(*duties, return_exceptions=True)
        finally:
            await self._leave()

    def _announce(self) -> None:
        """Send the first heartbeat before any work. Raises UsageInvalid if another live process has this id. Two
        workers of one name would execute each other's work. The successor of a process that ended may use its name at
        once."""
        store, settings = self._shared.store, self._shared.settings
        host, pid, age = store.workers().get(self.id, ("", 0, 0.0))
        if host == self._host and pid != os.getpid() and age < settings.lost_after_seconds and alive(pid):
            raise UsageInvalid(
                f"worker {self.id!r} is already running: process {pid}", suggestion="use another worker ID"
            )
        store.beat(self.id, self._host, os.getpid())

    async def _launch(self) -> None:
        dbos_module.queue_thread = self._queues  # pyright: ignore[reportPrivateImportUsage]
        dbos_module.background_jobs_thread = _idle  # pyright: ignore[reportPrivateImportUsage]
        for kind, (function, _) in self._shared.kinds.items():
            durable = self._durable(function)
            self._shared.registered[kind] = DBOS.workflow(name=kind, max_recovery_attempts=ATTEMPTS)(durable)
        settings = self._shared.settings
        config: DBOSConfig = {
            "name": NAME,
            "application_version": VERSION,
            "executor_id": self.id,
            "system_database_engine": self._shared.store.bare,
            "serializer": AsciiJson(),
            "max_executor_threads": settings.threads,
            "run_migrations": False,
            "log_level": "WARNING",
            # Polls for messages with a query for each waiting execution, and is joined at the end: see _watch.
            "notification_listener_polling_interval_sec": min(1.0, settings.poll_seconds * 5),
            # Announcements of events, which have no listener here: once a second instead of a hundred times.
            "notification_coalesce_sec": 1.0,
        }
        instance = await self._shared.call(lambda: DBOS(config=config))
        # launch is called on a thread, but executions belong on this loop
        instance._background_event_loop.set_main_loop()  # pyright: ignore[reportPrivateUsage]
        self._instance = instance
        DBOS.listen_queues(sorted({queue for _, queue in self._shared.kinds.values()}))
        await self._shared.call(DBOS.launch)

    def _queues(self, stopping: threading.Event, instance: DBOS) -> None:
        bell = Doorbell(stopping, self._shared.settings.poll_seconds, self._shared.store.changes)
        bell.start()
        try:
            poll_queues(bell, instance)  # pyright: ignore[reportArgumentType]
        finally:
            bell.stop()

    def _durable(self, function: Durable) -> Any:
        async def durable(payload: Json) -> Json:
            task, context = asyncio.current_task(), assert_current_dbos_context()
            assert task
            assert context.owner_xid
            if self._stopping.is_set():
                raise asyncio.CancelledError
            flow = DbosFlow(self._shared, context)
            claim = (flow.id, context.owner_xid)
            self._flows[claim] = (flow, task)
            task.add_done_callback(lambda _: self._notify_ended(flow.id))
            try:
                return Recorded(json.dumps(await function(flow, payload)))
            finally:
                await flow.end()
                del self._flows[claim]

        return durable

    async def _send_heartbeats(self) -> NoReturn:
        """Send heartbeats and take over from lost workers. Ends the process if the store is unreachable for too long. A
        process that was suspended fails at most once, because the time limit of its call has passed. That alone does
        not end it."""
        settings, loop = self._shared.settings, asyncio.get_running_loop()
        last, failures = loop.time(), 0
        while True:
            began = loop.time()
            try:
                async with asyncio.timeout(max(1.0, last + settings.lost_after_seconds - began)):
                    await self._shared.call(self._beat, threads=self._pulse)
                last, failures = began, 0
            except (EngineUnavailable, TimeoutError) as error:
                failures += 1
                log.warning("no heartbeat of worker %s: %s", self.id, error)
                if failures > 1 and loop.time() - last >= settings.lost_after_seconds:
                    log.critical("worker %s had no access to the store for %g s and ends", self.id, loop.time() - last)
                    os._exit(FENCED)
            await self._pause(min(settings.heartbeat_seconds, 1.0) if failures else settings.heartbeat_seconds)

    def _beat(self) -> None:
        store, after = self._shared.store, self._shared.settings.lost_after_seconds
        store.beat(self.id, self._host, os.getpid())
        for worker in store.lost(after):
            if worker != self.id:
                not_owned = store.recover(worker, VERSION)
                store.forget(worker, after)
                what = f"{not_owned} execution{' is' if not_owned == 1 else 's are'} queued again"
                log.log(logging.WARNING if not_owned else logging.DEBUG, "worker %s is lost; %s", worker, what)

    def _notify_ended(self, execution_id: str) -> None:
        self._shared.ended.ring()
        self._shared.bell(execution_id).ring()

    async def _watch(self) -> NoReturn:
        """Cancel executions that were stopped or taken over, and wake those with a message."""
        shared = self._shared
        while True:
            count = shared.activity.count
            try:
                if self._flows:
                    not_owned = await shared.call(shared.store.not_owned, list(self._flows))
                    for flow, _ in [self._flows[claim] for claim in not_owned if claim in self._flows]:
                        flow.stop()
                    if not shared.store.remote:  # PostgreSQL announces messages
                        await shared.call(self._wake)
            except EngineUnavailable as error:  # the heartbeat decides when that lasts too long
                log.debug("watching failed: %s", error)
            await shared.activity.wait(WATCH_SECONDS, count)

    def _wake(self) -> None:
        waiting = self._instance._sys_db.notifications_map.snapshot()  # pyright: ignore[reportPrivateUsage]
        found = self._shared.store.with_messages({one for _, (one, _, _), _ in waiting})
        for _, (execution, topic, _), signal in waiting:
            if (execution, topic) in found:
                signal.set()

    async def _clean(self) -> NoReturn:
        while True:
            try:
                before = time.time() - self._shared.settings.retention_days * 86400
                await self._shared.call(budgets.retain, self._shared.store, before)
            except EngineUnavailable as error:
                log.warning("removing old runs failed: %s", error)
            await self._pause(RETAIN_SECONDS)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _leave(self) -> None:
        """Stop the executions without recording it, stop dbos, and queue unfinished work again."""
        self._stopping.set()
        tasks = [task for _, task in self._flows.values()]
        for flow, _ in list(self._flows.values()):
            flow.stop()
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        await self._shared.call(lambda: DBOS.destroy(destroy_registry=True))
        # dbos made its own pool the loop's default, and has closed it.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
        self._shared.registered.clear()
        try:
            await self._shared.call(self._shared.store.recover, self.id, VERSION)
            await self._shared.call(self._shared.store.forget, self.id)
        finally:
            self._pulse.shutdown(wait=False)


def _idle(stopping: threading.Event, _: DBOS) -> None:
    """Replace dbos's thread that checks each second for delays and timeouts, which are not used here."""
    stopping.wait()


def alive(pid: int) -> bool:
    """Report whether a process runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
