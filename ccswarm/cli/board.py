"""How a run stands, from what happened in it: who does what now, what was said last, what people are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ccswarm.models import RunStatus
from ccswarm.runs.events import (
    RunEvent,
    cut,
    enclosing_task,
    ended_execution,
    format_event,
    nested,
    started_executions,
    task_of,
)


@dataclass(slots=True)
class Row:
    """One task. ``said`` is what happened last; times are seconds since 1970, 0 where not yet."""

    task: str
    status: RunStatus = RunStatus.QUEUED
    agent: str = ""
    attempt: int = 0
    said: str = ""
    began: float = 0.0
    ended: float = 0.0
    calls: set[str] = field(default_factory=set[str])
    """Under way, as the journal knows."""
    asked: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Questions to people, by id."""

    @property
    def shown(self) -> RunStatus:
        """With whether it waits for people."""
        return RunStatus.WAITING_APPROVAL if self.asked and not self.status.over else self.status

    def end(self, status: RunStatus, run_event: RunEvent) -> None:
        """It is over."""
        self.status = status
        self.ended = run_event.at
        self.said = cut(str(run_event.facts.get("summary") or ""))
        self.asked.clear()
        self.calls.clear()


class RunTable:
    """The state of a run, built from its events in order. ``rows`` are by the paths of tasks."""

    def __init__(self, run: str, tasks: Sequence[str], name: str = "") -> None:
        self.run = run
        self.name = name
        self.status = RunStatus.QUEUED
        self.rows = {task: Row(task) for task in tasks}

    @property
    def questions(self) -> list[dict[str, Any]]:
        """What waits for a person, first asked first."""
        return [one for row in self.rows.values() for one in row.asked.values()]

    def nested(self) -> dict[str, int]:
        """The paths of tasks, each followed by its parts, with the number of those it is a part of."""
        return nested(self.rows)

    def waits(self, task: str) -> bool:
        """Whether nothing of a task and its parts goes on until somebody answered."""
        row = self.rows.get(task)
        parts = [
            path for path in self._below(task) if self.rows[path].began and enclosing_task(path, self.rows) == task
        ]
        if not row or row.calls or not (row.asked or parts):
            return False
        return all(self.waits(path) for path in parts)

    def _below(self, path: str) -> list[str]:
        """Its parts that are not over."""
        return [name for name, row in self.rows.items() if name.startswith(f"{path}.") and not row.status.over]

    def take(self, run_event: RunEvent) -> None:
        """Something happened."""
        facts = run_event.facts
        if not run_event.task:
            if run_event.event == "run.started":
                self.status = RunStatus.RUNNING
                for task in facts.get("done", ()):
                    self.rows[task] = Row(task, RunStatus.SUCCEEDED, said=f"in {facts['continues']}")
            elif run_event.event == "run.ended":
                self.status = RunStatus(facts["status"])
            return
        row = self.rows.setdefault(run_event.task, Row(run_event.task))
        row.said = format_event(run_event).removeprefix(f"{run_event.task}: ").removeprefix(f"{row.agent} ")
        match run_event.event:
            case "task.started":
                row.status = RunStatus.RUNNING
                row.agent = str(facts["agent"])
                row.attempt = int(facts["attempt"])
                row.began = row.began or run_event.at
                row.ended = 0.0
            case "task.ended":
                row.end(RunStatus(facts["status"]), run_event)
                self._leave(run_event.task, run_event)
            case "work.handed_on":
                within = task_of(self.run, str(facts["run"]))
                self.rows |= {path: Row(path) for path in (f"{within}.{name}" for name in facts["tasks"])}
            case "work.came_back":
                self._leave(task_of(self.run, str(facts["run"])), run_event)
            case "review.asked":
                for agent, execution in zip(facts["by"], started_executions(run_event.execution, facts), strict=True):
                    path = task_of(self.run, execution)
                    self.rows[path] = Row(path, RunStatus.RUNNING, str(agent), 1, began=run_event.at)
            case "review.said":
                judge = self.rows[task_of(self.run, ended_execution(run_event.execution, facts))]
                judge.end(RunStatus.SUCCEEDED if facts["accepted"] else RunStatus.FAILED, run_event)
            case "approval.asked":
                row.asked[str(facts["id"])] = {**facts, "task_id": run_event.execution}
            case "approval.answered":
                row.asked.pop(str(facts["id"]), None)
            case "call.begin":
                row.calls.add(str(facts.get("call")))
            case "call.end":
                row.calls.discard(str(facts.get("call")))
            case _:
                pass

    def _leave(self, path: str, run_event: RunEvent) -> None:
        """Nothing of its parts goes on any more."""
        for row in (self.rows[name] for name in self._below(path)):
            row.end(RunStatus.CANCELLED if row.began else RunStatus.SKIPPED, run_event)
