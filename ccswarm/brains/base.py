"""What every brain offers: it decides, and nothing else. Its agent makes the calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ccswarm.engines.base import Flow
from ccswarm.models import CallOutcome, Json, ToolInfo, Usage


@dataclass(frozen=True, slots=True)
class CallTool:
    """Call a tool as ``agent`` (empty: the task's own). ``id`` is unique within the task."""

    id: str
    tool: str
    arguments: Mapping[str, Any]
    agent: str = ""
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The task is over."""

    status: Literal["succeeded", "failed", "blocked"]
    summary: str = ""
    result: Json = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Pause, then decide again: before a step that failed is tried once more. ``id`` is unique within the task."""

    id: str
    seconds: float


Step = CallTool | Wait | Finish


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a brain is told at the beginning. ``task`` is the task as the plan has it; ``inputs`` results of the tasks
    it needs, by their id; ``tools`` what its agent may use."""

    run_id: str
    task_id: str
    agent: str
    task: Mapping[str, Any]
    inputs: Mapping[str, Json]
    tools: Sequence[ToolInfo]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    feedback: str = ""
    """Why the work was given back: the output of a gate that failed."""
    workspace: str = ""
    """The directory its agent works in: ``${workspace}`` of a playbook."""


class Thinking(Protocol):
    """One task being thought about. Deterministic but for what it does through the flow."""

    async def decide(self, flow: Flow, ended: Mapping[str, CallOutcome]) -> Sequence[Step]:
        """What to do next. ``ended`` are the calls and pauses (with an empty ``ok`` outcome) that ended since the last
        time, none the first time. Asked again whenever something ended; an empty answer waits for what goes on.
        A Finish ends the task, and cancels what goes on."""
        ...

    @property
    def usage(self) -> Usage:
        """What deciding has cost so far, calls of tools not counted."""
        ...


class Brain(Protocol):
    """``PLUGIN`` of a file in this folder."""

    name: str
    wants_tools: bool
    """Whether it reads ``Assignment.tools``, which are not asked for otherwise."""

    def begin(self, assignment: Assignment) -> Thinking:
        """Raises PlanInvalid when it cannot work on such a task."""
        ...
