"""The values that calls return. Units are in their names; a returned value never changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ccswarm.models import Json, RunStatus
from ccswarm.runs.events import RunEvent as RunEvent
from ccswarm.runs.work import WorkDiff as WorkDiff


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """The state of a task. ``result`` is its result as JSON; ``summary`` is the outcome in words."""

    task: str
    status: RunStatus
    agent: str
    summary: str
    result: Json
    attempts: int


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The state of a run. ``answer`` is the answer of its last task, and ``error`` why it ended early. ``tasks`` are by
    name, delegated ones by path. ``usage`` is what was spent, and ``questions`` are those that wait for a person:
    ``ccswarm approvals`` shows them."""

    run_id: str
    name: str
    status: RunStatus
    answer: str
    tasks: Mapping[str, TaskInfo]
    usage: Mapping[str, float]
    questions: Sequence[Mapping[str, Any]]
    error: str

    @property
    def ok(self) -> bool:
        """Whether the whole run succeeded."""
        return self.status is RunStatus.SUCCEEDED

    @classmethod
    def of(cls, facts: Mapping[str, Any], answer: str) -> RunInfo:
        """Create it from the store's facts."""
        names = [one.name for one in fields(TaskInfo) if one.name not in ("task", "status")]
        tasks = {
            name: TaskInfo(task=name, status=RunStatus(task["status"]), **{key: task[key] for key in names})
            for name, task in facts["tasks"].items()
        }
        return cls(
            run_id=facts["run"],
            name=facts["name"],
            status=RunStatus(facts["status"]),
            answer=answer,
            tasks=tasks,
            usage=facts["usage"],
            questions=facts["approvals"],
            error=facts["error"],
        )
