"""The terminals that an attempt opens are its own: however it ends, nothing of it goes on in them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ccswarm.models import CallOutcome, CallRequest, CallStatus, RunStatus
from ccswarm.swarm.agent import STOP
from ccswarm.swarm.sweeping import Over, sweep
from ccswarm.toolbox.terminals import Fence
from tests.ccswarm.support.engine_double import MemoryStore
from tests.ccswarm.support.swarms import MemoryWorker, settings
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio


class Shells(MemoryWorker):
    """A server of terminals: ``open`` are those that exist, by id, with whose each is. While ``held`` is there, opening
    one takes until it is set."""

    def __init__(self, store: MemoryStore | None = None, process: str = "one") -> None:
        super().__init__(store, process)
        self.open: dict[str, str] = {}
        self.interrupted: list[str] = []
        self.opening = asyncio.Event()
        self.running = asyncio.Event()
        self.stopped = asyncio.Event()
        self.held: asyncio.Event | None = None
        for name in ("create_session", "close_session", "list_sessions", "interrupt_command", "execute_command"):
            self.tool(f"ai-session.{name}", getattr(self, f"_{name}"))
        self.tool("srv.fail", exit_code=1)

    async def _create_session(self, request: CallRequest) -> Mapping[str, Any]:
        self.opening.set()
        if self.held:
            await self.held.wait()
        name = f"{request.arguments['name']}-{len(self.open)}"
        self.open[name] = f"run:{request.principal}/agent:{request.agent}"
        return {"session_id": name}

    async def _close_session(self, request: CallRequest) -> Mapping[str, Any]:
        self.open.pop(request.arguments["session_id"])
        return {"closed": True}

    async def _list_sessions(self, request: CallRequest) -> Mapping[str, Any]:
        assert request.for_user
        own = [{"session_id": name, "name": name, "owner": owner} for name, owner in self.open.items()]
        return {"sessions": [{**one, "working_directory": "/project"} for one in own]}

    async def _interrupt_command(self, request: CallRequest) -> Mapping[str, Any]:
        self.interrupted.append(request.arguments["session_id"])
        self.stopped.set()
        return {"interrupted": True}

    async def _execute_command(self, request: CallRequest) -> Mapping[str, Any]:
        self.running.set()
        await asyncio.Event().wait()
        return {}


def plan(*then: str, agents: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A task that opens a terminal, and then uses these tools."""
    steps = [{"id": "open", "tool": "ai-session.create_session", "args": {"name": "mine"}}]
    steps += [{"id": f"s{number}", "tool": tool} for number, tool in enumerate(then)]
    ada = {"name": "ada", "grants": ["*"], **(agents or {})}
    return {"agents": [ada], "tasks": [{"id": "t", "agent": "ada", "steps": steps, **more}]}


OTHERS = {
    "persons": "",
    "other runs": "run:run_2.t/agent:ada",
    "another try's": "run:run_1.t~2/agent:ada",
    "another task's": "run:run_1.tt/agent:ada",
}


@pytest.mark.parametrize("then", [(), ("srv.fail",)])
async def test_an_attempt_that_is_over_leaves_no_terminal_and_touches_no_others(then: tuple[str, ...]) -> None:
    worker = Shells()
    worker.open.update(OTHERS)
    done = await worker.run(plan(*then))
    assert done.result["tasks"]["t"]["status"] == ("failed" if then else "succeeded")
    assert worker.open == OTHERS


async def test_terminals_of_a_failure_are_kept_where_that_is_asked_with_the_way_to_them() -> None:
    worker = Shells()
    failed = (await worker.run(plan("srv.fail", agents={"keep": "failed"}))).result["tasks"]["t"]
    assert worker.open == {"mine-0": "run:run_1.t/agent:ada"}
    assert failed["summary"].endswith("; its terminals are open, ai-session: ai-session attach mine-0")
    await worker.run(plan(agents={"keep": "failed"}), "run_2")
    assert list(worker.open) == ["mine-0"], "those of a success are not"


async def test_a_budget_ends_the_terminals_too() -> None:
    worker = Shells()
    done = await worker.run(plan("ai-session.execute_command", budget={"seconds": 0.5}))
    assert (done.result["status"], worker.open) == ("budget_exhausted", {})


async def test_cancelled_it_is_ended_paused_it_is_interrupted() -> None:
    worker = Shells()
    async with asyncio.timeout(BOUND_SECONDS):
        async with worker.working():
            await worker.swarm.submit(settings(plan("ai-session.execute_command")), "run_1", "/project")
            await worker.running.wait()
            await worker.engine.pause("run_1")
            await worker.stopped.wait()
            assert (worker.interrupted, list(worker.open)) == (["mine-0"], ["mine-0"])
            worker.running.clear()
            await worker.engine.resume("run_1")
            await worker.running.wait()
            await worker.engine.cancel("run_1")
            assert (await worker.engine.wait("run_1")).status is RunStatus.CANCELLED
        await worker.swarm.settled()
    assert worker.open == {}


async def test_what_another_worker_goes_on_with_is_left_alone() -> None:
    worker = Shells()
    async with asyncio.timeout(BOUND_SECONDS):
        async with worker.working():
            await worker.swarm.submit(settings(plan("ai-session.execute_command")), "run_1", "/project")
            await worker.running.wait()
        await worker.swarm.settled()
    assert (list(worker.open), worker.interrupted) == (["mine-0"], [])


@pytest.mark.parametrize("how", ["cancel", "stop"])
async def test_a_terminal_that_is_just_being_opened_is_ended_when_it_is_there(how: str) -> None:
    worker = Shells()
    worker.held = asyncio.Event()
    async with asyncio.timeout(BOUND_SECONDS):
        async with worker.working():
            await worker.swarm.submit(settings(plan()), "run_1", "/project")
            await worker.opening.wait()
            if how == "cancel":
                await worker.engine.cancel("run_1")
                await worker.engine.wait("run_1")
            else:
                await worker.engine.send("run_1.t", STOP, "enough")
            worker.held.set()
            await worker.engine.wait("run_1")
        await worker.swarm.settled()
    assert worker.open == {}
    assert [call.tool for call in worker.task_worker.calls if call.tool.endswith("close_session")] == [
        "ai-session.close_session"
    ]


@pytest.mark.parametrize("keep", ["nothing", "failed"])
async def test_what_goes_on_in_terminals_changes_nothing_that_gates_look_at(keep: str) -> None:
    """Where the agent works in the swarm's own directory, too."""
    worker, seen = Shells(), list[tuple[list[str], list[str]]]()

    async def look(_: CallRequest) -> Mapping[str, Any]:
        seen.append((list(worker.open), list(worker.interrupted)))
        return {"exit_code": 1}

    worker.tool("srv.look", look)
    gates = [{"tool": "srv.look", "expect": {"exit_code": 0}}]
    done = await worker.run(plan(agents={"keep": keep}, gates=gates, rounds=2))
    assert done.result["tasks"]["t"]["status"] == "failed"
    if keep == "failed":
        assert seen == [(["mine-0"], ["mine-0"]), (["mine-0", "mine-1"], ["mine-0", "mine-0", "mine-1"])]
    else:
        assert seen == [([], []), ([], [])]


async def test_terminals_of_runs_that_are_over_are_ended_by_who_executes_next(tmp_path: Path) -> None:
    worker = Shells()
    await worker.run(plan("srv.fail"))
    await worker.run(plan("srv.fail", agents={"keep": "failed"}), "run_2")
    worker.open |= OTHERS | {"left": "run:run_1.t/agent:ada", "part": "run:run_1.t~2.hand.x/agent:bob"}
    worker.open |= {"stranger": "run:run_9.t/agent:ada"}
    async with worker.working():
        await worker.swarm.submit(settings(plan("ai-session.execute_command")), "run_3", "/project")
        await worker.running.wait()
        there = {**worker.open}
        assert await sweep(Over(worker.engine, "run_2"), worker.task_worker.call, ["ai-session"], tmp_path) == (0, [])
        assert await sweep(Over(worker.engine), worker.task_worker.call, ["ai-session"], tmp_path) == (4, [])
        gone = {"left", "part", "another try's", "another task's"}
        assert set(there) - set(worker.open) == gone, "all others are a person's, of a run that goes on or was kept"
        await worker.engine.cancel("run_3")
        await worker.engine.wait("run_3")
    await worker.swarm.settled()


async def test_behind_a_fence_nothing_opens() -> None:
    sent: list[str] = []

    async def send(request: CallRequest) -> CallOutcome:
        sent.append(request.tool)
        return CallOutcome(CallStatus.OK)

    fence = Fence()
    fenced = fence.around(send)
    await fence.shut()
    for tool, status in (("a.create_session", CallStatus.CANCELLED), ("a.read_output", CallStatus.OK)):
        assert (await fenced(CallRequest("r", "r.t", "s", "ada", tool, {}))).status is status
    assert sent == ["a.read_output"]
