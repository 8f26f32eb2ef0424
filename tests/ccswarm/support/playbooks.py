"""Playbooks carried out without a swarm: the brain decides as for an agent, and the test gives the results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ccswarm.brains.base import Assignment, CallTool, Finish, Step, Thinking, Wait, WorkerContext
from ccswarm.brains.playbook.plugin import PLUGIN
from ccswarm.engines.base import Flow
from ccswarm.models import CallOutcome, CallStatus, Json

OK = CallOutcome(CallStatus.OK)
NO_FLOW = cast("Flow", object())
"""A flow that must not be used, because a playbook uses none."""

NOTHING = WorkerContext(lambda _: "", {}, Path("/nowhere"))

Answer = Callable[[CallTool], Awaitable[CallOutcome]]
Pick = Callable[[Sequence[str]], Sequence[str]]
"""Chooses at least one of the steps in progress to end next, in this order."""


@dataclass
class Drive:
    """The result of a task: its end, and all decisions in order."""

    finish: Finish
    decided: list[CallTool | Wait] = field(default_factory=list)
    most: int = 0
    """The greatest number of concurrent steps."""

    @property
    def ids(self) -> list[str]:
        return [step.id for step in self.decided]

    @property
    def steps(self) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", self.finish.result)["steps"]


def assignment(task: Mapping[str, Any], inputs: Mapping[str, Json] | None = None, **facts: Any) -> Assignment:
    given = {"run_id": "run_1", "agent": "ada", "tools": (), "workspace": "/project"} | facts
    return Assignment(task_id=task["id"], task=task, inputs=inputs or {}, **given)


def step(name: str, **facts: Any) -> dict[str, Any]:
    return {"id": name, "tool": "s.do", **facts}


def task(*steps: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": "t", "steps": list(steps)}


def ok(text: str = "", **fields: Any) -> CallOutcome:
    return CallOutcome(CallStatus.OK, text, fields or None)


def exited(code: int, text: str = "") -> CallOutcome:
    return ok(text, status="finished", exit_code=code, output=text)


BROKEN = CallOutcome(CallStatus.TOOL_ERROR, "no such thing")


def first(going: Sequence[str]) -> Sequence[str]:
    return going[:1]


def together(going: Sequence[str]) -> Sequence[str]:
    return going


def backwards(going: Sequence[str]) -> Sequence[str]:
    return going[::-1]


def last(going: Sequence[str]) -> Sequence[str]:
    return going[-1:]


async def drive(task: Mapping[str, Any], answer: Answer, pick: Pick = first, **facts: Any) -> Drive:
    """Begin a task and answer its calls until it is finished."""
    return await finish(PLUGIN.begin(assignment(task, **facts), NOTHING), answer, pick)


async def finish(thinking: Thinking, answer: Answer, pick: Pick = first) -> Drive:
    going: dict[str, CallTool | Wait] = {}
    ended: dict[str, CallOutcome] = {}
    seen: set[str] = set()
    drive = Drive(Finish("failed"))
    while True:
        for step in await thinking.decide(NO_FLOW, ended):
            if isinstance(step, Finish):
                drive.finish = step
                return drive
            assert step.id not in seen, step.id
            seen.add(step.id)
            going[step.id] = step
            drive.decided.append(step)
        assert going, "neither acted nor finished"
        drive.most = max(drive.most, len(going))
        ended = {name: await _end(going.pop(name), answer) for name in pick(list(going))}


async def _end(step: Step, answer: Answer) -> CallOutcome:
    return await answer(step) if isinstance(step, CallTool) else OK


def run(
    plan: Mapping[str, Any], answers: Mapping[str, CallOutcome] | None = None, pick: Pick = first, **facts: Any
) -> Drive:
    """Carry out a playbook. A call is answered by its id (of a try, else of the step), else succeeds with its id."""

    async def answer(call: CallTool) -> CallOutcome:
        names = (call.id, call.id.partition("#")[0], call.id.partition("[")[0])
        return next((answers[name] for name in names if name in (answers or {})), ok(call.id, id=call.id))

    return asyncio.run(drive(plan, answer, pick, **facts))


def arguments(ended: Drive) -> dict[str, Any]:
    return {call.id: call.arguments for call in ended.decided if isinstance(call, CallTool)}
