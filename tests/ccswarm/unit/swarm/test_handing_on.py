"""Work that agents hand on, and what others say of it: on an engine in memory, with the swarm's own server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from ccswarm.models import CallRequest
from tests.ccswarm.support.swarms import Hanging, MemoryWorker, settings, steps
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio
AGENTS = [{"name": name, "grants": ["*"]} for name in ("cleo", "ada", "bob")]
AGENTS[0] |= {"type": "coordinator"}


def world_of(*own: str) -> MemoryWorker:
    worker = MemoryWorker()
    worker.task_worker.own |= {"swarm.delegate", *own}
    return worker


def delegate(*tasks: Mapping[str, Any], name: str = "hand", **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "tool": "swarm.delegate",
        "args": {"tasks": [{"text": "do it", **task} for task in tasks]},
        **more,
    }


def plan(*given: Mapping[str, Any], **swarm: Any) -> dict[str, Any]:
    task = {"id": "main", "agent": "cleo", "steps": list(given)}
    return {"swarm": {"topology": "star", **swarm}, "agents": AGENTS, "tasks": [task]}


async def test_a_coordinator_has_others_work_and_goes_on_with_what_they_found() -> None:
    worker = world_of()

    async def count(request: CallRequest) -> Mapping[str, Any]:
        return {"lines": len(request.agent)}

    async def say(request: CallRequest) -> Mapping[str, Any]:
        return {"said": request.arguments["text"]}

    worker.tool("srv.count", count)
    worker.tool("srv.say", say)
    one = {"id": "one", "steps": steps("c", tool="srv.count")}
    two = {"id": "two", "needs": ["one"], "agent": "bob"}
    two["steps"] = steps("c", tool="srv.say", args={"text": "$${needs.one.steps.c.lines}"})
    text = "${steps.hand.tasks.one.result.steps.c.lines} by ${steps.hand.tasks.one.agent}"
    done = await worker.run(plan(delegate(one, two), *steps("tell", tool="srv.say", args={"text": text})))
    assert done.result["status"] == "succeeded", done.result
    found = done.result["tasks"]["main"]["result"]["steps"]
    assert found["tell"]["said"] == "3 by ada"
    assert found["hand"]["tasks"]["two"]["result"]["steps"]["c"]["said"] == 3
    assert [(call.agent, call.step_id) for call in worker.task_worker.calls] == [
        ("cleo", "hand"),
        ("ada", "c"),
        ("bob", "c"),
        ("cleo", "tell"),
    ]
    assert {call.run_id for call in worker.task_worker.calls} == {"run_1"}
    assert done.result["usage"]["calls"] == 4
    events = [(event["event"], event.get("run")) for event in await worker.events("run_1.main")]
    assert events == [("work.handed_on", "run_1.main.hand"), ("work.came_back", "run_1.main.hand")]
    assert next(iter(await worker.events("run_1.main.hand")))["event"] == "run.started"
    stored = {name: row.payload for name, row in worker.engine.store.rows.items()}
    assert len(stored) == 5
    assert [name for name, payload in stored.items() if '"grants"' in payload] == ["run_1"], "the crew is kept once"


async def test_work_goes_only_to_whom_the_agent_may_write() -> None:
    worker = world_of()
    worker.tool("srv.do")
    back = delegate({"id": "up", "agent": "bob", "steps": steps("s")}, name="sideways", gate=False)
    down = delegate({"id": "down", "agent": "ada", "steps": [back]})
    done = await worker.run(plan(down))
    step = done.result["tasks"]["main"]["result"]["steps"]["hand"]
    assert step["tasks"]["down"]["status"] == "failed"
    assert "is for agent bob, which does not exist" in step["tasks"]["down"]["summary"]
    assert [call.agent for call in worker.task_worker.calls] == ["cleo", "ada"]


async def test_how_deep_work_is_handed_on_is_bounded() -> None:
    worker = world_of()
    worker.tool("srv.do")
    deepest = delegate({"id": "d3", "steps": steps("s")})
    middle = delegate({"id": "d2", "steps": [deepest]})
    done = await worker.run({**plan(delegate({"id": "d1", "steps": [middle]})), "swarm": {"topology": "mesh"}})
    shown = done.result["tasks"]["main"]["result"]["steps"]["hand"]["tasks"]["d1"]["result"]["steps"]["hand"]
    assert "spawn_depth is 2" in shown["tasks"]["d2"]["summary"]
    assert len(worker.task_worker.calls) == 3


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([], "0 tasks"),
        ([{"id": "a", "text": "x", "needs": ["b"], "steps": steps("s")}], "needs b, which does not exist"),
        ([{"id": "a", "text": "x"}], "has no steps"),
        ([{"id": "a b", "text": "x", "steps": steps("s")}], "id"),
        ([{"id": "a", "text": "x", "colour": 1, "steps": steps("s")}], "colour"),
        ([{"id": "a", "agent": "cleo", "steps": steps("s")}], "is for agent cleo, which does not exist"),
        (
            [{"id": name, "needs": [need], "steps": steps("s")} for name, need in ("ab", "ba")],
            "a → b → a wait for each other",
        ),
    ],
)
async def test_work_that_cannot_be_done_is_not_handed_on(tasks: list[Any], said: str) -> None:
    worker = world_of()
    worker.tool("srv.do")
    done = await worker.run(plan({"id": "hand", "tool": "swarm.delegate", "args": {"tasks": tasks}}))
    assert done.result["status"] == "failed"
    assert said in done.result["tasks"]["main"]["summary"]
    assert len(worker.task_worker.calls) == 1


async def test_what_is_handed_on_uses_the_budgets_of_the_run() -> None:
    worker = world_of()
    worker.tool("srv.do")
    work = delegate({"id": "long", "agent": "ada", "steps": steps("a", "b", "c", "d")})
    done = await worker.run(plan(work, budget={"calls": 3}))
    assert done.result["status"] == "budget_exhausted"
    assert worker.ran == ["hand", "a", "b"]
    assert done.result["usage"]["calls"] == 3


async def test_what_is_handed_on_uses_the_budgets_of_the_tasks_above() -> None:
    worker = world_of()
    worker.tool("srv.do")
    inner = delegate({"id": "deep", "agent": "bob", "steps": steps("a", "b", "c")}, name="on")
    given = plan(delegate({"id": "next", "agent": "ada", "steps": [inner]}), topology="mesh")
    given["tasks"][0]["budget"] = {"calls": 4}
    done = await worker.run(given)
    assert worker.ran == ["hand", "on", "a", "b"]
    assert done.result["status"] == "failed"
    deep = await worker.engine.status("run_1.main.hand.next.on.deep")
    assert deep.result["summary"] == "the task's calls are used up, before c"


async def test_who_is_stopped_stops_those_who_work_for_it() -> None:
    worker = world_of()
    hang = Hanging()
    worker.tool("srv.slow", hang)
    given = settings(plan(delegate({"id": "long", "steps": steps("s", tool="srv.slow")})))
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(given, "run_1", "/project")
        await hang.called.wait()
        await worker.engine.send("run_1.main", "stop", "enough")
        done = await worker.engine.wait("run_1")
    assert done.result["tasks"]["main"]["summary"] == "stopped: enough"
    inner = await worker.engine.status("run_1.main.hand")
    assert (inner.status.over, inner.result["status"]) == (True, "cancelled")
    assert inner.result["tasks"]["long"]["summary"] == "stopped: enough"


async def test_a_second_process_goes_on_with_what_was_handed_on() -> None:
    worker = world_of()
    hang = Hanging()
    worker.tool("srv.do")
    worker.tool("srv.slow", hang)
    work = delegate({"id": "long", "steps": [*steps("a"), *steps("b", tool="srv.slow")]})
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(settings(plan(work, *steps("after"))), "run_1", "/project")
        await hang.called.wait()
        worker.engine.kill()
    other = MemoryWorker(worker.engine.store, "two")
    other.task_worker.own = worker.task_worker.own
    other.tool("srv.do")
    other.tool("srv.slow")
    async with other.working("other"), asyncio.timeout(BOUND_SECONDS):
        await other.engine.recover("worker")
        done = await other.engine.wait("run_1")
    assert done.result["status"] == "succeeded", done.result
    assert (worker.ran, other.ran) == (["hand", "a", "b"], ["b", "after"])


def reviewed(*by: str, quorum: int = 0, rounds: int = 2) -> dict[str, Any]:
    review = {"by": list(by), "quorum": quorum, "steps": steps("look", tool="srv.look", expect={"exit_code": 0})}
    task = {"id": "main", "agent": "cleo", "steps": steps("work"), "rounds": rounds, "review": review}
    return {**plan(), "tasks": [task]}


async def judged(worker: MemoryWorker, answers: Mapping[str, list[int]], given: Mapping[str, Any]) -> Mapping[str, Any]:
    async def look(request: CallRequest) -> Mapping[str, Any]:
        return {"exit_code": answers[request.agent].pop(0)}

    worker.tool("srv.do")
    worker.tool("srv.look", look)
    return (await worker.run(given)).result


async def test_work_that_others_do_not_accept_is_done_again() -> None:
    worker = MemoryWorker()
    result = await judged(worker, {"ada": [1, 0], "bob": [0, 0]}, reviewed("ada", "bob"))
    assert result["status"] == "succeeded"
    assert sorted(worker.ran) == ["look"] * 4 + ["work", "work@2"]
    assert result["usage"]["calls"] == 6
    said = [event for event in await worker.events("run_1.main") if event["event"] == "review.said"]
    assert [(one["by"], one["accepted"]) for one in said] == [
        ("ada", False),
        ("bob", True),
        ("ada", True),
        ("bob", True),
    ]


async def test_work_that_is_never_accepted_fails_with_what_was_said() -> None:
    result = await judged(MemoryWorker(), {"ada": [1, 1]}, reviewed("ada"))
    assert result["status"] == "failed"
    assert result["tasks"]["main"]["summary"].startswith("review by ada: ")


async def test_as_many_as_a_quorum_are_enough() -> None:
    result = await judged(MemoryWorker(), {"ada": [1], "bob": [0]}, reviewed("ada", "bob", quorum=1, rounds=1))
    assert result["status"] == "succeeded"


async def test_what_is_handed_on_again_in_a_second_visit_is_done_again() -> None:
    worker = MemoryWorker()
    worker.task_worker.own.add("swarm.delegate")
    task = plan(delegate({"id": "part", "agent": "bob", "steps": steps("s")}))["tasks"][0]
    review = {"by": ["ada"], "steps": steps("look", tool="srv.look", expect={"exit_code": 0})}
    result = await judged(worker, {"ada": [1, 0]}, {**plan(), "tasks": [{**task, "rounds": 2, "review": review}]})
    assert result["status"] == "succeeded", result
    assert worker.ran == ["hand", "s", "look", "hand@2", "s", "look"]
    assert (await worker.engine.status("run_1.main.hand@2.part")).agent == "bob"


async def test_a_person_is_asked_again_in_a_second_round() -> None:
    worker = MemoryWorker()
    worker.task_worker.asks.add("srv.do")
    worker.tool("srv.do")
    worker.tool("srv.look", exit_code=0)
    given = reviewed("ada")
    given["tasks"][0]["review"]["steps"][0]["expect"] = {"exit_code": 1}
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(settings(given), "run_1", "/project")
        for reason in ("one", "two"):
            while not (asked := [one for one in await worker.swarm.approvals() if "answer" not in one]):
                await worker.engine.store.change()
            await worker.swarm.answer(asked[0]["id"], approved=True, by="me", reason=reason)
        await worker.engine.wait("run_1")
    answers = [event for event in await worker.events("run_1.main") if event["event"] == "approval.answered"]
    assert [one["reason"] for one in answers] == ["one", "two"]
    assert [call.step_id for call in worker.task_worker.calls if call.approval] == ["work", "work@2"]


async def test_reviews_use_the_budget_of_the_task() -> None:
    worker, given = MemoryWorker(), reviewed("ada", rounds=1)
    given["tasks"][0]["budget"] = {"calls": 1}
    result = await judged(worker, {"ada": [0]}, given)
    assert worker.ran == ["work"]
    assert result["tasks"]["main"]["summary"] == "review by ada: the task's calls are used up, before look"
