"""A swarm whose engine and tools are in memory, and whose brains are playbooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ccswarm.brains.base import WorkerContext
from ccswarm.clones.clones import Workspaces
from ccswarm.config.settings import Settings
from ccswarm.engines.base import Limits
from ccswarm.errors import SwarmError
from ccswarm.models import CallOutcome, CallRequest, CallStatus, Execution, ToolInfo
from ccswarm.plan.origin import Origin
from ccswarm.plan.team import Team
from ccswarm.swarm.agent import Call
from ccswarm.swarm.swarm import Swarm
from ccswarm.toolbox.claims import Claims
from ccswarm.toolbox.mail import AGENT, RUN, Mailboxes, MessageStore
from ccswarm.toolbox.scope import ToolScope
from tests.ccswarm.support.engine_double import MemoryEngine, MemoryStore
from tests.support.bounds import BOUND_SECONDS

Act = Callable[[CallRequest], Awaitable[Mapping[str, Any] | CallOutcome]]


class Hanging:
    """A tool that never answers."""

    def __init__(self) -> None:
        self.called = asyncio.Event()

    async def __call__(self, _: CallRequest) -> Mapping[str, Any]:
        self.called.set()
        await asyncio.Event().wait()
        raise AssertionError


class MemoryTaskWorker:
    """Tools as coroutines by full name; calls of others are denied.

    ``calls`` are all calls made, ``asks`` the tools that a person must approve, ``own`` the granted tools of the
    swarm's own server, which uses ``messages``.
    """

    def __init__(self, process: str = "one") -> None:
        self.claims = Claims(process)
        self.worker_context = WorkerContext(lambda _: "", {}, Path("/nowhere"))
        self.acts: dict[str, Act] = {}
        self.asks: set[str] = set()
        self.own: set[str] = set()
        self.messages: MessageStore = MemoryEngine()
        self.calls: list[CallRequest] = []
        self.directories: list[str] = []
        self.released = asyncio.Event()
        self.places: dict[str, Workspaces] = {}

    async def call(self, scope: ToolScope) -> Call:
        agents, team = scope.agents, scope.team

        async def send(request: CallRequest) -> CallOutcome:
            if request.agent not in agents:
                return CallOutcome(CallStatus.DENIED, code="not_granted", message=f"there is no agent {request.agent}")
            if request.tool in self.asks and not request.approval:
                return CallOutcome(CallStatus.DENIED, code="approval_needed", message="a person has to agree")
            if team and request.tool in self.own:
                return await self._of_the_swarm(team, request)
            if request.tool not in self.acts:
                return CallOutcome(CallStatus.DENIED, code="not_granted", message=f"{request.tool} is not granted")
            self.calls.append(request)
            self.directories.append(scope.directory)
            answer = await self.acts[request.tool](request)
            if isinstance(answer, CallOutcome):
                return answer
            return CallOutcome(CallStatus.OK, text=str(dict(answer)), structured=answer, duration_seconds=1.0)

        return send

    async def _of_the_swarm(self, team: Team, request: CallRequest) -> CallOutcome:
        self.calls.append(request)
        meta = {AGENT: request.agent, RUN: request.run_id}
        try:
            mail = Mailboxes(self.messages, team, list({name.partition(".")[0] for name in self.acts}))
            answer = await mail.call(request.tool.partition(".")[2], request.arguments, meta=meta)
        except SwarmError as error:
            return CallOutcome(CallStatus.INVALID, code=error.code, message=error.message)
        return CallOutcome(CallStatus.OK, answer.text, answer.structured)

    async def tools(self, scope: ToolScope, agent: str) -> list[ToolInfo]:
        assert agent in scope.agents
        return [ToolInfo(name.partition(".")[0], name.partition(".")[2]) for name in self.acts]

    async def release(self, directory: str) -> None:
        self.directories.append(f"released {directory}")
        self.released.set()

    def workspaces(self, repository: str) -> Workspaces:
        return self.places[repository]


class MemoryWorker:
    """A process that carries out runs. ``ran`` are the steps whose tools were called, in order."""

    def __init__(self, store: MemoryStore | None = None, process: str = "one") -> None:
        self.engine = MemoryEngine(store)
        self.task_worker = MemoryTaskWorker(process)
        self.task_worker.messages = self.engine
        self.swarm = Swarm(self.engine, self.task_worker)

    @property
    def ran(self) -> list[str]:
        return [request.step_id for request in self.task_worker.calls]

    def tool(self, name: str, act: Act | None = None, **answer: Any) -> None:
        async def answered(_: CallRequest) -> Mapping[str, Any]:
            return answer

        self.task_worker.acts[name] = act or answered

    @asynccontextmanager
    async def working(self, name: str = "worker") -> AsyncGenerator[None]:
        stop = asyncio.Event()
        worker = asyncio.create_task(self.engine.run_worker(name, stop, limits=Limits(per_agent=0)))
        try:
            yield
        finally:
            stop.set()
            self.engine.store.changed()
            async with asyncio.timeout(BOUND_SECONDS):
                await worker

    async def run(
        self,
        plan: Mapping[str, Any],
        run_id: str = "run_1",
        workspace: str = "/project",
        origin: Origin = Origin.PERSON,
    ) -> Execution:
        async with self.working(), asyncio.timeout(BOUND_SECONDS):
            await self.swarm.submit(settings(plan), run_id, workspace, origin=origin)
            return await self.engine.wait(run_id)

    async def events(self, run_id: str = "run_1") -> list[Mapping[str, Any]]:
        return [event async for event in self.engine.events(run_id, follow=False)]


def settings(plan: Mapping[str, Any]) -> Settings:
    """Return the settings of a plan; without agents, it has one named ada."""
    return Settings.model_validate({"agents": [{"name": "ada", "grants": ["*"]}], **plan})


def steps(*names: str, tool: str = "srv.do", **more: Any) -> list[dict[str, Any]]:
    return [{"id": name, "tool": tool, **more} for name in names]
