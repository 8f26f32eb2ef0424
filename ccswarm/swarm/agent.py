"""One agent at one task: asks its brain, makes the calls it decides on, waits for a person where one has to agree.

Durable: everything that happens goes through the flow, one operation after the other or each in an asyncio task of its
own, started in an order that is always the same.
"""

from __future__ import annotations

import asyncio
import hashlib
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
from ccswarm.swarm.time_budgets import SECONDS, TimeLeft
from ccswarm.telemetry.base import Telemetry
from ccswarm.toolbox.claims import Claims
from ccswarm.toolbox.terminals import CLOSING, OPENING

APPROVAL_SECONDS = 7 * 86400.0
"""How long a question to a person stays open."""

ORCHESTRATOR = "orchestrator"
"""Who calls what is no agent's own; no agent of a plan has this name, or its toolbox."""

TASK, PART = "task", "part"
"""Kinds of executions. What is a part of a task is a task too, but takes none of the places that an engine's limits
leave: the one it is a part of has its own, and keeps it until its parts are over."""

STOPPED = "stopped: "
"""Text before the reason in the summary of work that was stopped."""

NOT_SENT = (CallStatus.DENIED, CallStatus.INVALID, CallStatus.BUDGET)

STEPS = 5
"""Which steps runs and tasks record, and in which order: those of another number are not gone on with."""

STOP = "stop"
SAY = "say"
"""Topics of messages to a task: end, and why; what a person says to its agent, ``{"by": …, "text": …}``."""

DELEGATE = "swarm.delegate"
"""The tool whose call, where it is allowed, has others do some tasks."""

CONSENT = "consent_needed"
"""The code with which a server says that it waits for a person's word itself."""

TYPED = re.compile(r"\bai-session approve ap_[\w-]{1,64}")
"""The command in a server's message that a person has to type; no other text of a server is shown as a command."""

MOST_PAUSE_SECONDS = 60.0
"""Between two times that a call is made whose server waits for a person."""

SHOWN_CHARS = 8000
"""Of an argument that a person is asked about; what is longer says how much is not shown."""

Call = Callable[[CallRequest], Awaitable[CallOutcome]]
"""Sends one call; a toolbox's. Never raises but for cancellation."""

Remembered = Callable[[CallRequest], Awaitable[str]]
"""The id of the question whose answer counts for a call as well, ``""`` where there is none."""


async def nothing_remembered(_: CallRequest) -> str:
    """Of a run in which every call is asked about."""
    return ""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What may be used of an agent, a task or a run (``kind``), counted at ``scope``."""

    kind: str
    scope: str
    caps: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Work:
    """What is the same during one task. ``allowances`` are by agent: each call counts in all of its agent's. ``host``
    sends what is not the agent's own; ``delegated`` makes of tasks the payload of their run, or raises SwarmError."""

    run_id: str
    task_id: str
    agent: str
    call: Call
    timeout_seconds: float
    claims: Claims
    """Of this process: a call that another one claimed may have been made already."""
    allowances: Callable[[str], list[Allowance]] = lambda _: []
    attempt: int = 1
    host: Call | None = None
    delegated: Callable[[str, Sequence[Mapping[str, Any]]], Mapping[str, Any]] | None = None
    telemetry: Telemetry = field(default_factory=Telemetry)
    remembered: Remembered = nothing_remembered
    opened: dict[str, tuple[str, bool]] = field(default_factory=dict[str, tuple[str, bool]])
    """By step, or by id and name of the session once these are known: the server at which the task opened a terminal or
    may have, and whether as its host, who closes it."""
    not_run: dict[str, None] = field(default_factory=dict[str, None])
    """What of the person's git was not run when work was merged that the task had handed on."""


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

    step: CallTool | Think | Wait
    kind: str
    approval: str = ""
    run: str = ""
    """What was handed on."""


@dataclass(slots=True)
class _AskedThere:
    """A server's own question about a call; the call is made again after ``pause`` seconds, ``left`` times more."""

    number: str
    pause: float = 1.0
    left: float = APPROVAL_SECONDS


def approval_id(task_id: str, request: CallRequest) -> str:
    """What people answer to; the same whoever asks again."""
    return "ap_" + hashlib.sha256(f"{task_id}\0{request.step_id}\0{request.digest}".encode()).hexdigest()[:12]


def request_of(work: Work, step: CallTool) -> CallRequest:
    """What a step asks of the toolbox."""
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


async def tell(flow: Flow, event: str, /, **facts: Any) -> None:
    """Emit an event with its time. When an execution is repeated nothing is emitted again: the time is the first."""
    await flow.emit({"event": event, "at": round(time.time(), 3), **facts})


async def claimed(flow: Flow, work: Work, step: CallTool, approval: str = "") -> Callable[[], Awaitable[Json]]:
    """The flow operation that makes a step's call, once it is recorded which process is about to make it."""

    async def claim(_: str) -> Json:
        await work.claims.open(work.task_id, step.id)
        return work.claims.process

    async def send(key: str) -> Json:
        request = replace(request_of(work, step), key=key, approval=approval, claim=process)
        sent = work.host if step.as_host and work.host else work.call
        return (await sent(request)).to_json()

    async def call() -> Json:
        answer = await flow.step(f"call {step.id}", send)
        work.claims.close(work.task_id, step.id)
        return answer

    process = str(await flow.step(f"claim {step.id}", claim))
    return call


class Agent:
    """Carries one task out. ``run`` once."""

    def __init__(self, flow: Flow, work: Work) -> None:
        self._flow = flow
        self._work = work
        self._going: dict[asyncio.Task[Any], _Going] = {}
        self._asked: dict[str, dict[str, Any]] = {}
        self._agreed: set[str] = set()
        """Questions about several calls that a person answered with yes."""
        self._asked_there: dict[str, _AskedThere] = {}
        """By step: what its server asks a person."""
        self._given_up: set[str] = set()
        """Calls for which nothing more is done."""
        self._usage = Usage()
        self._shown: Mapping[str, Json] = {}
        self._listening: dict[asyncio.Task[Any], float] = {}
        """Waits for what people say, for so many seconds."""

    async def run(self, thinking: Thinking, left: TimeLeft | None = None) -> Ending:
        """Returns how the task ended, ``left`` being the time that budgets leave it. What is still in progress then is
        cancelled, and so it is when the flow is."""
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
            await self._call_back(ending.summary or ending.status)
            for step in await thinking.over() if isinstance(thinking, SupportsClose) else ():
                call = await claimed(self._flow, self._work, step, self._approval(step))
                self._note_terminals(step, CallOutcome.from_json(await call()))
        finally:
            unfinished = [stop, *self._listening, *self._going]
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
            if isinstance(thinking, SupportsShown) and self._shown != (shown := thinking.shown()):
                self._shown = shown
                await self._publish()
            for step in steps:
                if isinstance(step, Finish):
                    return Ending(step.status, step.summary, step.result)
                if short := await self._begin(step):
                    return exhausted(short, f"before {step.id}")
            if isinstance(thinking, SupportsGivingUp):
                await self._give_up(thinking)
            if not self._going:
                return Ending("failed", "the brain neither acted nor finished")
            done = await self._until_done(stop, thinking)
            if stop in done:
                return stopped(stop.result(), self._work.timeout_seconds, left)
            ended = {}
            for task in [task for task in self._going if task in done]:
                going = self._going.pop(task)
                if short := await self._end(task, going, ended):
                    return exhausted(short, f"with {going.step.id}")

    async def _give_up(self, thinking: SupportsGivingUp) -> None:
        """Nothing more is done for what the brain has given up: its questions are taken back."""
        those = [going for going in self._going.values() if thinking.given_up(going.step.id)]
        self._given_up.update(going.step.id for going in those)
        there = [self._asked_there.pop(going.step.id) for going in those if going.step.id in self._asked_there]
        numbers = {going.approval for going in those if going.kind == "approval"} | {one.number for one in there}
        if unanswered := [self._asked.pop(number) for number in sorted(numbers) if number in self._asked]:
            for one in unanswered:
                facts = {"id": one["id"], "approved": False, "reason": "it no longer counts for the task"}
                await tell(self._flow, "approval.answered", **facts)
            await self._publish()

    def _listen(self, seconds: float) -> None:
        self._listening = {asyncio.create_task(self._flow.receive(SAY, seconds)): seconds}

    async def _until_done(self, stop: asyncio.Task[Any], thinking: Thinking) -> set[asyncio.Task[Any]]:
        """Which of what is in progress is over; what people say until then the brain hears at once, and heeds later."""
        while True:
            done = await self._flow.first([stop, *self._listening, *self._going])
            for task in [task for task in self._listening if task in done]:
                seconds = self._listening.pop(task)
                if isinstance(said := task.result(), dict) and isinstance(thinking, SupportsMessages):
                    facts = {str(name): str(value) for name, value in said.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                    self._listen(seconds)
                    thinking.hear(facts["by"], facts["text"])
                    await tell(self._flow, "person.said", by=facts["by"], text=facts["text"])
                done.discard(task)
            if done:
                return done

    async def _call_back(self, why: str) -> None:
        """Stops delegated work and waits for it to end; what was done is kept."""
        handed_on = [task for task, going in self._going.items() if going.run]
        for task in handed_on:
            await self._flow.send(self._going[task].run, STOP, why)
        while left := [task for task in handed_on if task in self._going]:
            for task in await self._flow.first(left):
                await self._end(task, self._going.pop(task), {})

    async def _begin(self, step: CallTool | Think | Wait) -> tuple[str, str] | None:
        """Starts a step; or whose budget is short of what, and then it was not started."""
        if isinstance(step, Wait):
            self._go(step, "wait", lambda: self._flow.sleep(step.seconds))
            return None
        if isinstance(step, Think):
            if short := await self._spend(self._work.agent, {"tokens": 0, "dollars": 0}):
                return short
            self._go(step, "think", lambda: self._thought(step))
            return None
        if not step.as_host:
            if short := await self._spend(request_of(self._work, step).agent, {"calls": 1}):
                return short
            self._usage += Usage(calls=1)
        await self._call(step, self._approval(step))
        return None

    async def _spend(self, agent: str, amounts: Mapping[str, float], anyway: bool = False) -> tuple[str, str] | None:
        """Takes it from all budgets it counts in; or the first that is short, and of what."""
        found: tuple[str, str] | None = None
        for one in self._work.allowances(agent):
            counted = {name: amount for name, amount in amounts.items() if name in one.caps}
            if counted and (short := await self._flow.spend(one.scope, counted, one.caps, anyway=anyway)):
                found = found or (one.kind, short)
                if not anyway:
                    break
        return found

    def _go(
        self,
        step: CallTool | Think | Wait,
        kind: str,
        start: Callable[[], Awaitable[Any]],
        approval: str = "",
        run: str = "",
    ) -> None:
        async def waited() -> Any:
            return await start()

        self._going[asyncio.create_task(waited())] = _Going(step, kind, approval, run)

    async def _thought(self, step: Think) -> CallOutcome:
        try:
            work = self._work
            whose = CallRequest(work.run_id, work.task_id, step.id, work.agent, "", {})
            function = work.telemetry.trace_thought(whose, step.function)
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
        server, _, tool = step.tool.partition(".")
        if tool == OPENING:
            self._work.opened[step.id] = (server, step.as_host)
        self._go(step, "call", await claimed(self._flow, self._work, step, approval), approval)

    async def _end(
        self, task: asyncio.Task[Any], going: _Going, ended: dict[str, CallOutcome]
    ) -> tuple[str, str] | None:
        """What comes of one flow operation that is over: another one for the same step, or the step's outcome. Returns
        which budget it used up."""
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
        elif going.kind in ("approval", "consent") and step.id in self._given_up:
            return None
        elif going.kind == "approval":
            await self._answered(step, going.approval, task.result(), ended)
        elif going.kind == "consent":
            await self._asked_again(step, going.approval, task.result(), ended)
        elif going.run:
            outcome = await self._handed_on(going.run, task.result())
            ended[step.id] = outcome
            tasks: Mapping[str, Mapping[str, Any]] = (outcome.structured or {}).get("tasks") or {}
            if any(one.get("scope") == "run" for one in tasks.values()):
                return "run", "means"
        else:
            outcome = CallOutcome.from_json(task.result())
            self._note_terminals(step, outcome)
            if step.id in self._given_up:
                ended[step.id] = outcome
            elif outcome.code == "approval_needed" and not going.approval:
                await self._ask(step)
            elif outcome.code == CONSENT and not step.as_host and await self._wait_there(step, going, outcome):
                return None
            elif step.tool == DELEGATE and outcome.ok and self._work.delegated:
                await self._delegate(step, ended)
            else:
                await self._answered_there(step, outcome)
                self._usage += Usage(seconds=0 if step.as_host else outcome.duration_seconds)
                ended[step.id] = outcome
        return None

    def _note_terminals(self, step: CallTool, outcome: CallOutcome) -> None:
        """What was not opened, or is closed again, nobody has to look for."""
        opened, (server, _, tool) = self._work.opened, step.tool.partition(".")
        if outcome.status in NOT_SENT:
            opened.pop(step.id, None)
        elif tool == OPENING and outcome.ok and (name := (outcome.structured or {}).get("session_id")):
            opened[f"{name}\0{step.arguments.get('name')}"] = opened.pop(step.id)
        elif tool == CLOSING and outcome.ok:
            closed = str(step.arguments.get("session_id"))
            for key in [one for one, (where, _) in opened.items() if where == server and closed in one.split("\0")]:
                del opened[key]

    async def _delegate(self, step: CallTool, ended: dict[str, CallOutcome]) -> None:
        """The tool only looked whether it may be: the work itself is a run of its own, and the call ends with it."""
        assert self._work.delegated
        agent = request_of(self._work, step).agent
        try:
            payload = self._work.delegated(agent, step.arguments["tasks"])
        except SwarmError as error:
            ended[step.id] = CallOutcome(CallStatus.INVALID, "", None, error.code, error.message, error.suggestion)
            return
        run = f"{self._work.task_id}.{step.id}"
        await self._flow.start("run", run, {**payload, "run_id": run}, agent="")
        tasks = [task["id"] for task in payload["plan"]["tasks"]]
        await tell(self._flow, "work.handed_on", run=run, agent=agent, step=step.id, tasks=tasks)
        self._go(step, "run", lambda: self._flow.outcome(run), run=run)

    async def _handed_on(self, run: str, outcome: Outcome) -> CallOutcome:
        """What came of it, as the answer to the call."""
        found: Mapping[str, Any] = outcome.result or {"status": RunStatus.CANCELLED, "tasks": {}}
        await tell(self._flow, "work.came_back", run=run, status=found["status"])
        if outcome.status is not RunStatus.SUCCEEDED:
            message = f"the delegated work is {outcome.status}: {outcome.error}"
            return CallOutcome(CallStatus.CANCELLED, code="cancelled", message=message)
        self._usage += Usage(**found["usage"])
        self._work.not_run.update(dict.fromkeys(found.get("not_run", ())))
        shown = ("status", "agent", "attempts", "summary", "result", "scope")
        tasks = {name: {key: one.get(key) for key in shown} for name, one in found["tasks"].items()}
        facts = {"status": found["status"], "tasks": tasks}
        text = json.dumps(facts, ensure_ascii=False, indent=1)
        if found["status"] == RunStatus.SUCCEEDED:
            return CallOutcome(CallStatus.OK, text, facts)
        left = [f"{name} is {one['status']}" for name, one in tasks.items() if one["status"] != RunStatus.SUCCEEDED]
        return CallOutcome(CallStatus.TOOL_ERROR, text, facts, "work_not_done", ", ".join(left))

    def _approval(self, step: CallTool) -> str:
        """The answer that a step's call is covered by already."""
        if not step.asked_as:
            return ""
        number = approval_id(self._work.task_id, request_of(self._work, step.asked_as))
        return number if number in self._agreed else ""

    async def _ask(self, step: CallTool) -> None:
        request = request_of(self._work, step.asked_as or step)
        number = approval_id(self._work.task_id, request)

        async def look(_: str) -> Json:
            return await self._work.remembered(request)

        if before := str(await self._flow.step(f"remembered {step.id}", look)):
            if step.asked_as:
                self._agreed.add(number)
            await self._call(step, before)
            return
        self._asked[number] = {**asked_about(number, request), "digest": request.digest}
        await self._publish()
        await tell(self._flow, "approval.asked", **self._asked[number])  # who hears it may answer at once
        topic = f"approval:{number}"
        waiting = self._work.telemetry.await_answer
        self._go(step, "approval", lambda: waiting(number, self._flow.receive(topic, APPROVAL_SECONDS)), number)

    async def _wait_there(self, step: CallTool, going: _Going, outcome: CallOutcome) -> bool:
        """Whether the call is made again, since its server waits for a person; the question is shown here, too."""
        there = self._asked_there.get(step.id)
        if there is None:
            if not (typed := TYPED.search(f"{outcome.message} {outcome.suggestion}")):
                return False
            request = request_of(self._work, step)
            number = approval_id(f"{self._work.task_id}\0{CONSENT}", request)
            there = self._asked_there[step.id] = _AskedThere(number)
            self._asked[number] = {**asked_about(number, request), "answer_with": typed[0]}
            await self._publish()
            await tell(self._flow, "approval.asked", **self._asked[number])
        elif there.left <= 0:
            return False
        pause = there.pause
        there.pause = min(2 * pause, MOST_PAUSE_SECONDS)
        there.left = there.left - pause
        topic, waiting = f"approval:{there.number}", self._work.telemetry.await_answer
        self._go(step, "consent", lambda: waiting(there.number, self._flow.receive(topic, pause)), going.approval)
        return True

    async def _asked_again(self, step: CallTool, approval: str, word: Any, ended: dict[str, CallOutcome]) -> None:
        """Nobody refused it here meanwhile: its server knows whether somebody agreed."""
        if word is None:
            await self._call(step, approval)
        else:
            await self._answered(step, self._asked_there.pop(step.id).number, word, ended)

    async def _answered_there(self, step: CallTool, outcome: CallOutcome) -> None:
        if there := self._asked_there.pop(step.id, None):
            self._asked.pop(there.number, None)
            agreed, server = outcome.code not in (CONSENT, "denied"), step.tool.partition(".")[0]
            await tell(self._flow, "approval.answered", id=there.number, approved=agreed, by=server)
            await self._publish()

    async def _publish(self) -> None:
        await self._flow.publish({**self._shown, "approvals": list(self._asked.values())})

    async def _answered(self, step: CallTool, number: str, answer: Any, ended: dict[str, CallOutcome]) -> None:
        self._asked.pop(number, None)
        facts: dict[str, Any] = {}
        if isinstance(answer, dict):
            facts = {str(name): value for name, value in answer.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        agreed = facts.get("approved") is True
        await tell(self._flow, "approval.answered", **{**facts, "id": number, "approved": agreed})
        await self._publish()
        if agreed:
            if step.asked_as:
                self._agreed.add(number)
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
    """How work ends that received ``message``, or, where that is None, whose time is over."""
    if message:
        return Ending("failed", f"{STOPPED}{str(message).removeprefix(STOPPED)}")
    if left and left.seconds <= timeout_seconds:
        return out_of_time(left, "while it went on")
    return out_of_time(TimeLeft("", 0.0, timeout_seconds), "")


def out_of_time(left: TimeLeft, where: str) -> Ending:
    """Of a bound on time of which nothing is left."""
    if left.kind:
        return exhausted((left.kind, SECONDS), where)
    return Ending("failed", f"not done within {left.whole:g} s")


def exhausted(short: tuple[str, str], where: str) -> Ending:
    """Of whose budget what is used up."""
    kind, what = short
    return Ending("budget_exhausted", f"the {kind}'s {what} are used up, {where}", scope=kind)


def asked_about(number: str, request: CallRequest) -> dict[str, Any]:
    """A call as people see it who are asked whether it may be made."""
    arguments = {name: shown(value) for name, value in request.arguments.items()}
    return {"id": number, "agent": request.agent, "tool": request.tool, "arguments": arguments}


def shown(value: Json) -> str:
    """An argument as it is shown to a person."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    left = len(text) - SHOWN_CHARS
    return text if left <= 0 else f"{text[:SHOWN_CHARS]}… ({left} characters more are not shown)"
