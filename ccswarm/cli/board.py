"""The state of a run, built from its events: the agent of each task, its last event, and the questions to people."""

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
    """A task. ``said`` is its last event in words; times are seconds since 1970, 0 if not yet."""

    task: str
    status: RunStatus = RunStatus.QUEUED
    agent: str = ""
    attempt: int = 0
    said: str = ""
    began: float = 0.0
    ended: float = 0.0
    calls: set[str] = field(default_factory=set[str])
    """Calls in progress, according to the journal."""
    asked: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Questions to people, by id."""

    @property
    def shown(self) -> RunStatus:
        """The status, which is waiting_approval while questions wait."""
        return RunStatus.WAITING_APPROVAL if self.asked and not self.status.over else self.status

    def end(self, status: RunStatus, run_event: RunEvent) -> None:
        """Record the end of the task."""
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
        """The questions that wait for a person, in the order in which they were asked."""
        return [one for row in self.rows.values() for one in row.asked.values()]

    def nested(self) -> dict[str, int]:
        """Return the paths of tasks, each followed by its parts, with their depths."""
        return nested(self.rows)

    def waits(self, task: str) -> bool:
        """Report whether a task and its parts are blocked until a person answers."""
        row = self.rows.get(task)
        parts = [
            path for path in self._open_parts(task) if self.rows[path].began and enclosing_task(path, self.rows) == task
        ]
        if not row or row.calls or not (row.asked or parts):
            return False
        return all(self.waits(path) for path in parts)

    def _open_parts(self, path: str) -> list[str]:
        """Return the unfinished parts of a task."""
        return [name for name, row in self.rows.items() if name.startswith(f"{path}.") and not row.status.over]

    def take(self, run_event: RunEvent) -> None:
        """Apply an event."""
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
                self._end_parts(run_event.task, run_event)
            case "work.handed_on":
                within = task_of(self.run, str(facts["run"]))
                self.rows |= {path: Row(path) for path in (f"{within}.{name}" for name in facts["tasks"])}
            case "work.came_back":
                self._end_parts(task_of(self.run, str(facts["run"])), run_event)
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

    def _end_parts(self, path: str, run_event: RunEvent) -> None:
        """End the unfinished parts of a task."""
        for row in (self.rows[name] for name in self._open_parts(path)):
            row.end(RunStatus.CANCELLED if row.began else RunStatus.SKIPPED, run_event)
