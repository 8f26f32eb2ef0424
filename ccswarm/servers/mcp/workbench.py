"""What a client's calls work with: the current configuration, the store of runs, and, from the first run that is
started or resumed here, a worker."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from ccswarm.config import config
from ccswarm.config.config import Loaded
from ccswarm.config.settings import Settings
from ccswarm.errors import PlanInvalid, RunNotFound, SwarmError, UsageInvalid
from ccswarm.models import RunStatus
from ccswarm.plan.check import plan_problems
from ccswarm.plan.origin import Origin
from ccswarm.runs import app as apps
from ccswarm.runs import service
from ccswarm.runs.app import App
from ccswarm.runs.status import MOST_TASKS, ended_here
from ccswarm.servers.base import ServerOptions, who_takes_words
from ccswarm.system.confined_files import read_beginning

log = logging.getLogger(__name__)

MOST_PLAN_BYTES = 1_000_000
REST_SECONDS = 60.0
"""The interval of checks whether this process still has runs to carry out."""

CHECK_SECONDS = 35.0
"""The time limit for checking the servers before a run starts, so that the call ends before clients give up."""


Own = TypeVar("Own")


class LazyApp:
    """An app that is opened on first use, in a task of its own, because losing its store cancels the task that opened
    it; the next use opens it again."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[App] | None = None
        self._end = asyncio.Event()

    @property
    def app(self) -> App | None:
        """The app while it is open."""
        there = self._ready and self._ready.done() and not self._ready.exception() and self._task
        return self._ready.result() if there and self._ready and not there.done() else None

    async def get(self, enter: Callable[[], AbstractAsyncContextManager[App]]) -> App:
        """Return the open app. Raises what opening it raises."""
        if self._task is None or self._task.done():
            self._end = asyncio.Event()
            self._ready = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._keep(enter, self._ready, self._end))
        assert self._ready
        return await asyncio.shield(self._ready)

    async def close(self) -> None:
        """Close the app, which returns its work in progress to the queue. ``app`` is None from the beginning."""
        task = self._task
        self._task = None
        self._ready = None
        if task:
            self._end.set()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep(
        self, enter: Callable[[], AbstractAsyncContextManager[App]], ready: asyncio.Future[App], end: asyncio.Event
    ) -> None:
        try:
            async with enter() as app:
                ready.set_result(app)
                await end.wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)
                ready.exception()  # consumed here, because there may be no waiting caller


class Workbench:
    """The workbench of one client, with ``options`` of its process. It holds apps only while it is ``in_use``."""

    def __init__(self, options: ServerOptions, rest_seconds: float = REST_SECONDS) -> None:
        self._options = options
        self.runs_only = options.runs_only
        self._rest_seconds = rest_seconds
        self._reading = LazyApp()
        self._working = LazyApp()
        self._changing = asyncio.Lock()
        self._users = 0
        self._ending = asyncio.Event()
        self.resting: asyncio.Task[None] | None = None
        """Ends when this process has stopped executing runs."""
        self.started: set[str] = set()
        """Runs that were started or resumed here."""
        self._own: dict[type[Any], Any] = {}
        self._warned = False

    def own(self, kind: type[Own]) -> Own:
        """Return this client's object of that type, created on first use."""
        if kind not in self._own:
            self._own[kind] = kind()
        return self._own[kind]

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Keep apps open while the block runs, except at the end of the process."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1

    async def loaded(self) -> Loaded:
        """Return the configuration for operations that start something. Raises ConfigInvalid and ConfigChanged."""
        loaded = await self._options.loaded()
        if not self._warned:
            self._warned = True
            for line in who_takes_words(loaded.settings, (), "orchestre"):
                log.warning("%s", line)
        return loaded

    def last(self) -> Loaded:
        """Return the configuration for operations that read or stop runs. Raises ConfigInvalid."""
        return self._options.last()

    def root(self, loaded: Loaded) -> Path:
        """Return the directory that no client may leave. Raises UsageInvalid if there is none."""
        return self._options.root(loaded)

    def within(self, path: str, loaded: Loaded) -> Path:
        """Return a client's path, relative to the root, with links resolved. Raises UsageInvalid if it leads out."""
        root = self.root(loaded)
        try:
            found = (root / path).resolve()
        except (OSError, ValueError, RuntimeError):
            found = None
        if found is None or not found.is_relative_to(root):
            raise UsageInvalid(f"{path[:200]!r} is not in the workspace {root}", suggestion="give a path inside it")
        return found

    def directory(self, path: str, loaded: Loaded) -> str:
        """Return the directory of a run. Raises UsageInvalid."""
        found = self.within(path, loaded)
        if not found.is_dir():
            raise UsageInvalid(
                f"the workspace {found} is not a directory", suggestion="leave it out, or use another one"
            )
        return str(found)

    def _text(self, arguments: Mapping[str, Any], settings: Settings, loaded: Loaded) -> str:
        """Return the given plan as TOML; ``""`` if the configuration's own tasks are used."""
        if plan := str(arguments.get("plan", "")).strip():
            return self._read(plan, loaded)[1]
        if arguments.get("task"):
            (task,) = settings.tasks
            text = json.dumps(task.text, ensure_ascii=False).replace("\x7f", "\\u007f")
            return f'[[tasks]]\nid = "{task.id}"\nagent = "{task.agent}"\ntext = {text}\n'
        return ""

    def _read(self, plan: str, loaded: Loaded) -> tuple[str, str]:
        """Return the origin of a plan for messages, and its text. Raises UsageInvalid."""
        if "\n" in plan or "=" in plan or plan.startswith(("[", "{")):
            return "the plan", plan
        file = self.within(plan, loaded)
        found = read_beginning(file, MOST_PLAN_BYTES)
        if found is None or found[1] > MOST_PLAN_BYTES:
            raise UsageInvalid(f"{file} is not a plan", suggestion="give the path of a .toml file, or its text")
        return str(file), found[0].decode(errors="replace")

    def settings_for(self, arguments: Mapping[str, Any], loaded: Loaded) -> Settings:
        """Return the configuration with the given ``task`` or ``plan``, or with its own tasks. Raises ConfigInvalid,
        PlanInvalid and UsageInvalid."""
        task = str(arguments.get("task", "")).strip()
        plan = str(arguments.get("plan", "")).strip()
        if task and plan:
            raise UsageInvalid("both a task and a plan were given", suggestion="give one of them")
        if task:
            return service.with_task(task, loaded.settings)
        if plan:
            where, text = self._read(plan, loaded)
            return service.with_client_plan(text, loaded.settings, where)
        if not loaded.settings.tasks:
            raise PlanInvalid(
                f"{loaded.path or 'there is no configuration, and so'}: there are no tasks",
                suggestion="give a task or a plan",
            )
        return loaded.settings

    @staticmethod
    def origin(arguments: Mapping[str, Any]) -> Origin:
        """Return who wrote the tasks of ``settings_for``: the person, if they are the configuration's own."""
        given = any(str(arguments.get(name, "")).strip() for name in ("task", "plan"))
        return Origin.CLIENT if given else Origin.PERSON

    async def reading(self) -> App:
        """Return the app for reading and stopping runs."""
        if app := self._working.app:
            return app
        settings = self.last().settings
        return await self._reading.get(lambda: apps.submitting(settings, config.state_directory()))

    async def working(self, settings: Settings) -> App:
        """Return the app for starting and resuming runs. From here on this process executes runs, until none are left.
        It is opened again to use servers that were added to the configuration."""
        async with self._changing:
            # A configured name is that of `ccswarm worker`.
            engine = settings.engine.model_copy(update={"worker_id": ""})
            settings = settings.model_copy(update={"engine": engine})
            app = self._working.app
            changed = app and (app.settings.mcp, app.settings.engine) != (settings.mcp, engine)
            if app and changed and not await self._wanted(app) and self._users <= 1:
                await self._working.close()
            state, environ = config.state_directory(), config.server_environment()
            app = await self._working.get(lambda: apps.working(settings, state, environ))
            if self.resting is None or self.resting.done():
                self.resting = asyncio.create_task(self._rest())
            return app

    async def _rest(self) -> None:
        """Close the worker when it has nothing to do: it polls several times a second, and takes work that others
        queue, which a server that only waits for its client should not do."""
        while self._working.app:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rest_seconds):
                    await self._ending.wait()
                    return
            async with self._changing:
                with suppress(SwarmError):
                    app = self._working.app
                    if app and not await self._wanted(app) and not self._users:
                        await self._working.close()

    async def _wanted(self, app: App) -> bool:
        """Report whether a run is in progress here, or was started here and is queued."""
        for one in await app.engine.list(unfinished=True, limit=MOST_TASKS):
            here = one.status is RunStatus.RUNNING and one.worker == self.worker
            if here or (one.status is RunStatus.QUEUED and one.id in self.started):
                return True
        return False

    async def begin(
        self,
        arguments: Mapping[str, Any],
        settings: Settings,
        directory: str,
        loaded: Loaded,
        *,
        origin: Origin,
    ) -> tuple[str, list[str]]:
        """Queue a run of ``settings``, and return its id and notes; with a ``call_key`` that was used before, return
        that run's id. ``origin`` is who wrote its tasks. Raises PlanInvalid and ServerUnavailable."""
        service.refuse(plan_problems(settings, None))
        key = str(arguments.get("call_key", ""))
        plan = self._text(arguments, settings, loaded)
        app = await self.working(settings)
        run_id = apps.new_run_id()
        if key:
            run_id = "run_" + hashlib.sha256(f"{self.root(loaded)}\0{key}".encode()).hexdigest()[:32]
            with suppress(RunNotFound):
                return (await app.engine.status(run_id)).id, ["it was started before with this call_key"]
        files = loaded.sources
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                warnings = await service.check(app, settings, directory, files)
        except TimeoutError:
            warnings = ["the servers did not list their tools in time: the plan was not checked against them"]
        if loaded.path and plan:
            files.append(service.store_plan(app, run_id, plan))
        await app.swarm.submit(settings, run_id, directory, files, origin=origin)
        self.started.add(run_id)
        return run_id, warnings

    async def resume(self, text: str) -> str:
        """Resume the run, or start one that repeats what did not succeed in it. Return the id of the one that runs."""
        app = await self.working((await self.loaded()).settings)
        started = await (await service.resume(app, text))
        self.started.add(started.id)
        return started.id

    async def unfinished(self, app: App) -> list[Any]:
        """Return the runs that were started here and are not over."""
        found: list[Any] = []
        for run_id in self.started:
            with suppress(RunNotFound):
                run = await app.engine.status(run_id)
                found += [] if run.status.over else [run]
        return found

    @property
    def worker(self) -> str:
        """The name of this process among the workers; empty if it is not one."""
        app = self._working.app
        return apps.worker_name(app.settings) if app else ""

    async def workers(self, app: App) -> set[str]:
        """Return the live workers."""
        beats: Mapping[str, float] = (await app.engine.health())["workers"]
        lost = app.settings.engine.lost_after_seconds
        return {name for name, age in beats.items() if age < lost and not ended_here(name)}

    async def close(self) -> None:
        """Close. Runs that were started here continue if there is another worker; otherwise they are paused, so that a
        worker that starts later does not resume them."""
        self._ending.set()
        try:
            if app := self._working.app:
                others = await self.workers(app) - {self.worker}
                for run in [] if others else await self.unfinished(app):
                    if run.status is not RunStatus.PAUSED:
                        await app.engine.pause(run.id)
        except SwarmError:
            pass  # an unusable store finds out by itself that the worker has ended
        finally:
            async with self._changing:
                await asyncio.gather(self._working.close(), self._reading.close())
