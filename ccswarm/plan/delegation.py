"""What one agent may say of work that it has others do: the fields of a task, and no others at any level. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError

from ccswarm.config.settings import Expect, Gate, Name, PlanStep, Retry, Section, TaskSettings
from ccswarm.errors import PlanInvalid
from ccswarm.models import Priority

MOST_TASKS = 100
"""That one agent may have done with one call."""


class DelegatedGate(Section):
    """A command that must exit with 0 afterwards. It acts for the agent that hands the work on."""

    command: Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class DelegatedStep(Section):
    """As PlanStep, but that the agent of the task makes every call."""

    id: Name
    tool: str
    args: dict[str, Any] = Field(default={})
    needs: tuple[Name, ...] | None = None
    when: str = ""
    for_each: str | tuple[Any, ...] | None = None
    parallel: int = Field(default=1, ge=1, le=64)
    retry: Retry = Retry()
    timeout_seconds: float | None = Field(default=None, gt=0)
    save_as: Name | None = None
    expect: Expect = Expect()
    gate: bool = False
    always: bool = False


class DelegatedTask(Section):
    """What of TaskSettings grants no power: who may do it, what is to be done, how one sees that it is."""

    id: Name
    text: str = ""
    agent: Name | None = None
    type: Name | None = None
    capabilities: tuple[str, ...] = ()
    priority: Priority = "medium"
    needs: tuple[Name, ...] = ()
    gates: tuple[DelegatedGate, ...] = ()
    visits: int = Field(default=0, ge=0, le=20)
    timeout_seconds: float = Field(default=3600, gt=0)
    steps: tuple[DelegatedStep, ...] = ()


def delegated(tasks: Sequence[Mapping[str, Any]]) -> tuple[TaskSettings, ...]:
    """The tasks that an agent hands on. Raises PlanInvalid, naming every problem with its place."""
    if not 1 <= len(tasks) <= MOST_TASKS:
        raise PlanInvalid(f"{len(tasks)} tasks were given", suggestion=f"give 1 to {MOST_TASKS}")
    wrong: list[str] = []
    made: list[TaskSettings] = []
    for number, task in enumerate(tasks):
        try:
            given = DelegatedTask.model_validate(task)
        except ValidationError as error:
            wrong += [f"tasks.{number}.{_describe(one)}" for one in error.errors(include_url=False)]
            continue
        made.append(_task(given))
    if wrong:
        allowed = ", ".join(DelegatedTask.model_fields)
        raise PlanInvalid(
            "; ".join(wrong[:10]),
            suggestion=f"a delegated task may only have {allowed}; each of its gates is a command",
        )
    return tuple(made)


def _task(given: DelegatedTask) -> TaskSettings:
    facts = given.model_dump(exclude={"gates", "steps"}, exclude_unset=True)
    gates = tuple(Gate(command=gate.command) for gate in given.gates)
    steps = tuple(PlanStep(**step.model_dump(exclude_unset=True)) for step in given.steps)
    return TaskSettings(**facts, gates=gates, steps=steps)


def _describe(problem: Any) -> str:
    path = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"{path} may not be set by a delegation"
    return f"{path}: {problem['msg']}"


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
        "visits": {
            "type": "integer",
            "description": "Most rounds of work until its gates pass; default: 3 for agents with a model.",
        },
        "timeout_seconds": {"type": "number"},
        "steps": {"type": "array", "items": _STEP, "description": "Steps, for an agent whose brain is playbook."},
    },
    "id",
    "text",
)
"""Of one task, for tools that take some."""
