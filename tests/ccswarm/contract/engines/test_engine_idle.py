"""A worker that has nothing to do asks its store for nothing but what shows that it is alive, and is told of work."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine as Database
from sqlalchemy import event

from ccswarm.config.settings import EngineSettings
from ccswarm.engines.base import RUNS, Flow, Limits
from ccswarm.engines.dbos.engine import DbosEngine
from ccswarm.models import Json
from tests.ccswarm.support.engine_worker import make as make_elsewhere
from tests.ccswarm.torture.engine_postgres import database, server
from tests.support.bounds import BOUND_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio
BEATS = 20


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.torture)])
def settings(request: pytest.FixtureRequest, home: Path) -> Iterator[EngineSettings]:
    quick = EngineSettings(poll_seconds=0.02, heartbeat_seconds=0.02, lost_after_seconds=30)
    if request.param == "sqlite":
        yield quick
        return
    with server() as address:
        yield quick.model_copy(update={"database_url": database(address, home.name)})


class Watched:
    """Statements by the kind of thread that sends them; ``beaten`` is set once the worker has beaten so often."""

    def __init__(self) -> None:
        self.by_thread: Counter[str] = Counter()
        self.beats = 0
        self.beaten = threading.Event()

    def __call__(self, _: object, __: object, statement: str, *___: object) -> None:
        name = threading.current_thread().name
        if "ccswarm_worker" in statement and "INSERT" in statement:
            self.beats += 1
            if self.beats == BEATS:
                self.beaten.set()
        self.by_thread[name] += 1


async def test_an_idle_worker_does_not_poll_and_is_notified_of_work(settings: EngineSettings, home: Path) -> None:
    done = asyncio.Event()

    async def play(_: Flow, payload: Json) -> Json:
        done.set()
        return payload

    def make() -> Any:
        engine = DbosEngine(settings, home / "state")
        engine.define("play", play)
        engine.define("run", play, queue=RUNS)
        return engine

    engine, stop, known = make(), asyncio.Event(), asyncio.Event()
    worker = asyncio.create_task(engine.run_worker("one", stop, limits=Limits(), known=known))
    async with asyncio.timeout(BOUND_SECONDS):
        await known.wait()
        await engine.submit("play", "first", {"n": 1})
        assert (await engine.wait("first")).result == {"n": 1}
        seen = Watched()
        event.listen(Database, "before_cursor_execute", seen)
        try:
            await asyncio.to_thread(seen.beaten.wait, BOUND_SECONDS)
        finally:
            event.remove(Database, "before_cursor_execute", seen)
        looks = {name: count for name, count in seen.by_thread.items() if name.startswith("queue-worker-")}
        assert all(count < BEATS for count in looks.values()), "no more than the end of the work made necessary"
        assert "dbos-background-jobs" not in seen.by_thread
        done.clear()
        elsewhere = make_elsewhere(settings, home / "state")
        await elsewhere.open()
        await elsewhere.submit("play", "second", {"n": 2})
        await done.wait()
        await elsewhere.close()
        stop.set()
        await worker
