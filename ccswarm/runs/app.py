"""Settings → servers, engine, swarm: everything that works with runs, opened and closed in order."""

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
from ccswarm.telemetry.base import Telemetry
from ccswarm.telemetry.factory import open_telemetry

ANSWERS_SECONDS = 5
"""For calls in progress when a process leaves whose own work is done: tasks of other processes may be among its own."""


@dataclass(frozen=True, slots=True)
class App:
    """What is open. ``task_worker`` only where this process executes."""

    settings: Settings
    state_directory: Path
    engine: Engine
    swarm: Swarm
    task_worker: AgentTools | None = None
    project: Project | None = None
    """Where it was opened, for who says ``last``."""


def new_run_id() -> str:
    """Unguessable, and short enough to type the beginning of."""
    return f"run_{secrets.token_hex(16)}"


def worker_name(settings: Settings) -> str:
    """What this process is called among the workers."""
    return settings.engine.worker_id or f"{platform.node() or 'host'}-{os.getpid()}"


def _engine(settings: Settings, state_directory: Path) -> Engine:
    return plugins.load("ccswarm.engines", settings.engine.name).open(settings.engine, state_directory)


def _telemetry(settings: Settings, environ: Mapping[str, str]) -> Telemetry:
    masks = Masks(environ)
    notifier = make_notifier(config.notify_settings(environ), environ, masks)
    return with_notices(open_telemetry(settings.telemetry, masks), notifier)


@asynccontextmanager
async def submitting(settings: Settings, state_directory: Path) -> AsyncGenerator[App]:
    """To look at runs and to start, stop and answer them; executes nothing. Raises EngineUnavailable."""
    engine = _engine(settings, state_directory)
    swarm = Swarm(engine)
    await engine.open(limits=limits(settings))
    try:
        yield App(settings, state_directory, engine, swarm)
    finally:
        await engine.close()


@asynccontextmanager
async def working(
    settings: Settings, state_directory: Path, environ: Mapping[str, str], *, swept: Tell | None = None
) -> AsyncGenerator[App]:
    """As ``submitting``, and executes what is queued, here or elsewhere, until the block is left; all others know this
    worker when it begins. What is unfinished then is handed back, and every server that was started is ended. With
    ``swept`` it ends, meanwhile, the terminals of runs that are over, and says how many there were.

    Raises EngineUnavailable, JournalBroken; and in the block what ends the worker.
    """
    worker_id = worker_name(settings)
    servers = settings.mcp.servers
    async with AsyncExitStack() as closing:
        telemetry = await asyncio.to_thread(_telemetry, settings, environ)
        closing.push_async_callback(telemetry.close)
        engine = _engine(settings, state_directory)
        task_worker = AgentTools(
            servers, state_directory, environ, worker_id, config.servers_of, telemetry, config.secret, engine
        )
        closing.push_async_callback(task_worker.close)

        def tidy(unfinished: Sequence[str]) -> None:
            days, most = settings.engine.clone_days, settings.engine.clone_bytes
            kept.expire(clones_directory(state_directory), unfinished, days, most, environ)

        async def swept_here(tell: Tell) -> None:
            names = [server.name for server in servers]
            ended, _ = await sweep(Over(engine), task_worker.call, names, state_directory)
            await task_worker.release(str(state_directory))
            if ended:
                tell(ended)

        swarm = Swarm(engine, task_worker, telemetry, tidy)
        stop = asyncio.Event()
        await engine.open(limits=limits(settings))
        known = asyncio.Event()
        worker = asyncio.create_task(engine.run_worker(worker_id, stop, limits=limits(settings), known=known))
        block = asyncio.current_task()
        assert block
        # What ended the worker is raised in place of the cancellation.
        worker.add_done_callback(lambda _: stop.is_set() or block.cancel())
        sweeping: asyncio.Task[None] | None = None
        try:
            await known.wait()
            if swept:
                sweeping = asyncio.create_task(swept_here(swept))
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
    """Each run's scheduler gives an agent one task at a time, so the engine has no limit for agents."""
    engine = settings.engine
    return Limits(at_once=engine.at_once, per_agent=0, starts=engine.starts, period_seconds=engine.period_seconds)
