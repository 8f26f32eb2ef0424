"""What starts when: every history is allowed, and the same history gives the same order."""

from __future__ import annotations

import random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccswarm.config.settings import AgentSettings, Strategy, TaskSettings, Topology
from ccswarm.models import PRIORITIES, RunStatus
from ccswarm.plan.topology import Links
from ccswarm.swarm.scheduler import Placed, Scheduler

OVER = [RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.BLOCKED, RunStatus.CANCELLED, RunStatus.EXHAUSTED]


def agents(count: int, **more: Any) -> list[AgentSettings]:
    return [AgentSettings(name=f"a{number}", **more) for number in range(count)]


def scheduler(
    tasks: list[TaskSettings],
    team: list[AgentSettings],
    strategy: Strategy = "parallel",
    topology: Topology = "mesh",
    most: int = 100,
) -> Scheduler:
    return Scheduler(tasks, team, Links(topology, team), strategy, most)


def names(placed: list[Placed]) -> list[str]:
    return [one.task_id for one in placed]


def test_priority_before_order_and_needs_before_both() -> None:
    tasks = [
        TaskSettings(id="last", priority="critical", needs=("a", "b")),
        TaskSettings(id="a", priority="low"),
        TaskSettings(id="b"),
        TaskSettings(id="c", priority="high"),
        TaskSettings(id="d", priority="high"),
    ]
    one = scheduler(tasks, agents(1))
    seen: list[str] = []
    while placed := one.start():
        seen += names(placed)
        one.ended(placed[0].task_id, RunStatus.SUCCEEDED)
    assert seen == ["c", "d", "b", "a", "last"]
    assert one.done


def test_a_task_waits_for_the_agent_it_names_while_others_overtake_it() -> None:
    tasks = [TaskSettings(id=name, agent="a0") for name in "xy"] + [TaskSettings(id="z", priority="low")]
    one = scheduler(tasks, agents(2))
    assert one.start() == [Placed("x", "a0"), Placed("z", "a1")]
    one.ended("z", RunStatus.SUCCEEDED)
    assert one.start() == []
    one.ended("x", RunStatus.SUCCEEDED)
    assert one.start() == [Placed("y", "a0")]


def test_types_and_capabilities_choose_the_agent() -> None:
    team = [
        AgentSettings(name="ada", type="coder", capabilities=("python",)),
        AgentSettings(name="dan", type="analyst", capabilities=("python", "sql")),
    ]
    tasks = [
        TaskSettings(id="query", capabilities=("sql",)),
        TaskSettings(id="code", type="coder", capabilities=("python",)),
        TaskSettings(id="fly", capabilities=("wings",)),
        TaskSettings(id="land", needs=("fly",)),
    ]
    one = scheduler(tasks, team)
    assert one.start() == [Placed("query", "dan"), Placed("code", "ada")]
    assert one.reasons == {"fly": "no agent is able to wings", "land": "it needs 'fly', which is skipped"}


@pytest.mark.parametrize("status", OVER[1:])
def test_what_needs_one_that_did_not_succeed_is_skipped_and_the_rest_goes_on(status: RunStatus) -> None:
    tasks = [
        TaskSettings(id="a"),
        TaskSettings(id="b", needs=("a",)),
        TaskSettings(id="c", needs=("b",)),
        TaskSettings(id="d"),
    ]
    one = scheduler(tasks, agents(1))
    one.start()
    one.ended("a", status)
    assert names(one.start()) == ["d"]
    one.ended("d", RunStatus.SUCCEEDED)
    assert one.done
    assert one.counts() == {status: 1, "skipped": 2, "succeeded": 1}
    assert one.reasons == {"b": f"it needs 'a', which is {status}", "c": "it needs 'b', which is skipped"}


def test_sequential_is_one_at_a_time_and_adaptive_slows_down_after_failures() -> None:
    tasks = [TaskSettings(id=f"t{number}") for number in range(20)]
    assert len(scheduler(tasks, agents(4), "sequential").start()) == 1
    one = scheduler(tasks, agents(4), "adaptive")
    first = names(one.start())
    assert len(first) == 4
    one.ended(first[0], RunStatus.FAILED)
    assert one.start() == []
    one.ended(first[1], RunStatus.FAILED)
    one.ended(first[2], RunStatus.FAILED)
    one.ended(first[3], RunStatus.SUCCEEDED)
    assert len(one.start()) == 2


def test_a_ring_hands_work_on() -> None:
    one = scheduler([TaskSettings(id=f"t{number}") for number in range(5)], agents(3), "sequential", "ring")
    seen: list[str] = []
    while placed := one.start():
        seen.append(placed[0].agent)
        one.ended(placed[0].task_id, RunStatus.SUCCEEDED)
    assert seen == ["a0", "a1", "a2", "a0", "a1"]


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[TaskSettings], list[AgentSettings]]:
    kinds = st.sampled_from(["coder", "analyst"])
    team = [AgentSettings(name=f"a{n}", type=draw(kinds)) for n in range(draw(st.integers(1, 4)))]
    tasks: list[TaskSettings] = []
    for number in range(draw(st.integers(0, 12))):
        needs = draw(st.sets(st.integers(0, number - 1))) if number else set[int]()
        tasks.append(
            TaskSettings(
                id=f"t{number}",
                needs=tuple(f"t{n}" for n in sorted(needs)),
                priority=draw(st.sampled_from(PRIORITIES)),
                agent=draw(st.sampled_from([None, *(agent.name for agent in team)])),
                type=draw(st.one_of(st.none(), kinds)),
            )
        )
    return draw(st.permutations(tasks)), team


def carried_out(
    tasks: list[TaskSettings], team: list[AgentSettings], strategy: Strategy, topology: Topology, most: int, seed: int
) -> list[Placed]:
    """Ends what goes on in any order with any status, and checks every promise on the way."""
    chance, one = random.Random(seed), scheduler(tasks, team, strategy, topology, most)
    needs = {task.id: task.needs for task in tasks}
    going: dict[str, str] = {}
    history: list[Placed] = []
    while not one.done:
        for placed in one.start():
            assert placed.agent not in going.values()
            assert all(one.statuses[need] is RunStatus.SUCCEEDED for need in needs[placed.task_id])
            going[placed.task_id] = placed.agent
            history.append(placed)
        assert len(going) <= min(most, 1 if strategy == "sequential" else most)
        assert going, "nothing goes on, and it is not done"
        ended = chance.choice(sorted(going))
        del going[ended]
        one.ended(ended, chance.choice([*OVER, RunStatus.SUCCEEDED, RunStatus.SUCCEEDED]))
    assert all(status.over for status in one.statuses.values())
    assert len({placed.task_id for placed in history}) == len(history)
    assert one.reasons.keys() == {name for name, status in one.statuses.items() if status is RunStatus.SKIPPED}
    return history


@given(
    plans(), st.sampled_from(get_args(Strategy)), st.sampled_from(get_args(Topology)), st.integers(1, 6), st.integers()
)
def test_every_history_ends_and_keeps_every_promise(
    plan: tuple[list[TaskSettings], list[AgentSettings]], strategy: Strategy, topology: Topology, most: int, seed: int
) -> None:
    once = carried_out(*plan, strategy, topology, most, seed)
    assert carried_out(*plan, strategy, topology, most, seed) == once
