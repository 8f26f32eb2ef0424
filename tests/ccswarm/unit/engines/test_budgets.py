"""Every budget of every kind ends what it is for, keeps what was done, and says whose it was."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from ccswarm.engines.base import Flow
from ccswarm.models import CallRequest, RunStatus
from ccswarm.swarm.agent import STOP
from ccswarm.swarm.time_budgets import TimeBudgets, TimeLeft
from tests.ccswarm.support.llm_agents import finish, llm_worker, plan, recorded, reply
from tests.ccswarm.support.swarms import Hanging, MemoryWorker, settings, steps
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

LOOK: tuple[str, dict[str, str]] = ("srv.look", {})
PRICE = {"input": 1_000_000.0, "output": 1_000_000.0}
"""A dollar for each token."""
CAPS: dict[str, float] = {"calls": 2, "tokens": 25, "dollars": 25.0, "seconds": 0.5}


def budgeted(given: dict[str, Any], where: str, budget: Mapping[str, float]) -> dict[str, Any]:
    """A plan with that budget of its first agent, its first task, or the run."""
    target = {"agent": given["agents"][0], "task": given["tasks"][0], "run": given.setdefault("swarm", {})}[where]
    target["budget"] = dict(budget)
    return given


def hanging(made: MemoryWorker, *, after: int) -> list[str]:
    """``srv.look`` answers so often, then never; which of its calls were cancelled."""
    cancelled: list[str] = []
    asked: list[str] = []
    never = asyncio.Event()

    async def look(request: CallRequest) -> Mapping[str, Any]:
        asked.append(request.step_id)
        if len(asked) > after:
            try:
                await never.wait()
            finally:
                cancelled.append(request.step_id)
        return {"found": 1}

    made.tool("srv.look", look)
    return cancelled


@pytest.mark.parametrize("amount", list(CAPS))
@pytest.mark.parametrize("where", ["agent", "task", "run"])
async def test_each_budget_of_each_kind_ends_what_it_is_for(where: str, amount: str) -> None:
    made = llm_worker()
    cancelled = hanging(made, after=1 if amount == "seconds" else 1000)
    thinks = recorded(*[reply(LOOK, input_tokens=5, output_tokens=5) for _ in range(9)], reply(finish()), price=PRICE)
    given = plan(thinks)
    given["agents"].append({"name": "bob", "grants": ["*"]})
    made.tool("srv.do", exit_code=0)
    given["tasks"] += [{"id": "other", "agent": "bob", "needs": [], "steps": steps("x")}]
    given["tasks"][0]["agent"] = "ada"
    done = await made.run(budgeted(given, where, {amount: CAPS[amount]}))
    task = done.result["tasks"]["t"]
    if (where, amount) == ("run", "seconds"):
        assert (done.result["status"], task["status"]) == ("budget_exhausted", "failed")
        assert task["summary"] == "stopped: the seconds of the run (0.5) are used up"
    else:
        assert (done.result["status"], task["status"], task["scope"]) == ("budget_exhausted", "budget_exhausted", where)
        assert task["summary"].startswith(f"the {where}'s {amount} are used up, ")
    assert cancelled == (["turn2.call2"] if amount == "seconds" else [])
    if where != "run":
        assert done.result["tasks"]["other"]["status"] == "succeeded", "it is nobody else's"


async def test_the_seconds_of_a_task_are_those_of_all_its_tries() -> None:
    made = MemoryWorker()
    cancelled = hanging(made, after=1)
    made.tool("srv.fail", exit_code=1)
    both = [*steps("one", tool="srv.look"), *steps("two", tool="srv.fail")]
    task = {"id": "a", "steps": both, "retry": {"times": 5, "seconds": 0}, "budget": {"seconds": 0.3}}
    found = (await made.run({"tasks": [task]})).result["tasks"]["a"]
    assert (found["status"], found["attempts"]) == ("budget_exhausted", 2)
    assert cancelled == ["one"]
    assert made.engine.store.used["run_1.a"]["seconds"] >= 0.3


async def test_the_seconds_of_an_agent_are_those_of_all_its_tasks() -> None:
    made = MemoryWorker()
    hanging(made, after=0)
    first = {"id": "a", "steps": steps("one", tool="srv.look"), "timeout_seconds": 0.3}
    second = {"id": "b", "steps": steps("two", tool="srv.look")}
    given = {"tasks": [first, second], "agents": [{"name": "ada", "grants": ["*"], "budget": {"seconds": 0.2}}]}
    tasks = (await made.run(given)).result["tasks"]
    assert tasks["a"]["summary"] == "the agent's seconds are used up, while it ran"
    assert tasks["b"]["summary"] == "the agent's seconds are used up, before it started"
    assert made.ran == ["one"]


@pytest.mark.parametrize("where", ["agent", "task"])
async def test_gates_and_reviews_are_within_the_seconds_of_a_task(where: str) -> None:
    made = MemoryWorker()
    made.tool("srv.do", exit_code=0)
    cancelled = hanging(made, after=0)
    for checks in (
        {"gates": [{"tool": "srv.look"}]},
        {"review": {"by": ["bob"], "steps": steps("see", tool="srv.look")}},
    ):
        task = {"id": "a", "agent": "ada", "steps": steps("work"), **checks}
        agents = [{"name": name, "grants": ["*"]} for name in ("ada", "bob")]
        given = budgeted({"agents": agents, "tasks": [task]}, where, {"seconds": 0.3})
        done = await made.run(given, f"run_{'gates' if 'gates' in checks else 'review'}")
        found = done.result["tasks"]["a"]
        assert found["summary"] == f"the {where}'s seconds are used up, while it ran"
        assert found["result"]["steps"]["work"]["exit_code"] == 0, "what was done is kept"
    assert cancelled == ["gate1.0", "see"]


async def test_a_task_whose_review_goes_on_can_be_stopped() -> None:
    made = MemoryWorker()
    made.tool("srv.do", exit_code=0)
    cancelled = hanging(made, after=0)
    reached = asyncio.Event()
    look = made.task_worker.acts["srv.look"]

    async def seen(request: CallRequest) -> Any:
        reached.set()
        return await look(request)

    made.tool("srv.look", seen)
    review = {"by": ["bob"], "steps": steps("see", tool="srv.look")}
    agents = [{"name": name, "grants": ["*"]} for name in ("ada", "bob")]
    given = {"agents": agents, "tasks": [{"id": "a", "agent": "ada", "steps": steps("work"), "review": review}]}
    async with made.working(), asyncio.timeout(BOUND_SECONDS):
        await made.swarm.submit(settings(given), "run_1", "/project")
        await reached.wait()
        await made.engine.send("run_1.a", STOP, "enough")
        done = await made.engine.wait("run_1")
    assert (done.result["tasks"]["a"]["status"], cancelled) == ("failed", ["see"])
    assert done.result["tasks"]["a"]["summary"] == "stopped: enough"


async def test_a_second_process_counts_the_time_of_the_first() -> None:
    made = MemoryWorker()
    hang = Hanging()
    made.tool("srv.do", hang)
    given = settings({"tasks": [{"id": "a", "steps": steps("one"), "budget": {"seconds": 0.3}}]})
    async with made.working(), asyncio.timeout(BOUND_SECONDS):
        await made.swarm.submit(given, "run_1", "/project")
        await hang.called.wait()
        made.engine.kill()
    other = MemoryWorker(made.engine.store, "two")
    other.tool("srv.do", hang)
    async with other.working("other"), asyncio.timeout(BOUND_SECONDS):
        done = await other.engine.wait("run_1")
    assert done.result["tasks"]["a"]["status"] == RunStatus.EXHAUSTED
    assert other.engine.store.used["run_1.a"]["seconds"] >= 0.3


async def test_a_task_has_its_time_once_for_visits_gates_and_reviews_together() -> None:
    made = MemoryWorker()
    made.tool("srv.do", exit_code=0)
    made.tool("srv.no", exit_code=1)
    cancelled = hanging(made, after=1)
    unmet = [{"tool": "srv.no", "expect": {"exit_code": 0}}]
    review = {"by": ["bob"], "steps": steps("see", tool="srv.look")}
    agents = [{"name": name, "grants": ["*"]} for name in ("ada", "bob")]
    for name, parts in {
        "rounds": {"steps": steps("one", tool="srv.look"), "rounds": 5, "gates": unmet},
        "gates": {"steps": steps("one"), "gates": [{"tool": "srv.look"}]},
        "review": {"steps": steps("one"), "review": review},
    }.items():
        task = {"id": "a", "agent": "ada", "timeout_seconds": 0.3, **parts}
        found = (await made.run({"agents": agents, "tasks": [task]}, f"run_{name}")).result["tasks"]["a"]
        assert (found["status"], found["summary"]) == ("failed", "not done within 0.3 s")
    assert cancelled == ["one@2", "gate1.0", "see"]


class Clock:
    """A flow in which nothing happens but that the time is what it is."""

    def __init__(self, *times: float) -> None:
        self._times = iter(times)

    async def step(self, *_: object, **__: object) -> float:
        return next(self._times)


async def test_while_a_person_is_asked_about_the_merge_an_attempt_has_its_time() -> None:
    time = TimeBudgets(cast("Flow", Clock(0, 10, 10, 5000, 5030)), [], 100)
    assert (await time.left(), await time.left()) == (TimeLeft("", 100, 100), TimeLeft("", 90, 100))
    assert (await time.left(attempt=False), await time.left(attempt=False)) == (None, None)
    assert await time.left() == TimeLeft("", 60, 100)
