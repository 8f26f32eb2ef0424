"""The swarms there are: made, joined by agents, given tasks, ended. All that is answered of them is looked up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

from ccswarm.config.config import Loaded
from ccswarm.config.settings import AgentSettings, Strategy, Topology
from ccswarm.errors import PlanInvalid, SwarmError
from ccswarm.models import Priority, RunStatus
from ccswarm.runs import service
from ccswarm.servers.base import ServeContext
from ccswarm.servers.visionflow.agents import AgentLoop, close_sessions
from ccswarm.servers.visionflow.errors import (
    AGENT_NOT_FOUND,
    CAPACITY_EXCEEDED,
    INVALID_PARAMS,
    SPAWN_FAILED,
    SWARM_NOT_FOUND,
    TASK_NOT_FOUND,
    Fault,
)
from ccswarm.servers.visionflow.plans import agent_of, chosen, handle_of, plan_of
from ccswarm.servers.visionflow.store import Assigned, Files, Member, StoredSwarm, SwarmStrategy
from ccswarm.servers.visionflow.tasks import Work

MOST_SWARMS = 1000
CHECK_SECONDS = 35.0
"""Longest look at an agent's tools before it joins."""
AT_ONCE = 4
"""Agents that are started again side by side."""
TYPES = ("researcher", "coder", "analyst", "optimizer", "coordinator")


class Swarms:
    """Opened once; whatever changes a swarm does so one after the other."""

    def __init__(self, serve_context: ServeContext) -> None:
        self._serve_context = serve_context
        self._app = serve_context.app
        self._files = Files(self._app.state_directory, self._app.settings.engine.retention_days)
        self._kept: dict[str, StoredSwarm] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._loops: dict[str, AgentLoop] = {}
        self._work = Work(self._app, self._files, self._last)
        self._reviving: asyncio.Task[None] | None = None
        self.engine = self._app.engine

    async def open(self) -> None:
        """What was left in this directory continues: runs that a process of this machine had when it was killed, and
        agents. Swarms of other directories are those of other servers."""
        here = str(self._serve_context.options.root(self._last()))
        self._kept = {name: kept for name, kept in self._files.read().items() if kept.directory == here}
        for kept in self._kept.values():
            await self._work.resume(kept)
        self._reviving = asyncio.create_task(self._revive())

    async def close(self) -> None:
        """Agents end as loops here, and belong to their swarms as before."""
        if self._reviving:
            self._reviving.cancel()
            await asyncio.gather(self._reviving, return_exceptions=True)
        await self._work.close()
        await asyncio.gather(*(agent_loop.end() for agent_loop in self._loops.values()))

    async def _revive(self) -> None:
        turns = asyncio.Semaphore(AT_ONCE)

        async def again(kept: StoredSwarm, member: Member) -> None:
            async with turns:
                if not member.ended:
                    agent_loop = self._loops[member.id] = self._new_loop(kept, member)
                    await asyncio.gather(agent_loop.ready(), return_exceptions=True)

        living = [(kept, member) for kept in self._kept.values() for member in kept.living()]
        await asyncio.gather(*(again(kept, member) for kept, member in living))

    def all(self) -> list[StoredSwarm]:
        """The oldest first."""
        return list(self._kept.values())

    def find(self, swarm_id: str) -> StoredSwarm:
        """The swarm; the one that was made last where no id is given. Raises Fault."""
        if not swarm_id and self._kept:
            return next(reversed(self._kept.values()))
        if swarm_id not in self._kept:
            problem = (
                f"There is no swarm {swarm_id[:80]!r}" if swarm_id else "There is no swarm: swarm_init creates one"
            )
            raise Fault(SWARM_NOT_FOUND, "swarmId", problem)
        return self._kept[swarm_id]

    def find_task(self, task_id: str) -> tuple[StoredSwarm, Assigned]:
        """Raises Fault."""
        for kept in self._kept.values():
            if task_id in kept.tasks:
                return kept, kept.tasks[task_id]
        raise Fault(TASK_NOT_FOUND, "taskId", f"There is no task {task_id[:80]!r}")

    def loop_of(self, member: Member) -> AgentLoop | None:
        """The loop of an agent; None where it is not started yet, or no more."""
        return self._loops.get(member.id)

    def active(self, kept: StoredSwarm) -> list[Member]:
        """The agents that can be given work now."""
        return [one for one in kept.living() if (agent_loop := self._loops.get(one.id)) and agent_loop.alive]

    def types(self) -> list[str]:
        """Those of the protocol, and others that are configured."""
        return list(dict.fromkeys((*TYPES, *(agent.type for agent in self._last().settings.agents))))

    async def init(self, topology: Topology, most: int | None, strategy: SwarmStrategy) -> StoredSwarm:
        """A new swarm, which nobody is in. Raises Fault, SwarmError."""
        loaded = await self._loaded()
        swarm = loaded.settings.swarm
        allowed = swarm.max_agents if "max_agents" in swarm.model_fields_set else 1000
        if most and most > allowed:
            raise Fault(
                INVALID_PARAMS, "maxAgents", f"Must be at most {allowed}: swarm.max_agents of the configuration"
            )
        if len(self._kept) >= MOST_SWARMS:
            raise Fault(CAPACITY_EXCEEDED, "topology", f"There are {MOST_SWARMS} swarms: swarm_destroy ends one")
        kept = StoredSwarm(
            id=f"swarm-{uuid4()}",
            topology=topology,
            most=most or min(10, allowed),
            strategy=strategy,
            directory=str(self._serve_context.options.root(loaded)),
            created=time.time(),
        )
        self._files.write(kept)
        self._kept[kept.id] = kept
        return kept

    async def spawn(self, kept: StoredSwarm, kind: str, capabilities: Sequence[str], name: str) -> Member:
        """A configured agent of that type joins. Raises Fault."""
        async with self._changing(kept):
            if len(kept.living()) >= kept.most:
                raise Fault(CAPACITY_EXCEEDED, "maxAgents", f"The swarm has {kept.most} agents, which is its limit")
            try:
                template = await self._template(kept, kind, capabilities)
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
            agent_loop = self._new_loop(kept, member)
            try:
                await agent_loop.ready()
                kept.members[member.id], self._loops[member.id] = member, agent_loop
                self._files.write(kept)
            except BaseException as error:
                kept.members.pop(member.id, None)
                self._loops.pop(member.id, None)
                await agent_loop.end()
                if isinstance(error, SwarmError):
                    advice = f"; {error.suggestion}" if error.suggestion else ""
                    raise Fault(SPAWN_FAILED, "type", error.message + advice) from None
                raise
            return member

    async def _template(self, kept: StoredSwarm, kind: str, capabilities: Sequence[str]) -> AgentSettings:
        """Of the agents of that type the one that has most of the capabilities, then the one that is here least."""
        loaded = await self._loaded()
        fitting = [agent for agent in loaded.settings.agents if agent.type == kind]
        if not fitting:
            file = loaded.path or "a configuration, ccswarm.toml"
            raise PlanInvalid(f'No agent of type "{kind}" is configured: add [[agents]] with type = "{kind}" to {file}')
        here = [member.template for member in kept.living()]
        wanted = set(capabilities)
        return min(
            fitting,
            key=lambda one: (not one.takes_words, -len(wanted & set(one.capabilities)), here.count(one.name)),
        )

    def _new_loop(self, kept: StoredSwarm, member: Member) -> AgentLoop:
        async def check() -> None:
            loaded = await self._loaded()
            agent = agent_of(loaded.settings, member)
            if not agent.takes_words:
                raise PlanInvalid(
                    f"agent {agent.name} follows a playbook, and has no steps for tasks in words",
                    suggestion='give it settings = { words = "playbooks" }, its own steps, or another brain',
                )
            plan = plan_of(loaded.settings, kept, [agent], "…", "parallel", "medium")
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await service.check(self._app, plan, kept.directory, loaded.sources, agent.grants)
            except TimeoutError:
                raise PlanInvalid(f"the servers of {member.name} did not list their tools in time") from None

        return AgentLoop(self._app, kept.directory, check)

    async def orchestrate(
        self, kept: StoredSwarm, text: str, strategy: Strategy, priority: Priority, most: int | None
    ) -> Assigned:
        """A task that is queued now. Raises Fault, SwarmError."""
        async with self._changing(kept):
            loaded = await self._loaded()
            able = self.active(kept)
            if not able:
                raise Fault(AGENT_NOT_FOUND, "swarmId", "The swarm has no agent that can take the task: agent_spawn")
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
            await self._work.start(kept, task, loaded)
            return task

    async def terminate(self, agent_id: str) -> Member:
        """It ends for good, in the middle of what it does. Its unfinished tasks go on with those of their agents that
        remain, and are cancelled where nobody does. Raises Fault."""
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
            await asyncio.gather(*(self._work.take_back(kept, task, member) for task in own if not task.over))
            await self._leave(kept, member, own)
        return member

    async def destroy(self, kept: StoredSwarm) -> None:
        """Its tasks are cancelled, its agents terminated, and it is forgotten."""
        async with self._changing(kept):
            going = [task for task in kept.tasks.values() if not task.over]
            await asyncio.gather(*(self._work.call_off(kept, task, "the swarm was destroyed") for task in going))
            for member in kept.living():
                own = [task for task in kept.tasks.values() if member.id in task.members]
                await self._leave(kept, member, own)
            self._files.remove(kept.id)
            del self._kept[kept.id]

    async def _leave(self, kept: StoredSwarm, member: Member, own: Sequence[Assigned]) -> None:
        loaded = self._last()
        shell = loaded.settings.swarm.shell
        if any(server.name == shell for server in loaded.settings.mcp.servers):
            used = [task for task in own if (share := task.shares.get(member.handle)) is None or share.calls]
            ran = [run for task in used for run in task.runs]
            await close_sessions(self._app, shell, kept.directory, loaded.sources, member.handle, ran)
        if agent_loop := self._loops.pop(member.id, None):
            await agent_loop.end()

    async def look(self, kept: StoredSwarm) -> dict[str, RunStatus]:
        """By id how all its tasks are; what is over is noted for good."""
        return await self._work.look(kept)

    async def _loaded(self) -> Loaded:
        """For what begins something. Raises ConfigInvalid, ConfigChanged."""
        return await self._serve_context.options.loaded()

    def _last(self) -> Loaded:
        """For what is in progress and what ends. Raises ConfigInvalid."""
        return self._serve_context.options.last()

    @asynccontextmanager
    async def _changing(self, kept: StoredSwarm) -> AsyncGenerator[None]:
        async with self._locks.setdefault(kept.id, asyncio.Lock()):
            self.find(kept.id)  # it may have been destroyed meanwhile
            yield
