"""Runs and tasks on an engine in memory: order, retries, gates, approvals, budgets, takeover."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from ccswarm.errors import AnsweredAlready, ConfigInvalid, PlanInvalid, QuestionNotFound, RunNotFound, UsageInvalid
from ccswarm.models import CallOutcome, CallRequest, CallStatus, RunStatus
from tests.ccswarm.support.engine_double import MemoryStore
from tests.ccswarm.support.swarms import Hanging, MemoryWorker, settings, steps
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio


async def test_tasks_run_by_their_needs_and_hand_results_on() -> None:
    worker = MemoryWorker()
    worker.tool("srv.count", exit_code=0, lines=7)

    async def report(request: CallRequest) -> Mapping[str, Any]:
        return {"said": request.arguments["text"]}

    worker.tool("srv.report", report)
    done = await worker.run(
        {
            "agents": [{"name": "ada", "grants": ["*"]}, {"name": "bob", "grants": ["*"]}],
            "tasks": [
                {
                    "id": "tell",
                    "needs": ["count"],
                    "agent": "ada",
                    "steps": steps("say", tool="srv.report", args={"text": "${needs.count.steps.c.lines} lines"}),
                },
                {"id": "count", "agent": "bob", "steps": [{"id": "c", "tool": "srv.count"}]},
            ],
        }
    )
    assert done.result["status"] == "succeeded"
    tasks = done.result["tasks"]
    assert tasks["tell"]["result"]["steps"]["say"]["said"] == "7 lines"
    assert {name: (one["status"], one["agent"]) for name, one in tasks.items()} == {
        "tell": ("succeeded", "ada"),
        "count": ("succeeded", "bob"),
    }
    assert [call.agent for call in worker.task_worker.calls] == ["bob", "ada"]
    assert worker.task_worker.calls[0].key != worker.task_worker.calls[1].key
    assert done.result["usage"] == {"calls": 2, "tokens": 0, "dollars": 0.0, "seconds": 2.0}
    assert [event["event"] for event in await worker.events()] == [
        "run.started",
        "task.started",
        "task.ended",
        "task.started",
        "task.ended",
        "run.ended",
    ]


async def test_a_failure_is_tried_again_and_what_needs_it_is_skipped() -> None:
    worker = MemoryWorker()
    worker.tool("srv.do", exit_code=3)
    done = await worker.run(
        {
            "tasks": [
                {"id": "a", "steps": steps("s"), "retry": {"times": 2, "seconds": 5}},
                {"id": "b", "steps": steps("t"), "needs": ["a"]},
            ]
        }
    )
    assert done.result["status"] == "failed"
    tasks = done.result["tasks"]
    assert (tasks["a"]["status"], tasks["a"]["attempts"]) == ("failed", 3)
    assert "exit code" in tasks["a"]["summary"]
    assert (tasks["b"]["status"], tasks["b"]["summary"]) == ("skipped", "it needs 'a', which is failed")
    assert worker.ran == ["s", "s", "s"]
    assert [seconds for _, seconds in worker.engine.store.slept] == [5.0, 10.0]
    assert [request.attempt for request in worker.task_worker.calls] == [1, 2, 3]
    assert len({request.key for request in worker.task_worker.calls}) == 3


async def test_a_second_process_goes_on_where_the_first_was_killed() -> None:
    worker = MemoryWorker()
    hang = Hanging()
    worker.tool("srv.do", exit_code=0)
    worker.tool("srv.slow", hang)
    plan = settings({"tasks": [{"id": "a", "steps": [*steps("one"), *steps("two", tool="srv.slow"), *steps("three")]}]})
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(plan, "run_1", "/project")
        await hang.called.wait()
        worker.engine.kill()
    other = MemoryWorker(worker.engine.store, "two")
    other.tool("srv.do", exit_code=0)
    other.tool("srv.slow", exit_code=0)
    async with other.working("other"), asyncio.timeout(BOUND_SECONDS):
        done = await other.engine.wait("run_1")
    assert done.result["status"] == "succeeded"
    assert (worker.ran, other.ran) == (["one", "two"], ["two", "three"])
    first, second = worker.task_worker.calls[1], other.task_worker.calls[0]
    assert first.key == second.key
    assert (first.claim, second.claim) == ("one", "one"), "the second process sees that another one began the call"
    assert other.task_worker.calls[1].claim == "two"


async def test_a_gate_that_fails_gives_the_work_back_until_it_holds() -> None:
    worker = MemoryWorker()
    worker.tool("srv.do", exit_code=0)
    worker.tool("ai-session.create_session", session_id="ses_1")
    worker.tool("ai-session.close_session", closed=True)
    codes = iter([1, 0])

    async def check(_: CallRequest) -> Mapping[str, Any]:
        return {"exit_code": next(codes), "status": "finished", "output": "1 failed"}

    worker.tool("ai-session.execute_command", check)
    done = await worker.run(
        {"tasks": [{"id": "a", "steps": steps("work"), "gates": [{"command": "make test"}], "rounds": 3}]}
    )
    assert done.result["status"] == "succeeded"
    assert [request.tool for request in worker.task_worker.calls if request.agent == "ada"] == ["srv.do", "srv.do"]
    checks = [request for request in worker.task_worker.calls if request.tool.endswith("execute_command")]
    assert [request.arguments["command"] for request in checks] == ["make test"] * 2
    assert {request.agent for request in checks} == {"orchestrator"}
    assert worker.task_worker.calls[1].arguments["working_directory"] == "/project"
    (failed,) = [event for event in await worker.events("run_1.a") if event["event"] == "gate.failed"]
    assert failed["said"].startswith("gate `make test`: expected exit code 0, got 1 (status finished)\n")
    assert failed["said"].count("1 failed") == 1
    closed = [request for request in worker.task_worker.calls if request.tool.endswith("close_session")]
    assert len({request.arguments["session_id"] for request in closed}) == 2


async def test_a_gate_that_never_holds_fails_the_task_with_what_it_said() -> None:
    worker = MemoryWorker()
    worker.tool("srv.do", exit_code=0)
    worker.tool("srv.judge", exit_code=1)
    gate = {"tool": "srv.judge", "expect": {"exit_code": 0}}
    done = await worker.run({"tasks": [{"id": "a", "steps": steps("work"), "gates": [gate], "rounds": 2}]})
    assert done.result["tasks"]["a"]["status"] == "failed"
    assert done.result["tasks"]["a"]["summary"].startswith("gate `srv.judge`: expected exit code 0, got 1")
    assert [request.tool for request in worker.task_worker.calls] == ["srv.do", "srv.judge"] * 2


async def test_a_gates_command_is_waited_for_as_long_as_it_may_take() -> None:
    worker = MemoryWorker()
    worker.tool("srv.do", exit_code=0)
    worker.tool("ai-session.create_session", session_id="ses_1")
    worker.tool("ai-session.close_session", closed=True)
    worker.tool("ai-session.execute_command", status="running")
    answers = iter([{"status": "running"}, {"status": "finished", "exit_code": 0}])

    async def wait(_: CallRequest) -> Mapping[str, Any]:
        return next(answers)

    worker.tool("ai-session.read_output", wait)
    gate = {"command": "sleep 3", "timeout_seconds": 10}
    done = await worker.run({"tasks": [{"id": "a", "steps": steps("work"), "gates": [gate]}]})
    assert done.result["status"] == "succeeded"
    waits = [r.arguments["timeout_seconds"] for r in worker.task_worker.calls if "timeout_seconds" in r.arguments]
    assert waits == [10.0, 9.0, 8.0]


async def test_a_person_agrees_to_one_of_two_that_wait() -> None:
    worker = MemoryWorker()
    worker.tool("srv.do", exit_code=0)
    worker.task_worker.asks.add("srv.do")
    whats = {"ada": "ada", "bob": "bob" * 3000 + "bo"}
    tasks = [{"id": name, "agent": name, "steps": steps("s", args={"what": what})} for name, what in whats.items()]
    plan = settings({"agents": [{"name": name, "grants": ["*"]} for name in ("ada", "bob")], "tasks": tasks})
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(plan, "run_1", "/project")
        while len(asked := await worker.swarm.approvals()) < 2:
            await worker.engine.store.change()
        assert worker.task_worker.calls == []
        by_agent = {one["agent"]: one for one in asked}
        assert by_agent["ada"]["arguments"] == {"what": "ada"}
        assert by_agent["bob"]["arguments"]["what"] == "bob" * 2666 + "bo… (1002 more characters are not shown)"
        await worker.swarm.answer(by_agent["ada"]["id"], approved=True, by="me")
        await worker.swarm.answer(by_agent["bob"]["id"], approved=False, by="me", reason="too late")
        done = await worker.engine.wait("run_1")
        with pytest.raises(QuestionNotFound):
            await worker.swarm.answer(by_agent["bob"]["id"], approved=True, by="me")
        with pytest.raises(AnsweredAlready, match="already been answered: me refused: too late"):
            await worker.swarm.answer(by_agent["bob"]["id"], approved=True, by="you", task_id="run_1.bob")
    tasks = done.result["tasks"]
    assert (tasks["ada"]["status"], tasks["bob"]["status"]) == ("succeeded", "failed")
    assert "a person rejected srv.do: too late" in tasks["bob"]["summary"]
    (call,) = worker.task_worker.calls
    assert call.approval == by_agent["ada"]["id"]


async def test_of_people_who_answer_at_the_same_moment_one_is_told_that_it_counts() -> None:
    worker = MemoryWorker()
    worker.tool("srv.do", exit_code=0)
    worker.task_worker.asks.add("srv.do")
    async with asyncio.timeout(BOUND_SECONDS):
        async with worker.working():
            await worker.swarm.submit(settings({"tasks": [{"id": "a", "steps": steps("s")}]}), "run_1", "/project")
            while not (asked := await worker.swarm.approvals()):
                await worker.engine.store.change()
        words = [worker.swarm.answer(asked[0]["id"], approved=one > 1, by=f"p{one}") for one in range(4)]
        reported = await asyncio.gather(*words, return_exceptions=True)
        assert [str(one) for one in reported if one] == [f"{asked[0]['id']} has already been answered: p0 refused"] * 3
        async with worker.working():
            assert (await worker.engine.wait("run_1")).result["status"] == "failed"
    answers = [one async for one in worker.engine.events("run_1.a") if one["event"] == "approval.answered"]
    assert [(one["by"], one["approved"]) for one in answers] == [("p0", False)]


class Watched(MemoryStore):
    """Notes what a task shows from the moment on at which it has told that it asked."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def changed(self) -> None:
        super().changed()
        row = self.rows.get("run_1.a")
        if row and any("approval.asked" in event for event in row.events):
            self.shown.append(str(row.shown))


async def test_who_hears_of_a_question_may_answer_it_at_once() -> None:
    store = Watched()
    worker = MemoryWorker(store)
    worker.tool("srv.do", exit_code=0)
    worker.task_worker.asks.add("srv.do")
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(settings({"tasks": [{"id": "a", "steps": steps("s")}]}), "run_1", "/project")
        while not store.shown:
            await store.change()
        (asked,) = await worker.swarm.approvals()
        await worker.swarm.answer(asked["id"], approved=True, by="me")
        assert (await worker.engine.wait("run_1")).result["status"] == "succeeded"
    assert asked["id"] in store.shown[0]


@pytest.mark.parametrize(
    ("where", "whose", "status"),
    [
        ("swarm", "run", "budget_exhausted"),
        ("agent", "agent", "budget_exhausted"),
        ("task", "task", "budget_exhausted"),
    ],
)
async def test_a_budget_ends_what_it_is_for_and_keeps_what_was_done(where: str, whose: str, status: str) -> None:
    worker = MemoryWorker()
    worker.tool("srv.do", exit_code=0)
    budget = {"calls": 2}
    plan: dict[str, Any] = {
        "tasks": [{"id": "a", "steps": steps("one", "two", "three")}, {"id": "b", "steps": steps("x")}]
    }
    if where == "swarm":
        plan["swarm"] = {"budget": budget}
    elif where == "agent":
        plan["agents"] = [{"name": "ada", "grants": ["*"], "budget": budget}]
    else:
        plan["tasks"][0]["budget"] = budget
    done = await worker.run(plan)
    assert done.result["status"] == status
    exhausted = done.result["tasks"]["a"]
    assert exhausted["status"] == "budget_exhausted"
    assert exhausted["summary"] == f"the {whose}'s calls are used up, before three"
    assert exhausted["usage"]["calls"] == 2
    assert set(exhausted["result"]["steps"]) == {"one", "two"}
    assert worker.ran == ["one", "two"] + (["x"] if where == "task" else [])


async def test_the_time_of_a_run_and_of_a_task_is_bounded() -> None:
    worker = MemoryWorker()
    never = asyncio.Event()
    cancelled: list[str] = []

    async def hang(request: CallRequest) -> Mapping[str, Any]:
        try:
            await never.wait()
        finally:
            cancelled.append(request.step_id)
        return {}

    worker.tool("srv.do", hang)
    task = {"id": "a", "steps": steps("s"), "timeout_seconds": 0.05}
    done = await worker.run({"tasks": [task]})
    assert done.result["tasks"]["a"]["summary"] == "not done within 0.05 s"
    assert cancelled == ["s"]
    done = await worker.run(
        {"tasks": [{"id": "a", "steps": steps("s")}], "swarm": {"budget": {"seconds": 0.05}}}, "run_2"
    )
    assert done.result["status"] == "budget_exhausted"
    assert cancelled == ["s", "s"]


async def test_an_agent_that_may_not_do_it_fails_with_the_reason() -> None:
    worker = MemoryWorker()
    worker.tool("srv.do", exit_code=0)

    async def lost(_: CallRequest) -> CallOutcome:
        return CallOutcome(CallStatus.LOST, code="server_lost", message="the server ended")

    worker.tool("srv.gone", lost)
    done = await worker.run(
        {
            "tasks": [
                {"id": "a", "steps": steps("s", tool="other.tool")},
                {"id": "b", "steps": steps("t", tool="srv.gone")},
            ]
        }
    )
    assert "other.tool is not granted" in done.result["tasks"]["a"]["summary"]
    assert "the server ended" in done.result["tasks"]["b"]["summary"]
    assert done.result["status"] == "failed"


async def test_cancelled_and_paused_runs() -> None:
    worker = MemoryWorker()
    reached, go, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(_: CallRequest) -> Mapping[str, Any]:
        reached.set()
        try:
            await go.wait()
        except asyncio.CancelledError:
            stopped.set()
            raise
        return {"exit_code": 0}

    worker.tool("srv.do", slow)
    plan = settings({"tasks": [{"id": "a", "steps": steps("s", "t")}]})
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(plan, "run_1", "/project")
        await reached.wait()
        await worker.engine.pause("run_1")
        assert (await worker.engine.status("run_1")).status is RunStatus.PAUSED
        await stopped.wait()
        go.set()
        await worker.engine.resume("run_1")
        done = await worker.engine.wait("run_1")
        assert done.result["status"] == "succeeded"
        assert worker.ran == ["s", "s", "t"]
        reached.clear()
        go.clear()
        await worker.swarm.submit(plan, "run_2", "/project")
        await reached.wait()
        await worker.engine.cancel("run_2")
        assert (await worker.engine.wait("run_2")).status is RunStatus.CANCELLED


async def test_plans_that_are_none_are_refused() -> None:
    worker = MemoryWorker()
    with pytest.raises(PlanInvalid, match="no tasks"):
        await worker.swarm.submit(settings({}), "run_1", "/project")
    with pytest.raises(ConfigInvalid, match="needs an agent"):
        await worker.swarm.submit(settings({"agents": [], "tasks": [{"id": "a"}]}), "run_1", "/project")


async def test_what_did_not_succeed_is_done_again_in_a_new_run_with_the_results_of_what_did() -> None:
    worker = MemoryWorker()
    codes = {"a": 0, "b": 1, "c": 0}

    async def act(request: CallRequest) -> Mapping[str, Any]:
        return {"exit_code": codes[request.step_id], "by": request.run_id}

    worker.tool("srv.do", act)
    plan = {
        "tasks": [
            {"id": "a", "steps": steps("a")},
            {"id": "b", "steps": steps("b"), "needs": ["a"]},
            {"id": "c", "steps": steps("c", args={"from": "${needs.a.steps.a.by}"}), "needs": ["a", "b"]},
        ]
    }
    assert (await worker.run(plan)).result["status"] == "failed"
    codes["b"] = 0
    async with worker.working("second"), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.rerun("run_1", "run_2")
        done = await worker.engine.wait("run_2")
    assert done.result["status"] == "succeeded"
    assert worker.ran == ["a", "b", "b", "c"]
    assert worker.task_worker.calls[-1].arguments == {"from": "run_1"}
    assert done.result["tasks"]["a"]["result"]["steps"]["a"]["by"] == "run_1"
    assert done.result["usage"]["calls"] == 2
    (first, *_) = await worker.events("run_2")
    assert (first["continues"], first["done"]) == ("run_1", ["a"])
    with pytest.raises(UsageInvalid, match="succeeded"):
        await worker.swarm.rerun("run_2", "run_3")
    with pytest.raises(RunNotFound):
        await worker.swarm.rerun("run_9", "run_3")


async def test_no_step_is_taken_by_the_orchestrator_whose_grants_are_for_gates() -> None:
    worker = MemoryWorker()
    worker.tool("srv.judge", exit_code=0)
    gate = {"tool": "srv.judge", "expect": {"exit_code": 0}}
    done = await worker.run(
        {"tasks": [{"id": "a", "steps": steps("s", tool="srv.judge", agent="orchestrator"), "gates": [gate]}]}
    )
    assert done.result["status"] == "failed"
    assert "there is no agent orchestrator" in done.result["tasks"]["a"]["summary"]
    assert worker.task_worker.calls == []
