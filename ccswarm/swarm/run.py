"""One run: a durable function that starts its tasks as their needs allow, and says what they all came to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ccswarm.config.settings import Settings, TaskSettings
from ccswarm.engines.base import Flow, Outcome
from ccswarm.models import Json, RunStatus, Usage
from ccswarm.plan.team import Team
from ccswarm.swarm.agent import PART, STEPS, STOP, TASK, tell
from ccswarm.swarm.scheduler import Placed, Scheduler
from ccswarm.swarm.task import plain

RUN = "run"
NOT_RUN = "not run when work was merged: {}"
FOREVER_SECONDS = 365 * 86400.0


RANK = {
    RunStatus.SUCCEEDED: 0,
    RunStatus.BLOCKED: 1,
    RunStatus.EXHAUSTED: 2,
    RunStatus.FAILED: 3,
    RunStatus.CANCELLED: 4,
}
"""Which of several attempts at a task says what became of it: the lowest."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """``number`` is its execution's."""

    placed: Placed
    number: str
    tried: int


class RunFlow:
    """What starts when, tries again what failed, and what it all came to.

    Work that an agent hands on is a run too, within that of its plan (``root``), for those it may give work to
    (``helpers``); the plan's time and budgets are the root's.
    """

    def __init__(self, flow: Flow, payload: Mapping[str, Any]) -> None:
        self._flow = flow
        self._payload = payload
        self._plan = plan = Settings.model_validate(payload["plan"])
        self._root: str = payload.get("root", flow.id)
        team = Team(plan.swarm, plan.agents)
        doers = [team.agents[name] for name in payload.get("helpers", list(team.agents)[: plan.swarm.max_agents])]
        self._scheduler = Scheduler(plan.tasks, doers, team.links, plan.swarm.strategy, plan.swarm.max_agents)
        self._tasks = {task.id: task for task in plan.tasks}
        self._tries: dict[str, int] = {}
        self._results: dict[str, dict[str, Any]] = {}
        self._going: dict[asyncio.Task[Any], _Attempt] = {}
        self._best: dict[str, dict[str, Any]] = {}
        """Of tasks with attempts in progress: what came of the best of those that ended."""
        self._usage = Usage()
        self._not_run: dict[str, None] = {}
        """What of the person's git was not run when work was merged."""
        self._stopping = ""
        self._cancelled = False
        """Stopped by who handed the work on, not by a budget."""
        for name, facts in payload.get("done", {}).items():
            if name in self._tasks:
                self._scheduler.assume(name, facts["agent"])
                self._results[name] = dict(facts)
                self._tries[name] = facts["attempts"]

    async def carry_out(self) -> Json:
        seconds = self._plan.swarm.budget.seconds if self._root == self._flow.id else 0
        facts: dict[str, Any] = {"tasks": list(self._tasks), "agents": len(self._plan.agents)}
        if before := self._payload.get("continues"):
            facts |= {"continues": before, "done": list(self._results)}
        await tell(self._flow, "run.started", **facts)
        stop = asyncio.create_task(self._flow.receive(STOP, seconds or FOREVER_SECONDS))
        try:
            while True:
                for placed in () if self._stopping else self._scheduler.start():
                    await self._start(placed)
                await self._flow.publish(self._shown())
                if not self._going:
                    break
                done = await self._flow.first([*([] if self._stopping else [stop]), *self._going])
                if stop in done:
                    self._cancelled = bool(stop.result())
                    await self._stop(stop.result() or f"the seconds of the run ({seconds:g}) are used up")
                for task in [task for task in self._going if task in done]:
                    await self._ended(self._going.pop(task), task.result())
        finally:
            for task in (stop, *self._going):
                task.cancel()
            await asyncio.gather(stop, *self._going, return_exceptions=True)
        status = self._status()
        notes = {"notes": [NOT_RUN.format(", ".join(self._not_run))]} if self._not_run else {}
        await tell(self._flow, "run.ended", status=status, counts=dict(self._scheduler.counts()), **notes)
        not_run = {"not_run": list(self._not_run)} if self._not_run and self._root != self._flow.id else {}
        return {"status": status, "tasks": self._table(), "usage": plain(self._usage), **notes, **not_run}

    async def _start(self, placed: Placed, pause_seconds: float = 0.0) -> None:
        """All attempts that are made side by side; what only waits to be delivered is done already."""
        unmerged = placed.task_id in self._payload.get("unmerged", {})
        for index in range(1 if unmerged else self._tasks[placed.task_id].attempts):
            await self._attempt(placed, index, pause_seconds)

    async def _attempt(self, placed: Placed, index: int, pause_seconds: float) -> None:
        task = self._tasks[placed.task_id]
        tried = self._tries[task.id] = self._tries.get(task.id, 0) + 1
        number = f"{self._flow.id}.{task.id}" + (f"~{tried}" if tried > 1 else "")
        given = {
            "steps": STEPS,
            "run_id": self._flow.id,
            "root": self._root,
            "depth": self._payload.get("depth", 0),
            "above": self._payload.get("above", ()),
            "author": self._payload.get("author"),
            "task": task.model_dump(mode="json", exclude_defaults=True),
            "agent": placed.agent,
            "placed": self._payload.get("placed", {}),
            "inputs": {need: self._results[need]["result"] for need in task.needs},
            "merged": {name: self._results[name]["merged"] for name in self._below(task) if self._is_merged(name)},
            "workspace": self._payload["workspace"],
            "files": self._payload.get("files", ()),
            "attempt": tried,
            "pause_seconds": pause_seconds,
            "unmerged": self._payload.get("unmerged", {}).get(task.id),
            "needed": any(task.id in other.needs for other in self._plan.tasks),
        }
        kind = TASK if self._root == self._flow.id else PART
        # An agent does one thing at a time, and each of these counts as one more.
        agent = f"{placed.agent}~{index + 1}" if index else placed.agent
        await self._flow.start(kind, number, given, agent=agent, priority=task.priority)
        facts = {"task": task.id, "agent": placed.agent, "attempt": tried, "execution": number}
        await tell(self._flow, "task.started", **facts)
        self._going[asyncio.create_task(self._over(number))] = _Attempt(placed, number, tried)

    def _below(self, task: TaskSettings) -> list[str]:
        """All that it builds on, directly or not, in the order of the plan."""
        found, asked = set[str](), list(task.needs)
        while asked:
            if (name := asked.pop()) not in found:
                found.add(name)
                asked += self._tasks[name].needs
        return [name for name in self._tasks if name in found]

    def _is_merged(self, name: str) -> bool:
        return bool(self._results.get(name, {}).get("merged"))

    async def _over(self, number: str) -> Outcome:
        return await self._flow.outcome(number)

    async def _stop(self, why: str) -> None:
        """Starts nothing more and stops what is in progress; what was done by then is kept."""
        self._stopping = why
        for attempt in self._going.values():
            await self._flow.send(attempt.number, STOP, why)

    async def _ended(self, attempt: _Attempt, outcome: Outcome) -> None:
        placed, tried = attempt.placed, attempt.tried
        task = self._tasks[placed.task_id]
        facts: dict[str, Any] = {"status": RunStatus.FAILED, "summary": outcome.error, "result": None, "usage": {}}
        if outcome.status is RunStatus.SUCCEEDED:
            facts = dict(outcome.result)
        elif outcome.status is RunStatus.CANCELLED:
            facts |= {"status": RunStatus.CANCELLED, "summary": "cancelled"}
        self._usage += Usage(**facts["usage"])
        self._not_run |= dict.fromkeys(facts.pop("not_run", ()))
        facts = min((self._best.pop(task.id, facts), facts), key=lambda one: RANK[RunStatus(one["status"])])
        status = RunStatus(facts["status"])
        if rivals := [one for one in self._going.values() if one.placed.task_id == task.id]:
            self._best[task.id] = facts
            for one in rivals if status is RunStatus.SUCCEEDED else ():
                await self._flow.send(one.number, STOP, "another attempt passed")
            return
        refused, rounds = facts.pop("refused", False), self._tries[task.id] // task.attempts
        again = status is RunStatus.FAILED and rounds <= task.retry.times and not self._stopping and not refused
        shown = {"task": task.id, "agent": placed.agent, "attempt": tried, "summary": facts["summary"]}
        await tell(self._flow, "task.ended", **shown, status=status, again=again)
        if again:
            await self._start(placed, task.retry.seconds * task.retry.factor ** (rounds - 1))
            return
        self._results[task.id] = facts
        self._scheduler.ended(task.id, status)
        if status is RunStatus.EXHAUSTED and facts.get("scope") == "run" and not self._stopping:
            await self._stop("a budget of the run is used up")

    def _status(self) -> RunStatus:
        """The worst that befell a task; a run that was stopped is over its budget, or nobody waits for it any more."""
        found = set(self._scheduler.statuses.values())
        worst = (RunStatus.EXHAUSTED, RunStatus.BLOCKED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.SKIPPED)
        if self._stopping:
            return RunStatus.CANCELLED if self._cancelled else RunStatus.EXHAUSTED
        status = next((status for status in worst if status in found), RunStatus.SUCCEEDED)
        return RunStatus.FAILED if status is RunStatus.SKIPPED else status

    def _table(self) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for name, status in self._scheduler.statuses.items():
            facts = self._results.get(name, {"summary": self._scheduler.reasons.get(name, ""), "result": None})
            agent, tries = self._scheduler.agents.get(name, ""), self._tries.get(name, 0)
            table[name] = {**facts, "status": status, "agent": agent, "attempts": tries}
        return table

    def _shown(self) -> dict[str, Any]:
        going = [{"task": one.placed.task_id, "agent": one.placed.agent} for one in self._going.values()]
        return {"counts": dict(self._scheduler.counts()), "going": going}
