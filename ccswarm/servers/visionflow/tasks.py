"""The tasks of swarms: each is a run, and where an agent leaves in the middle of it, one that continues after it."""

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
"""Seconds that work may take to stop before it is cancelled."""

log = logging.getLogger(__name__)


class Work:
    """Starts tasks, takes them from agents, and knows how they are. ``last`` is the configuration that continues."""

    def __init__(self, app: App, files: Files, last: Callable[[], Loaded]) -> None:
        self._app = app
        self._files = files
        self._last = last
        self._following: dict[str, asyncio.Task[None]] = {}
        """By task, who waits for the end of a run that another one is to follow."""

    async def resume(self, kept: StoredSwarm) -> None:
        """What a process of this machine was at when it was killed is taken over at once."""
        for task in [task for task in kept.tasks.values() if not task.over]:
            run = await self._run(task)
            if run and run.status is RunStatus.RUNNING and ended_here(run.worker):
                await self._app.engine.recover(run.worker)
            if task.left:
                self._follow(kept, task)

    async def close(self) -> None:
        """Runs go on; what is to follow them does when it is looked at again."""
        for one in self._following.values():
            one.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)

    async def start(self, kept: StoredSwarm, task: Assigned, loaded: Loaded) -> None:
        """Queues its run. Raises SwarmError."""
        plan, sources = self._plan(kept, task, loaded.settings), loaded.sources
        task.runs.append(new_run_id())
        kept.tasks[task.id] = task
        self._files.write(kept)
        await service.submit(
            self._app, plan, kept.directory, sources, task.runs[-1], task.priority, origin=Origin.CLIENT
        )

    def _plan(self, kept: StoredSwarm, task: Assigned, settings: Settings) -> Settings:
        agents = [agent_of(settings, kept.members[one]) for one in task.members]
        plan = plan_of(settings, kept, agents, task.text, task.strategy, task.priority)
        service.refuse(plan_problems(plan, None))
        return plan

    async def take_back(self, kept: StoredSwarm, task: Assigned, member: Member) -> None:
        """What an agent has to do in a task ends, or never begins, and what the others do continues. When that is over,
        they do what is left without it; with the last one the task is cancelled."""
        parts = await self._parts(task, member)
        rest = [one for one in task.members if one != member.id and not kept.members[one].ended]
        why = f"agent {member.name} was terminated"
        if not parts:
            return
        if not rest:
            await self.call_off(kept, task, why)
            return
        task.members = rest
        task.left = True
        self._files.write(kept)
        await asyncio.gather(*(self._app.swarm.withdraw(task.runs[-1], part, why, STOP_SECONDS) for part in parts))
        self._follow(kept, task)

    async def _parts(self, task: Assigned, member: Member) -> list[str]:
        """The tasks of its run that an agent has, but for those that are over."""
        with suppress(RunNotFound):
            run = await self._app.engine.status(task.runs[-1])
            facts = await facts_of(self._app.engine, run.id)
            planned: list[Mapping[str, Any]] = run.payload["plan"]["tasks"]
            own = [str(one["id"]) for one in planned if one.get("agent") == member.handle]
            return [name for name in own if not RunStatus(facts["tasks"][name]["status"]).over]
        return [member.handle, COLLECT]

    async def call_off(self, kept: StoredSwarm, task: Assigned, why: str) -> None:
        """All of it ends."""
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
            _over(task, RunStatus.CANCELLED, run)
            self._files.write(kept)

    def _follow(self, kept: StoredSwarm, task: Assigned) -> None:
        if task.id in self._following:
            return
        follower = self._following[task.id] = asyncio.create_task(self._go_on(kept, task))
        follower.add_done_callback(lambda done: self._followed(task.id, done))

    def _followed(self, task_id: str, done: asyncio.Task[None]) -> None:
        if self._following.get(task_id) is done:
            del self._following[task_id]
        if not done.cancelled() and (error := done.exception()):
            log.error("%s does not continue: %s", task_id, error)

    async def _go_on(self, kept: StoredSwarm, task: Assigned) -> None:
        """When a run that agents left is over, one of what is not done yet."""
        while task.left:
            with suppress(RunNotFound):
                before = await self._app.engine.wait(task.runs[-1])
                gone = {one.handle for one in kept.members.values() if one.id not in task.members}
                _share_out(task, before, gone)
                if before.result and status_of(before) is not RunStatus.SUCCEEDED:
                    await self._again(kept, task, before)
            task.left = False
            self._files.write(kept)
            for member in [kept.members[one] for one in task.members if kept.members[one].ended]:
                await self.take_back(kept, task, member)  # it left while its part was planned again

    async def _again(self, kept: StoredSwarm, task: Assigned, before: Execution) -> None:
        # Of the same run always the same one: it may have been queued before a crash.
        new = "run_" + hashlib.sha256(before.id.encode()).hexdigest()[:32]
        try:
            await self._app.swarm.rerun(before.id, new, self._plan(kept, task, self._last().settings))
        except SwarmError as error:
            log.warning("%s is not continued: %s", task.id, error.message)
        else:
            task.runs.append(new)

    async def look(self, kept: StoredSwarm) -> dict[str, RunStatus]:
        """By id how all its tasks are; what is over is noted for good."""
        going = [task for task in kept.tasks.values() if not task.over]
        found = await asyncio.gather(*(self._run(task) for task in going))
        statuses, noted = dict[str, RunStatus](), False
        for task, run in zip(going, found, strict=True):
            status = statuses[task.id] = status_of(run) if run else RunStatus.FAILED
            current = not run or run.id == task.runs[-1]
            if status.over and (task.left or not current):
                statuses[task.id] = RunStatus.QUEUED  # it continues with another run
            elif status.over and not task.over:
                _over(task, status, run)
                noted = True
        if noted:
            self._files.write(kept)
        return {
            task.id: RunStatus(task.over) if task.over else statuses.get(task.id, RunStatus.QUEUED)
            for task in kept.tasks.values()
        }

    async def _run(self, task: Assigned) -> Execution | None:
        """Its present run; None where that was never queued."""
        try:
            return await self._app.engine.status(task.runs[-1])
        except RunNotFound:
            return None


def _over(task: Assigned, status: RunStatus, run: Execution | None) -> None:
    """Notes how a task ended, and what each agent did in it."""
    task.over = status.value
    task.ended = (run and run.ended_at) or time.time()
    if run:
        _share_out(task, run)


def _share_out(task: Assigned, run: Execution, only: Collection[str] = ()) -> None:
    """Notes what each agent did in a run, or those that are named."""
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
