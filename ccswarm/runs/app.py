"""The engine, servers and swarm of a process, opened from its settings and closed in order."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agentwire import plugins
from ccswarm.clones import kept
from ccswarm.config import config
from ccswarm.config.files import clones_directory
from ccswarm.config.masks import Masks
from ccswarm.config.project import Project
from ccswarm.config.settings import Settings
from ccswarm.engines.base import Engine, Limits
from ccswarm.runs.notices import make_notifier, with_notices
from ccswarm.swarm.swarm import Swarm
from ccswarm.swarm.sweeping import Over, Tell, sweep
from ccswarm.swarm.worker_tools import AgentTools
from ccswarm.toolbox.telemetry.base import Telemetry
from ccswarm.toolbox.telemetry.factory import open_telemetry

ANSWERS_SECONDS = 5
"""How long a leaving process waits for its calls in progress: they may be of tasks that other processes wait for."""


@dataclass(frozen=True, slots=True)
class App:
    """What is open in this process. ``task_worker`` is only there if this process executes."""

    settings: Settings
    state_directory: Path
    engine: Engine
    swarm: Swarm
    task_worker: AgentTools | None = None
    project: Project | None = None
    """The project in which it was opened, for ``last``."""


def new_run_id() -> str:
    """Return a new run id: unguessable, with a beginning short enough to type."""
    return f"run_{secrets.token_hex(16)}"


def worker_name(settings: Settings) -> str:
    """Return this process's name among the workers."""
    return settings.engine.worker_id or f"{platform.node() or 'host'}-{os.getpid()}"


def _engine(settings: Settings, state_directory: Path) -> Engine:
    return plugins.load("ccswarm.engines", settings.engine.name).open(settings.engine, state_directory)


def _telemetry(settings: Settings, environ: Mapping[str, str]) -> Telemetry:
    masks = Masks(environ)
    notifier = make_notifier(config.notify_settings(environ), environ, masks)
    return with_notices(open_telemetry(settings.telemetry, masks), notifier)


@asynccontextmanager
async def submitting(settings: Settings, state_directory: Path) -> AsyncGenerator[App]:
    """Open the engine to read, start, stop and answer runs; nothing is executed. Raises EngineUnavailable."""
    engine = await asyncio.to_thread(_engine, settings, state_directory)
    swarm = Swarm(engine)
    await engine.open(limits=limits(settings))
    try:
        yield App(settings, state_directory, engine, swarm)
    finally:
        await engine.close()


@asynccontextmanager
async def working(
    settings: Settings, state_directory: Path, environ: Mapping[str, str], *, on_swept: Tell | None = None
) -> AsyncGenerator[App]:
    """Open everything and execute what is queued, here or elsewhere, until the block is left; all other workers know
    this one when the block begins. What is unfinished at the end is handed back, and every server that was started is
    ended. With ``on_swept``, the terminals of runs that are over are ended in the meantime, and it is given their
    number, if there were any.

    Raises EngineUnavailable and JournalBroken; inside the block also what ends the worker.
    """
    worker_id = worker_name(settings)
    servers = settings.mcp.servers
    async with AsyncExitStack() as closing:
        telemetry = await asyncio.to_thread(_telemetry, settings, environ)
        closing.push_async_callback(telemetry.close)
        engine = await asyncio.to_thread(_engine, settings, state_directory)
        task_worker = AgentTools(
            servers, state_directory, environ, worker_id, config.servers_of, telemetry, config.secret, engine
        )
        closing.push_async_callback(task_worker.close)

        def tidy(ended: str, unfinished: Sequence[str]) -> None:
            days, most = settings.engine.clone_days, settings.engine.clone_bytes
            root = clones_directory(state_directory)
            kept.note_end(root, ended)
            kept.expire(root, [ended, *unfinished], days, most, environ)

        async def sweep_here(report: Tell) -> None:
            names = [server.name for server in servers]
            ended, _ = await sweep(Over(engine), task_worker.call, names, state_directory)
            await task_worker.release(str(state_directory))
            if ended:
                report(ended)

        swarm = Swarm(engine, task_worker, telemetry, tidy)
        stop = asyncio.Event()
        await engine.open(limits=limits(settings))
        known = asyncio.Event()
        worker = asyncio.create_task(engine.run_worker(worker_id, stop, limits=limits(settings), known=known))
        block = asyncio.current_task()
        assert block
        # The block is cancelled when the worker fails; the worker's error is raised instead.
        worker.add_done_callback(lambda _: stop.is_set() or block.cancel())
        sweeping: asyncio.Task[None] | None = None
        try:
            await known.wait()
            if on_swept:
                sweeping = asyncio.create_task(sweep_here(on_swept))
            yield App(settings, state_directory, engine, swarm, task_worker)
            await task_worker.claims.leave(ANSWERS_SECONDS)
        finally:
            stop.set()
            if sweeping:
                sweeping.cancel()
                await asyncio.gather(sweeping, return_exceptions=True)
            try:
                await worker
            finally:
                await swarm.settled()
                await engine.close()


def limits(settings: Settings) -> Limits:
    """Return the engine's limits. None is for agents: each run's scheduler gives an agent one task at a time."""
    engine = settings.engine
    return Limits(at_once=engine.at_once, per_agent=0, starts=engine.starts, period_seconds=engine.period_seconds)
