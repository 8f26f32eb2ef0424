"""The meaning of dbos's rows, for readers with and without dbos."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from ccswarm.engines.base import Step
from ccswarm.models import PRIORITIES, Execution, Json, Priority, RunStatus

ERROR = "ccswarm.error"
"""The only key of an object that represents an exception."""

STEP = "step "
"""The prefix of the names of a flow's steps. dbos also records operations of its own."""

NUMBERS: dict[Priority, int] = dict(zip(PRIORITIES, (1, 10, 20, 30), strict=True))
"""The priorities in dbos. Never 0, which would come before critical."""

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
"""The prefix of the partition of an execution without an agent. Each such execution has its own."""


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


def to_execution(row: Row, error: str, why: str, shown: Mapping[str, Any] | None) -> Execution:
    """Convert a row of dbos. ``error`` is what the execution ended with, ``why`` the reason it was stopped for. For a
    queued execution dbos names the worker that queued it, which is left out."""
    paused = row.status == "CANCELLED" and why == "paused"
    stored_input: Any = row.input
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
        payload=stored_input["args"][0] if isinstance(stored_input, dict) else None,
        result=row.output if status is RunStatus.SUCCEEDED else None,
        error=error,
        shown=shown,
    )


def to_step(name: str, output: str | None, began: int | None, ended: int | None) -> Step:
    """Convert a recorded step. Times are in milliseconds."""
    stored: dict[str, Json] = json.loads(output or "{}")
    words: list[str] = stored.get("error") or []
    return Step(
        name.removeprefix(STEP), stored.get("value"), ": ".join(words[:2]), (began or 0) / 1000, (ended or 0) / 1000
    )
