"""What the rows of dbos mean, to whoever reads them: with dbos, or without it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from ccswarm.engines.base import Step
from ccswarm.models import PRIORITIES, Execution, Json, Priority, RunStatus

ERROR = "ccswarm.error"
"""The one member of an object that stands for an exception."""

STEP = "step "
"""How the names of steps of a flow begin; dbos records operations of its own beside them."""

NUMBERS: dict[Priority, int] = dict(zip(PRIORITIES, (1, 10, 20, 30), strict=True))
"""Never 0: that would overtake critical."""

STATUS = {
    "ENQUEUED": RunStatus.QUEUED,
    "DELAYED": RunStatus.QUEUED,
    "PENDING": RunStatus.RUNNING,
    "SUCCESS": RunStatus.SUCCEEDED,
    "ERROR": RunStatus.FAILED,
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": RunStatus.FAILED,
    "CANCELLED": RunStatus.CANCELLED,
    "PAUSED": RunStatus.PAUSED,
}
PRIORITY: dict[int, Priority] = {number: name for name, number in NUMBERS.items()}
UNOWNED = "~"
"""Begins the partition of an execution that is no agent's: each is alone in its own."""


class Row(Protocol):
    """An execution as dbos lists it."""

    workflow_id: Any
    status: Any
    name: Any
    input: Any
    output: Any
    executor_id: Any
    created_at: Any
    completed_at: Any
    priority: Any
    queue_partition_key: Any
    parent_workflow_id: Any


def seen(row: Row, error: str, why: str, shown: Mapping[str, Any] | None) -> Execution:
    """A row of dbos as an execution; ``error`` is what it ended with, ``why`` how it was stopped. Of an
    execution that waits dbos names the worker that queued it."""
    paused = row.status == "CANCELLED" and why == "paused"
    given: Any = row.input
    status = RunStatus.PAUSED if paused else STATUS[row.status]
    agent = row.queue_partition_key or ""
    return Execution(
        id=row.workflow_id,
        kind=row.name,
        status=status,
        parent=row.parent_workflow_id or "",
        agent="" if agent.startswith(UNOWNED) else agent,
        priority=PRIORITY.get(row.priority, "medium"),
        worker=(row.executor_id or "") if status is RunStatus.RUNNING or status.over else "",
        created_at=(row.created_at or 0) / 1000,
        ended_at=(row.completed_at or 0) / 1000 if status.over else 0.0,
        payload=given["args"][0] if isinstance(given, dict) else None,
        result=row.output if status is RunStatus.SUCCEEDED else None,
        error=error,
        shown=shown,
    )


def step_of(name: str, output: str | None, began: int | None, ended: int | None) -> Step:
    """A step as it is recorded; times are in milliseconds."""
    stored: dict[str, Json] = json.loads(output or "{}")
    words: list[str] = stored.get("error") or []
    return Step(
        name.removeprefix(STEP), stored.get("value"), ": ".join(words[:2]), (began or 0) / 1000, (ended or 0) / 1000
    )
