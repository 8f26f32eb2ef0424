"""Plans by rules, and their TOML: what comes of any text is a plan that the swarm takes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccswarm.config import parsing
from ccswarm.config.settings import Settings
from ccswarm.models import RunStatus
from ccswarm.plan.check import describe, plan_problems
from ccswarm.plan.topology import Links
from ccswarm.runs import service
from ccswarm.servers.mcp.toolsets.orchestre.analysis import analysis_of, brief_of
from ccswarm.servers.mcp.toolsets.orchestre.plan import analysis_in, plan_of, preferences_of
from ccswarm.servers.mcp.toolsets.orchestre.plan_toml import (
    able_agents,
    assign,
    gate_of,
    problems_of,
    swarm_id,
    tasks_in,
    toml_of,
)
from ccswarm.servers.mcp.toolsets.orchestre.repository.scan import count_files
from ccswarm.servers.mcp.toolsets.orchestre.repository.tree import Tree
from ccswarm.servers.mcp.toolsets.orchestre.schemas import plan_problem
from ccswarm.servers.mcp.toolsets.orchestre.toml import comment, tables, text_of
from ccswarm.swarm.scheduler import Scheduler
from tests.ccswarm.support.orchestre_trees import PYTHON, made

CREW = """
[[mcp.servers]]
name = "ai-session"
command = "ai-session mcp-server --stdio"
[[agents]]
name = "rita"
type = "researcher"
capabilities = ["analysis"]
brain = "llm"
grants = ["ai-session.*", "web.*"]
[[agents]]
name = "carl"
type = "coder"
grants = ["ai-session.*"]
[[agents.settings.steps]]
id = "say"
tool = "ai-session.list_sessions"
args = { note = "${task.text}", deep = { list = [1, 2.5, true, "x"], "odd key" = "y" } }
[[agents.settings.steps]]
id = "again"
tool = "ai-session.list_sessions"
needs = ["say"]
expect = { equals = { "a.b" = 1 } }
[[agents]]
name = "dora"
type = "coder"
capabilities = ["payments"]
brain = "cli"
grants = ["ai-session.*"]
[[agents]]
name = "idle"
type = "coder"
"""
SETTINGS = parsing.parse(CREW)
NEEDED = "- Users log in\n- Must export reports\n- Could send email\n- Take payments with Stripe\n"


def planned(
    requirements: str, facts: dict[str, Any] | None = None, analysis: Any = None, **preferences: Any
) -> dict[str, Any]:
    brief = brief_of({"requirements": requirements})
    able = able_agents(SETTINGS)
    wanted = preferences_of(preferences, brief, len(able))
    plan = plan_of(brief, analysis_in(analysis) or analysis_of(brief, facts, 0.0), facts, wanted)
    assign(plan, able)
    return plan


def as_run(plan: dict[str, Any], requirements: str, facts: dict[str, Any] | None = None) -> Settings:
    """As ``ccswarm run`` takes it."""
    return service.with_client_plan(toml_of(plan, requirements, SETTINGS, facts), SETTINGS)


def test_what_others_build_on_comes_first() -> None:
    plan = planned(NEEDED)
    assert [(one["id"], one["name"]) for one in plan["phases"]] == [
        ("1", "Foundation"),
        ("2", "Base"),
        ("3", "Features"),
        ("4", "Hardening"),
        ("5", "Delivery"),
    ]
    tasks = {one["id"]: one for one in tasks_in(plan)}
    assert tasks["2.1"]["title"] == "Users log in"
    assert tasks["2.1"]["dependencies"] == ["1.2"]
    assert [tasks[one]["priority"] for one in ("2.1", "3.1", "3.2", "3.3")] == ["high", "critical", "low", "high"]
    assert tasks["3.3"]["dependencies"] == ["2.1"]
    assert tasks["5.2"]["dependencies"] == ["5.1"]
    assert plan["milestones"][0]["date"] == "end of day 2"


def test_agents_are_picked_by_words_then_by_kind() -> None:
    tasks = {one["title"]: one["assignee"] for one in tasks_in(planned(NEEDED))}
    assert tasks["Settle what is wanted"] == "rita"
    assert tasks["Take payments with Stripe"] == "dora"
    assert "idle" not in tasks.values()
    assert {tasks["Users log in"], tasks["Must export reports"]} == {"carl", "dora"}


def test_without_agents_there_are_roles() -> None:
    plan = planned(NEEDED)
    for task in tasks_in(plan):
        task["assignee"] = ""
    assign(plan, [])
    assert {one["assignee"] for one in tasks_in(plan)} == {"researcher", "coder", "tester", "writer"}


def test_efforts_and_lengths_add_up() -> None:
    plan = planned(NEEDED, teamSize=1)
    days = [int(one["effort"].split()[0]) for one in tasks_in(plan)]
    assert plan["resources"]["effortDays"] == sum(days)
    assert plan["totalDuration"] == "5 weeks with 1"
    assert planned(NEEDED, teamSize="4 people")["totalDuration"].endswith("with 4")


def test_preferences() -> None:
    plan = planned(NEEDED, methodology="Scrum", sprintLength="1 week", prioritization="as ordered")
    assert plan["methodology"] == "Scrum"
    assert plan["milestones"][-1]["date"] == "end of sprint 4, week 4"
    assert [one["priority"] for one in tasks_in(plan)][2:6] == ["medium", "critical", "low", "medium"]
    assert planned(NEEDED, methodology="agile")["milestones"][0]["date"] == "end of sprint 1, day 2"


def test_the_tests_of_a_repository_are_a_gate(tmp_path: Path) -> None:
    facts = count_files(Tree(made(tmp_path, PYTHON)))
    plan = planned(NEEDED, facts)
    settings_ = as_run(plan, NEEDED, facts)
    gates = {task.id: [gate.command for gate in task.gates] for task in settings_.tasks}
    command = ["uv run python -m pytest"]
    assert gates["task-2-1"] == gates["task-5-1"] == command
    assert gates["task-1-1"] == gates["task-1-2"] == gates["task-5-2"] == []
    rounds = {task.agent: task.rounds for task in settings_.tasks if task.gates}
    assert rounds["dora"] == 2
    assert rounds.get("carl", 0) == 0
    narrow = parsing.parse(CREW.replace('"ai-session.*", "web.*"', '"web.*"'))
    left = {
        task.agent
        for task in service.with_client_plan(toml_of(plan, NEEDED, narrow, facts), narrow).tasks
        if task.gates
    }
    assert left == {task.agent for task in settings_.tasks if task.gates} - {"rita"}, "she may not run commands then"
    facts["tests"] |= {"directory": "a b"}
    assert gate_of(SETTINGS, facts) == "cd 'a b' && uv run python -m pytest"
    assert gate_of(Settings(), facts) == ""


def test_a_given_analysis_is_used_in_whatever_it_is_wrapped() -> None:
    analysis = {
        "keyComponents": ["Warehouse robots", {"name": "Users"}, 5, ""],
        "complexity": {"factors": {"security": 9, "scalability": "much"}},
        "challenges": [{"area": "Warehouse robots", "description": "They move"}, "no table"],
    }
    for given_ in (analysis, {"analysis": analysis}, {"success": True, "data": {"analysis": analysis}}):
        plan = planned(NEEDED, analysis=given_)
        titles = [one["title"] for one in tasks_in(plan)]
        assert "Warehouse robots" in titles
        assert "Users" not in titles
        assert "Check what a stranger could do" in titles
        assert ["Warehouse robots: They move"] in [one["risks"] for one in plan["phases"]]


def test_long_requirements_make_no_endless_plan() -> None:
    requirements = "\n".join(f"- The {number}. thing that is wanted, with words that tell it" for number in range(90))
    requirements = requirements[:5000]
    plan = planned(requirements)
    text = toml_of(plan, requirements, SETTINGS, None)
    assert requirements in as_run(plan, requirements).tasks[0].text
    assert len(list(tasks_in(plan))) == 44
    assert len(text) < 60_000


def test_problems_of_a_plan() -> None:
    def plan(*tasks: tuple[str, list[str]]) -> dict[str, Any]:
        return {"phases": [{"tasks": [{"id": name, "dependencies": needs} for name, needs in tasks]}]}

    assert problems_of(plan(("1.1", []), ("1.2", ["1.1"]))) == []
    assert problems_of({}) == ["there are no tasks"]
    assert problems_of(plan(("1.1", []), ("1.1", []))) == ["task 1.1 is there more than once"]
    assert problems_of(plan(("1.1", ["9.9"]))) == ["task 1.1 needs 9.9, which is not there"]
    assert "in a circle" in problems_of(plan(("1.1", ["1.2"]), ("1.2", ["1.1"])))[0]
    assert swarm_id("10.2") == "task-10-2"


TEXT = st.text(max_size=400) | st.lists(
    st.sampled_from(
        ["login", "must", "database", "\n- ", ". ", "payments", "${steps.x}", '"""', "\x7f", "\\", "coder"]
    ),
    max_size=60,
).map(" ".join)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)


@given(
    requirements=TEXT,
    analysis=ANY,
    preferences=st.dictionaries(
        st.sampled_from(["methodology", "teamSize", "sprintLength", "prioritization"]), ANY, max_size=4
    ),
)
def test_any_text_has_a_plan_that_the_swarm_takes(
    requirements: str, analysis: Any, preferences: dict[str, Any]
) -> None:
    plan = planned(requirements, None, analysis, **preferences)
    assert plan_problem(plan) == ""
    json.dumps(plan)
    taken = as_run(plan, requirements)
    assert plan_problems(taken, None) == []
    assert [task.id for task in taken.tasks] == [one["swarmTask"] for one in tasks_in(plan)]
    needs = {swarm_id(one["id"]): tuple(map(swarm_id, one["dependencies"])) for one in tasks_in(plan)}
    assert {task.id: task.needs for task in taken.tasks} == needs
    assert ends(taken) == set(needs)
    assert describe(taken)["stages"][0] == ["task-1-1"]


def ends(plan: Settings) -> set[str]:
    """The tasks that end when each one that starts succeeds."""
    agents = plan.agents
    scheduler = Scheduler(plan.tasks, agents, Links("mesh", agents), "adaptive", len(agents))
    while not scheduler.done:
        started = scheduler.start()
        assert started
        for one in started:
            scheduler.ended(one.task_id, RunStatus.SUCCEEDED)
    return {task for task, status in scheduler.statuses.items() if status is RunStatus.SUCCEEDED}


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.text(max_size=8), ANY, max_size=5))
def test_any_values_are_toml(item: dict[str, Any]) -> None:
    assert tomllib.loads(tables("x", [item])) == {"x": [_plain(item)]}
    assert tomllib.loads(comment(str(item))) == {}


def _plain(value: object) -> object:
    """Without what TOML cannot say."""
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in cast("dict[str, object]", value).items() if one is not None}
    if isinstance(value, list):
        return [_plain(one) for one in cast("list[object]", value) if one is not None]
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


@pytest.mark.parametrize("text", ["\ud800 half", "\x7f", "\x00", "a\nb", '"\\', "\u2028"])
def test_odd_characters_are_toml(text: str) -> None:
    assert tomllib.loads(f"x = {text_of(text)}")["x"] == text.encode(errors="replace").decode()
    assert tomllib.loads(comment(text)) == {}
