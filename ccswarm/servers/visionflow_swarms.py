"""The swarms there are: made, joined by agents, given tasks, ended. All that is answered of them is looked up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

from ccswarm import app as apps
from ccswarm import config, runs
from ccswarm import plan as plans
from ccswarm.config import Loaded
from ccswarm.engines.base import Execution
from ccswarm.errors import PlanInvalid, RunNotFound, SwarmError
from ccswarm.models import Priority, RunStatus
from ccswarm.runs_facts import ended_here, facts_of, status_of
from ccswarm.servers.base import Grounds
from ccswarm.servers.visionflow_faults import (
    AGENT_NOT_FOUND,
    CAPACITY_EXCEEDED,
    INVALID_PARAMS,
    SPAWN_FAILED,
    SWARM_NOT_FOUND,
    TASK_NOT_FOUND,
    Fault,
)
from ccswarm.servers.visionflow_kept import Assigned, Files, Kept, Member, Share, SwarmStrategy
from ccswarm.servers.visionflow_plans import COLLECT, agent_of, chosen, handle_of, plan_of
from ccswarm.servers.visionflow_seats import Seat, close_sessions
from ccswarm.settings import AgentSettings, Settings, Strategy, Topology

MOST_SWARMS = 1000
CHECK_SECONDS = 35.0
"""Longest look at an agent's tools before it joins."""
STOP_SECONDS = 10.0
"""Longest that a run which is called off may take until it is ended without asking."""
AT_ONCE = 4
"""Agents that are started again side by side."""
TYPES = ("researcher", "coder", "analyst", "optimizer", "coordinator")


class Swarms:
    """Opened once; whatever changes a swarm does so one after the other."""

    def __init__(self, grounds: Grounds) -> None:
        self._grounds, self._app = grounds, grounds.app
        self._files = Files(self._app.state_directory, self._app.settings.engine.retention_days)
        self._kept: dict[str, Kept] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._seats: dict[str, Seat] = {}
        self._moving: set[str] = set()
        """Tasks that are between two runs."""
        self._reviving: asyncio.Task[None] | None = None
        self.engine = self._app.engine

    async def open(self) -> None:
        """What was left goes on: runs that a process of this machine had when it was killed, and agents."""
        self._kept = self._files.read()
        for task in [task for kept in self._kept.values() for task in kept.tasks.values() if not task.over]:
            run = await self._run(task)
            if run and run.status is RunStatus.RUNNING and ended_here(run.worker):
                await self._app.engine.recover(run.worker)
        self._reviving = asyncio.create_task(self._revive())

    async def close(self) -> None:
        """Agents end as loops here, and belong to their swarms as before."""
        if self._reviving:
            self._reviving.cancel()
            await asyncio.gather(self._reviving, return_exceptions=True)
        await asyncio.gather(*(seat.end() for seat in self._seats.values()))

    async def _revive(self) -> None:
        turns = asyncio.Semaphore(AT_ONCE)

        async def again(kept: Kept, member: Member) -> None:
            async with turns:
                if not member.ended:
                    seat = self._seats[member.id] = self._seat(kept, member)
                    await asyncio.gather(seat.ready(), return_exceptions=True)

        living = [(kept, member) for kept in self._kept.values() for member in kept.living()]
        await asyncio.gather(*(again(kept, member) for kept, member in living))

    def all(self) -> list[Kept]:
        """The oldest first."""
        return list(self._kept.values())

    def find(self, swarm_id: str) -> Kept:
        """The swarm; the one that was made last where no id is given. Raises Fault."""
        if not swarm_id and self._kept:
            return next(reversed(self._kept.values()))
        if swarm_id not in self._kept:
            told = f"There is no swarm {swarm_id[:80]!r}" if swarm_id else "There is no swarm: swarm_init makes one"
            raise Fault(SWARM_NOT_FOUND, "swarmId", told)
        return self._kept[swarm_id]

    def find_task(self, task_id: str) -> tuple[Kept, Assigned]:
        """Raises Fault."""
        for kept in self._kept.values():
            if task_id in kept.tasks:
                return kept, kept.tasks[task_id]
        raise Fault(TASK_NOT_FOUND, "taskId", f"There is no task {task_id[:80]!r}")

    def seat(self, member: Member) -> Seat | None:
        """The loop of an agent; None where it is not started yet, or no more."""
        return self._seats.get(member.id)

    def active(self, kept: Kept) -> list[Member]:
        """The agents that can be given work now."""
        return [one for one in kept.living() if (seat := self._seats.get(one.id)) and seat.alive]

    def types(self) -> list[str]:
        """Those of the protocol, and others that are configured."""
        return list(dict.fromkeys((*TYPES, *(agent.type for agent in self._loaded().settings.agents))))

    def init(self, topology: Topology, most: int | None, strategy: SwarmStrategy) -> Kept:
        """A new swarm, which nobody is in. Raises Fault, SwarmError."""
        loaded = self._loaded()
        swarm = loaded.settings.swarm
        allowed = swarm.max_agents if "max_agents" in swarm.model_fields_set else 1000
        if most and most > allowed:
            raise Fault(
                INVALID_PARAMS, "maxAgents", f"Must be at most {allowed}: swarm.max_agents of the configuration"
            )
        if len(self._kept) >= MOST_SWARMS:
            raise Fault(CAPACITY_EXCEEDED, "topology", f"There are {MOST_SWARMS} swarms: swarm_destroy ends one")
        kept = Kept(
            id=f"swarm-{uuid4()}",
            topology=topology,
            most=most or min(10, allowed),
            strategy=strategy,
            directory=str(self._grounds.entrance.root(loaded)),
            created=time.time(),
        )
        self._files.write(kept)
        self._kept[kept.id] = kept
        return kept

    async def spawn(self, kept: Kept, kind: str, capabilities: Sequence[str], name: str) -> Member:
        """A configured agent of that type joins. Raises Fault."""
        async with self._changing(kept):
            if len(kept.living()) >= kept.most:
                raise Fault(CAPACITY_EXCEEDED, "maxAgents", f"The swarm has {kept.most} agents, which is its most")
            try:
                template = self._template(kept, kind, capabilities)
            except SwarmError as error:
                raise Fault(SPAWN_FAILED, "type", error.message) from None
            member = Member(
                id=f"agent-{uuid4()}",
                name=name or template.name,
                handle=handle_of(name or template.name, [one.handle for one in kept.members.values()]),
                type=kind,
                template=template.name,
                capabilities=[one for one in template.capabilities if one in capabilities or not capabilities],
                spawned=time.time(),
            )
            seat = self._seat(kept, member)
            try:
                await seat.ready()
                kept.members[member.id], self._seats[member.id] = member, seat
                self._files.write(kept)
            except BaseException as error:
                kept.members.pop(member.id, None)
                self._seats.pop(member.id, None)
                await seat.end()
                if isinstance(error, SwarmError):
                    advice = f"; {error.suggestion}" if error.suggestion else ""
                    raise Fault(SPAWN_FAILED, "type", error.message + advice) from None
                raise
            return member

    def _template(self, kept: Kept, kind: str, capabilities: Sequence[str]) -> AgentSettings:
        """Of the agents of that type the one that has most of the capabilities, then the one that is here least."""
        loaded = self._loaded()
        fitting = [agent for agent in loaded.settings.agents if agent.type == kind]
        if not fitting:
            file = loaded.path or "a configuration, ccswarm.toml"
            raise PlanInvalid(f'No agent of type "{kind}" is configured: add [[agents]] with type = "{kind}" to {file}')
        here = [member.template for member in kept.living()]
        wanted = set(capabilities)
        return min(fitting, key=lambda one: (-len(wanted & set(one.capabilities)), here.count(one.name)))

    def _seat(self, kept: Kept, member: Member) -> Seat:
        async def check() -> None:
            loaded = self._loaded()
            agent = agent_of(loaded.settings, member)
            if agent.brain == runs.PLAYBOOK and not agent.settings.get(runs.OWN_STEPS):
                raise PlanInvalid(
                    f"agent {agent.name} follows a playbook, and has no steps for what is said in words",
                    suggestion="give it [[agents.settings.steps]], or another brain",
                )
            plan = plan_of(loaded.settings, kept, [agent], "…", "parallel", "medium")
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await runs.check(self._app, plan, kept.directory, _sources(loaded))
            except TimeoutError:
                raise PlanInvalid(f"the servers of {member.name} did not tell their tools in time") from None

        return Seat(self._app, kept.directory, check)

    async def orchestrate(
        self, kept: Kept, text: str, strategy: Strategy, priority: Priority, most: int | None
    ) -> Assigned:
        """A task that is queued now. Raises Fault, SwarmError."""
        async with self._changing(kept):
            able = self.active(kept)
            if not able:
                raise Fault(AGENT_NOT_FOUND, "swarmId", "The swarm has no agent that can be given work: agent_spawn")
            await self.look(kept)
            going = [task.members for task in kept.tasks.values() if not task.over]
            busy = {member.id: sum(member.id in members for members in going) for member in able}
            picked = chosen(kept, able, most or len(able), text, busy)
            task = Assigned(
                id=f"task-{uuid4()}",
                text=text,
                strategy=strategy,
                priority=priority,
                members=[member.id for member in picked],
                runs=[],
                created=time.time(),
            )
            await self._start(kept, task, self._plan(kept, task))
            return task

    def _plan(self, kept: Kept, task: Assigned) -> Settings:
        settings = self._loaded().settings
        agents = [agent_of(settings, kept.members[one]) for one in task.members]
        plan = plan_of(settings, kept, agents, task.text, task.strategy, task.priority)
        runs.refuse(plans.check(plan, None))
        return plan

    async def _start(self, kept: Kept, task: Assigned, plan: Settings, after: Execution | None = None) -> None:
        """Queues a run of a task; ``after`` one that was called off, what succeeded there is not done again."""
        task.runs.append(apps.new_run_id())
        kept.tasks[task.id] = task
        self._files.write(kept)
        if after and after.result:
            await self._app.swarm.again(after.id, task.runs[-1], plan)
        else:
            sources = _sources(self._loaded())
            await runs.submit(self._app, plan, kept.directory, sources, task.runs[-1], task.priority)

    async def terminate(self, agent_id: str) -> Member:
        """It ends for good. Its unfinished tasks are given to those of their agents that remain, where what these have
        done counts, and are cancelled where nobody does. Raises Fault."""
        missing = Fault(AGENT_NOT_FOUND, "agentId", f"There is no agent {agent_id[:80]!r}")
        kept = next((kept for kept in self._kept.values() if agent_id in kept.members), None)
        if not kept:
            raise missing
        async with self._changing(kept):
            member = kept.members[agent_id]
            if member.ended:
                raise missing
            member.ended = time.time()
            self._files.write(kept)
            await self.look(kept)
            own = [task for task in kept.tasks.values() if agent_id in task.members]
            await self._moved([task for task in own if not task.over], lambda task: self._take_back(kept, task, member))
            await self._leave(kept, member, own)
        return member

    async def destroy(self, kept: Kept) -> None:
        """Its tasks are cancelled, its agents terminated, and it is forgotten."""
        async with self._changing(kept):
            going = [task for task in kept.tasks.values() if not task.over]
            await self._moved(going, lambda task: self._call_off(task, "the swarm was destroyed"))
            for member in kept.living():
                own = [task for task in kept.tasks.values() if member.id in task.members]
                await self._leave(kept, member, own)
            self._files.remove(kept.id)
            del self._kept[kept.id]

    async def _moved(self, tasks: Sequence[Assigned], move: Callable[[Assigned], Awaitable[object]]) -> None:
        self._moving |= {task.id for task in tasks}
        try:
            await asyncio.gather(*map(move, tasks))
        finally:
            self._moving -= {task.id for task in tasks}

    async def _leave(self, kept: Kept, member: Member, own: Sequence[Assigned]) -> None:
        loaded = self._loaded()
        shell = loaded.settings.swarm.shell
        if any(server.name == shell for server in loaded.settings.mcp.servers):
            used = [task for task in own if (share := task.shares.get(member.handle)) is None or share.calls]
            ran = [run for task in used for run in task.runs]
            await close_sessions(self._app, shell, kept.directory, _sources(loaded), member.handle, ran)
        if seat := self._seats.pop(member.id, None):
            await seat.end()

    async def _take_back(self, kept: Kept, task: Assigned, member: Member) -> None:
        with suppress(RunNotFound):
            facts = await facts_of(self._app.engine, task.runs[-1])
            parts = [facts["tasks"].get(name) for name in (member.handle, COLLECT)]
            if facts["tasks"] and all(RunStatus(part["status"]).over for part in parts if part):
                return  # it has nothing to do with what is left of it
        run = await self._call_off(task, f"agent {member.name} was terminated")
        if run and status_of(run) is RunStatus.SUCCEEDED:
            return
        active = {one.id for one in self.active(kept)}
        rest = [one for one in task.members if one in active and one != member.id]
        try:
            if rest:
                task.members = rest
                await self._start(kept, task, self._plan(kept, task), run)
                return
        except SwarmError:
            pass  # it cannot be done as it is configured now: nobody remains who could
        _over(task, RunStatus.CANCELLED, run)
        self._files.write(kept)

    async def _call_off(self, task: Assigned, why: str) -> Execution | None:
        """Its run, which is over now; None where it was never queued."""
        run = task.runs[-1]
        try:
            await self._app.swarm.call_off(run, why)
            async with asyncio.timeout(STOP_SECONDS):
                return await self._app.engine.wait(run)
        except TimeoutError:
            await self._app.engine.cancel(run)
            return await self._app.engine.wait(run)
        except RunNotFound:
            return None

    async def look(self, kept: Kept) -> dict[str, RunStatus]:
        """By id how all its tasks are; what is over is noted for good."""
        going = [task for task in kept.tasks.values() if not task.over and task.id not in self._moving]
        found = await asyncio.gather(*(self._run(task) for task in going))
        over = False
        statuses = {task.id: RunStatus(task.over) if task.over else RunStatus.QUEUED for task in kept.tasks.values()}
        for task, run in zip(going, found, strict=True):
            status = statuses[task.id] = status_of(run) if run else RunStatus.FAILED
            stale = task.id in self._moving or (run and run.id != task.runs[-1])
            if status.over and not task.over and not stale:
                _over(task, status, run)
                over = True
        if over and kept.id in self._kept:
            self._files.write(kept)
        return statuses

    async def _run(self, task: Assigned) -> Execution | None:
        """Its present run; None where that was never queued."""
        try:
            return await self._app.engine.status(task.runs[-1])
        except RunNotFound:
            return None

    def _loaded(self) -> Loaded:
        """The configuration as it is now. Raises ConfigInvalid."""
        return config.load(self._grounds.entrance.config)

    @asynccontextmanager
    async def _changing(self, kept: Kept) -> AsyncGenerator[None]:
        async with self._locks.setdefault(kept.id, asyncio.Lock()):
            self.find(kept.id)  # it may have been destroyed meanwhile
            yield


def _sources(loaded: Loaded) -> list[str]:
    return [str(loaded.path)] if loaded.path else []


def _over(task: Assigned, status: RunStatus, run: Execution | None) -> None:
    """Notes how a task ended, and what each agent did in it."""
    task.over, task.ended = status.value, (run and run.ended_at) or time.time()
    result: Mapping[str, Any] = (run and run.result) or {}
    table: Mapping[str, Mapping[str, Any]] = result.get("tasks", {})
    for part in table.values():
        if part["agent"]:
            usage: Mapping[str, Any] = part.get("usage") or {}
            before = task.shares.get(part["agent"])
            worst = before.status if before and before.status != RunStatus.SUCCEEDED else part["status"]
            task.shares[part["agent"]] = Share(
                status=worst,
                calls=(before.calls if before else 0) + usage.get("calls", 0),
                tokens=(before.tokens if before else 0) + usage.get("tokens", 0),
                seconds=(before.seconds if before else 0.0) + usage.get("seconds", 0.0),
            )
