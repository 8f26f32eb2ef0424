"""All swarms: created, joined by agents, given tasks, ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

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
from ccswarm.servers.visionflow.plans import agent_of, choose, handle_of, plan_of
from ccswarm.servers.visionflow.store import Assigned, Files, Member, StoredSwarm, SwarmStrategy
from ccswarm.servers.visionflow.tasks import Work

MOST_SWARMS = 1000
CHECK_SECONDS = 35.0
"""The time limit for listing an agent's tools before it joins."""
AT_ONCE = 4
"""How many agents are restarted at the same time."""
TYPES = ("researcher", "coder", "analyst", "optimizer", "coordinator")


class Swarms:
    """The swarms of this server. Changes to one swarm are made one after the other."""

    def __init__(self, serve_context: ServeContext) -> None:
        self._options = serve_context.options
        self._app = serve_context.app
        self._files = Files(self._app.state_directory, self._app.settings.engine.retention_days)
        self._swarms: dict[str, StoredSwarm] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._loops: dict[str, AgentLoop] = {}
        self._work = Work(self._app, self._files, self._options.last)
        self._reviving: asyncio.Task[None] | None = None
        self.engine = self._app.engine

    async def open(self) -> None:
        """Continue the swarms of this server's directory: their agents, and the runs of a process of this machine that
        was killed. Swarms of other directories belong to other servers."""
        here = str(self._options.root(self._options.last()))
        self._swarms = {name: swarm for name, swarm in self._files.read().items() if swarm.directory == here}
        for swarm in self._swarms.values():
            await self._work.resume(swarm)
        self._reviving = asyncio.create_task(self._revive())

    async def close(self) -> None:
        """End the loops of all agents, which stay members of their swarms."""
        if self._reviving:
            self._reviving.cancel()
            await asyncio.gather(self._reviving, return_exceptions=True)
        await self._work.close()
        await asyncio.gather(*(agent_loop.end() for agent_loop in self._loops.values()))

    async def _revive(self) -> None:
        turns = asyncio.Semaphore(AT_ONCE)

        async def restart(swarm: StoredSwarm, member: Member) -> None:
            async with turns:
                if not member.ended:
                    agent_loop = self._loops[member.id] = self._new_loop(swarm, member)
                    await asyncio.gather(agent_loop.ready(), return_exceptions=True)

        living = [(swarm, member) for swarm in self._swarms.values() for member in swarm.living()]
        await asyncio.gather(*(restart(swarm, member) for swarm, member in living))

    def all(self) -> list[StoredSwarm]:
        """Return all swarms, the oldest first."""
        return list(self._swarms.values())

    def find(self, swarm_id: str) -> StoredSwarm:
        """Return the swarm; without an id, the one created last. Raises Fault."""
        if not swarm_id and self._swarms:
            return next(reversed(self._swarms.values()))
        if swarm_id not in self._swarms:
            problem = (
                f"There is no swarm {swarm_id[:80]!r}" if swarm_id else "There is no swarm: swarm_init creates one"
            )
            raise Fault(SWARM_NOT_FOUND, "swarmId", problem)
        return self._swarms[swarm_id]

    def find_task(self, task_id: str) -> tuple[StoredSwarm, Assigned]:
        """Return the task and its swarm. Raises Fault."""
        for swarm in self._swarms.values():
            if task_id in swarm.tasks:
                return swarm, swarm.tasks[task_id]
        raise Fault(TASK_NOT_FOUND, "taskId", f"There is no task {task_id[:80]!r}")

    def loop_of(self, member: Member) -> AgentLoop | None:
        """Return the loop of an agent; None if it has not started, or has ended."""
        return self._loops.get(member.id)

    def active(self, swarm: StoredSwarm) -> list[Member]:
        """Return the agents that can be given work."""
        return [one for one in swarm.living() if (agent_loop := self._loops.get(one.id)) and agent_loop.alive]

    def types(self) -> list[str]:
        """Return the types of the protocol, and others that are configured."""
        return list(dict.fromkeys((*TYPES, *(agent.type for agent in self._options.last().settings.agents))))

    async def init(self, topology: Topology, most: int | None, strategy: SwarmStrategy) -> StoredSwarm:
        """Create a swarm without agents. Raises Fault and SwarmError."""
        loaded = await self._options.loaded()
        configured = loaded.settings.swarm
        allowed = configured.max_agents if "max_agents" in configured.model_fields_set else 1000
        if most and most > allowed:
            raise Fault(
                INVALID_PARAMS, "maxAgents", f"Must be at most {allowed}: swarm.max_agents of the configuration"
            )
        if len(self._swarms) >= MOST_SWARMS:
            raise Fault(CAPACITY_EXCEEDED, "topology", f"There are {MOST_SWARMS} swarms: swarm_destroy ends one")
        swarm = StoredSwarm(
            id=f"swarm-{uuid4()}",
            topology=topology,
            most=most or min(10, allowed),
            strategy=strategy,
            directory=str(self._options.root(loaded)),
            created=time.time(),
        )
        self._files.write(swarm)
        self._swarms[swarm.id] = swarm
        return swarm

    async def spawn(self, swarm: StoredSwarm, kind: str, capabilities: Sequence[str], name: str) -> Member:
        """Add a configured agent of that type. Raises Fault."""
        async with self._changing(swarm):
            if len(swarm.living()) >= swarm.most:
                raise Fault(CAPACITY_EXCEEDED, "maxAgents", f"The swarm has {swarm.most} agents, which is its limit")
            try:
                template = await self._template(swarm, kind, capabilities)
            except SwarmError as error:
                raise Fault(SPAWN_FAILED, "type", error.message) from None
            member = Member(
                id=f"agent-{uuid4()}",
                name=name or template.name,
                handle=handle_of(name or template.name, [one.handle for one in swarm.members.values()]),
                type=kind,
                template=template.name,
                capabilities=[one for one in template.capabilities if one in capabilities or not capabilities],
                spawned=time.time(),
            )
            agent_loop = self._new_loop(swarm, member)
            try:
                await agent_loop.ready()
                swarm.members[member.id], self._loops[member.id] = member, agent_loop
                self._files.write(swarm)
            except BaseException as error:
                swarm.members.pop(member.id, None)
                self._loops.pop(member.id, None)
                await agent_loop.end()
                if isinstance(error, SwarmError):
                    advice = f"; {error.suggestion}" if error.suggestion else ""
                    raise Fault(SPAWN_FAILED, "type", error.message + advice) from None
                raise
            return member

    async def _template(self, swarm: StoredSwarm, kind: str, capabilities: Sequence[str]) -> AgentSettings:
        """Return the agent of that type with most of the capabilities, then the one with the fewest members here."""
        loaded = await self._options.loaded()
        fitting = [agent for agent in loaded.settings.agents if agent.type == kind]
        if not fitting:
            file = loaded.path or "a configuration, ccswarm.toml"
            raise PlanInvalid(f'No agent of type "{kind}" is configured: add [[agents]] with type = "{kind}" to {file}')
        present = [member.template for member in swarm.living()]
        wanted = set(capabilities)
        return min(
            fitting,
            key=lambda one: (not one.takes_words, -len(wanted & set(one.capabilities)), present.count(one.name)),
        )

    def _new_loop(self, swarm: StoredSwarm, member: Member) -> AgentLoop:
        async def check() -> None:
            loaded = await self._options.loaded()
            agent = agent_of(loaded.settings, member)
            if not agent.takes_words:
                raise PlanInvalid(
                    f"agent {agent.name} follows a playbook, and has no steps for tasks in words",
                    suggestion='give it settings = { words = "playbooks" }, its own steps, or another brain',
                )
            plan = plan_of(loaded.settings, swarm, [agent], "…", "parallel", "medium")
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await service.check(self._app, plan, swarm.directory, loaded.sources, agent.grants)
            except TimeoutError:
                raise PlanInvalid(f"the servers of {member.name} did not list their tools in time") from None

        return AgentLoop(self._app, swarm.directory, check)

    async def orchestrate(
        self, swarm: StoredSwarm, text: str, strategy: Strategy, priority: Priority, most: int | None
    ) -> Assigned:
        """Queue a task and return it. Raises Fault and SwarmError."""
        async with self._changing(swarm):
            loaded = await self._options.loaded()
            candidates = self.active(swarm)
            if not candidates:
                raise Fault(AGENT_NOT_FOUND, "swarmId", "The swarm has no agent that can take the task: agent_spawn")
            await self.look(swarm)
            going = [task.members for task in swarm.tasks.values() if not task.over]
            busy = {member.id: sum(member.id in members for members in going) for member in candidates}
            picked = choose(swarm, candidates, most or len(candidates), text, busy)
            task = Assigned(
                id=f"task-{uuid4()}",
                text=text,
                strategy=strategy,
                priority=priority,
                members=[member.id for member in picked],
                runs=[],
                created=time.time(),
            )
            await self._work.start(swarm, task, loaded)
            return task

    async def terminate(self, agent_id: str) -> Member:
        """Terminate an agent for good, also during its work. Its unfinished tasks continue with their other agents, or
        are cancelled if there are none. Raises Fault."""
        missing = Fault(AGENT_NOT_FOUND, "agentId", f"There is no agent {agent_id[:80]!r}")
        swarm = next((swarm for swarm in self._swarms.values() if agent_id in swarm.members), None)
        if not swarm:
            raise missing
        async with self._changing(swarm):
            member = swarm.members[agent_id]
            if member.ended:
                raise missing
            member.ended = time.time()
            self._files.write(swarm)
            await self.look(swarm)
            own = [task for task in swarm.tasks.values() if agent_id in task.members]
            await asyncio.gather(*(self._work.take_back(swarm, task, member) for task in own if not task.over))
            await self._remove(swarm, member, own)
        return member

    async def destroy(self, swarm: StoredSwarm) -> None:
        """Cancel its tasks, terminate its agents, and delete it."""
        async with self._changing(swarm):
            going = [task for task in swarm.tasks.values() if not task.over]
            await asyncio.gather(*(self._work.call_off(swarm, task, "the swarm was destroyed") for task in going))
            for member in swarm.living():
                own = [task for task in swarm.tasks.values() if member.id in task.members]
                await self._remove(swarm, member, own)
            self._files.remove(swarm.id)
            del self._swarms[swarm.id]

    async def _remove(self, swarm: StoredSwarm, member: Member, own: Sequence[Assigned]) -> None:
        loaded = self._options.last()
        shell = loaded.settings.swarm.shell
        if any(server.name == shell for server in loaded.settings.mcp.servers):
            used = [task for task in own if (share := task.shares.get(member.handle)) is None or share.calls]
            ran = [run for task in used for run in task.runs]
            await close_sessions(self._app, shell, swarm.directory, loaded.sources, member.handle, ran)
        if agent_loop := self._loops.pop(member.id, None):
            await agent_loop.end()

    async def look(self, swarm: StoredSwarm) -> dict[str, RunStatus]:
        """Return the status of all its tasks by id; final ones are stored."""
        return await self._work.look(swarm)

    @asynccontextmanager
    async def _changing(self, swarm: StoredSwarm) -> AsyncGenerator[None]:
        async with self._locks.setdefault(swarm.id, asyncio.Lock()):
            self.find(swarm.id)  # it may have been destroyed in the meantime
            yield
