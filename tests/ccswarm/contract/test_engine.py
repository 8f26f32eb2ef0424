"""What every engine promises, with a worker and its client in this process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ccswarm.engines.base import RUNS, TASKS, Limits
from ccswarm.errors import RunNotFound
from ccswarm.models import RunStatus
from tests.ccswarm.contract.engine_plays import Referee, play
from tests.ccswarm.engine_double import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable
    from pathlib import Path

    from ccswarm.engines.base import Engine

pytestmark = pytest.mark.anyio


class Stage:
    """An engine, a referee, and what a test needs of both."""

    def __init__(self, engine: Engine, referee: Referee) -> None:
        self.engine, self.referee = engine, referee

    @asynccontextmanager
    async def worker(self, **limits: Any) -> AsyncGenerator[None]:
        stop = asyncio.Event()
        working = asyncio.create_task(self.engine.run_worker("w1", stop, limits=Limits(**limits)))
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait_for(working, 15)

    async def submit(self, execution_id: str, *do: Any, kind: str = "play", **given: Any) -> None:
        await self.engine.submit(kind, execution_id, {"door": self.referee.door, "do": do}, **given)

    async def result(self, execution_id: str) -> Any:
        ended = await asyncio.wait_for(self.engine.wait(execution_id), 15)
        assert ended.status is RunStatus.SUCCEEDED, ended.error
        return ended.result


@pytest.fixture(params=["memory"])
def make(request: pytest.FixtureRequest) -> Callable[[], Engine]:
    return {"memory": MemoryEngine}[request.param]


@pytest.fixture
async def stage(make: Callable[[], Engine], home: Path) -> AsyncIterator[Stage]:
    engine = make()
    engine.define("play", play)
    engine.define("run", play, queue=RUNS)
    await engine.open()
    async with Referee(home / "door") as referee:
        yield Stage(engine, referee)
    await engine.close()


async def test_what_is_submitted_is_executed_once_and_can_be_seen(stage: Stage) -> None:
    await stage.submit("e1", ["step", "a"], ["step", "b"], agent="ann", priority="high")
    await stage.submit("e1", ["step", "c"])
    before = await stage.engine.status("e1")
    assert (before.status, before.agent, before.priority, before.kind) == (RunStatus.QUEUED, "ann", "high", "play")
    async with stage.worker():
        assert await stage.result("e1") == ["a", "b"]
    after = await stage.engine.status("e1")
    assert after.ended_at >= after.created_at > 0
    assert len(stage.referee.keys) == 2
    assert [e.id for e in await stage.engine.list()] == ["e1"]


async def test_lanes(stage: Stage) -> None:
    stage.referee.held = {"a1", "b1"}
    await stage.submit("e1", ["beside", [["step", "a1"], ["step", "a2"]], [["step", "b1"], ["step", "b2"]]])
    async with stage.worker():
        (await stage.referee.arrival("b1")).answer("B")
        await stage.referee.arrival("b2")
        (await stage.referee.arrival("a1")).answer("A")
        assert await stage.result("e1") == [[[1, 0], [["A", "a2"], ["B", "b2"]]]]


async def test_nobody(stage: Stage) -> None:
    with pytest.raises(RunNotFound):
        await stage.engine.status("nobody")
    assert TASKS
