"""The interface of brains. A brain only decides; its agent makes the calls."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from ccswarm.config.settings import AgentSettings
from ccswarm.engines.base import Flow
from ccswarm.models import CallOutcome, Json, ToolInfo


@dataclass(frozen=True, slots=True)
class CallTool:
    """Call a ``tool``, named SERVER.TOOL, as ``agent`` (empty: the task's own). ``id`` is unique within the task.

    With ``as_host`` the call uses the orchestrator's tools instead of an agent's. That is for what makes the brain
    itself run, never for a request of a model or of a program driven by one. ``repeatable`` calls may be made twice,
    whatever the server says of the tool, so a call lost with its server is repeated.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any]
    agent: str = ""
    timeout_seconds: float | None = None
    as_host: bool = False
    repeatable: bool = False
    asked_as: CallTool | None = None
    """The call that a person is asked to approve instead, once for all calls that name it."""


@dataclass(frozen=True, slots=True)
class Think:
    """Something the brain does itself: it asks a model, or waits for a program's request.

    The JSON object that ``function`` returns is recorded as the ``structured`` of the outcome. The function gets a key
    that stays the same if it is run again because it is unknown whether it ended. An exception becomes the outcome's
    ``code`` and ``message``. A ``usage`` in the object ({"tokens": 12, "dollars": 0.1}) is added to the budgets
    afterwards; exceeding one ends the task. ``id`` is unique within the task.
    """

    id: str
    function: Callable[[str], Awaitable[Mapping[str, Json]]]
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """End the task."""

    status: Literal["succeeded", "failed", "blocked"]
    summary: str = ""
    result: Json = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Pause, then decide again, as before the retry of a failed step. ``id`` is unique within the task."""

    id: str
    seconds: float


Step = CallTool | Think | Wait | Finish


@dataclass(frozen=True, slots=True)
class Assignment:
    """A task given to a brain. ``inputs`` are the results of the tasks it needs, by ID; ``tools`` its agent's tools."""

    run_id: str
    task_id: str
    agent: str
    task: Mapping[str, Any]
    inputs: Mapping[str, Json]
    tools: Sequence[ToolInfo]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    feedback: str = ""
    """Why the work was returned: the output of a failed gate."""
    workspace: str = ""
    """The agent's working directory: ``${workspace}`` of a playbook."""
    shell: str = "ai-session"
    """The terminal server for calls ``as_host``."""
    type: str = ""
    """The agent's role: researcher, coder, …"""
    grants: Sequence[str] = ()
    """The patterns that granted ``tools``."""

    @property
    def checks(self) -> list[str]:
        """The gates of the task as command lines, for brains that read text."""
        gates: Sequence[Mapping[str, Any]] = self.task.get("gates") or ()
        return [str(gate.get("command") or _format_gate(gate)) for gate in gates]


def _format_gate(gate: Mapping[str, Any]) -> str:
    arguments = json.dumps(gate.get("args") or {}, ensure_ascii=False)
    expected = f" answers {json.dumps(gate['expect'], ensure_ascii=False)}" if gate.get("expect") else ""
    return f"{gate.get('tool')} {arguments}{expected}"


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What a worker process offers to brains; none of it is recorded. ``secret`` returns the value of an environment
    variable, or of that name in the keyring, or ``""``. ``variables`` may be passed to programs."""

    secret: Callable[[str], str]
    variables: Mapping[str, str]
    state_directory: Path


class Thinking(Protocol):
    """A brain's work on one task. Deterministic except for what it does through the flow."""

    async def decide(self, flow: Flow, ended: Mapping[str, CallOutcome]) -> Sequence[Step]:
        """Return the next steps. ``ended`` are the calls, thoughts and pauses (with an empty ``ok`` outcome) that ended
        since the last call; none the first time. Called again whenever one ends; without new steps the task waits for
        those in progress. A Finish ends the task and cancels what is in progress."""
        ...


@runtime_checkable
class SupportsClose(Protocol):
    """A Thinking that has resources open while its task is in progress."""

    async def over(self) -> Sequence[CallTool]:
        """Release everything when the task has ended, for whatever reason. The returned calls are made one after the
        other, as the task's last. Not called if another worker continues the task."""
        ...


@runtime_checkable
class SupportsRelease(Protocol):
    """A Thinking that has resources only this process uses."""

    async def release(self) -> None:
        """Release them, whether or not another process continues the task."""
        ...


@runtime_checkable
class SupportsSettled(Protocol):
    """A Thinking that stores something until its work can no longer be returned."""

    async def settled(self) -> None:
        """Remove what is stored: the work will not be returned any more."""
        ...


@runtime_checkable
class SupportsShown(Protocol):
    """A Thinking that shows its state to people while its task is in progress."""

    def shown(self) -> Mapping[str, Json]:
        """Return the state by name; ``todo`` is a list of steps, each with text and status."""
        ...


@runtime_checkable
class SupportsMessages(Protocol):
    """A Thinking that accepts messages of people while it works. Its brain sets ``hears = True``."""

    def hear(self, by: str, text: str) -> None:
        """Accept a person's message, to be used in the next step. Recorded: a replay delivers it at the same point."""
        ...


@runtime_checkable
class SupportsGivingUp(Protocol):
    """A Thinking that may continue after it has abandoned some of the steps in progress."""

    def given_up(self, step_id: str) -> bool:
        """Report whether a call is abandoned: no person is asked about it, and it is not delegated."""
        ...


@runtime_checkable
class SupportsPartialResult(Protocol):
    """A Thinking that can report partial results of a task that did not finish."""

    def so_far(self) -> Json:
        """Return what a Finish would have as its result now."""
        ...


class Brain(Protocol):
    """The ``PLUGIN`` of a file in this folder."""

    name: str
    wants_tools: bool
    """Whether it reads ``Assignment.tools``, which are otherwise not listed."""
    rounds: int
    """How often it gets its work, the first time included, unless the task says otherwise."""

    def begin(self, assignment: Assignment, worker_context: WorkerContext, before: Thinking | None = None) -> Thinking:
        """Begin a task. ``before`` is its Thinking if the work was returned. Raises PlanInvalid if it cannot do it."""
        ...

    def problems(self, agent: AgentSettings, secret: Callable[[str], str], *, priced: bool) -> Sequence[str]:
        """Return what prevents it from working for that agent: missing packages, programs, keys, or wrong settings.
        With ``priced`` an unknown price is a problem, too. Makes no requests."""
        ...
