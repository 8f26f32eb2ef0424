"""What every brain offers: it decides, and nothing else. Its agent makes the calls."""

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
    """Call a tool as ``agent`` (empty: the task's own). ``id`` is unique within the task.

    ``as_host``: with the orchestrator's tools instead of an agent's, for what makes the brain itself run; never for
    what a model, or a program that is driven by one, asked for. ``repeatable``: twice is the same as once, whatever
    the server says of its tool, so it is made again where it was lost with its server.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any]
    agent: str = ""
    timeout_seconds: float | None = None
    as_host: bool = False
    repeatable: bool = False
    asked_as: CallTool | None = None
    """Where a person has to agree: the call that they are asked about instead, once for all calls that name it."""


@dataclass(frozen=True, slots=True)
class Think:
    """Something the brain does itself: it asks a model, or waits for what a program asks of it.

    The JSON object that ``function`` returns is recorded and becomes the ``structured`` of the outcome; the function is
    given a key that stays the same when it is run again because nobody knows whether it ended. What it raises becomes
    the outcome's ``code`` and ``message``. A ``usage`` in the object ({"tokens": 12, "dollars": 0.1}) counts in the
    budgets, afterwards: what goes beyond one ends the task. ``id`` is unique within the task.
    """

    id: str
    function: Callable[[str], Awaitable[Mapping[str, Json]]]
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


Step = CallTool | Think | Wait | Finish


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a brain is given at the start. ``task`` is the task of the plan; ``inputs`` the results of the tasks it
    needs, by ID; ``tools`` those its agent may use."""

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
    shell: str = "ai-session"
    """The server of terminals, for calls ``as_host``."""
    type: str = ""
    """The agent's: researcher, coder, …"""
    grants: Sequence[str] = ()
    """The patterns that granted ``tools``."""

    @property
    def checks(self) -> list[str]:
        """The gates of the task as command lines; every brain that reads text is given them."""
        gates: Sequence[Mapping[str, Any]] = self.task.get("gates") or ()
        return [str(gate.get("command") or _written(gate)) for gate in gates]


def _written(gate: Mapping[str, Any]) -> str:
    arguments = json.dumps(gate.get("args") or {}, ensure_ascii=False)
    expected = f" answers {json.dumps(gate['expect'], ensure_ascii=False)}" if gate.get("expect") else ""
    return f"{gate.get('tool')} {arguments}{expected}"


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What a worker process has for brains; none of it is ever recorded.

    ``secret`` finds the value of an environment variable, or of that name in the keyring; ``""`` where there is none.
    ``variables`` are what programs may be given.
    """

    secret: Callable[[str], str]
    variables: Mapping[str, str]
    state_directory: Path


class Thinking(Protocol):
    """One task being thought about. Deterministic but for what it does through the flow."""

    async def decide(self, flow: Flow, ended: Mapping[str, CallOutcome]) -> Sequence[Step]:
        """What to do next. ``ended`` are the calls, thoughts and pauses (with an empty ``ok`` outcome) that ended since
        the last time, none the first time. Asked again whenever something ended; an empty answer waits for what goes
        on. A Finish ends the task, and cancels what is in progress."""
        ...


@runtime_checkable
class SupportsClose(Protocol):
    """A Thinking that has something open while its task is in progress."""

    async def over(self) -> Sequence[CallTool]:
        """The task is over, whatever ended it. Lets go of everything; the calls it returns are made, one after the
        other, as the task's last. Not asked when another worker continues with the task."""
        ...


@runtime_checkable
class Holding(Protocol):
    """A Thinking for which this process holds something that nobody else needs."""

    async def release(self) -> None:
        """It is not asked here any more, whether or not somebody else continues with it."""
        ...


@runtime_checkable
class Settled(Protocol):
    """A Thinking that keeps something for the time its work is given back to it."""

    async def settled(self) -> None:
        """Its work is not given back any more, whatever becomes of it."""
        ...


@runtime_checkable
class Showing(Protocol):
    """A Thinking that has something for people to see while its task is in progress."""

    def shown(self) -> Mapping[str, Json]:
        """By name; ``todo`` is a list of steps, each with text and status."""
        ...


@runtime_checkable
class Hearing(Protocol):
    """A Thinking to which people can speak while it works. Its brain says so with ``hears = True``."""

    def hear(self, by: str, text: str) -> None:
        """What a person says; heeded with the next thing it does. Recorded: after a crash it is heard again at the same
        place."""
        ...


@runtime_checkable
class GivingUp(Protocol):
    """A Thinking that may continue when it has given up some of what is in progress."""

    def given_up(self, step_id: str) -> bool:
        """Whether nothing more is done for that call: no person is asked about it, and nobody is handed its work."""
        ...


@runtime_checkable
class SupportsPartialResult(Protocol):
    """A Thinking that can say what was done although it did not come to its end."""

    def so_far(self) -> Json:
        """What a Finish of now would have as its result."""
        ...


class Brain(Protocol):
    """``PLUGIN`` of a file in this folder."""

    name: str
    wants_tools: bool
    """Whether it reads ``Assignment.tools``, which are not asked for otherwise."""
    visits: int
    """How often its work is given back to it, the first time included, where a task does not say."""

    def begin(self, assignment: Assignment, worker_context: WorkerContext, before: Thinking | None = None) -> Thinking:
        """``before`` is what it began for the same task when the work was given back to it. Raises PlanInvalid when it
        cannot work on such a task."""
        ...

    def problems(self, agent: AgentSettings, secret: Callable[[str], str], *, priced: bool) -> Sequence[str]:
        """What keeps it from working for that agent: packages, settings, keys, programs that are not there; where its
        use has a price in money that must be known (``priced``), that it is not. Looks, but asks nobody."""
        ...
