"""How a run stands, from what happened in it: who does what now, what was said last, what people are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ccswarm.models import RunStatus
from ccswarm.runs.events import Happening, above, begun, cut, ended, nested, task_of, told


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

    def end(self, status: RunStatus, happening: Happening) -> None:
        """It is over."""
        self.status, self.ended = status, happening.at
        self.said = cut(str(happening.facts.get("summary") or ""))
        self.asked.clear()
        self.calls.clear()


class Board:
    """Told what happened, in order. ``rows`` are by the paths of tasks."""

    def __init__(self, run: str, tasks: Sequence[str], name: str = "") -> None:
        self.run, self.name = run, name
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
        parts = [path for path in self._below(task) if self.rows[path].began and above(path, self.rows) == task]
        if not row or row.calls or not (row.asked or parts):
            return False
        return all(self.waits(path) for path in parts)

    def _below(self, path: str) -> list[str]:
        """Its parts that are not over."""
        return [name for name, row in self.rows.items() if name.startswith(f"{path}.") and not row.status.over]

    def take(self, happening: Happening) -> None:
        """Something happened."""
        facts = happening.facts
        if not happening.task:
            if happening.event == "run.started":
                self.status = RunStatus.RUNNING
                for task in facts.get("done", ()):
                    self.rows[task] = Row(task, RunStatus.SUCCEEDED, said=f"in {facts['continues']}")
            elif happening.event == "run.ended":
                self.status = RunStatus(facts["status"])
            return
        row = self.rows.setdefault(happening.task, Row(happening.task))
        row.said = told(happening).removeprefix(f"{happening.task}: ").removeprefix(f"{row.agent} ")
        match happening.event:
            case "task.started":
                row.status, row.agent, row.attempt = RunStatus.RUNNING, str(facts["agent"]), int(facts["attempt"])
                row.began, row.ended = row.began or happening.at, 0.0
            case "task.ended":
                row.end(RunStatus(facts["status"]), happening)
                self._leave(happening.task, happening)
            case "work.handed_on":
                within = task_of(self.run, str(facts["run"]))
                self.rows |= {path: Row(path) for path in (f"{within}.{name}" for name in facts["tasks"])}
            case "work.came_back":
                self._leave(task_of(self.run, str(facts["run"])), happening)
            case "review.asked":
                for agent, execution in zip(facts["by"], begun(happening.execution, facts), strict=True):
                    path = task_of(self.run, execution)
                    self.rows[path] = Row(path, RunStatus.RUNNING, str(agent), 1, began=happening.at)
            case "review.said":
                judge = self.rows[task_of(self.run, ended(happening.execution, facts))]
                judge.end(RunStatus.SUCCEEDED if facts["accepted"] else RunStatus.FAILED, happening)
            case "approval.asked":
                row.asked[str(facts["id"])] = {**facts, "task_id": happening.execution}
            case "approval.answered":
                row.asked.pop(str(facts["id"]), None)
            case "call.begin":
                row.calls.add(str(facts.get("call")))
            case "call.end":
                row.calls.discard(str(facts.get("call")))
            case _:
                pass

    def _leave(self, path: str, happening: Happening) -> None:
        """Nothing of its parts goes on any more."""
        for row in (self.rows[name] for name in self._below(path)):
            row.end(RunStatus.CANCELLED if row.began else RunStatus.SKIPPED, happening)
