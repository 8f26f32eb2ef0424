"""How a run stands, from what happened in it: who does what now, what was said last, what people are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ccswarm.models import RunStatus
from ccswarm.runs_events import Happening, cut, told


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

    @property
    def waits(self) -> bool:
        """Whether nothing of it goes on until somebody answered."""
        return bool(self.asked) and not self.calls


class Board:
    """Told what happened, in order; what happened in a run it does not know of is left out."""

    def __init__(self, run: str, tasks: Sequence[str], name: str = "") -> None:
        self.run, self.name = run, name
        self.status = RunStatus.QUEUED
        self.rows = {task: Row(task) for task in tasks}

    @property
    def questions(self) -> list[dict[str, Any]]:
        """What waits for a person, first asked first."""
        return [one for row in self.rows.values() for one in row.asked.values()]

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
                row.status, row.ended = RunStatus(facts["status"]), happening.at
                row.said = cut(str(facts["summary"] or ""))
                row.asked.clear()
                row.calls.clear()
            case "approval.asked":
                row.asked[str(facts["id"])] = dict(facts)
            case "approval.answered":
                row.asked.pop(str(facts["id"]), None)
            case "call.begin":
                row.calls.add(str(facts.get("call")))
            case "call.end":
                row.calls.discard(str(facts.get("call")))
            case _:
                pass
