"""One agent at one task: asks its brain, makes the calls it decides on, waits for a person where one has to agree.

Durable: everything that happens goes through the flow, one operation after the other or each in an asyncio task of its
own, started in an order that is always the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ccswarm.brains.base import CallTool, Finish, Step, Thinking, Wait
from ccswarm.engines.base import Flow
from ccswarm.models import CallOutcome, CallRequest, CallStatus, Json, Usage

APPROVAL_SECONDS = 7 * 86400.0
"""How long a question to a person stays open."""

STOP = "stop"
SHOWN_CHARS = 8000
"""Of an argument that a person is asked about; what is longer says how much is not shown."""

Call = Callable[[CallRequest], Awaitable[CallOutcome]]
"""Sends one call; a toolbox's. Never raises but for cancellation."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What may be used of an agent, a task or a run (``kind``), counted at ``scope``."""

    kind: str
    scope: str
    caps: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Work:
    """What is the same during one task. ``allowances`` are by agent: each call counts in all of its agent's."""

    run_id: str
    task_id: str
    agent: str
    call: Call
    timeout_seconds: float
    process: str
    """Names this process: a call that another one claimed may have been made already."""
    allowances: Callable[[str], list[Allowance]] = lambda _: []
    attempt: int = 1


@dataclass(slots=True)
class Ending:
    """How it went: ``status`` is succeeded, failed, blocked or budget_exhausted."""

    status: str
    summary: str = ""
    result: Json = None
    usage: Usage = field(default_factory=Usage)
    scope: str = ""
    """Whose budget was exhausted: agent, task or run."""


@dataclass(slots=True)
class _Going:
    """One flow operation under way for a step."""

    step: Step
    kind: str
    approval: str = ""


def approval_id(task_id: str, request: CallRequest) -> str:
    """What people answer to; the same whoever asks again."""
    return "ap_" + hashlib.sha256(f"{task_id}\0{request.step_id}\0{request.digest}".encode()).hexdigest()[:12]


def request_of(work: Work, step: CallTool) -> CallRequest:
    """What a step asks of the toolbox."""
    return CallRequest(
        work.run_id,
        work.task_id,
        step.id,
        step.agent or work.agent,
        step.tool,
        step.arguments,
        attempt=work.attempt,
        timeout_seconds=step.timeout_seconds,
    )


async def tell(flow: Flow, event: str, /, **facts: Any) -> None:
    """Emit an event with its time. When an execution is repeated nothing is emitted again: the time is the first."""
    await flow.emit({"event": event, "at": round(time.time(), 3), **facts})


async def claimed(flow: Flow, work: Work, step: CallTool, approval: str = "") -> Callable[[], Awaitable[Json]]:
    """The flow operation that makes a step's call, once it is recorded which process is about to make it."""

    async def claim(_: str) -> Json:
        return work.process

    async def send(key: str) -> Json:
        request = replace(request_of(work, step), key=key, approval=approval, claim=process)
        return (await work.call(request)).to_json()

    process = str(await flow.step(f"claim {step.id}", claim))
    return lambda: flow.step(f"call {step.id}", send)


async def call_once(flow: Flow, work: Work, step: CallTool) -> CallOutcome:
    """A call beside any brain."""
    call = await claimed(flow, work, step)
    return CallOutcome.from_json(await call())


class Agent:
    """Carries one task out. ``run`` once."""

    def __init__(self, flow: Flow, work: Work) -> None:
        self._flow = flow
        self._work = work
        self._going: dict[asyncio.Task[Any], _Going] = {}
        self._asked: dict[str, dict[str, Any]] = {}
        self._usage = Usage()

    async def run(self, thinking: Thinking) -> Ending:
        """Returns how the task ended. What still goes on then is cancelled, and so it is when the flow is."""
        stop = asyncio.create_task(self._flow.receive(STOP, self._work.timeout_seconds))
        try:
            ending = await self._work_on(thinking, stop)
        finally:
            left = [stop, *self._going]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        ending.usage = self._usage + thinking.usage
        return ending

    async def _work_on(self, thinking: Thinking, stop: asyncio.Task[Any]) -> Ending:
        ended: dict[str, CallOutcome] = {}
        while True:
            for step in await thinking.decide(self._flow, ended):
                if isinstance(step, Finish):
                    return Ending(step.status, step.summary, step.result)
                if short := await self._begin(step):
                    kind, what = short
                    return Ending("budget_exhausted", f"the {kind}'s {what} are used up, before {step.id}", scope=kind)
            if not self._going:
                return Ending("failed", "the brain neither did anything nor finished")
            done = await self._flow.first([stop, *self._going])
            if stop in done:
                why = "stopped" if stop.result() else f"not done within {self._work.timeout_seconds:g} s"
                return Ending("failed", why)
            ended = {}
            for task in [task for task in self._going if task in done]:
                await self._end(task, self._going.pop(task), ended)

    async def _begin(self, step: CallTool | Wait) -> tuple[str, str] | None:
        """Starts a step; or whose budget is short of what, and then it was not started."""
        if isinstance(step, Wait):
            self._go(step, "wait", lambda: self._flow.sleep(step.seconds))
            return None
        agent = step.agent or self._work.agent
        for allowance in self._work.allowances(agent):
            if short := await self._flow.spend(allowance.scope, {"calls": 1}, allowance.caps):
                return allowance.kind, short
        self._usage += Usage(calls=1)
        await self._call(step)
        return None

    def _go(self, step: CallTool | Wait, kind: str, start: Callable[[], Awaitable[Any]], approval: str = "") -> None:
        async def waited() -> Any:
            return await start()

        self._going[asyncio.create_task(waited())] = _Going(step, kind, approval)

    async def _call(self, step: CallTool, approval: str = "") -> None:
        self._go(step, "call", await claimed(self._flow, self._work, step, approval), approval)

    async def _end(self, task: asyncio.Task[Any], going: _Going, ended: dict[str, CallOutcome]) -> None:
        """What comes of one flow operation that is over: another one for the same step, or the step's outcome."""
        step = going.step
        assert isinstance(step, CallTool | Wait)
        if isinstance(step, Wait):
            ended[step.id] = CallOutcome(CallStatus.OK)
        elif going.kind == "approval":
            answer: Any = task.result()
            await self._answered(step, going.approval, answer, ended)
        else:
            outcome = CallOutcome.from_json(task.result())
            if outcome.code == "approval_needed" and not going.approval:
                await self._ask(step)
            else:
                self._usage += Usage(seconds=outcome.duration_seconds)
                ended[step.id] = outcome

    async def _ask(self, step: CallTool) -> None:
        request = request_of(self._work, step)
        number = approval_id(self._work.task_id, request)
        shown = {name: _shown(value) for name, value in step.arguments.items()}
        self._asked[number] = {"id": number, "agent": request.agent, "tool": step.tool, "arguments": shown}
        await self._flow.publish({"approvals": list(self._asked.values())})
        await tell(self._flow, "approval.asked", **self._asked[number])  # who hears it may answer at once
        topic = f"approval:{number}"
        self._go(step, "approval", lambda: self._flow.receive(topic, APPROVAL_SECONDS), number)

    async def _answered(self, step: CallTool, number: str, answer: Any, ended: dict[str, CallOutcome]) -> None:
        self._asked.pop(number, None)
        facts: dict[str, Any] = {}
        if isinstance(answer, dict):
            facts = {str(name): value for name, value in answer.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        agreed = facts.get("approved") is True
        await tell(self._flow, "approval.answered", **{**facts, "id": number, "approved": agreed})
        await self._flow.publish({"approvals": list(self._asked.values())})
        if agreed:
            await self._call(step, number)
            return
        why = str(facts.get("reason") or "no reason given") if answer is not None else "nobody answered within a week"
        ended[step.id] = CallOutcome(
            CallStatus.DENIED,
            code="rejected",
            message=f"a person did not agree to {step.tool}: {why}",
            suggestion="do it another way, or finish without it",
        )


def _shown(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    left = len(text) - SHOWN_CHARS
    return text if left <= 0 else f"{text[:SHOWN_CHARS]}… ({left} characters more are not shown)"
