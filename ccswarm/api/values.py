"""What calls return. Units are in the names; a value never changes after it was returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ccswarm.models import Json, RunStatus
from ccswarm.runs.events import RunEvent as RunEvent
from ccswarm.runs.work import WorkDiff as WorkDiff


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """How a task stands. ``result`` is what it handed on, as JSON; ``summary`` says in words what came of it."""

    task: str
    status: RunStatus
    agent: str
    summary: str
    result: Json
    attempts: int


@dataclass(frozen=True, slots=True)
class RunInfo:
    """How a run stands. ``answer`` is what it came to, in the words of its last task, and ``error`` why it ended early.

    ``tasks`` are by name, those that another handed on by their path. ``usage`` is what was spent, and ``questions``
    are what waits for a person: ``ccswarm approvals`` shows them.
    """

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
        """Whether all of it succeeded."""
        return self.status is RunStatus.SUCCEEDED

    @classmethod
    def of(cls, facts: Mapping[str, Any], answer: str) -> RunInfo:
        """From what the store knows."""
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
