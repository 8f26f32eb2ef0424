"""What swarms of VisionFlow are: their agents exist, their topology holds, and what is counted has happened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ccswarm.support.runs import RunVerbs
from tests.ccswarm.support.visionflow_server import TEXT, Served, Wire, children, served
from tests.conftest import client_environment, environment

UNABLE = """
[[agents]]
name = "idle"
type = "optimizer"
[[agents]]
name = "model"
type = "thinker"
brain = "llm"
[[agents]]
name = "lost"
type = "loser"
grants = ["*"]
settings = { steps = [{ id = "a", tool = "small.none" }] }
[[agents]]
name = "bad"
type = "baddy"
settings = { steps = [{ id = "a b" }] }
"""


@pytest.fixture(scope="module")
def verbs(shared_home: Path) -> RunVerbs:
    return RunVerbs(shared_home, TEXT + UNABLE)


@pytest.fixture(scope="module")
def server(verbs: RunVerbs) -> Iterator[Served]:
    with served(verbs) as server:
        yield server


@pytest.fixture
def wire(server: Served) -> Iterator[Wire]:
    """Nothing of a test's swarms is left to the next one."""
    with Wire(server.port) as wire:
        yield wire
        for one in wire.ask("visualization.snapshot")["swarms"]:
            wire.ask("swarm_destroy", swarmId=one["swarmId"])
    assert children(server, ".py") == []


def events(verbs: RunVerbs, run: str) -> list[tuple[str, str]]:
    """What began and ended, in order."""
    with environment(client_environment(verbs.home)):
        lines = [json.loads(line) for line in verbs.run("logs", run, "--json").out.splitlines()]
    return [(one["event"].removeprefix("task."), one["task"]) for one in lines if one["event"].startswith("task.")]


def parts(task: Any) -> dict[str, str]:
    return {one["agent"]: one["status"] for one in task["parts"]}


def test_counts_change_by_real_work(wire: Wire, verbs: RunVerbs) -> None:
    swarm, _ = wire.swarm("mesh", "analyst", "researcher")
    with verbs.answering("42"):
        task = wire.ask("task_orchestrate", swarmId=swarm, task="look", strategy="parallel", priority="high")["taskId"]
        status = wire.ask("swarm_status", swarmId=swarm)
        assert (status["pendingTasks"], status["completedTasks"]) == (1, 0)
        busy = wire.ask("agent_list", swarmId=swarm, filter="busy")["agents"]
        assert [(one["type"], one["performance"]["tasks_active"]) for one in busy] == [
            ("analyst", 1),
            ("researcher", 1),
        ]
    done = wire.over(task)
    assert (done["status"], parts(done)) == ("completed", {"ann": "completed", "ada": "completed"})
    assert done["parts"][0]["result"]["steps"]["do"]["text"] == "42"
    status = wire.ask("swarm_status", swarmId=swarm, include_performance=True)
    assert (status["pendingTasks"], status["completedTasks"], status["efficiency_score"]) == (0, 1, 1.0)
    (ann, ada) = wire.ask("agent_list", swarmId=swarm)["agents"]
    with environment(client_environment(verbs.home)):
        shown = verbs.json("status", done["run"])
    for one, name in ((ann, "ann"), (ada, "ada")):
        usage = shown["tasks"][name]["usage"]
        assert one["performance"]["tool_calls"] == usage["calls"] == 1
        assert one["performance"]["tool_seconds"] == round(usage["seconds"], 3)
        assert (one["performance"]["tasks_completed"], one["performance"]["success_rate"]) == (1, 100.0)
        assert "cpu_usage" not in one["performance"]


def test_a_task_that_fails_is_counted_as_that(wire: Wire) -> None:
    swarm, _ = wire.swarm("mesh", "writer")
    task = wire.over(wire.ask("task_orchestrate", swarmId=swarm, task="write")["taskId"])
    assert task["status"] == "failed"
    status = wire.ask("swarm_status", swarmId=swarm, include_performance=True)
    assert (status["pendingTasks"], status["completedTasks"], status["tasks_failed"]) == (0, 0, 1)
    assert status["efficiency_score"] == 0.0


@pytest.mark.torture
@pytest.mark.parametrize("topology", ["star", "hierarchical"])
def test_under_a_hub_the_coordinator_comes_first(wire: Wire, verbs: RunVerbs, topology: str) -> None:
    swarm, _ = wire.swarm(topology, "researcher", "coder", "coordinator")
    task = wire.over(wire.ask("task_orchestrate", swarmId=swarm, task="plan it", strategy="parallel")["taskId"])
    reported = events(verbs, task["run"])
    assert reported[:2] == [("started", "eve"), ("ended", "eve")]
    assert sorted(reported[2:]) == [("ended", "ada"), ("ended", "bob"), ("started", "ada"), ("started", "bob")]
    assert wire.ask("swarm_status", swarmId=swarm, include_topology=True)["coordination_layers"] == 2


@pytest.mark.torture
def test_a_ring_passes_in_order(wire: Wire, verbs: RunVerbs) -> None:
    swarm, _ = wire.swarm("ring", "coder", "researcher", "coordinator")
    task = wire.over(wire.ask("task_orchestrate", swarmId=swarm, task="pass it on", strategy="parallel")["taskId"])
    assert events(verbs, task["run"]) == [(what, who) for who in ("bob", "ada", "eve") for what in ("started", "ended")]


@pytest.mark.torture
def test_in_a_mesh_all_begin_at_once(wire: Wire, verbs: RunVerbs) -> None:
    swarm, _ = wire.swarm("mesh", "coder", "researcher")
    task = wire.over(wire.ask("task_orchestrate", swarmId=swarm, task="go", strategy="parallel")["taskId"])
    assert events(verbs, task["run"])[:2] == [("started", "bob"), ("started", "ada")]


@pytest.mark.torture
def test_in_a_mesh_one_follows_the_other_if_it_is_told_so(wire: Wire, verbs: RunVerbs) -> None:
    swarm, _ = wire.swarm("mesh", "coder", "researcher")
    task = wire.over(wire.ask("task_orchestrate", swarmId=swarm, task="go", strategy="sequential")["taskId"])
    assert [what for what, _ in events(verbs, task["run"])] == ["started", "ended", "started", "ended"]


@pytest.mark.parametrize(
    ("topology", "kinds", "status"),
    [
        ("star", ("coordinator", "coder", "writer"), "failed"),
        pytest.param("ring", ("writer", "coder", "researcher"), "completed", marks=pytest.mark.torture),
    ],
)
def test_a_message_that_the_topology_forbids_is_refused(
    wire: Wire, topology: str, kinds: tuple[str, ...], status: str
) -> None:
    """mia writes to bob: past the hub of a star, and in the order of a ring. All others are in test_topology.py."""
    swarm, _ = wire.swarm(topology, *kinds)
    task = wire.over(wire.ask("task_orchestrate", swarmId=swarm, task="tell bob")["taskId"])
    assert parts(task)["mia"] == status, task
    if status == "failed":
        (mia,) = [one for one in task["parts"] if one["agent"] == "mia"]
        assert "may not write to" in mia["summary"]
        assert topology in mia["summary"]


@pytest.mark.torture
def test_as_many_agents_as_wanted_and_the_hub_among_them(wire: Wire) -> None:
    swarm, _ = wire.swarm("star", "researcher", "coder", "researcher", "coordinator", strategy="balanced")
    for _ in range(2):
        asked = wire.ask("task_orchestrate", swarmId=swarm, task="two of you", maxAgents=2)
        assert asked["assignedAgents"] == 2
        found = wire.over(asked["taskId"])
        assert "eve" in parts(found)
        assert found["assignedAgents"] == 2
    assert wire.ask("task_orchestrate", swarmId=swarm, task="all", maxAgents=99)["assignedAgents"] == 4


def test_capabilities_only_narrow_what_is_configured(wire: Wire) -> None:
    swarm, _ = wire.swarm("mesh")
    for asked in (["prose", "root", "analysis"], ["nothing of that"], None):
        wire.ask("agent_spawn", swarmId=swarm, type="researcher", capabilities=asked)
    found = [one["capabilities"] for one in wire.ask("agent_list", swarmId=swarm)["agents"]]
    assert found == [["analysis", "prose"], [], ["analysis", "synthesis", "prose"]]


def test_names_are_told_as_given_and_plans_call_them_something_they_can(wire: Wire) -> None:
    swarm, _ = wire.swarm("mesh")
    for name in ("Research Agent #1", "ada", "ada", "", "日本", "collect"):
        wire.ask("agent_spawn", swarmId=swarm, type="researcher", name=name)
    found = wire.ask("agent_list", swarmId=swarm, include_metadata=True)["agents"]
    assert [one["name"] for one in found] == ["Research Agent #1", "ada", "ada", "ada", "日本", "collect"]
    called = [one["metadata"]["called"] for one in found]
    assert called == ["Research-Agent-1", "ada", "ada-2", "ada-3", "agent", "collect-2"]


@pytest.mark.torture
def test_agents_of_any_name_do_a_task(wire: Wire) -> None:
    swarm, _ = wire.swarm("mesh")
    for name in ("Research Agent #1", "ada", "ada", "", "日本", "collect"):
        wire.ask("agent_spawn", swarmId=swarm, type="researcher", name=name)
    called = [
        one["metadata"]["called"] for one in wire.ask("agent_list", swarmId=swarm, include_metadata=True)["agents"]
    ]
    task = wire.over(wire.ask("task_orchestrate", swarmId=swarm, task="who are you")["taskId"])
    assert sorted(parts(task)) == sorted(called)
    assert task["status"] == "completed"


def test_a_terminated_agent_ends_with_its_work_and_its_processes(wire: Wire, verbs: RunVerbs, server: Served) -> None:
    swarm, (ann, bob) = wire.swarm("mesh", "analyst", "coder")
    assert len(children(server, "pipes.py")) == 1
    task = wire.ask("task_orchestrate", swarmId=swarm, task="wait", strategy="parallel")["taskId"]
    with verbs.held():
        assert wire.ask("agent_terminate", agentId=ann) == {"agentId": ann, "status": "terminated"}
    done = wire.over(task)
    assert (done["status"], done["assignedAgents"], parts(done)) == ("completed", 1, {"bob": "completed"})
    assert wire.fault("agent_terminate", agentId=ann)["code"] == -32002
    assert wire.ask("swarm_status", swarmId=swarm)["activeAgents"] == 1
    assert [one["id"] for one in wire.ask("agent_list", swarmId=swarm)["agents"]] == [bob]
    assert [one["id"] for one in wire.ask("agent_list", swarmId=swarm, filter="terminated")["agents"]] == [ann]
    again = wire.over(wire.ask("task_orchestrate", swarmId=swarm, task="go on")["taskId"])
    assert parts(again) == {"bob": "completed"}
    wire.ask("agent_terminate", agentId=bob)
    assert children(server, ".py") == []


@pytest.mark.torture
def test_what_a_terminated_agent_has_not_begun_never_begins(wire: Wire, verbs: RunVerbs) -> None:
    """The others go on with what they do, and do nothing twice: the pipe is read once."""
    swarm, (_, bob, _) = wire.swarm("ring", "analyst", "coder", "researcher")
    task = wire.ask("task_orchestrate", swarmId=swarm, task="pass it on")["taskId"]
    with verbs.held() as pipe:
        wire.ask("agent_terminate", agentId=bob)
        status = wire.ask("swarm_status", swarmId=swarm)
        assert (status["pendingTasks"], status["activeAgents"]) == (1, 2)
        pipe.write("once")
    done = wire.over(task)
    assert (done["status"], parts(done)) == ("completed", {"ann": "completed", "ada": "completed"})
    assert [one["result"]["steps"]["do"].get("text") for one in done["parts"]][:1] == ["once"]
    (ann, ada) = wire.ask("agent_list", swarmId=swarm)["agents"]
    assert [one["performance"]["tasks_completed"] for one in (ann, ada)] == [1, 1]
    (gone,) = wire.ask("agent_list", swarmId=swarm, filter="terminated")["agents"]
    assert (gone["performance"]["tasks_completed"], gone["performance"]["tool_calls"]) == (0, 0)


@pytest.mark.torture
def test_without_its_hub_a_star_goes_on_with_another_one(wire: Wire, verbs: RunVerbs) -> None:
    swarm, (ann, _, _) = wire.swarm("star", "analyst", "coder", "researcher")
    task = wire.ask("task_orchestrate", swarmId=swarm, task="go")["taskId"]
    with verbs.held():
        wire.ask("agent_terminate", agentId=ann)
    done = wire.over(task)
    assert (done["status"], parts(done)) == ("completed", {"bob": "completed", "ada": "completed"})
    assert events(verbs, done["run"])[:2] == [("started", "bob"), ("ended", "bob")]
    (gone,) = wire.ask("agent_list", swarmId=swarm, filter="terminated")["agents"]
    assert (gone["performance"]["tasks_failed"], gone["performance"]["tool_calls"]) == (1, 1)


@pytest.mark.torture
def test_with_the_last_of_its_agents_a_task_is_cancelled(wire: Wire, verbs: RunVerbs, server: Served) -> None:
    swarm, (ann,) = wire.swarm("mesh", "analyst")
    task = wire.ask("task_orchestrate", swarmId=swarm, task="wait")["taskId"]
    with verbs.held():
        wire.ask("agent_terminate", agentId=ann)
    status = wire.ask("swarm_status", swarmId=swarm)
    assert (wire.over(task)["status"], status["pendingTasks"], status["activeAgents"]) == ("cancelled", 0, 0)
    assert children(server, ".py") == []


def test_a_destroyed_swarm_takes_all_of_it_along(wire: Wire, verbs: RunVerbs, server: Served) -> None:
    swarm, agents = wire.swarm("ring", "researcher", "analyst", "coder")
    task = wire.ask("task_orchestrate", swarmId=swarm, task="wait")["taskId"]
    with verbs.held():
        assert wire.ask("swarm_destroy", swarmId=swarm) == {"swarmId": swarm, "status": "destroyed"}
    assert wire.fault("swarm_status", swarmId=swarm)["code"] == -32001
    assert wire.fault("task_status", taskId=task)["code"] == -32003
    assert wire.fault("agent_terminate", agentId=agents[0])["code"] == -32002
    assert children(server, ".py") == []
    with environment(client_environment(verbs.home)):
        assert [row for row in verbs.run("ps").rows if len(row) > 2] == []  # only its worker


def test_an_agent_that_could_do_nothing_does_not_join(wire: Wire) -> None:
    swarm, _ = wire.swarm("mesh")
    for kind, words in (
        ("optimizer", "agent idle follows a playbook, and has no steps"),
        ("thinker", "agent model: "),
        ("loser", "tool small.none, which does not exist"),
        ("baddy", "agent bad: settings.steps.0.id"),
    ):
        fault = wire.fault("agent_spawn", swarmId=swarm, type=kind)
        assert (fault["code"], fault["data"]["field"]) == (-32005, "type")
        assert words in fault["data"]["message"], fault
    assert wire.ask("swarm_status", swarmId=swarm)["activeAgents"] == 0


def test_the_persons_limit_is_above_what_clients_want(home: Path) -> None:
    verbs = RunVerbs(home, TEXT.replace("[engine]", "[swarm]\nmax_agents = 2\n[engine]"))
    with served(verbs) as server, Wire(server.port) as wire:
        assert wire.ask("swarm_init", topology="mesh")["maxAgents"] == 2
        fault = wire.fault("swarm_init", topology="mesh", maxAgents=3)
        assert fault["data"] == {
            "field": "maxAgents",
            "message": "Must be at most 2: swarm.max_agents of the configuration",
        }
