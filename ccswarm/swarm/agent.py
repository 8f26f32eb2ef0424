"""One agent at one task: it asks its brain what to do, makes the calls, and waits for people's approvals. Durable: all
goes through the flow, one operation after the other, or in asyncio tasks that are always started in the same order."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ccswarm.brains.base import (
    CallTool,
    Finish,
    SupportsClose,
    SupportsGivingUp,
    SupportsMessages,
    SupportsPartialResult,
    SupportsRelease,
    SupportsShown,
    Think,
    Thinking,
    Wait,
)
from ccswarm.engines.base import Flow, Outcome
from ccswarm.errors import SwarmError
from ccswarm.models import CallOutcome, CallRequest, CallStatus, Json, RunStatus, Usage
from ccswarm.swarm.task_terminals import TaskTerminals
from ccswarm.swarm.time_budgets import SECONDS, TimeLeft
from ccswarm.toolbox.claims import Claims
from ccswarm.toolbox.questions import question_id
from ccswarm.toolbox.telemetry.base import Telemetry

APPROVAL_SECONDS = 7 * 86400.0
"""How long a question to a person stays open."""

ORCHESTRATOR = "orchestrator"
"""The agent under which calls of no agent of the plan are made; no agent of a plan has this name, or its toolbox."""

TASK, PART = "task", "part"
"""Kinds of executions. A part is a task within another one. It does not count in an engine's limits, because the outer
task, which waits for it, counts already."""

STOPPED = "stopped: "
"""The text before the reason in the summary of stopped work."""

STEPS = 6
"""The version of the steps that runs and tasks record, and of their order: others' executions are not resumed."""

STOP = "stop"
SAY = "say"
"""The topics of messages to a task: to end, and why; and what a person says to its agent, ``{"by": …, "text": …}``."""

DELEGATE = "swarm.delegate"
"""The tool whose call, once allowed, starts a run of the given tasks."""

CONSENT = "consent_needed"
"""The code by which a server reports that it waits for a person's consent itself."""

TYPED = re.compile(r"\bai-session approve ap_[\w-]{1,64}")
"""The command in a server's message that a person has to type; no other text of a server is shown as a command."""

MOST_PAUSE_SECONDS = 60.0
"""The longest pause before repeating a call whose server waits for a person."""

SHOWN_CHARS = 8000
"""How much of an argument a person who is asked sees; the number of further characters is given."""

Call = Callable[[CallRequest], Awaitable[CallOutcome]]
"""Makes one call through a toolbox. Never raises, except when cancelled."""

Remembered = Callable[[CallRequest], Awaitable[str]]
"""Returns the id of an earlier question whose answer covers the call, or ``""``."""


async def nothing_remembered(_: CallRequest) -> str:
    """Return ``""``: in this run, every call is asked about."""
    return ""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What an agent, a task or a run (``kind``) may use, counted at ``scope``."""

    kind: str
    scope: str
    caps: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Work:
    """What stays the same during one task. ``allowances`` returns the limits in which a call of an agent counts.
    ``host`` makes calls that are not the agent's; ``delegated`` makes the payload of a run of tasks, or raises
    SwarmError."""

    run_id: str
    task_id: str
    agent: str
    call: Call
    timeout_seconds: float
    claims: Claims
    """Claims of this process: a call that another one claimed may have been made already."""
    allowances: Callable[[str], list[Allowance]]
    attempt: int
    host: Call
    delegated: Callable[[str, Sequence[Mapping[str, Any]]], Mapping[str, Any]]
    telemetry: Telemetry
    remembered: Remembered
    terminals: TaskTerminals
    not_run: dict[str, None]
    """What of the person's git was not run when delegated work was merged."""


@dataclass(slots=True)
class Ending:
    """How a task ended: ``status`` is succeeded, failed, blocked or budget_exhausted."""

    status: str
    summary: str = ""
    result: Json = None
    usage: Usage = field(default_factory=Usage)
    scope: str = ""
    """Whose budget is used up: agent, task or run."""

    def with_remark(self, remark: str) -> Ending:
        """Return it with a remark added to its summary."""
        return replace(self, summary="; ".join(filter(None, (self.summary, remark))))


@dataclass(slots=True)
class _Operation:
    """A flow operation in progress for a step."""

    step: CallTool | Think | Wait
    kind: str
    approval: str = ""
    run: str = ""
    """The run of delegated work."""


@dataclass(slots=True)
class _ServerQuestion:
    """A server's own question about a call, which is repeated after ``pause`` seconds, for ``left`` more seconds."""

    number: str
    pause: float = 1.0
    left: float = APPROVAL_SECONDS


def approval_id(task_id: str, request: CallRequest) -> str:
    """Return the id that people answer to; it is the same whenever the question is asked again."""
    return question_id(task_id, request.step_id, request.digest)


def request_of(work: Work, step: CallTool) -> CallRequest:
    """Return the request to the toolbox for a step."""
    return CallRequest(
        work.run_id,
        work.task_id,
        step.id,
        ORCHESTRATOR if step.as_host else step.agent or work.agent,
        step.tool,
        step.arguments,
        attempt=work.attempt,
        timeout_seconds=step.timeout_seconds,
        principal=work.task_id,
        repeatable=step.repeatable,
    )


async def emit_event(flow: Flow, event: str, /, **facts: Any) -> None:
    """Emit an event with the current time. A repeated execution emits nothing again, so the first time stays."""
    await flow.emit({"event": event, "at": round(time.time(), 3), **facts})


async def claimed_call(flow: Flow, work: Work, step: CallTool, approval: str = "") -> Callable[[], Awaitable[Json]]:
    """Record that this process is about to make a step's call. Return the flow operation that makes it."""

    async def claim(_: str) -> Json:
        await work.claims.open(work.task_id, step.id)
        return work.claims.process

    async def send(key: str) -> Json:
        request = replace(request_of(work, step), key=key, approval=approval, claim=process)
        sent = work.host if step.as_host else work.call
        return (await sent(request)).to_json()

    async def call() -> Json:
        answer = await flow.step(f"call {step.id}", send)
        work.claims.close(work.task_id, step.id)
        return answer

    process = str(await flow.step(f"claim {step.id}", claim))
    return call


class Agent:
    """An agent that carries out one task. ``run`` it once."""

    def __init__(self, flow: Flow, work: Work) -> None:
        self._flow = flow
        self._work = work
        self._in_progress: dict[asyncio.Task[Any], _Operation] = {}
        self._questions: dict[str, dict[str, Any]] = {}
        self._approved: set[str] = set()
        """Questions about several calls that a person approved."""
        self._server_questions: dict[str, _ServerQuestion] = {}
        """By step, what its server asks a person."""
        self._abandoned: set[str] = set()
        """Calls whose outcome the brain no longer waits for."""
        self._usage = Usage()
        self._published: Mapping[str, Json] = {}
        self._listening: dict[asyncio.Task[Any], float] = {}
        """Waits for messages of people, with their time limits in seconds."""

    async def run(self, thinking: Thinking, left: TimeLeft | None = None) -> Ending:
        """Carry out the task within the time ``left`` by budgets, and return how it ended. What is still in progress
        then is cancelled, and so it is when the flow is cancelled."""
        if left and left.over:
            return out_of_time(left, "before it started")
        seconds = min(self._work.timeout_seconds, left.seconds if left else self._work.timeout_seconds)
        stop = asyncio.create_task(self._flow.receive(STOP, seconds))
        try:
            if isinstance(thinking, SupportsMessages):
                self._listen(seconds)
            ending = await self._work_on(thinking, stop, left)
            if ending.status != "succeeded" and ending.result is None and isinstance(thinking, SupportsPartialResult):
                ending.result = thinking.so_far()
            await self._stop_delegated(ending.summary or ending.status)
            for step in await thinking.over() if isinstance(thinking, SupportsClose) else ():
                call = await claimed_call(self._flow, self._work, step, self._approval(step))
                self._work.terminals.end_call(step, CallOutcome.from_json(await call()))
        finally:
            unfinished = [stop, *self._listening, *self._in_progress]
            for task in unfinished:
                task.cancel()
            try:
                await asyncio.gather(*unfinished, return_exceptions=True)
            finally:
                self._work.claims.close(self._work.task_id)
                if isinstance(thinking, SupportsRelease):
                    await thinking.release()
        ending.usage = self._usage
        return ending

    async def _work_on(self, thinking: Thinking, stop: asyncio.Task[Any], left: TimeLeft | None) -> Ending:
        ended: dict[str, CallOutcome] = {}
        while True:
            steps = await thinking.decide(self._flow, ended)
            if isinstance(thinking, SupportsShown) and self._published != (facts := thinking.shown()):
                self._published = facts
                await self._publish()
            for step in steps:
                if isinstance(step, Finish):
                    return Ending(step.status, step.summary, step.result)
                if short := await self._begin(step):
                    return exhausted(short, f"before {step.id}")
            if isinstance(thinking, SupportsGivingUp):
                await self._give_up(thinking)
            if not self._in_progress:
                return Ending("failed", "the brain neither acted nor finished")
            done = await self._wait_until_done(stop, thinking)
            if stop in done:
                return stopped(stop.result(), self._work.timeout_seconds, left)
            ended = {}
            for task in [task for task in self._in_progress if task in done]:
                going = self._in_progress.pop(task)
                if short := await self._end(task, going, ended):
                    return exhausted(short, f"with {going.step.id}")

    async def _give_up(self, thinking: SupportsGivingUp) -> None:
        """Take back the questions about steps that the brain has given up."""
        abandoned = [going for going in self._in_progress.values() if thinking.given_up(going.step.id)]
        self._abandoned.update(going.step.id for going in abandoned)
        there = [
            self._server_questions.pop(going.step.id) for going in abandoned if going.step.id in self._server_questions
        ]
        numbers = {going.approval for going in abandoned if going.kind == "approval"} | {one.number for one in there}
        if unanswered := [self._questions.pop(number) for number in sorted(numbers) if number in self._questions]:
            for one in unanswered:
                facts = {"id": one["id"], "approved": False, "reason": "it no longer counts for the task"}
                await emit_event(self._flow, "approval.answered", **facts)
            await self._publish()

    def _listen(self, seconds: float) -> None:
        self._listening = {asyncio.create_task(self._flow.receive(SAY, seconds)): seconds}

    async def _wait_until_done(self, stop: asyncio.Task[Any], thinking: Thinking) -> set[asyncio.Task[Any]]:
        """Return the operations that have ended. Until then, pass what people say to the brain."""
        while True:
            done = await self._flow.first([stop, *self._listening, *self._in_progress])
            for task in [task for task in self._listening if task in done]:
                seconds = self._listening.pop(task)
                if isinstance(said := task.result(), dict) and isinstance(thinking, SupportsMessages):
                    facts = {str(name): str(value) for name, value in said.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                    self._listen(seconds)
                    thinking.hear(facts["by"], facts["text"])
                    await emit_event(self._flow, "person.said", by=facts["by"], text=facts["text"])
                done.discard(task)
            if done:
                return done

    async def _stop_delegated(self, why: str) -> None:
        """Stop delegated work and wait until it has ended; its results are kept."""
        delegated = [task for task, going in self._in_progress.items() if going.run]
        for task in delegated:
            await self._flow.send(self._in_progress[task].run, STOP, why)
        while left := [task for task in delegated if task in self._in_progress]:
            for task in await self._flow.first(left):
                await self._end(task, self._in_progress.pop(task), {})

    async def _begin(self, step: CallTool | Think | Wait) -> tuple[str, str] | None:
        """Start a step. If a budget does not suffice, return whose it is and what is used up, and start nothing."""
        if isinstance(step, Wait):
            self._start(step, "wait", lambda: self._flow.sleep(step.seconds))
            return None
        if isinstance(step, Think):
            if short := await self._spend(self._work.agent, {"tokens": 0, "dollars": 0}):
                return short
            self._start(step, "think", lambda: self._think(step))
            return None
        if not step.as_host:
            if short := await self._spend(request_of(self._work, step).agent, {"calls": 1}):
                return short
            self._usage += Usage(calls=1)
        await self._call(step, self._approval(step))
        return None

    async def _spend(self, agent: str, amounts: Mapping[str, float], anyway: bool = False) -> tuple[str, str] | None:
        """Take ``amounts`` from all budgets in which they count. Return the first exceeded one, and for what."""
        found: tuple[str, str] | None = None
        for one in self._work.allowances(agent):
            counted = {name: amount for name, amount in amounts.items() if name in one.caps}
            if counted and (short := await self._flow.spend(one.scope, counted, one.caps, anyway=anyway)):
                found = found or (one.kind, short)
                if not anyway:
                    break
        return found

    def _start(
        self,
        step: CallTool | Think | Wait,
        kind: str,
        start: Callable[[], Awaitable[Any]],
        approval: str = "",
        run: str = "",
    ) -> None:
        async def operation() -> Any:
            return await start()

        self._in_progress[asyncio.create_task(operation())] = _Operation(step, kind, approval, run)

    async def _think(self, step: Think) -> CallOutcome:
        try:
            work = self._work
            request = CallRequest(work.run_id, work.task_id, step.id, work.agent, "", {})
            function = work.telemetry.trace_thought(request, step.function)
            facts = await self._flow.step(f"think {step.id}", function, timeout_seconds=step.timeout_seconds)
        except TimeoutError as error:
            return CallOutcome(CallStatus.TIMEOUT, code="timeout", message=str(error))
        except SwarmError as error:
            return CallOutcome(
                CallStatus.UNAVAILABLE, code=error.code, message=error.message, suggestion=error.suggestion
            )
        except Exception as error:
            message = f"{type(error).__name__}: {error}"[:2000]
            return CallOutcome(CallStatus.UNAVAILABLE, code="internal_error", message=message)
        return CallOutcome(CallStatus.OK, structured=facts)

    async def _call(self, step: CallTool, approval: str = "") -> None:
        self._work.terminals.begin(step)
        self._start(step, "call", await claimed_call(self._flow, self._work, step, approval), approval)

    async def _end(
        self, task: asyncio.Task[Any], going: _Operation, ended: dict[str, CallOutcome]
    ) -> tuple[str, str] | None:
        """Handle the end of a flow operation: start the next one for the same step, or set the step's outcome in
        ``ended``. Return which budget it used up."""
        step = going.step
        if isinstance(step, Wait):
            ended[step.id] = CallOutcome(CallStatus.OK)
        elif isinstance(step, Think):
            outcome: CallOutcome = task.result()
            ended[step.id] = outcome
            used: Mapping[str, float] = (outcome.structured or {}).get("usage") or {}
            amounts = {name: used.get(name) or 0 for name in ("tokens", "dollars")}
            self._usage += Usage(tokens=int(amounts["tokens"]), dollars=amounts["dollars"])
            return await self._spend(self._work.agent, amounts, anyway=True)
        elif going.kind in ("approval", "consent") and step.id in self._abandoned:
            return None
        elif going.kind == "approval":
            await self._receive_answer(step, going.approval, task.result(), ended)
        elif going.kind == "consent":
            await self._retry_unless_refused(step, going.approval, task.result(), ended)
        elif going.run:
            outcome = await self._delegation_outcome(going.run, task.result())
            ended[step.id] = outcome
            tasks: Mapping[str, Mapping[str, Any]] = (outcome.structured or {}).get("tasks") or {}
            if any(one.get("scope") == "run" for one in tasks.values()):
                return "run", "budgets"
        else:
            outcome = CallOutcome.from_json(task.result())
            self._work.terminals.end_call(step, outcome)
            if step.id in self._abandoned:
                ended[step.id] = outcome
            elif outcome.code == "approval_needed" and not going.approval:
                await self._ask(step)
            elif outcome.code == CONSENT and not step.as_host and await self._wait_for_server(step, going, outcome):
                return None
            elif step.tool == DELEGATE and outcome.ok:
                await self._delegate(step, ended)
            else:
                await self._end_server_question(step, outcome)
                self._usage += Usage(seconds=0 if step.as_host else outcome.duration_seconds)
                ended[step.id] = outcome
        return None

    async def _delegate(self, step: CallTool, ended: dict[str, CallOutcome]) -> None:
        """Start the run of the tasks. The tool itself only checked them, and its call ends with that run."""
        agent = request_of(self._work, step).agent
        try:
            payload = self._work.delegated(agent, step.arguments["tasks"])
        except SwarmError as error:
            ended[step.id] = CallOutcome(CallStatus.INVALID, "", None, error.code, error.message, error.suggestion)
            return
        run = f"{self._work.task_id}.{step.id}"
        await self._flow.start("run", run, {**payload, "run_id": run}, agent="")
        tasks = [task["id"] for task in payload["plan"]["tasks"]]
        await emit_event(self._flow, "work.handed_on", run=run, agent=agent, step=step.id, tasks=tasks)
        self._start(step, "run", lambda: self._flow.outcome(run), run=run)

    async def _delegation_outcome(self, run: str, outcome: Outcome) -> CallOutcome:
        """Return the outcome of a delegated run as the answer to the call."""
        found: Mapping[str, Any] = outcome.result or {"status": RunStatus.CANCELLED, "tasks": {}}
        await emit_event(self._flow, "work.came_back", run=run, status=found["status"])
        if outcome.status is not RunStatus.SUCCEEDED:
            message = f"the delegated work is {outcome.status}: {outcome.error}"
            return CallOutcome(CallStatus.CANCELLED, code="cancelled", message=message)
        self._usage += Usage(**found["usage"])
        self._work.not_run.update(dict.fromkeys(found.get("not_run", ())))
        names = ("status", "agent", "attempts", "summary", "result", "scope")
        tasks = {name: {key: one.get(key) for key in names} for name, one in found["tasks"].items()}
        facts = {"status": found["status"], "tasks": tasks}
        text = json.dumps(facts, ensure_ascii=False, indent=1)
        if found["status"] == RunStatus.SUCCEEDED:
            return CallOutcome(CallStatus.OK, text, facts)
        left = [f"{name} is {one['status']}" for name, one in tasks.items() if one["status"] != RunStatus.SUCCEEDED]
        return CallOutcome(CallStatus.TOOL_ERROR, text, facts, "work_not_done", ", ".join(left))

    def _approval(self, step: CallTool) -> str:
        """Return the id of the approval that already covers a step's call, or ``""``."""
        if not step.asked_as:
            return ""
        number = approval_id(self._work.task_id, request_of(self._work, step.asked_as))
        return number if number in self._approved else ""

    async def _ask(self, step: CallTool) -> None:
        request = request_of(self._work, step.asked_as or step)
        number = approval_id(self._work.task_id, request)

        async def find_earlier(_: str) -> Json:
            return await self._work.remembered(request)

        if earlier := str(await self._flow.step(f"remembered {step.id}", find_earlier)):
            if step.asked_as:
                self._approved.add(number)
            await self._call(step, earlier)
            return
        self._questions[number] = {**question_facts(number, request), "digest": request.digest}
        await self._publish()
        # The question may be answered as soon as this is emitted.
        await emit_event(self._flow, "approval.asked", **self._questions[number])
        topic = f"approval:{number}"
        waiting = self._work.telemetry.await_answer
        self._start(step, "approval", lambda: waiting(number, self._flow.receive(topic, APPROVAL_SECONDS)), number)

    async def _wait_for_server(self, step: CallTool, going: _Operation, outcome: CallOutcome) -> bool:
        """Show the server's question, and report whether the call is to be repeated until it is answered."""
        there = self._server_questions.get(step.id)
        if there is None:
            if not (typed := TYPED.search(f"{outcome.message} {outcome.suggestion}")):
                return False
            request = request_of(self._work, step)
            number = approval_id(f"{self._work.task_id}\0{CONSENT}", request)
            there = self._server_questions[step.id] = _ServerQuestion(number)
            self._questions[number] = {**question_facts(number, request), "answer_with": typed[0]}
            await self._publish()
            await emit_event(self._flow, "approval.asked", **self._questions[number])
        elif there.left <= 0:
            return False
        pause = there.pause
        there.pause = min(2 * pause, MOST_PAUSE_SECONDS)
        there.left = there.left - pause
        topic, waiting = f"approval:{there.number}", self._work.telemetry.await_answer
        self._start(step, "consent", lambda: waiting(there.number, self._flow.receive(topic, pause)), going.approval)
        return True

    async def _retry_unless_refused(
        self, step: CallTool, approval: str, answer: Any, ended: dict[str, CallOutcome]
    ) -> None:
        """Repeat the call unless a person refused it here: the server knows whether it was approved there."""
        if answer is None:
            await self._call(step, approval)
        else:
            await self._receive_answer(step, self._server_questions.pop(step.id).number, answer, ended)

    async def _end_server_question(self, step: CallTool, outcome: CallOutcome) -> None:
        if there := self._server_questions.pop(step.id, None):
            self._questions.pop(there.number, None)
            agreed, server = outcome.code not in (CONSENT, "denied"), step.tool.partition(".")[0]
            await emit_event(self._flow, "approval.answered", id=there.number, approved=agreed, by=server)
            await self._publish()

    async def _publish(self) -> None:
        await self._flow.publish({**self._published, "approvals": list(self._questions.values())})

    async def _receive_answer(self, step: CallTool, number: str, answer: Any, ended: dict[str, CallOutcome]) -> None:
        self._questions.pop(number, None)
        facts: dict[str, Any] = {}
        if isinstance(answer, dict):
            facts = {str(name): value for name, value in answer.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        agreed = facts.get("approved") is True
        await emit_event(self._flow, "approval.answered", **{**facts, "id": number, "approved": agreed})
        await self._publish()
        if agreed:
            if step.asked_as:
                self._approved.add(number)
            await self._call(step, number)
            return
        why = str(facts.get("reason") or "no reason given") if answer is not None else "no answer within a week"
        ended[step.id] = CallOutcome(
            CallStatus.DENIED,
            code="rejected",
            message=f"a person rejected {(step.asked_as or step).tool}: {why}",
            suggestion="do it another way, or finish without it",
        )


def stopped(message: Json, timeout_seconds: float, left: TimeLeft | None) -> Ending:
    """Return how work ends that received ``message``, or, if that is None, that ran out of time."""
    if message:
        return Ending("failed", f"{STOPPED}{str(message).removeprefix(STOPPED)}")
    if left and left.seconds <= timeout_seconds:
        return out_of_time(left, "while it ran")
    return out_of_time(TimeLeft("", 0.0, timeout_seconds), "")


def out_of_time(left: TimeLeft, where: str) -> Ending:
    """Return how work ends that has no time left."""
    if left.kind:
        return exhausted((left.kind, SECONDS), where)
    return Ending("failed", f"not done within {left.whole:g} s")


def exhausted(short: tuple[str, str], where: str) -> Ending:
    """Return how work ends when a budget does not suffice: ``short`` is whose it is, and what is used up."""
    kind, what = short
    return Ending("budget_exhausted", f"the {kind}'s {what} are used up, {where}", scope=kind)


def question_facts(number: str, request: CallRequest) -> dict[str, Any]:
    """Return a call as it is shown to the person who is asked about it."""
    arguments = {name: abbreviated(value) for name, value in request.arguments.items()}
    return {"id": number, "agent": request.agent, "tool": request.tool, "arguments": arguments}


def abbreviated(value: Json) -> str:
    """Return an argument as it is shown to a person."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    left = len(text) - SHOWN_CHARS
    return text if left <= 0 else f"{text[:SHOWN_CHARS]}… ({left} more characters are not shown)"
