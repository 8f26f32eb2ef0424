"""What may be said of work that is handed on: the listed fields, at every level, and nothing that grants power."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from ccswarm.config.settings import AgentSettings, Gate, PlanStep, SwarmSettings, TaskSettings, section_of
from ccswarm.errors import PlanInvalid
from ccswarm.plan.delegation import SCHEMA, DelegatedGate, DelegatedStep, DelegatedTask, parse_delegated
from ccswarm.plan.schemas import Schema
from ccswarm.plan.team import Team
from ccswarm.toolbox.mail import TOOLS

TASK: dict[str, Any] = {"id": "x", "text": "hi", "agent": "ada"}
STEP: dict[str, Any] = {"id": "s", "tool": "srv.do"}
WHOLE: dict[str, Any] = {
    **TASK,
    "type": "coder",
    "capabilities": ["a"],
    "priority": "high",
    "needs": ["y"],
    "rounds": 3,
    "timeout_seconds": 60,
    "gates": [{"command": "make test"}],
    "steps": [
        {
            **STEP,
            "args": {"anything": {"deep": [1]}},
            "needs": [],
            "when": "${task.text}",
            "for_each": ["a", 1],
            "parallel": 2,
            "retry": {"times": 1, "seconds": 0, "factor": 1},
            "timeout_seconds": 5,
            "save_as": "t",
            "expect": {"exit_code": 0, "status": "ok", "contains": "a", "matches": "b", "equals": {"a.b": 1}},
            "gate": True,
        }
    ],
}

POWER: dict[str, Any] = {
    "review": {"by": ["eve"]},
    "retry": {"times": 100},
    "budget": {"calls": 10**6},
    "approval": "auto",
    "grants": ["*"],
    "workspace": "shared",
    "settings": {"steps": []},
    "brain": "playbook",
    "servers": [],
    "author": {"origin": "person", "agent": ""},
    "colour": 1,
}
FORBIDDEN: list[tuple[str, dict[str, Any]]] = [
    *((name, {**TASK, name: value}) for name, value in POWER.items()),
    *(
        (f"gates.0.{name}", {**TASK, "gates": [{"command": "true", name: value}]})
        for name, value in {
            "tool": "vault.ping",
            "args": {"n": "stolen"},
            "expect": {"exit_code": 1},
            "timeout_seconds": 10**9,
            "as_host": True,
        }.items()
    ),
    *(
        (f"steps.0.{name}", {**TASK, "steps": [{**STEP, name: value}]})
        for name, value in {"agent": "bob", "as_host": True, "approval": "ap_1", "server": "x"}.items()
    ),
    ("steps.0.retry.agent", {**TASK, "steps": [{**STEP, "retry": {"agent": "bob"}}]}),
    ("steps.0.expect.tool", {**TASK, "steps": [{**STEP, "expect": {"tool": "vault.ping"}}]}),
]


@pytest.mark.parametrize(("location", "task"), FORBIDDEN, ids=[location for location, _ in FORBIDDEN])
def test_nothing_else_can_be_set_by_a_delegation(location: str, task: Mapping[str, Any]) -> None:
    """By the tool's schema, and again by who makes the plan."""
    with pytest.raises(PlanInvalid) as refused:
        parse_delegated([task])
    assert f"tasks.0.{location} may not be set by a delegation" in refused.value.message
    assert "may only have" in refused.value.suggestion
    tool = next(one for one in TOOLS if one.name == "delegate")
    said = Schema(tool.input_schema).problem({"tasks": [task]})
    assert location.rpartition(".")[2] in said


def test_all_that_is_listed_can_be_set_by_a_delegation() -> None:
    (made,) = parse_delegated([WHOLE])
    assert made == TaskSettings.model_validate(WHOLE)
    assert Schema(SCHEMA).problem(WHOLE) == ""


@pytest.mark.parametrize(
    "gate", [{}, {"command": ""}, {"command": " \n"}, {"command": None}, {"command": ["id"]}, "id", None]
)
def test_a_gate_that_is_handed_on_is_a_command(gate: Any) -> None:
    with pytest.raises(PlanInvalid, match=r"tasks\.0\.gates\.0"):
        parse_delegated([{**TASK, "gates": [gate]}])


def test_every_problem_is_reported_with_its_location() -> None:
    with pytest.raises(PlanInvalid) as refused:
        parse_delegated([{"id": "a b"}, TASK, {**TASK, "rounds": 21, "review": {}}])
    assert [one.partition(" ")[0].rstrip(":") for one in refused.value.message.split("; ")] == [
        "tasks.0.id",
        "tasks.2.rounds",
        "tasks.2.review",
    ]


def levels(
    model: type[BaseModel], schema: Mapping[str, Any], location: str = "task"
) -> dict[str, tuple[set[str], Any]]:
    """The keys that each level may have by the model and by the schema, and what else the schema says of keys."""
    shown: Mapping[str, Any] = schema["properties"]
    found: dict[str, Any] = {
        location: (set(model.model_fields), set(shown), schema["additionalProperties"], schema["type"])
    }
    for name, field in model.model_fields.items():
        if inner := section_of(field.annotation):
            below = shown[name]
            found |= levels(inner, below.get("items", below), f"{location}.{name}")
    return found


def test_the_schema_has_what_is_taken_at_every_level_and_nothing_else() -> None:
    found = levels(DelegatedTask, SCHEMA)
    assert list(found) == ["task", "task.gates", "task.steps", "task.steps.retry", "task.steps.expect"]
    for location, (taken, shown, more, kind) in found.items():
        assert (taken, more, kind) == (shown, False, "object"), location


def test_what_a_delegation_leaves_out_is_known() -> None:
    """Who adds a setting to a task decides whether a delegation may say it."""
    assert set(TaskSettings.model_fields) - set(DelegatedTask.model_fields) == {
        "review",
        "retry",
        "budget",
        "attempts",
    }
    assert set(PlanStep.model_fields) - set(DelegatedStep.model_fields) == {"agent"}
    assert set(Gate.model_fields) - set(DelegatedGate.model_fields) == {"tool", "args", "expect", "timeout_seconds"}


SHELL = ("ai-session.create_session", "ai-session.execute_command", "ai-session.read_output")


@pytest.mark.parametrize(
    ("grants", "missing"),
    [
        (("swarm.delegate",), (*SHELL, "ai-session.close_session")),
        (SHELL, ("ai-session.close_session",)),
        (("other.*", "ai-session.read_*"), (*SHELL[:2], "ai-session.close_session")),
        (("AI-SESSION.*",), (*SHELL, "ai-session.close_session")),
        ((*SHELL, "ai-session.close_session"), ()),
        (("*",), ()),
    ],
)
def test_gates_need_an_agent_that_may_run_commands(grants: tuple[str, ...], missing: tuple[str, ...]) -> None:
    agents = [AgentSettings(name="cleo", type="coordinator", grants=grants), AgentSettings(name="ada", grants=("*",))]
    team = Team(SwarmSettings(topology="star"), agents)
    assert team.delegated("cleo", [TASK]).tasks[0].gates == ()
    if not missing:
        assert team.delegated("cleo", [{**TASK, "gates": [{"command": "id"}]}]).tasks[0].gates
        return
    with pytest.raises(PlanInvalid) as refused:
        team.delegated("cleo", [{**TASK, "gates": [{"command": "id"}]}])
    assert refused.value.message == (
        "task x: gates: they are commands run on behalf of agent cleo, which may not run commands: it has no grant for "
        + ", ".join(missing)
    )
    assert "leave the gates out" in refused.value.suggestion
