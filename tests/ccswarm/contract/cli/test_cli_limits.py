"""``[engine] at_once``, ``starts`` and ``period_seconds``, from the configuration to what is called when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ccswarm.support.runs import SERVERS, RunVerbs, step, task
from tests.ccswarm.support.verbs import agent

if TYPE_CHECKING:
    from pathlib import Path

QUICK = "[engine]\npoll_seconds = 0.05\nheartbeat_seconds = 0.3\n"
NAMES = ("ada", "bob", "cy")
CREW = "".join(agent(name, "small.*") for name in NAMES)
THREE = "".join(task(f"t{name}", step("one"), step("two"), more=f'agent = "{name}"') for name in NAMES)
MEET = "".join(
    task(
        f"t{name}",
        '[[tasks.steps]]\nid = "m"\ntool = "small.meet"\nargs = { together = 3 }\n',
        more=f'agent = "{name}"',
    )
    for name in NAMES
)
PARTS = """
[[agents]]
name = "hub"
type = "coordinator"
grants = ["swarm.*"]
[[tasks]]
id = "main"
agent = "hub"
review = { by = ["cy"], steps = [{ id = "s", tool = "small.echo", args = { text = "s" } }] }
[[tasks.steps]]
id = "hand"
tool = "swarm.delegate"
[[tasks.steps.args.tasks]]
id = "part"
text = "do it"
agent = "ada"
steps = [{ id = "s", tool = "small.echo", args = { text = "s" } }]
"""
PARALLEL = '[swarm]\nstrategy = "parallel"\ntopology = "star"\n'


@pytest.fixture
def verbs(home: Path) -> RunVerbs:
    return RunVerbs(home)


def configured(verbs: RunVerbs, engine: str, tasks: str) -> None:
    verbs.rewrite(f"{QUICK}{engine}\n{PARALLEL}{SERVERS}{CREW}{tasks}")


def begun(verbs: RunVerbs) -> list[tuple[str, float]]:
    """The tasks of the last run's calls and when each was begun."""
    return [(one["task"], one["at"]) for one in verbs.lines("logs", "last", "--json") if one["event"] == "call.begin"]


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.torture)])
def test_tasks_go_on_one_at_a_time_until_that_is_not_wanted_any_more(verbs: RunVerbs, again: bool) -> None:
    configured(verbs, "at_once = 1", THREE)
    assert verbs.result("run")["status"] == "succeeded"
    tasks = [name for name, _ in begun(verbs)]
    assert [tasks[at] == tasks[at + 1] for at in (0, 2, 4)] == [True] * 3, tasks
    if again:
        configured(verbs, "", MEET)
        assert verbs.result("run")["status"] == "succeeded", "all three have to be there at the same time"


@pytest.mark.torture  # test_engine.py: runs wait for tasks without taking their place
def test_parts_of_a_task_take_no_place_beside_it(verbs: RunVerbs) -> None:
    configured(verbs, "at_once = 1", PARTS)
    result = verbs.result("run")
    assert {name: one["status"] for name, one in result["tasks"].items()} == dict.fromkeys(
        ("main", "main.hand.part", "main.review1.cy"), "succeeded"
    )


@pytest.mark.torture  # test_engine_takeover.py: starts are spread over time
def test_no_more_tasks_start_in_a_time_than_configured(verbs: RunVerbs) -> None:
    configured(verbs, "starts = 1\nperiod_seconds = 0.7", THREE)
    assert verbs.result("run")["status"] == "succeeded"
    [began] = [one["at"] for one in verbs.lines("logs", "last", "--json") if one["event"] == "run.started"]
    assert max(dict(reversed(begun(verbs))).values()) - began > 1.2
