"""One run: a durable function that starts its tasks as their needs allow, and reports their results."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ccswarm.config.settings import Settings, TaskSettings
from ccswarm.engines.base import Flow, Outcome
from ccswarm.models import Json, RunStatus, Usage
from ccswarm.plan.team import Team
from ccswarm.swarm.agent import PART, STEPS, STOP, TASK, emit_event
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
"""Of several attempts at a task, the one with the lowest rank gives the task's result."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt in progress; ``number`` is the id of its execution."""

    placed: Placed
    number: str
    tried: int


class RunFlow:
    """A run: it starts tasks, retries those that failed, and collects the results. Delegated work is also a run, within
    the run of the plan (``root``), with the agents that may do it (``helpers``); the plan's limits of time and its
    budgets apply to the root."""

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
        self._in_progress: dict[asyncio.Task[Any], _Attempt] = {}
        self._best: dict[str, dict[str, Any]] = {}
        """The best result of the ended attempts, for tasks with further attempts in progress."""
        self._usage = Usage()
        self._not_run: dict[str, None] = {}
        """What of the person's git was not run when work was merged."""
        self._stopping = ""
        self._cancelled = False
        """Whether the agent that delegated the work stopped it, not a budget."""
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
        await emit_event(self._flow, "run.started", **facts)
        stop = asyncio.create_task(self._flow.receive(STOP, seconds or FOREVER_SECONDS))
        try:
            while True:
                for placed in () if self._stopping else self._scheduler.start():
                    await self._start(placed)
                await self._flow.publish(self._progress())
                if not self._in_progress:
                    break
                done = await self._flow.first([*([] if self._stopping else [stop]), *self._in_progress])
                if stop in done:
                    self._cancelled = bool(stop.result())
                    await self._stop(stop.result() or f"the seconds of the run ({seconds:g}) are used up")
                for task in [task for task in self._in_progress if task in done]:
                    await self._handle_end(self._in_progress.pop(task), task.result())
        finally:
            for task in (stop, *self._in_progress):
                task.cancel()
            await asyncio.gather(stop, *self._in_progress, return_exceptions=True)
        status = self._status()
        notes = {"notes": [NOT_RUN.format(", ".join(self._not_run))]} if self._not_run else {}
        await emit_event(self._flow, "run.ended", status=status, counts=dict(self._scheduler.counts()), **notes)
        not_run = {"not_run": list(self._not_run)} if self._not_run and self._root != self._flow.id else {}
        return {"status": status, "tasks": self._table(), "usage": plain(self._usage), **notes, **not_run}

    async def _start(self, placed: Placed, pause_seconds: float = 0.0) -> None:
        """Start all attempts that are made in parallel; work that only has to be delivered needs a single one."""
        unmerged = placed.task_id in self._payload.get("unmerged", {})
        for index in range(1 if unmerged else self._tasks[placed.task_id].attempts):
            await self._attempt(placed, index, pause_seconds)

    async def _attempt(self, placed: Placed, index: int, pause_seconds: float) -> None:
        task = self._tasks[placed.task_id]
        tried = self._tries[task.id] = self._tries.get(task.id, 0) + 1
        number = f"{self._flow.id}.{task.id}" + (f"~{tried}" if tried > 1 else "")
        payload = {
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
            "merged": {
                name: self._results[name]["merged"] for name in self._transitive_needs(task) if self._is_merged(name)
            },
            "workspace": self._payload["workspace"],
            "files": self._payload.get("files", ()),
            "attempt": tried,
            "pause_seconds": pause_seconds,
            "unmerged": self._payload.get("unmerged", {}).get(task.id),
            "needed": any(task.id in other.needs for other in self._plan.tasks),
        }
        kind = TASK if self._root == self._flow.id else PART
        # An agent does one thing at a time; each parallel attempt counts as another agent.
        agent = f"{placed.agent}~{index + 1}" if index else placed.agent
        await self._flow.start(kind, number, payload, agent=agent, priority=task.priority)
        facts = {"task": task.id, "agent": placed.agent, "attempt": tried, "execution": number}
        await emit_event(self._flow, "task.started", **facts)
        self._in_progress[asyncio.create_task(self._flow.outcome(number))] = _Attempt(placed, number, tried)

    def _transitive_needs(self, task: TaskSettings) -> list[str]:
        """Return all tasks that it needs, directly or not, in the order of the plan."""
        found, pending = set[str](), list(task.needs)
        while pending:
            if (name := pending.pop()) not in found:
                found.add(name)
                pending += self._tasks[name].needs
        return [name for name in self._tasks if name in found]

    def _is_merged(self, name: str) -> bool:
        return bool(self._results.get(name, {}).get("merged"))

    async def _stop(self, why: str) -> None:
        """Stop what is in progress, and start nothing more; results so far are kept."""
        self._stopping = why
        for attempt in self._in_progress.values():
            await self._flow.send(attempt.number, STOP, why)

    async def _handle_end(self, attempt: _Attempt, outcome: Outcome) -> None:
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
        if rivals := [one for one in self._in_progress.values() if one.placed.task_id == task.id]:
            self._best[task.id] = facts
            for one in rivals if status is RunStatus.SUCCEEDED else ():
                await self._flow.send(one.number, STOP, "another attempt passed")
            return
        refused, rounds = facts.pop("refused", False), self._tries[task.id] // task.attempts
        again = status is RunStatus.FAILED and rounds <= task.retry.times and not self._stopping and not refused
        about = {"task": task.id, "agent": placed.agent, "attempt": tried, "summary": facts["summary"]}
        await emit_event(self._flow, "task.ended", **about, status=status, again=again)
        if again:
            await self._start(placed, task.retry.seconds * task.retry.factor ** (rounds - 1))
            return
        self._results[task.id] = facts
        self._scheduler.ended(task.id, status)
        if status is RunStatus.EXHAUSTED and facts.get("scope") == "run" and not self._stopping:
            await self._stop("a budget of the run is used up")

    def _status(self) -> RunStatus:
        """Return the worst status of a task; for a stopped run, EXHAUSTED or CANCELLED."""
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

    def _progress(self) -> dict[str, Any]:
        going = [{"task": one.placed.task_id, "agent": one.placed.agent} for one in self._in_progress.values()]
        return {"counts": dict(self._scheduler.counts()), "going": going}
