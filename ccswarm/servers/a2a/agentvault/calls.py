"""Calls of AgentVault's clients: each is a single call by a configured agent, through its toolbox."""

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
from ccswarm.servers.a2a.agentvault.targets import MAP, find_target
from ccswarm.servers.a2a.agentvault.wire import AGENT_ERROR, Fault, RequestedCall, agent_message, call_from
from ccswarm.servers.a2a.context import DialectContext
from ccswarm.servers.a2a.task_store import State, Task
from ccswarm.toolbox.scope import ToolScope

PROFILE = "vault"
RUN = "a2a"
"""The run that servers are given for all these calls, so that a session opened by one call is found by the next."""

STOPPED = "PROXY_STOPPED"

log = logging.getLogger(__name__)


class Waits(Exception):
    """A person has not answered before the server ends; the call continues after its next start."""


class Calls:
    """The calls of one agent. Raises UsageInvalid if the agent that was named is not configured."""

    def __init__(self, context: DialectContext) -> None:
        self._context = context
        self._app = context.serve_context.app
        self._settings = self._app.settings
        self._agent, self._why = self._choose_agent(context.serve_context.options.agent or self._settings.a2a.agent)
        self._made = 0

    def resume(self) -> None:
        """Continue the tasks that were unfinished when the server ended: those not begun, and those that wait for a
        person. For all others it is unknown whether they had an effect, so they fail."""
        for task in self._context.tasks.select(PROFILE, lambda one: not one.state.over):
            if task.state is State.WORKING:
                message = "the server ended during the call"
                self._record_result(task, failure(PROXY, STOPPED, message, UNKNOWN_EFFECT))
            else:
                self._context.carry(task.id, self.carry(task))

    def check(self) -> None:
        """Raise Fault if there is no agent that could make a call."""
        if not self._agent:
            raise Fault(AGENT_ERROR, f"Agent error: {self._why}")

    async def carry(self, task: Task) -> None:
        """Make the call of a task and record its result."""
        try:
            requested = call_from(task.messages[0])
            content = await self._make_call(task, requested)
        except Waits:
            return
        except asyncio.CancelledError:
            if not task.state.over:
                begun = task.state is State.WORKING
                why = "the server ended during the call" if begun else "the server ended before the call"
                self._record_result(task, failure(PROXY, STOPPED, why, UNKNOWN_EFFECT if begun else None))
            raise
        except SwarmError as error:
            content = failure(PROXY, "PROXY_INTERNAL_ERROR", error.message, {"suggestion": error.suggestion})
        except Exception as error:
            log.exception("task %s failed", task.id)
            content = failure(PROXY, "PROXY_INTERNAL_ERROR", type(error).__name__)
        self._record_result(task, content)

    async def cancel(self, task: Task) -> bool:
        """Cancel an unfinished task: its call, also at the server, or its question. Report whether it was one."""
        if not self._context.tasks.set_state(task, State.CANCELED, "Cancelled by request."):
            return False
        await self._context.drop(task.id)
        for question in task.runs:
            with suppress(RunNotFound):
                await self._app.engine.cancel(question)
        return True

    def _record_result(self, task: Task, content: Mapping[str, Any]) -> None:
        if task.state.over:
            return
        done = content["success"]
        self._context.tasks.add_message(task, agent_message(content))
        self._context.tasks.set_state(
            task, State.COMPLETED if done else State.FAILED, None if done else line_of(content)
        )

    async def _make_call(self, task: Task, requested: RequestedCall) -> Mapping[str, Any]:
        target = find_target(self._settings, requested.target, requested.tool)
        if not self._agent or not target:
            why = f"there is no server for target {requested.target[:80]!r} or tool {requested.tool[:80]!r}"
            return failure(PROXY, "UNKNOWN_TARGET", why if self._agent else self._why)
        server, tool = target
        full = f"{server.name}.{tool}"
        request = CallRequest(RUN, task.id, "call", self._agent.name, full, requested.arguments, key=task.id)
        if not task.runs:  # otherwise a person has been asked already
            outcome = await self._send(task, request)
            if outcome.code != "approval_needed":
                return tool_answer(outcome, requested.tool, whole=server.protocol == "rpc")
        answer = await self._answer(task, request)
        if not answer.get("approved"):
            return failure(PROXY, "REJECTED", str(answer.get("reason") or "it was not approved"))
        outcome = await self._send(task, replace(request, approval=str(answer["id"])))
        return tool_answer(outcome, requested.tool, whole=server.protocol == "rpc")

    async def _send(self, task: Task, request: CallRequest) -> CallOutcome:
        assert self._agent
        assert self._app.task_worker
        toolbox = self._app.task_worker.toolbox(ToolScope({self._agent.name: self._agent}, self._directory))
        self._context.tasks.set_state(task, State.WORKING)
        return await toolbox.call(request, budget=self._budget, approved=lambda one: bool(one.approval))

    async def _answer(self, task: Task, request: CallRequest) -> Mapping[str, Any]:
        """Return a person's answer about a call; ``id`` is the question's. Raises Waits if the server ends before."""
        if task.runs:
            await self._recover(task)
        question = await self._app.swarm.ask(task.id, request)
        task.runs = [task.id]
        self._context.tasks.store(task)
        waiting = asyncio.create_task(self._wait_for_answer(task, question))
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

    async def _wait_for_answer(self, task: Task, question: str) -> Execution:
        """Wait until a person has answered, or the question has ended otherwise."""
        message = f"a person must approve it: ccswarm approve {question}, or ccswarm reject {question}"
        async for event in self._app.engine.events(task.id):
            if event["event"] == "approval.asked":
                self._context.tasks.set_state(task, State.INPUT_REQUIRED, message)
        return await self._app.engine.wait(task.id)

    async def _recover(self, task: Task) -> None:
        """Reopen at once the question of a process of this machine that was killed."""
        with suppress(RunNotFound):
            asked = await self._app.engine.status(task.id)
            if asked.status is RunStatus.RUNNING and ended_here(asked.worker):
                await self._app.engine.recover(asked.worker)

    @cached_property
    def _directory(self) -> str:
        """The directory for servers without one of their own. Raises UsageInvalid and ConfigInvalid."""
        options = self._context.serve_context.options
        return str(options.root(options.last()))

    async def _budget(self, request: CallRequest) -> str:
        """Count a call. All calls of this process count, because they belong to no run."""
        assert self._agent
        caps = [cap for cap in (self._agent.budget.calls, self._settings.swarm.budget.calls) if cap]
        if caps and self._made >= min(caps):
            return "calls"
        self._made += 1
        return ""

    def _choose_agent(self, name: str) -> tuple[AgentSettings | None, str]:
        """Return the agent, or why there is none."""
        agents = {agent.name: agent for agent in self._settings.agents}
        if name and name not in agents:
            raise UsageInvalid(
                f"there is no agent {name[:80]!r}",
                suggestion=f"use one of: {', '.join(agents)}" if agents else "configure an agent",
            )
        if name or len(agents) == 1:
            return agents[name or next(iter(agents))], ""
        if not agents:
            return None, f"no agent is configured: ccswarm init --for a2a adds one, or set {MAP}"
        return (
            None,
            f"no agent is set for calling tools ({', '.join(agents)}): ccswarm serve --a2a --agent NAME",
        )
