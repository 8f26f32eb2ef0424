"""The tasks of swarms. Each is a run; if an agent leaves during it, another run follows."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ccswarm.config.config import Loaded
from ccswarm.config.settings import Settings
from ccswarm.errors import RunNotFound, SwarmError
from ccswarm.models import Execution, RunStatus
from ccswarm.plan.check import plan_problems
from ccswarm.plan.origin import Origin
from ccswarm.runs import service
from ccswarm.runs.app import new_run_id
from ccswarm.runs.status import ended_here, facts_of, status_of
from ccswarm.servers.visionflow.plans import COLLECT, agent_of, plan_of
from ccswarm.servers.visionflow.store import Assigned, Files, Member, Share, StoredSwarm

if TYPE_CHECKING:
    from ccswarm.runs.app import App

STOP_SECONDS = 10.0
"""The number of seconds that work may take to stop before it is cancelled."""

log = logging.getLogger(__name__)


class Work:
    """The tasks: started, taken from agents that leave, and their states. ``last`` returns the settings."""

    def __init__(self, app: App, files: Files, last: Callable[[], Loaded]) -> None:
        self._app = app
        self._files = files
        self._last = last
        self._following: dict[str, asyncio.Task[None]] = {}
        """By task, the waiting for the end of a run that another one follows."""

    async def resume(self, swarm: StoredSwarm) -> None:
        """Take over at once the runs of a process of this machine that was killed."""
        for task in [task for task in swarm.tasks.values() if not task.over]:
            run = await self._run(task)
            if run and run.status is RunStatus.RUNNING and ended_here(run.worker):
                await self._app.engine.recover(run.worker)
            if task.left:
                self._follow(swarm, task)

    async def close(self) -> None:
        """Stop waiting. Runs continue, and the runs that follow them are started after the next start of the server."""
        for one in self._following.values():
            one.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)

    async def start(self, swarm: StoredSwarm, task: Assigned, loaded: Loaded) -> None:
        """Queue the run of a task. Raises SwarmError."""
        plan, sources = self._plan(swarm, task, loaded.settings), loaded.sources
        task.runs.append(new_run_id())
        swarm.tasks[task.id] = task
        self._files.write(swarm)
        await self._app.swarm.submit(plan, task.runs[-1], swarm.directory, sources, task.priority, origin=Origin.CLIENT)

    def _plan(self, swarm: StoredSwarm, task: Assigned, settings: Settings) -> Settings:
        agents = [agent_of(settings, swarm.members[one]) for one in task.members]
        plan = plan_of(settings, swarm, agents, task.text, task.strategy, task.priority)
        service.refuse(plan_problems(plan, None))
        return plan

    async def take_back(self, swarm: StoredSwarm, task: Assigned, member: Member) -> None:
        """End an agent's part of a task; the others continue. After that, they do what is left without it; if no agent
        remains, the task is cancelled."""
        parts = await self._parts(task, member)
        rest = [one for one in task.members if one != member.id and not swarm.members[one].ended]
        why = f"agent {member.name} was terminated"
        if not parts:
            return
        if not rest:
            await self.call_off(swarm, task, why)
            return
        task.members = rest
        task.left = True
        self._files.write(swarm)
        await asyncio.gather(*(self._app.swarm.withdraw(task.runs[-1], part, why, STOP_SECONDS) for part in parts))
        self._follow(swarm, task)

    async def _parts(self, task: Assigned, member: Member) -> list[str]:
        """Return the tasks of the run that the agent has not finished."""
        with suppress(RunNotFound):
            run = await self._app.engine.status(task.runs[-1])
            facts = await facts_of(self._app.engine, run.id)
            planned: list[Mapping[str, Any]] = run.payload["plan"]["tasks"]
            own = [str(one["id"]) for one in planned if one.get("agent") == member.handle]
            return [name for name in own if not RunStatus(facts["tasks"][name]["status"]).over]
        return [member.handle, COLLECT]

    async def call_off(self, swarm: StoredSwarm, task: Assigned, why: str) -> None:
        """Cancel the whole task."""
        if follower := self._following.pop(task.id, None):
            follower.cancel()
        run: Execution | None = None
        with suppress(RunNotFound):
            try:
                await self._app.swarm.call_off(task.runs[-1], why)
                async with asyncio.timeout(STOP_SECONDS):
                    run = await self._app.engine.wait(task.runs[-1])
            except TimeoutError:
                await self._app.engine.cancel(task.runs[-1])
                run = await self._app.engine.wait(task.runs[-1])
        if not task.over:
            _record_end(task, RunStatus.CANCELLED, run)
            self._files.write(swarm)

    def _follow(self, swarm: StoredSwarm, task: Assigned) -> None:
        if task.id in self._following:
            return
        follower = self._following[task.id] = asyncio.create_task(self._continue(swarm, task))
        follower.add_done_callback(lambda done: self._stop_following(task.id, done))

    def _stop_following(self, task_id: str, done: asyncio.Task[None]) -> None:
        if self._following.get(task_id) is done:
            del self._following[task_id]
        if not done.cancelled() and (error := done.exception()):
            log.error("%s does not continue: %s", task_id, error)

    async def _continue(self, swarm: StoredSwarm, task: Assigned) -> None:
        """Once a run that agents left is over, start one of what is not done."""
        while task.left:
            with suppress(RunNotFound):
                before = await self._app.engine.wait(task.runs[-1])
                departed = {one.handle for one in swarm.members.values() if one.id not in task.members}
                _record_shares(task, before, departed)
                if before.result and status_of(before) is not RunStatus.SUCCEEDED:
                    await self._rerun(swarm, task, before)
            task.left = False
            self._files.write(swarm)
            for member in [swarm.members[one] for one in task.members if swarm.members[one].ended]:
                await self.take_back(swarm, task, member)  # it left while its part was planned again

    async def _rerun(self, swarm: StoredSwarm, task: Assigned, before: Execution) -> None:
        # The id is always the same for the same run, which may have been queued before a crash.
        new = "run_" + hashlib.sha256(before.id.encode()).hexdigest()[:32]
        try:
            await self._app.swarm.rerun(before.id, new, self._plan(swarm, task, self._last().settings))
        except SwarmError as error:
            log.warning("%s is not continued: %s", task.id, error.message)
        else:
            task.runs.append(new)

    async def look(self, swarm: StoredSwarm) -> dict[str, RunStatus]:
        """Return the status of all tasks by id; final ones are stored."""
        going = [task for task in swarm.tasks.values() if not task.over]
        found = await asyncio.gather(*(self._run(task) for task in going))
        statuses, changed = dict[str, RunStatus](), False
        for task, run in zip(going, found, strict=True):
            status = statuses[task.id] = status_of(run) if run else RunStatus.FAILED
            current = not run or run.id == task.runs[-1]
            if status.over and (task.left or not current):
                statuses[task.id] = RunStatus.QUEUED  # it continues in another run
            elif status.over and not task.over:
                _record_end(task, status, run)
                changed = True
        if changed:
            self._files.write(swarm)
        return {
            task.id: RunStatus(task.over) if task.over else statuses.get(task.id, RunStatus.QUEUED)
            for task in swarm.tasks.values()
        }

    async def _run(self, task: Assigned) -> Execution | None:
        """Return the task's current run; None if it was never queued."""
        try:
            return await self._app.engine.status(task.runs[-1])
        except RunNotFound:
            return None


def _record_end(task: Assigned, status: RunStatus, run: Execution | None) -> None:
    """Record how a task ended, and what each agent did in it."""
    task.over = status.value
    task.ended = (run and run.ended_at) or time.time()
    if run:
        _record_shares(task, run)


def _record_shares(task: Assigned, run: Execution, only: Collection[str] = ()) -> None:
    """Record what each agent, or each of ``only``, did in a run."""
    result: Mapping[str, Any] = run.result or {}
    table: Mapping[str, Mapping[str, Any]] = result.get("tasks", {})
    found: dict[str, Share] = {}
    for part in table.values():
        agent, usage = str(part["agent"]), dict[str, Any](part.get("usage") or {})
        if agent and (not only or agent in only):
            share = found.setdefault(agent, Share(status=part["status"]))
            share.status = part["status"] if share.status == RunStatus.SUCCEEDED else share.status
            share.calls += usage.get("calls", 0)
            share.tokens += usage.get("tokens", 0)
            share.seconds += usage.get("seconds", 0.0)
    task.shares |= found
