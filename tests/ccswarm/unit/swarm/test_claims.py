"""A process that leaves makes no call of which another one could not know whether it was made."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ccswarm.models import RunStatus
from tests.ccswarm.support.swarms import Hanging, MemoryWorker, settings, steps
from tests.support.bounds import BOUND_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ccswarm.models import CallRequest

pytestmark = pytest.mark.anyio


async def test_a_process_that_leaves_has_its_calls_answered_and_claims_no_more() -> None:
    first = MemoryWorker()
    second = MemoryWorker(first.engine.store, "two")
    called, answered = asyncio.Event(), asyncio.Event()

    async def held(_: CallRequest) -> Mapping[str, Any]:
        called.set()
        await answered.wait()
        return {}

    first.tool("srv.do", held)
    second.tool("srv.do")
    async with first.working("w1"), asyncio.timeout(BOUND_SECONDS):
        await first.swarm.submit(settings({"tasks": [{"id": "t", "steps": steps("a", "b")}]}), "run_1", "/project")
        await called.wait()
        leaving = asyncio.create_task(first.task_worker.claims.leave(BOUND_SECONDS))
        await asyncio.sleep(0)
        assert not leaving.done()
        answered.set()
        await leaving
    async with second.working("w2"), asyncio.timeout(BOUND_SECONDS):
        assert (await second.engine.wait("run_1")).status is RunStatus.SUCCEEDED
    assert (first.ran, second.ran) == (["a"], ["b"])
    assert [request.claim for request in second.task_worker.calls] == ["two"]


async def test_what_is_not_answered_in_time_is_left() -> None:
    worker = MemoryWorker()
    held = Hanging()
    worker.tool("srv.do", held)
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(settings({"tasks": [{"id": "t", "steps": steps("a")}]}), "run_1", "/project")
        await held.called.wait()
        await worker.task_worker.claims.leave(0.01)
    await asyncio.wait_for(worker.task_worker.claims.leave(BOUND_SECONDS), BOUND_SECONDS)
