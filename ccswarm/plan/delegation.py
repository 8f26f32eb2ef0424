"""The fields of a task that one agent may set when it delegates work to another.

No other fields are allowed at any level. The module does no input or output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError

from agentwire.validation import requirement
from ccswarm.config.settings import Expect, ForEach, Gate, JsonTable, Name, PlanStep, Retry, Section, TaskSettings
from ccswarm.errors import PlanInvalid
from ccswarm.models import Priority

MOST_TASKS = 100
"""The most tasks in one call."""


class DelegatedGate(Section):
    """A command that must exit with 0 after the task. It runs on behalf of the delegating agent."""

    command: Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class DelegatedStep(Section):
    """A PlanStep whose call is always made by the task's agent."""

    id: Name
    tool: str
    args: JsonTable = Field(default={})
    needs: tuple[Name, ...] | None = None
    when: str = ""
    for_each: ForEach = None
    parallel: int = Field(default=1, ge=1, le=64)
    retry: Retry = Retry()
    timeout_seconds: float | None = Field(default=None, gt=0)
    save_as: Name | None = None
    expect: Expect = Expect()
    gate: bool = False
    always: bool = False


class DelegatedTask(Section):
    """The fields of TaskSettings that grant no power: who may do it, what to do, and how success is checked."""

    id: Name
    text: str = ""
    agent: Name | None = None
    type: Name | None = None
    capabilities: tuple[str, ...] = ()
    priority: Priority = "medium"
    needs: tuple[Name, ...] = ()
    gates: tuple[DelegatedGate, ...] = ()
    rounds: int = Field(default=0, ge=0, le=20)
    timeout_seconds: float = Field(default=3600, gt=0)
    steps: tuple[DelegatedStep, ...] = ()


def parse_delegated(tasks: Sequence[Mapping[str, Any]]) -> tuple[TaskSettings, ...]:
    """Return the tasks that an agent delegates. Raises PlanInvalid, naming every problem with its location."""
    if not 1 <= len(tasks) <= MOST_TASKS:
        raise PlanInvalid(f"{len(tasks)} tasks were given", suggestion=f"give 1 to {MOST_TASKS}")
    wrong: list[str] = []
    made: list[TaskSettings] = []
    for number, task in enumerate(tasks):
        try:
            checked = DelegatedTask.model_validate(task)
        except ValidationError as error:
            wrong += [f"tasks.{number}.{_describe(one)}" for one in error.errors(include_url=False)]
            continue
        made.append(_task(checked))
    if wrong:
        allowed = ", ".join(DelegatedTask.model_fields)
        raise PlanInvalid(
            "; ".join(wrong[:10]),
            suggestion=f"a delegated task may only have {allowed}; each of its gates is a command",
        )
    return tuple(made)


def _task(task: DelegatedTask) -> TaskSettings:
    facts = task.model_dump(exclude={"gates", "steps"}, exclude_unset=True)
    gates = tuple(Gate(command=gate.command) for gate in task.gates)
    steps = tuple(PlanStep(**step.model_dump(exclude_unset=True)) for step in task.steps)
    return TaskSettings(**facts, gates=gates, steps=steps)


def _describe(problem: Any) -> str:
    path = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"{path} may not be set by a delegation"
    return f"{path}: {requirement(problem)}"


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
        **({"required": list(required)} if required else {}),
    }


_NAMES = {"type": "array", "items": {"type": "string"}}
_STEP = _object(
    {
        "id": {"type": "string"},
        "tool": {"type": "string", "description": "SERVER.TOOL, which the task's agent is granted."},
        "args": {"type": "object"},
        "needs": {**_NAMES, "description": "Steps that must run before it; default: the previous one."},
        "when": {"type": "string"},
        "for_each": {"anyOf": [{"type": "string"}, {"type": "array"}]},
        "parallel": {"type": "integer", "minimum": 1, "maximum": 64},
        "retry": _object(
            {"times": {"type": "integer"}, "seconds": {"type": "number"}, "factor": {"type": "number"}},
        ),
        "timeout_seconds": {"type": "number"},
        "save_as": {"type": "string"},
        "expect": _object(
            {
                "exit_code": {"type": "integer"},
                "status": {"type": "string"},
                "contains": {"type": "string"},
                "matches": {"type": "string"},
                "equals": {"type": "object"},
            },
        ),
        "gate": {"type": "boolean"},
        "always": {"type": "boolean"},
    },
    "id",
    "tool",
)
SCHEMA = _object(
    {
        "id": {"type": "string", "description": "Unique among these tasks: letters, digits, - and _."},
        "text": {"type": "string", "description": "What to do, with everything the agent has to know."},
        "agent": {"type": "string", "description": "Agent that does it; default: the first suitable one that is free."},
        "type": {"type": "string", "description": "Only agents of this type."},
        "capabilities": {**_NAMES, "description": "Only agents that have all of these."},
        "priority": {"enum": ["low", "medium", "high", "critical"]},
        "needs": {**_NAMES, "description": "Tasks that must succeed first; it gets their results."},
        "gates": {
            "type": "array",
            "description": "Commands that must exit with 0 afterwards. They run as your own commands: you need the"
            " tools for them, a person may be asked, and they count toward your budget.",
            "items": _object({"command": {"type": "string", "minLength": 1}}, "command"),
        },
        "rounds": {
            "type": "integer",
            "description": "Maximum number of rounds of work until its gates pass; default: 3 for agents with a model.",
        },
        "timeout_seconds": {"type": "number"},
        "steps": {"type": "array", "items": _STEP, "description": "Steps, for an agent whose brain is playbook."},
    },
    "id",
    "text",
)
"""The JSON schema of one task, for tools that accept tasks."""
