"""The brain of a connected client: ``ccswarm mcp-server --agent NAME --stdio``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from ccswarm.brains.base import Assignment, CallTool, Finish, Step, Think, Thinking, WorkerContext
from ccswarm.bridge.bridge import ToolBridge, bridge_directory
from ccswarm.bridge.requests import Requests
from ccswarm.config.settings import AgentSettings
from ccswarm.engines.base import Flow
from ccswarm.models import CallOutcome, Json

FIRST_SECONDS = 60.0
LATER_SECONDS = 1.0
"""The time without a client after which the task ends; FIRST_SECONDS is that for the first client."""


class Guest:
    """The calls of one client. Implements ``Thinking`` and ``SupportsClose``. The task succeeds when the client
    disconnects, and ends as it says when it calls ``finish``."""

    def __init__(self, assignment: Assignment, worker_context: WorkerContext) -> None:
        self._assignment = assignment
        self._worker_context = worker_context
        self._bridge: ToolBridge | None = None
        self._requests: Requests | None = None

    async def decide(self, flow: Flow, ended: Mapping[str, CallOutcome]) -> Sequence[Step]:
        if self._bridge is None or self._requests is None:
            assignment = self._assignment
            self._bridge = ToolBridge(
                bridge_directory(self._worker_context.state_directory, flow.id), assignment.agent, assignment.tools
            )
            await self._bridge.open()
            await flow.emit({"event": "tools.opened", "at": round(time.time(), 3), "agent": assignment.agent})
            self._requests = Requests(self._bridge, "")
            self._requests.expect_request()
            return [Think(self._requests.waiting, self._requests.wait), Think("gone", self._gone)]
        calls, request = self._requests.handle(ended)
        if finished := self._requests.finished:
            await self._bridge.wait_delivered()
            return [Finish(finished["status"], finished["summary"], finished["result"])]
        if self._requests.broken:
            return [Finish("failed", self._requests.broken)]
        if "gone" in ended:
            return [Finish("succeeded", "the client has disconnected")]
        steps: list[Step] = [CallTool(*call) for call in calls]
        return [*steps, Think(self._requests.waiting, self._requests.wait)] if request else steps

    async def over(self) -> Sequence[CallTool]:
        if self._bridge:
            await self._bridge.close(over=True)
        return ()

    async def _gone(self, _: str) -> Mapping[str, Json]:
        assert self._bridge
        await self._bridge.wait_until_unused(FIRST_SECONDS, LATER_SECONDS)
        return {}


class GuestBrain:
    """The brain that a server's start selects, not a plan. Implements ``Brain``."""

    name = "guest"
    wants_tools = True
    rounds = 1

    def problems(self, agent: AgentSettings, secret: Callable[[str], str], *, priced: bool) -> Sequence[str]:
        return [f"brain guest takes no settings: {', '.join(agent.settings)}"] if agent.settings else []

    def begin(self, assignment: Assignment, worker_context: WorkerContext, before: Thinking | None = None) -> Guest:
        return Guest(assignment, worker_context)


PLUGIN = GuestBrain()
