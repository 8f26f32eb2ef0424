"""The brain that executes a task's steps as written: no model, no key, and the same steps for the same results.

Decisions depend on what ended, never on the order in which it ended. The one exception is a failing gate, which ends
the task at once: it cancels the steps that have not ended by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal, cast

from pydantic import ValidationError

from ccswarm.brains.base import Assignment, CallTool, Finish, Step, Thinking, Wait, WorkerContext
from ccswarm.brains.playbook.results import bounded
from ccswarm.brains.playbook.words import Words, parse_settings
from ccswarm.config.settings import AgentSettings, PlanStep, Retry, TaskSettings
from ccswarm.engines.base import Flow
from ccswarm.errors import PlanInvalid
from ccswarm.models import CallOutcome, CallStatus, Json
from ccswarm.plan.expectations import record, unmet
from ccswarm.plan.references import holds, is_per_item, items_of, parse, resolve, tokens
from ccswarm.plan.steps import needs_of, problems

NAMED = 5
"""The most failed items of one step that are reported in full."""

WORTH_ANOTHER_TRY = {
    CallStatus.OK,
    CallStatus.TOOL_ERROR,
    CallStatus.TIMEOUT,
    CallStatus.LOST,
    CallStatus.UNAVAILABLE,
}
"""The statuses worth a retry. Calls that were denied, invalid, cancelled or over a budget would fail again."""

State = Literal["waiting", "going", "done", "failed", "skipped", "passed"]
"""``skipped``: a step it needs failed. ``passed``: its condition was false, which does not stop other steps."""
LONGEST_PAUSE_SECONDS = 86400.0


@dataclass(slots=True)
class _Call:
    """The only call of a step, or the one for an item."""

    id: str
    index: int
    known: Mapping[str, Json]
    round_number: int
    state: State = "waiting"
    tries: int = 1
    due: Literal["", "pause", "call"] = ""
    """What follows when its try or its pause has ended."""
    result: Json = None
    problem: str = ""

    @property
    def name(self) -> str:
        """The id of the current try, unique over all rounds of the task."""
        return (
            self.id
            + (f"@{self.round_number}" if self.round_number > 1 else "")
            + (f"#{self.tries}" if self.tries > 1 else "")
        )

    def end(self, state: State, result: Json, problem: str = "") -> None:
        self.state = state
        self.due = ""
        self.result = result
        self.problem = problem


@dataclass(slots=True)
class _Progress:
    """The progress of a step. ``missing`` counts needed steps that have not ended. ``begun`` counts its started calls,
    and ``going`` those of them that have not ended."""

    plan: PlanStep
    index: int
    needs: tuple[str, ...]
    missing: int
    state: State = "waiting"
    calls: list[_Call] = field(default_factory=list["_Call"])
    begun: int = 0
    going: int = 0
    result: Json = None
    problem: str = ""


class Playbook:
    """A task in execution. Implements ``SupportsGivingUp`` and ``SupportsPartialResult``. ``decide`` only inspects
    steps affected by what ended."""

    def __init__(self, assignment: Assignment, steps: Sequence[PlanStep]) -> None:
        needs = needs_of(steps)
        self._agent = assignment.agent
        self._round = int(assignment.settings.get("round", 1))
        self._steps = {
            step.id: _Progress(step, index, needs[step.id], len(needs[step.id])) for index, step in enumerate(steps)
        }
        self._order = tuple(self._steps.values())
        self._needed_by: dict[str, list[_Progress]] = {name: [] for name in self._steps}
        for progress in self._order:
            for need in progress.needs:
                self._needed_by[need].append(progress)
        self._ready = [progress.index for progress in self._order if not progress.missing]
        self._remaining = len(self._order)
        self._gate = ""
        """The gate that failed, and why. After that only steps that always run count."""
        self._results: dict[str, Json] = {}
        self._going: dict[str, tuple[_Progress, _Call]] = {}
        self._known: dict[str, Json] = {
            "steps": self._results,
            "needs": dict(assignment.inputs),
            "run": {"id": assignment.run_id},
            "task": {
                "id": assignment.task_id,
                "attempt": _attempt(assignment),
                "text": assignment.task.get("text", ""),
            },
            "workspace": assignment.workspace,
        }

    async def decide(self, flow: Flow, ended: Mapping[str, CallOutcome]) -> Sequence[Step]:
        """Return calls and pauses in the order of the plan, or a Finish."""
        due: dict[int, list[_Call]] = {}
        for name, outcome in ended.items():
            progress, call = self._going.pop(name)
            if self._gate and not progress.plan.always:
                continue
            if name == call.name:
                _record_try(progress, call, outcome)
            else:
                call.due = "call"
            due.setdefault(progress.index, []).append(call)
        decided: dict[int, list[CallTool | Wait]] = {}
        ready = sorted({*due, *self._ready})
        self._ready = []
        while ready:
            progress = self._order[heappop(ready)]
            self._begin(progress)
            again = sorted(due.get(progress.index, ()), key=lambda call: call.index)
            decided[progress.index] = list(self._next_steps(progress, again))
            for freed in self._complete(progress):
                heappush(ready, freed.index)
            if progress.plan.gate and progress.state == "failed":
                self._gate = f"gate {progress.problem}"
                decided.clear()
                ready = self._drop_steps()
        if not self._remaining:
            return [self._finish()]
        return [step for index in sorted(decided) for step in decided[index]]

    def _drop_steps(self) -> list[int]:
        """Keep only the steps that always run, and return the ready ones of these."""
        last = [progress for progress in self._order if progress.plan.always]
        for progress in last:
            progress.missing = sum(self._steps[need].plan.always for need in progress.needs)
        self._remaining = len(last)
        return [progress.index for progress in last if not progress.missing]

    def _begin(self, progress: _Progress) -> None:
        """Start a step when its needs have ended: decide whether it runs, and for which items."""
        if progress.state != "waiting":
            return
        plan = progress.plan
        failed = [need for need in progress.needs if self._steps[need].state in ("failed", "skipped")]
        if failed and not plan.always:
            progress.state = "skipped"
            progress.result = {"status": "skipped", "message": f"it needs {', '.join(failed)}, which failed"}
            return
        progress.state = "going"
        known = {**self._known, "agent": {"name": plan.agent or self._agent}}
        try:
            if plan.when and not is_per_item(plan.when) and not holds(plan.when, known):
                progress.state = "passed"
                progress.result = {"status": "skipped"}
            elif plan.for_each is None:
                progress.calls = [_Call(plan.id, 0, known, self._round)]
            else:
                items = enumerate(items_of(resolve(plan.for_each, known)))
                progress.calls = [
                    _Call(f"{plan.id}[{at}]", at, {**known, "item": item}, self._round) for at, item in items
                ]
        except PlanInvalid as error:
            progress.calls = [_Call(plan.id, 0, known, self._round)]
            progress.begun = 1
            self._refuse(plan, progress.calls[0], error)

    def _next_steps(self, progress: _Progress, again: Iterable[_Call]) -> Iterator[CallTool | Wait]:
        """Yield the next steps: retries, and first tries while fewer than ``parallel`` are running."""
        plan = progress.plan
        for call in again:
            if call.due == "pause":
                pause = Wait(f"{call.name}.pause", _pause(plan.retry, call.tries))
                self._going[pause.id] = (progress, call)
                yield pause
            elif call.due:
                arguments = cast("dict[str, Json]", resolve(plan.args, call.known))
                yield self._make_call(progress, call, arguments)
        while progress.state == "going" and progress.going < plan.parallel and progress.begun < len(progress.calls):
            call = progress.calls[progress.begun]
            progress.begun += 1
            if (arguments := self._arguments(plan, call)) is not None:
                progress.going += 1
                yield self._make_call(progress, call, arguments)

    def _make_call(self, progress: _Progress, call: _Call, arguments: Mapping[str, Json]) -> CallTool:
        call.state = "going"
        self._going[call.name] = (progress, call)
        plan = progress.plan
        return CallTool(call.name, plan.tool, arguments, plan.agent or "", plan.timeout_seconds)

    def _complete(self, progress: _Progress) -> Iterator[_Progress]:
        """End a step whose calls have ended, and yield the steps that can start now."""
        plan = progress.plan
        if progress.state == "going":
            if progress.going or progress.begun < len(progress.calls):
                return
            failed = [call for call in progress.calls if call.state == "failed"]
            left_out = plan.always and progress.calls and all(call.state == "passed" for call in progress.calls)
            progress.state = "failed" if failed else "passed" if left_out else "done"
            progress.problem = "; ".join(f"{call.id}: {call.problem}" for call in failed[:NAMED])
            if others := [call.id for call in failed[NAMED:]]:
                progress.problem += f"; and so {', '.join(others)}"
            results = [call.result for call in progress.calls]
            progress.result = results[0] if plan.for_each is None else results
        self._results[plan.id] = progress.result
        if plan.save_as:
            self._results[plan.save_as] = progress.result
        self._remaining -= 1
        for dependent in self._needed_by[plan.id]:
            dependent.missing -= 1
            if not dependent.missing:
                yield dependent

    def given_up(self, step_id: str) -> bool:
        """Report whether a failed gate has dropped the call."""
        return bool(self._gate) and step_id in self._going and not self._going[step_id][0].plan.always

    def so_far(self) -> Json:
        """Return the results of the steps that have ended."""
        names = [name for step in self._steps.values() for name in (step.plan.id, step.plan.save_as or "")]
        return {"steps": {name: bounded(self._results[name]) for name in names if name in self._results}}

    def _arguments(self, plan: PlanStep, call: _Call) -> dict[str, Json] | None:
        """Return the arguments of a call's first try, or None if it ends without one."""
        try:
            if plan.when and is_per_item(plan.when) and not holds(plan.when, call.known):
                call.end("passed", {"status": "skipped"})
                return None
            return cast("dict[str, Json]", resolve(plan.args, call.known))
        except PlanInvalid as error:
            self._refuse(plan, call, error)
            return None

    def _refuse(self, plan: PlanStep, call: _Call, error: PlanInvalid) -> None:
        """End a call that cannot be made. A cleanup step whose steps did nothing is skipped instead."""
        if plan.always and any(self._states[name] != "done" for name in _referenced_steps(plan)):
            call.end("passed", {"status": "skipped"})
            return
        problem = f"{error.message} ({error.suggestion})" if error.suggestion else error.message
        call.end("failed", {"status": "failed", "problem": problem}, problem)

    @property
    def _states(self) -> Mapping[str, State]:
        """The states of the steps, by id and second name."""
        return {name: one.state for one in self._order for name in (one.plan.id, one.plan.save_as or one.plan.id)}

    def _finish(self) -> Finish:
        last = [progress for progress in self._order if progress.plan.always]
        others = [progress for progress in self._order if not progress.plan.always and not self._gate]
        failed = [progress.problem for progress in (*others, *last) if progress.state == "failed"]
        failed = [self._gate, *failed] if self._gate else failed
        skipped = [name for name, progress in self._steps.items() if progress.state == "skipped"]
        passed = [name for name, progress in self._steps.items() if progress.state == "passed"]
        result = self.so_far()
        if failed:
            summary = [*failed, *([f"skipped: {', '.join(skipped)}"] if skipped else [])]
            return Finish("failed", "; ".join(summary), result)
        done = len(self._steps) - len(passed)
        counted = f"{done} step{'' if done == 1 else 's'} done"
        return Finish("succeeded", counted + (f", not needed: {', '.join(passed)}" if passed else ""), result)


def _attempt(assignment: Assignment) -> str:
    """Return a text that differs in each retry and round; resources of earlier ones may still exist."""
    tried = assignment.settings.get("attempt", 1)
    round_number = assignment.settings.get("round", 1)
    return f"{tried}" if round_number == 1 else f"{tried}-{round_number}"


def _record_try(progress: _Progress, call: _Call, outcome: CallOutcome) -> None:
    retry = progress.plan.retry
    problem = unmet(progress.plan.expect, outcome)
    if problem and call.tries <= retry.times and outcome.status in WORTH_ANOTHER_TRY:
        call.tries += 1
        call.due = "pause" if retry.seconds else "call"
        return
    progress.going -= 1
    if problem:
        tried = f" (tried {call.tries} times)" if call.tries > 1 else ""
        call.end("failed", {**record(outcome), "problem": problem}, problem + tried)
    else:
        call.end("done", record(outcome))


def _pause(retry: Retry, tries: int) -> float:
    seconds = retry.seconds
    for _ in range(tries - 2):
        seconds = min(seconds * retry.factor, LONGEST_PAUSE_SECONDS)
    return seconds


def _referenced_steps(plan: PlanStep) -> Iterator[str]:
    for token in tokens([plan.args, plan.when, plan.for_each]):
        reference = parse(token)
        if reference.scope == "steps":
            yield reference.name


class PlaybookBrain:
    """The brain that needs steps, or settings for a task's text."""

    name = "playbook"
    wants_tools = False
    rounds = 1

    def problems(self, agent: AgentSettings, secret: Callable[[str], str], *, priced: bool) -> Sequence[str]:
        """Return the problems of its settings. The check of the plan finds missing steps."""
        try:
            parse_settings(agent.settings)
        except PlanInvalid as error:
            return (error.message,)
        return ()

    def begin(
        self, assignment: Assignment, worker_context: WorkerContext, before: Thinking | None = None
    ) -> Playbook | Words:
        """Begin a task. Raises PlanInvalid, naming every problem, if its steps cannot be executed."""
        try:
            task = TaskSettings.model_validate(assignment.task)
        except ValidationError as error:
            raise PlanInvalid(f"task {assignment.task_id}: {error}") from None
        if not task.steps and (settings := parse_settings(assignment.settings)).words:
            return Words(assignment, settings)
        if not task.steps:
            raise PlanInvalid(
                f"task {task.id} has no steps, and a playbook does only steps",
                suggestion="write its steps, or give it to an agent with another brain",
            )
        if found := problems(task.steps, dict.fromkeys(assignment.inputs)):
            raise PlanInvalid(f"task {task.id}: " + "; ".join(found), suggestion="fix the plan")
        return Playbook(assignment, task.steps)


PLUGIN = PlaybookBrain()
