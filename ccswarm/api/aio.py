"""Plans, runs and tools for asynchronous programs, with the names and arguments of the blocking API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from ccswarm.api.values import RunInfo, WorkDiff
from ccswarm.config import config as files
from ccswarm.config import starters
from ccswarm.config.config import Loaded
from ccswarm.config.project import Project
from ccswarm.errors import UsageInvalid
from ccswarm.mcp import McpClient
from ccswarm.plan.check import plan_problems
from ccswarm.plan.origin import Origin
from ccswarm.runs import answers, app, planning, service, status, work
from ccswarm.runs.app import App, new_run_id
from ccswarm.runs.events import RunEvent
from ccswarm.runs.feed import EventStream

__all__ = ["McpClient", "Run", "check", "find_run", "list_runs", "submit", "working"]

AnyPath = str | os.PathLike[str]

_in_working = list[bool]()
"""Non-empty inside a ``working`` block."""


async def check(
    plan: AnyPath | None = None,
    *,
    config: AnyPath | None = None,
    workspace: AnyPath | None = None,
    offline: bool = False,
) -> list[str]:
    """Return what keeps a plan from being carried out, like ``ccswarm.check``."""
    loaded = files.peek(_path(config)) if offline else files.load(_path(config))
    loaded_plan = _load_tasks(plan, loaded, workspace, only_look=offline)
    directory = planning.directory(_path(workspace), loaded_plan.settings, loaded)
    return (
        plan_problems(loaded_plan.settings, None)
        if offline
        else await planning.problems(loaded_plan.settings, directory)
    )


async def submit(
    plan: AnyPath | None = None, *, config: AnyPath | None = None, workspace: AnyPath | None = None, name: str = ""
) -> Run:
    """Queue a run, like ``ccswarm.submit``."""
    loaded = files.load(_path(config), remember_absent=True, workspace=_path(workspace))
    loaded_plan = _load_tasks(plan, loaded, workspace)
    settings = service.with_name(loaded_plan.settings, name)
    directory = planning.directory(_path(workspace), settings, loaded)
    service.refuse(plan_problems(settings, None))
    async with app.submitting(settings, files.state_directory()) as opened:
        sources = planning.sources(loaded, loaded_plan)
        started = await opened.swarm.submit(settings, new_run_id(), directory, sources, origin=Origin.PERSON)
    return Run(started.id, config=config)


async def find_run(run: str = status.LAST, *, config: AnyPath | None = None) -> Run:
    """Return a run by its id, the beginning of its id, or ``last``, like ``ccswarm.find_run``."""
    async with _open_store(config) as opened:
        return Run(await status.run_id_of(opened.engine, run, opened.project), config=config)


async def list_runs(limit: int = status.FEW_RUNS, *, config: AnyPath | None = None) -> list[Run]:
    """Return the newest runs first, like ``ccswarm.list_runs``."""
    async with _open_store(config) as opened:
        return [Run(one.id, config=config) for one in await status.runs(opened.engine, limit)]


@asynccontextmanager
async def working(*, config: AnyPath | None = None) -> AsyncGenerator[None]:
    """Carry out what is queued, in this process, until the block is left, like ``ccswarm.working``."""
    if _in_working:
        raise UsageInvalid("this process is already carrying out runs", suggestion="use one working block at a time")
    _in_working.append(True)
    try:
        settings = files.load(_path(config), remember_absent=True).settings
        async with app.working(settings, files.state_directory(), files.server_environment()):
            yield
    finally:
        _in_working.clear()


class Run:
    """A run of a plan: queued, in progress or over. It belongs to no event loop and holds nothing open."""

    def __init__(self, run_id: str, *, config: AnyPath | None = None) -> None:
        self.id = run_id
        self._config = config

    async def info(self) -> RunInfo:
        """Return its current state. Raises RunNotFound if the run has been removed."""
        async with _open_store(self._config) as opened:
            return await self._info(opened)

    async def wait(self, *, timeout: float | None = None) -> RunInfo:
        """Return its state once it is over or ``timeout`` seconds have passed. The run itself continues after a timeout
        or a cancellation."""
        async with _open_store(self._config) as opened:
            try:
                async with asyncio.timeout(timeout):
                    await opened.engine.wait(self.id)
            except TimeoutError:
                pass  # the returned state shows it
            return await self._info(opened)

    async def events(self, *, follow: bool = True) -> AsyncGenerator[RunEvent]:
        """Yield the events of the run from its beginning until it is over, or with ``follow=False`` until now. To leave
        the loop earlier, use ``async with contextlib.aclosing(run.events()) as events``."""
        async with _open_store(self._config) as opened:
            stream = EventStream(opened.engine, self.id)
            for event in await stream.past():
                yield event
            if not follow:
                return
            async with stream.follow() as queue:
                while event := await queue.get():
                    yield event

    async def diff(self, task: str = "") -> list[WorkDiff]:
        """Return the changes of its tasks in their clones, or of one task and its parts, without empty ones."""
        async with _open_store(self._config) as opened:
            repository, works = await work.works_of(opened.engine, self.id, task)
        found = await asyncio.to_thread(work.compare, self.id, repository, works)
        return [WorkDiff.of(*one) for one in found]

    async def pause(self) -> None:
        """Pause the run, so that it can be resumed. Raises UsageInvalid if it is over."""
        await self._stop("pause")

    async def cancel(self) -> None:
        """Cancel the run. Raises UsageInvalid if it is over."""
        await self._stop("cancel")

    async def resume(self) -> Run:
        """Resume the run and return it; if it failed, start and return a new run of the tasks that did not succeed."""
        async with _open_store(self._config) as opened:
            started = await (await service.resume(opened, self.id))
            return Run(started.id, config=self._config)

    async def _stop(self, how: str) -> None:
        async with _open_store(self._config) as opened:
            await service.stop(opened, self.id, how)

    async def _info(self, opened: App) -> RunInfo:
        run, facts = await status.run_and_facts(opened.engine, self.id)
        last = answers.last_task(run, facts["tasks"])
        return RunInfo.of(facts, answers.answer(facts["tasks"][last]) if last else "")

    def __repr__(self) -> str:
        return f"<Run {self.id}>"


@asynccontextmanager
async def _open_store(config: AnyPath | None) -> AsyncGenerator[App]:
    """Open the store that the configuration names, as a person used it last."""
    loaded = files.load_last(_path(config))
    project = Project.at(loaded.path, loaded.settings.swarm.workspace, own=bool(config))
    async with app.submitting(loaded.settings, files.state_directory()) as opened:
        yield replace(opened, project=project)


def _load_tasks(plan: AnyPath | None, loaded: Loaded, workspace: AnyPath | None, *, only_look: bool = False) -> Loaded:
    """Return the plan over the configuration. A task in words gets default agents if none is configured."""
    what = None if plan is None else os.fspath(plan)
    if what and what.strip() and not Path(what).exists():
        found = files.supplied(loaded.settings, starters.TYPES[:1], files.server_environment())
        loaded = replace(loaded, settings=found.settings)
    return planning.load_tasks(what, loaded, workspace=_path(workspace), only_look=only_look)


def _path(name: AnyPath | None) -> Path | None:
    return None if name is None else Path(name)
