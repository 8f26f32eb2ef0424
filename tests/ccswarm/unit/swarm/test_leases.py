"""What was started for a directory ends with the last run there, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from ccswarm.models import CallRequest, RunStatus
from ccswarm.swarm.leases import DirectoryLeases
from tests.ccswarm.support.engine_double import MemoryEngine
from tests.ccswarm.support.engine_double_flow import Row
from tests.ccswarm.support.swarms import MemoryWorker, settings, steps
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio
CREW = {"agents": [{"name": name, "grants": ["*"]} for name in ("ada", "bob")]}


def world_with_a_slow_tool() -> tuple[MemoryWorker, asyncio.Event, asyncio.Event]:
    """``srv.slow`` says that it was reached, and waits for the other."""
    worker, reached, go = MemoryWorker(), asyncio.Event(), asyncio.Event()

    async def slow(_: CallRequest) -> Mapping[str, Any]:
        reached.set()
        await go.wait()
        return {}

    worker.tool("srv.do")
    worker.tool("srv.slow", slow)
    return worker, reached, go


async def test_the_tasks_of_a_run_find_what_those_before_started() -> None:
    worker = MemoryWorker()
    worker.tool("srv.do")
    tasks = [{"id": "a", "steps": steps("s")}, {"id": "b", "needs": ["a"], "steps": steps("s")}]
    await worker.run({**CREW, "tasks": tasks})
    assert worker.task_worker.directories == ["/project", "/project", "released /project"]
    await worker.run({**CREW, "tasks": tasks}, "run_2", "/other")
    assert worker.task_worker.directories[3:] == ["/other", "/other", "released /other"]


async def test_the_last_of_two_runs_in_a_directory_ends_it() -> None:
    worker, reached, go = world_with_a_slow_tool()
    quick, slow = ({**CREW, "tasks": [{"id": "a", "steps": steps("s", tool=tool)}]} for tool in ("srv.do", "srv.slow"))
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(settings(slow), "run_1", "/project")
        await reached.wait()
        await worker.swarm.submit(settings(quick), "run_2", "/project")
        await worker.engine.wait("run_2")
        assert worker.task_worker.directories == ["/project", "/project"]
        go.set()
        await worker.engine.wait("run_1")
    assert worker.task_worker.directories == ["/project", "/project", "released /project"]


async def test_who_stays_in_a_directory_finds_what_runs_before_started() -> None:
    worker = MemoryWorker()
    worker.tool("srv.do")
    plan = settings({**CREW, "tasks": [{"id": "a", "steps": steps("s")}]})
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        async with worker.swarm.keep_servers("/project"):
            for run in ("run_1", "run_2"):
                await worker.swarm.submit(plan, run, "/project")
                await worker.engine.wait(run)
            assert worker.task_worker.directories == ["/project", "/project"]
        assert worker.task_worker.directories == ["/project", "/project", "released /project"]
        await worker.swarm.submit(plan, "run_3", "/project")
        await worker.engine.wait("run_3")
    assert worker.task_worker.directories[3:] == ["/project", "released /project"]


async def test_a_run_that_is_paused_needs_nothing_and_has_it_again_afterwards() -> None:
    worker, reached, go = world_with_a_slow_tool()
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(
            settings({"tasks": [{"id": "a", "steps": steps("s", tool="srv.slow")}]}), "run_1", "/p"
        )
        await reached.wait()
        await worker.engine.pause("run_1")
        await worker.task_worker.released.wait()
        go.set()
        await worker.engine.resume("run_1")
        await worker.engine.wait("run_1")
    assert worker.task_worker.directories == ["/p", "released /p", "/p", "released /p"]


async def test_of_a_run_that_another_process_carries_out_it_is_found_out_when_something_ends() -> None:
    engine, released = MemoryEngine(), list[str]()

    async def release(directory: str) -> None:
        released.append(directory)

    places = DirectoryLeases(engine, release)
    for run in ("run_1", "run_2"):
        engine.store.add(Row(run, "run", "{}", "", "medium"))
    for directory, run in (("/p", "run_1"), ("/p", "run_2"), ("/q", "run_2"), ("/p", "gone")):
        async with places.task(directory, run):
            pass
    assert released == []
    engine.store.row("run_1").status = RunStatus.SUCCEEDED
    async with places.run("run_3", whole=True):
        pass
    assert released == [], "nothing of run_3 was here"
    async with places.task("/q", "run_2"):
        pass
    assert released == []
    engine.store.row("run_2").status = RunStatus.PAUSED
    async with places.task("/r", "run_4"), places.task("/q", "run_4"):
        pass
    assert released == ["/p"], "run_4 has just been at work in the other one"
