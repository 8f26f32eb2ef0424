"""Calls of AgentVault's clients: each is one call of an agent of the configuration, through its toolbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from ccswarm.config.settings import AgentSettings
from ccswarm.errors import RunNotFound, SwarmError, UsageInvalid
from ccswarm.models import CallOutcome, CallRequest, Execution, RunStatus
from ccswarm.runs.status import ended_here
from ccswarm.servers.a2a.agentvault.outcomes import PROXY, UNKNOWN_EFFECT, failure, line_of, tool_answer
from ccswarm.servers.a2a.agentvault.targets import MAP, found
from ccswarm.servers.a2a.agentvault.wire import AGENT_ERROR, Fault, Wanted, said, wanted_of
from ccswarm.servers.a2a.core.context import DialectContext
from ccswarm.servers.a2a.core.task_store import State, Task
from ccswarm.toolbox.scope import ToolScope

PROFILE = "vault"
RUN = "a2a"
"""Passed to servers instead of a run, so that what one call opens, such as a session, is found by the next."""

STOPPED = "PROXY_STOPPED"

log = logging.getLogger(__name__)


class Waits(Exception):
    """A person has not answered yet, and the server ends: it continues when it is started again."""


class Calls:
    """Makes calls for one agent. Raises UsageInvalid where the one that was named is none of the configuration."""

    def __init__(self, context: DialectContext) -> None:
        self._context = context
        self._app = context.serve_context.app
        self._settings = self._app.settings
        self._agent, self._why = self._chosen(context.serve_context.options.agent or self._settings.a2a.agent)
        self._made = 0

    def resume(self) -> None:
        """What was not over when the server ended: what was not begun, or waits for a person, continues; of the rest
        nobody knows whether it had its effect."""
        for task in self._context.tasks.listed(PROFILE, lambda one: not one.state.over):
            if task.state is State.WORKING:
                message = "the server ended during the call"
                self._tell(task, failure(PROXY, STOPPED, message, UNKNOWN_EFFECT))
            else:
                self._context.carry(task.id, self.carry(task))

    def check(self) -> None:
        """Raises Fault where nobody can make a call."""
        if not self._agent:
            raise Fault(AGENT_ERROR, f"Agent error: {self._why}")

    async def carry(self, task: Task) -> None:
        """Makes the call that a task is, unless it is over."""
        try:
            wanted = wanted_of(task.messages[0])
            content = await self._made_of(task, wanted)
        except Waits:
            return
        except asyncio.CancelledError:
            if not task.state.over:
                begun = task.state is State.WORKING
                why = "the server ended during the call" if begun else "the server ended before the call"
                self._tell(task, failure(PROXY, STOPPED, why, UNKNOWN_EFFECT if begun else None))
            raise
        except SwarmError as error:
            content = failure(PROXY, "PROXY_INTERNAL_ERROR", error.message, {"suggestion": error.suggestion})
        except Exception as error:
            log.exception("task %s failed", task.id)
            content = failure(PROXY, "PROXY_INTERNAL_ERROR", type(error).__name__)
        self._tell(task, content)

    async def cancel(self, task: Task) -> bool:
        """Whether it was not over; if so, the call in progress is cancelled, also at its server, and its question
        withdrawn."""
        if not self._context.tasks.turn(task, State.CANCELED, "Cancelled by request."):
            return False
        await self._context.drop(task.id)
        for question in task.runs:
            with suppress(RunNotFound):
                await self._app.engine.cancel(question)
        return True

    def _tell(self, task: Task, content: Mapping[str, Any]) -> None:
        if task.state.over:
            return
        done = content["success"]
        self._context.tasks.say(task, said(content))
        self._context.tasks.turn(task, State.COMPLETED if done else State.FAILED, None if done else line_of(content))

    async def _made_of(self, task: Task, wanted: Wanted) -> Mapping[str, Any]:
        meant = found(self._settings, wanted.target, wanted.tool)
        if not self._agent or not meant:
            why = f"there is no server for target {wanted.target[:80]!r} or tool {wanted.tool[:80]!r}"
            return failure(PROXY, "UNKNOWN_TARGET", why if self._agent else self._why)
        server, tool = meant
        full = f"{server.name}.{tool}"
        request = CallRequest(RUN, task.id, "call", self._agent.name, full, wanted.arguments, key=task.id)
        if not task.runs:  # else it was asked already whether it may be made
            outcome = await self._sent(task, request)
            if outcome.code != "approval_needed":
                return tool_answer(outcome, wanted.tool, whole=server.protocol == "rpc")
        answer = await self._answer(task, request)
        if not answer.get("approved"):
            return failure(PROXY, "REJECTED", str(answer.get("reason") or "it was not approved"))
        outcome = await self._sent(task, replace(request, approval=str(answer["id"])))
        return tool_answer(outcome, wanted.tool, whole=server.protocol == "rpc")

    async def _sent(self, task: Task, request: CallRequest) -> CallOutcome:
        assert self._agent
        assert self._app.task_worker
        toolbox = self._app.task_worker.toolbox(ToolScope({self._agent.name: self._agent}, self._directory))
        self._context.tasks.turn(task, State.WORKING)
        return await toolbox.call(request, budget=self._budget, approved=lambda one: bool(one.approval))

    async def _answer(self, task: Task, request: CallRequest) -> Mapping[str, Any]:
        """What a person says of a call; ``id`` is the question's. Raises Waits where the server ends before."""
        if task.runs:
            await self._recover(task)
        question = await self._app.swarm.ask(task.id, request)
        task.runs = [task.id]
        self._context.tasks.keep(task)
        waiting = asyncio.create_task(self._answered(task, question))
        closing = asyncio.create_task(self._context.closing.wait())
        try:
            await asyncio.wait([waiting, closing], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise Waits
            over = waiting.result()
        finally:
            for one in (waiting, closing):
                one.cancel()
            await asyncio.gather(waiting, closing, return_exceptions=True)
        answer: Mapping[str, Any] = over.result if over.status is RunStatus.SUCCEEDED and over.result else {}
        return {**answer, "id": question}

    async def _answered(self, task: Task, question: str) -> Execution:
        """When a person has answered, or nobody will any more."""
        words = f"a person must approve it: ccswarm approve {question}, or ccswarm reject {question}"
        async for event in self._app.engine.events(task.id):
            if event["event"] == "approval.asked":
                self._context.tasks.turn(task, State.INPUT_REQUIRED, words)
        return await self._app.engine.wait(task.id)

    async def _recover(self, task: Task) -> None:
        """A question that a process of this machine had open when it was killed is open again at once."""
        with suppress(RunNotFound):
            asked = await self._app.engine.status(task.id)
            if asked.status is RunStatus.RUNNING and ended_here(asked.worker):
                await self._app.engine.recover(asked.worker)

    @cached_property
    def _directory(self) -> str:
        """Where servers that name no directory are started. Raises UsageInvalid, ConfigInvalid."""
        options = self._context.serve_context.options
        return str(options.root(options.last()))

    async def _budget(self, request: CallRequest) -> str:
        """All calls of this process count, for there is no run that they belong to."""
        assert self._agent
        caps = [cap for cap in (self._agent.budget.calls, self._settings.swarm.budget.calls) if cap]
        if caps and self._made >= min(caps):
            return "calls"
        self._made += 1
        return ""

    def _chosen(self, name: str) -> tuple[AgentSettings | None, str]:
        """The agent, or why there is none."""
        agents = {agent.name: agent for agent in self._settings.agents}
        if name and name not in agents:
            raise UsageInvalid(
                f"there is no agent {name[:80]!r}", suggestion=f"there is: {', '.join(agents) or 'none'}"
            )
        if name or len(agents) == 1:
            return agents[name or next(iter(agents))], ""
        if not agents:
            return None, f"no agent is configured: ccswarm init --for a2a adds one, or set {MAP}"
        return (
            None,
            f"no agent is set for calling tools ({', '.join(agents)}): ccswarm serve --a2a --agent NAME",
        )
