"""Settings → journal, servers, engine, swarm: everything a command works with, opened and closed in order."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agentwire import plugins
from ccswarm.clones import kept
from ccswarm.clones.clones import Workspaces
from ccswarm.config import config, starters
from ccswarm.config.masks import Masks
from ccswarm.config.project import Project
from ccswarm.config.settings import ServerSettings, Settings
from ccswarm.config.trust import Source
from ccswarm.engines.base import Engine, Limits
from ccswarm.errors import ConfigInvalid, Conflict, JournalBroken, SwarmError, WorkspaceUnusable
from ccswarm.journal.files import directory_of
from ccswarm.journal.writer import Journal
from ccswarm.models import Execution
from ccswarm.swarm.swarm import Swarm
from ccswarm.swarm.sweeping import Over, Tell, interrupt, sweep, where_opened
from ccswarm.swarm.worker_tools import AgentTools
from ccswarm.telemetry.base import Telemetry
from ccswarm.telemetry.factory import open_telemetry
from ccswarm.telemetry.notices import make_notifier, with_notices
from ccswarm.toolbox.toolboxes import Toolboxes


@dataclass(frozen=True, slots=True)
class App:
    """What is open. ``journal`` and ``hands`` only where this process executes."""

    settings: Settings
    state_directory: Path
    engine: Engine
    swarm: Swarm
    task_worker: AgentTools | None = None
    journal: Journal | None = None
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
    journal = Journal(directory_of(state_directory), worker_id)
    telemetry = await asyncio.to_thread(_telemetry, settings, environ)
    servers = settings.mcp.servers
    task_worker = AgentTools(servers, state_directory, environ, journal, servers_of, telemetry, config.secret)
    engine = _engine(settings, state_directory)

    def tidy(unfinished: Sequence[str]) -> None:
        days, most = settings.engine.clone_days, settings.engine.clone_bytes
        kept.expire(state_directory / kept.FOLDER, unfinished, days, most, environ)

    async def swept_here(tell: Tell) -> None:
        ended, _ = await sweep(Over(engine), task_worker.call, [server.name for server in servers], state_directory)
        await task_worker.release(str(state_directory))
        if ended:
            tell(ended)

    swarm = Swarm(engine, task_worker, telemetry, tidy)
    stop = asyncio.Event()
    try:
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
            yield App(settings, state_directory, engine, swarm, task_worker, journal)
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
    finally:
        await task_worker.close()
        journal.close()
        await telemetry.close()


def persons_journal(state_directory: Path) -> Journal:
    """One file for what people do on a machine, but for what goes on at the same time: it has one writer."""
    directory, name = directory_of(state_directory), f"{platform.node() or 'host'}-call"
    try:
        return Journal(directory, name)
    except JournalBroken:
        return Journal(directory, f"{name}-{os.getpid()}")


async def end_terminals(
    opened: App, run: Execution | None = None, *, only_interrupt: bool = False
) -> tuple[int, list[str]]:
    """End what a ``run`` that is over, or else all that are, left open on servers that can be reached from here, or
    ``only_interrupt`` what runs there, of a run that is not: how many terminals there were, and what kept others from
    being found."""
    state, servers, plan, files = opened.state_directory, opened.settings.mcp.servers, opened.settings, ()
    try:
        if run:
            files = tuple(run.payload.get("files", ()))
            shown = {name: facts for name, facts in run.payload["plan"].items() if name in ("swarm", "agents")}
            plan = Settings.model_validate({**shown, "mcp": {"servers": servers_of(files) or servers}})
        journal = persons_journal(state)
    except SwarmError as error:
        return 0, [error.message]
    toolboxes = Toolboxes(servers, state, config.server_environment(), journal, servers_of)
    try:
        if run and only_interrupt:
            return await interrupt(run.id, toolboxes.call, where_opened(plan), state, files)
        return await sweep(Over(opened.engine, run.id if run else ""), toolboxes.call, where_opened(plan), state, files)
    finally:
        await toolboxes.close()
        journal.close()


async def end_old_terminals(opened: App, settings: Settings, directory: str) -> int:
    """As ``end_terminals``, of all runs, by who is about to execute ``settings`` in ``directory``: with the servers
    that are started there anyway."""
    assert opened.task_worker
    return (await sweep(Over(opened.engine), opened.task_worker.call, where_opened(settings), directory))[0]


def servers_of(sources: tuple[str, ...]) -> Sequence[ServerSettings]:
    """The servers that a configuration and plans over it named when a run was started from them, or when a person used
    them since; of files that are gone, none. Raises ConfigInvalid, ConfigChanged."""
    settings = config.as_started(sources)
    return settings.mcp.servers if settings else ()


def settings_of(sources: Sequence[str]) -> tuple[Settings | None, Sequence[str]]:
    """What a configuration and plans over it say now, and what they are then as sources of a run; None, and the same
    sources, where one of them is gone. Raises ConfigInvalid, and ConfigChanged where a person has not used one as it
    is."""
    files = [Source.parse(source) for source in sources]
    if not files or not all(file.path.is_file() for file in files):
        return None, sources
    loaded = config.load(files[0].path)
    found = loaded.sources
    for plan in files[1:]:
        loaded = config.load_plan(plan.path, loaded.settings)
        found += loaded.sources
    return loaded.settings, found


def brain_problems(settings: Settings) -> list[str]:
    """What keeps the brains of a plan's agents from working in this process: packages, keys, programs, prices."""
    money = [settings.swarm.budget, *(task.budget for task in settings.tasks)]
    found: list[str] = []
    for agent in settings.agents[: settings.swarm.max_agents]:
        try:
            brain = starters.load_brain(agent.brain)
        except ConfigInvalid as error:
            found.append(f"agent {agent.name}: {error.message}; {error.suggestion}")
            continue
        priced = any(budget.dollars for budget in (*money, agent.budget))
        problems = brain.problems(agent, config.secret, priced=priced)
        found += [f"agent {agent.name}: {problem}" for problem in problems]
    return found


async def tree_problems(settings: Settings, workspaces: Workspaces, *, ready: bool = False) -> list[str]:
    """What keeps the agents that may do a task from having clones of their own: no repository, no commit in it; and,
    where it is to be ``ready``, why nothing could be merged into it."""
    doers = [agent for task in settings.tasks for agent in settings.agents_for(task) if agent.workspace == "clone"]
    if not doers:
        return []
    who = ", ".join(dict.fromkeys(agent.name for agent in doers))
    if not await workspaces.is_repository():
        what = f"agent {who}: works in a clone, and {workspaces.repository} is not a git repository with a commit"
        return [f'{what} (git init && git add -A && git commit -m Begin, or workspace = "shared")']
    try:
        await workspaces.require_ready(merges=settings.swarm.merge != "branch") if ready else None
    except (Conflict, WorkspaceUnusable) as error:
        return [f"agent {who}: works in a clone: {error.message}"]
    return []


def limits(settings: Settings) -> Limits:
    """Each run's scheduler gives an agent one task at a time, so the engine has no limit for agents."""
    engine = settings.engine
    return Limits(at_once=engine.at_once, per_agent=0, starts=engine.starts, period_seconds=engine.period_seconds)
