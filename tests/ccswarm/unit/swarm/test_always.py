"""Steps that are carried out always: once each, wherever their process is killed, and however the task ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from ccswarm.models import CallOutcome, CallRequest, CallStatus, RunStatus
from tests.ccswarm.support.playbooks import BROKEN, run, step, task
from tests.ccswarm.support.swarms import MemoryWorker, settings, steps
from tests.ccswarm.unit.swarm.test_handing_on import delegate, plan, world_of
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio
CLOSING = steps("close", "tell", always=True)
WORK: list[dict[str, Any]] = [*steps("open"), *steps("work", tool="srv.fail"), *steps("more"), *CLOSING]


class HangingTool:
    """A tool that hangs at one step until it is released."""

    def __init__(self, worker: MemoryWorker, step_id: str, tool: str = "srv.do", **answer: Any) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self.left = asyncio.Event()

        async def act(request: CallRequest) -> Mapping[str, Any]:
            if request.step_id == step_id:
                self.reached.set()
                try:
                    await self.go.wait()
                finally:
                    self.left.set()
            return answer

        worker.tool(tool, act)


def tools(worker: MemoryWorker) -> MemoryWorker:
    worker.tool("srv.do", exit_code=0)
    worker.tool("srv.fail", exit_code=3)
    return worker


@pytest.mark.parametrize("where", ["open", "work", "close", "tell"])
async def test_killed_at_any_step_each_is_carried_out_once(where: str) -> None:
    worker, other = tools(MemoryWorker()), tools(MemoryWorker(process="two"))
    held = HangingTool(
        worker, where, *(("srv.fail",) if where == "work" else ()), exit_code=3 if where == "work" else 0
    )
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(settings({"tasks": [{"id": "a", "steps": WORK}]}), "run_1", "/project")
        await held.reached.wait()
        worker.engine.kill()
    other = tools(MemoryWorker(worker.engine.store, "two"))
    async with other.working("other"), asyncio.timeout(BOUND_SECONDS):
        done = await other.engine.wait("run_1")
    made = ["open", "work", "close", "tell"]
    assert (worker.ran, other.ran) == (made[: made.index(where) + 1], made[made.index(where) :])
    assert len({call.key for call in (*worker.task_worker.calls, *other.task_worker.calls)}) == len(made)
    assert done.result["tasks"]["a"]["summary"].endswith("; skipped: more")


@pytest.mark.parametrize("how", ["cancel", "pause", "stop", "calls", "seconds"])
@pytest.mark.parametrize("where", ["open", "close"])
async def test_of_a_run_that_is_ended_nothing_more_is_called_and_what_was_paused_goes_on(where: str, how: str) -> None:
    worker = tools(MemoryWorker())
    held, names = HangingTool(worker, where, exit_code=0), ["open", "work", "close", "tell"]
    before = names.index(where)
    budget = {"calls": {"calls": before + 1}, "seconds": {"seconds": 0.05}}.get(how, {})
    given = settings({"tasks": [{"id": "a", "steps": WORK, "budget": budget}]})
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(given, "run_1", "/project")
        if how != "seconds":  # which may be over before that step begins
            await held.reached.wait()
        if how == "pause":
            await worker.engine.pause("run_1")
            await held.left.wait()
            held.go.set()
            await worker.engine.resume("run_1")
        elif how == "cancel":
            await worker.engine.cancel("run_1")
        elif how == "stop":
            await worker.engine.send("run_1.a", "stop", "enough")
        elif how == "calls":
            held.go.set()
        done = await worker.engine.wait("run_1")
    if how == "pause":
        assert worker.ran == [*names[: before + 1], *names[before:]]
        assert len({call.key for call in worker.task_worker.calls}) == len(names)
        return
    assert worker.ran == names[: before + 1 if how != "seconds" else len(worker.ran)]
    assert len(worker.ran) <= before + 1
    if how == "cancel":
        assert done.status is RunStatus.CANCELLED
    else:
        found = done.result["tasks"]["a"]
        assert found["status"] == ("failed" if how == "stop" else "budget_exhausted"), found


async def test_each_try_of_a_task_ends_with_them() -> None:
    worker = tools(MemoryWorker())
    codes = iter([1, 1, 0])

    async def check(_: CallRequest) -> Mapping[str, Any]:
        return {"exit_code": next(codes)}

    worker.tool("srv.check", check)
    again = [*steps("open"), *steps("work", tool="srv.check"), *CLOSING]
    done = await worker.run({"tasks": [{"id": "a", "steps": again, "retry": {"times": 2, "seconds": 0}}]})
    assert (done.result["status"], worker.ran) == ("succeeded", ["open", "work", "close", "tell"] * 3)
    assert len({call.key for call in worker.task_worker.calls}) == len(worker.ran)


async def test_what_is_handed_on_ends_with_them_and_so_does_who_handed_it_on() -> None:
    worker = tools(world_of())
    part = {"id": "part", "steps": [*WORK[:3], *steps("part_close", always=True)]}
    end = delegate({"id": "x", "steps": steps("last")}, name="end", always=True)
    done = await worker.run(plan(delegate(part), *steps("after"), end))
    assert worker.ran == ["hand", "open", "work", "part_close", "end", "last"]
    assert done.result["status"] == "failed"
    assert "; skipped: after" in done.result["tasks"]["main"]["summary"]


async def test_one_that_fails_fails_the_task_and_keeps_no_other_from_being_carried_out() -> None:
    worker = tools(MemoryWorker())

    async def lost(_: CallRequest) -> CallOutcome:
        return CallOutcome(CallStatus.LOST, code="server_lost", message="the server ended")

    worker.tool("srv.lost", lost)
    ends = [
        *steps("close", tool="srv.lost", always=True, retry={"times": 1, "seconds": 0}),
        *steps("tell", always=True),
    ]
    done = await worker.run({"tasks": [{"id": "a", "steps": [*steps("open"), *ends]}]})
    assert worker.ran == ["open", "close", "close#2", "tell"]
    assert done.result["tasks"]["a"]["status"] == "failed"
    assert "close: " in done.result["tasks"]["a"]["summary"]


async def test_after_a_gate_that_failed_nobody_is_asked_or_handed_work_for_what_no_longer_counts() -> None:
    worker = tools(world_of())
    began, asked, over, ending = (
        asyncio.Event(),
        asyncio.Event(),
        asyncio.Event(),
        HangingTool(worker, "close", exit_code=0),
    )

    async def wait(_: CallRequest) -> Mapping[str, Any]:
        began.set()
        await asked.wait()
        return {"exit_code": 3}

    async def slow(_: CallRequest) -> CallOutcome:
        await ending.reached.wait()
        over.set()
        return CallOutcome(CallStatus.DENIED, code="approval_needed")

    worker.tool("srv.asks", exit_code=0)
    worker.task_worker.asks.add("srv.asks")
    worker.tool("srv.wait", wait)
    worker.tool("srv.slow", slow)
    given = plan(
        *steps("asks", tool="srv.asks", needs=[]),
        *steps("slow", tool="srv.slow", needs=[]),
        *steps("gate", tool="srv.wait", needs=[], gate=True),
        *steps("close", always=True),
    )
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(settings(given), "run_1", "/project")
        await began.wait()
        seen = worker.engine.store.version
        while not await worker.swarm.approvals():
            await worker.engine.store.change(seen)
            seen = worker.engine.store.version
        asked.set()
        await ending.reached.wait()
        assert await worker.swarm.approvals() == []
        await over.wait()
        ending.go.set()
        done = await worker.engine.wait("run_1")
    assert worker.ran == ["slow", "gate", "close"]
    assert done.result["tasks"]["main"]["summary"].startswith("gate gate: expected exit code 0, got 3")
    assert [one["event"] for one in await worker.events("run_1.main")] == ["approval.asked", "approval.answered"]


def test_what_was_not_needed_is_told_so_and_leaves_what_speaks_of_it_out() -> None:
    close = step("close", always=True, args={"id": "${steps.open.id}"})
    tell = step("tell", always=True, args={"text": "${steps.close.id}"})
    nothing = run(task(step("open"), close, tell), {"open": BROKEN})
    assert nothing.ids == ["open"]
    assert nothing.finish.summary == "open: expected an answer, but the call ended as tool_error (no such thing)"
    unopened = run(task(step("a"), step("open", when="${steps.a.id} == b"), close, tell))
    assert (unopened.ids, unopened.finish.summary) == (["a"], "1 step done, not needed: open, close, tell")
