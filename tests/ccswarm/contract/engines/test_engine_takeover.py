"""Workers of the dbos engine in processes of their own, that are killed, stopped and cut off; and what only it has."""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
import signal
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import pytest

from ccswarm.config.settings import EngineSettings
from ccswarm.engines.base import Limits
from ccswarm.engines.dbos.store import Store
from ccswarm.errors import EngineUnavailable, UsageInvalid
from ccswarm.models import RunStatus
from tests.ccswarm.support.engine_plays import Referee
from tests.ccswarm.support.engine_worker import ROOT, make, started
from tests.ccswarm.support.stores import add_store
from tests.support.bounds import BOUND_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from ccswarm.engines.base import Engine

pytestmark = pytest.mark.anyio
QUICK = EngineSettings(poll_seconds=0.05, heartbeat_seconds=0.3, lost_after_seconds=3)


@asynccontextmanager
async def working(engine: Engine, **limits: Any) -> AsyncGenerator[None]:
    """A worker in this process."""
    stop = asyncio.Event()
    worker = asyncio.create_task(engine.run_worker("here", stop, limits=Limits(**limits)))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(worker, BOUND_SECONDS)


@asynccontextmanager
async def client(home: Path) -> AsyncGenerator[tuple[Engine, Referee, Path]]:
    """An engine that executes nothing, a referee, and where the workers find the store."""
    add_store(home / "state")
    engine = make(QUICK, home / "state")
    await engine.open()
    try:
        async with Referee(home / "door") as referee:
            yield engine, referee, home / "state"
    finally:
        await engine.close()


async def result(engine: Engine, execution_id: str) -> Any:
    ended = await asyncio.wait_for(engine.wait(execution_id), BOUND_SECONDS)
    assert ended.status is RunStatus.SUCCEEDED, ended.error
    return ended.result


async def test_another_worker_goes_on_where_a_killed_one_was(home: Path) -> None:
    side = ["beside", [["step", "x1"], ["step", "x2"]], [["step", "y1"], ["step", "y2"]], [["step", "z1"]]]
    async with client(home) as (engine, referee, state):
        referee.held = {"x1", "y2"}
        play = {"door": referee.door, "do": [["step", "a"], side, ["step", "b"]]}
        await engine.submit("play", "e1", play, agent="ann")
        async with started(QUICK, state, "w1") as first, started(QUICK, state, "w2") as second:
            await referee.arrival("x1")
            held = await referee.arrival("y2")
            follow = engine.events("e1")
            assert await anext(aiter(follow)) == {"ended": 2}
            killed, left = (first, second) if (await engine.status("e1")).worker == "w1" else (second, first)
            killed.kill()
            again = await referee.arrival("y2", 2)
            assert again.key == held.key
            again.answer("Y")
            (await referee.arrival("x1", 2)).answer("X")
            ended, answers = (await result(engine, "e1"))[1]
            assert left.returncode is None
        assert ended[0] == 2
        assert answers == [["X", "x2"], ["Y", "y2"] if answers[1][0] == "Y" else ["y1", "Y"], ["z1"]]
        assert sorted(referee.keys.values()) == ["a", "b", "x1", "x2", "y1", "y2", "z1"]
        assert [referee.names.count(recorded) for recorded in ("a", "y1", "z1")] == [1, 1, 1]


@pytest.mark.torture  # below, by threads
async def test_a_new_store_is_made_once_by_all_who_start_together(home: Path) -> None:
    async with AsyncExitStack() as workers:
        names = [f"w{number}" for number in range(2)]
        starts = [workers.enter_async_context(started(QUICK, home / "state", name)) for name in names]
        processes = await asyncio.gather(*starts)
        async with client(home) as (engine, referee, _):
            await engine.submit("play", "e1", {"door": referee.door, "do": [["step", "s"]]})
            assert await result(engine, "e1") == ["s"]
            async with asyncio.timeout(BOUND_SECONDS):
                while sorted((await engine.health())["workers"]) != names:
                    assert [worker.returncode for worker in processes] == [None, None]
            ended = await engine.status("e1")
            assert ended.ended_at % 1 or ended.created_at % 1, "whole seconds have no order"


@pytest.mark.parametrize("times", [2, pytest.param(5, marks=pytest.mark.torture)])
async def test_no_store_is_seen_before_it_writes_ahead(home: Path, times: int) -> None:
    """Of connections that switch one file to WAL at the same time, all but one fail without waiting."""
    for number in range(times):
        stores = [Store(QUICK, home / f"state{number}") for _ in range(8)]
        together = threading.Barrier(len(stores))

        def make(store: Store, together: threading.Barrier = together) -> None:
            together.wait(BOUND_SECONDS)
            store.create()
            store.bare.dispose()

        with ThreadPoolExecutor(len(stores)) as threads:
            await asyncio.gather(*[asyncio.wrap_future(threads.submit(make, store)) for store in stores])
        assert [path.name for path in stores[0].file.parent.iterdir()] == ["engine.db"]


async def test_of_a_lost_worker_is_told_only_where_it_left_something(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with client(home) as (engine, referee, state):
        referee.held = {"s"}
        await engine.submit("play", "e1", {"door": referee.door, "do": [["step", "s"]]})
        async with started(QUICK, state, "busy") as worker:
            await referee.arrival("s")
            worker.kill()
        with sqlite3.connect(state / "engine.db") as store:
            store.execute("INSERT INTO ccswarm_worker VALUES ('idle', 'elsewhere', 1, 0)")
        store.close()
        async with working(engine), asyncio.timeout(BOUND_SECONDS):
            (await referee.arrival("s", 2)).answer("S")
            while sorted((await engine.health())["workers"]) != ["here"]:
                pass
    reported = [record.getMessage() for record in caplog.records if record.name.startswith("ccswarm")]
    assert [words for words in reported if "lost" in words] == ["worker busy is lost; 1 execution is queued again"]


async def test_an_approval_may_come_while_every_worker_is_dead_and_a_namesake_goes_on_at_once(home: Path) -> None:
    patient = QUICK.model_copy(update={"lost_after_seconds": 3600.0})
    async with client(home) as (engine, referee, state):
        referee.held = {"s"}
        do: list[Any] = [["step", "a"], ["emit", {}], ["receive", "approval", 86400 * 7], ["step", "b"]]
        await engine.submit("play", "e1", {"door": referee.door, "do": do})
        await engine.submit("play", "e2", {"door": referee.door, "do": [["step", "s"]]})
        async with started(patient, state, "w1") as first:
            await referee.arrival("s")
            await anext(aiter(engine.events("e1")))
            first.kill()
        await engine.send("e1", "approval", "yes", key="q1")
        async with started(patient, state, "w1"):
            assert await result(engine, "e1") == ["a", None, "yes", "b"]
            (await referee.arrival("s", 2)).answer("S")
            assert await result(engine, "e2") == ["S"]
        assert sorted(referee.names) == ["a", "b", "s", "s"]


async def test_a_worker_that_slept_too_long_lets_go_of_what_others_took(home: Path) -> None:
    async with client(home) as (engine, referee, state):
        referee.held = {"s"}
        await engine.submit("play", "e1", {"door": referee.door, "do": [["step", "s"], ["step", "t"]]})
        async with started(QUICK, state, "w1") as first:
            old = await referee.arrival("s")
            with closing(sqlite3.connect(state / "engine.db", isolation_level=None)) as lock:
                lock.execute("BEGIN IMMEDIATE")  # it would sleep with the lock if it was just writing
                first.send_signal(signal.SIGSTOP)
            async with started(QUICK, state, "w2"):
                new = await referee.arrival("s", 2)
                first.send_signal(signal.SIGCONT)
                await asyncio.wait_for(old.left.wait(), BOUND_SECONDS)
                new.answer("S")
                assert await result(engine, "e1") == ["S", "t"]
            first.terminate()
            assert await asyncio.wait_for(first.wait(), BOUND_SECONDS) == 0
        assert referee.names == ["s", "s", "t"]
        assert "w1" not in (await engine.health())["workers"]


async def test_a_worker_that_cannot_reach_the_store_ends_with_75(home: Path) -> None:
    async with client(home) as (engine, referee, state):
        referee.held = {"s"}
        await engine.submit("play", "e1", {"door": referee.door, "do": [["step", "s"]]})
        async with started(QUICK, state, "w1") as worker:
            await referee.arrival("s")
            lock = sqlite3.connect(state / "engine.db", isolation_level=None)
            lock.execute("BEGIN IMMEDIATE")
            assert await asyncio.wait_for(worker.wait(), BOUND_SECONDS) == 75
            lock.close()


async def test_a_worker_says_nothing_and_its_name_is_its_own(home: Path) -> None:
    async with client(home) as (engine, referee, state):
        referee.held = {"s"}
        await engine.submit("play", "e1", {"door": referee.door, "do": [["step", "s"]]})
        async with started(QUICK, state, "w1") as first:
            await referee.arrival("s")
            with pytest.raises(UsageInvalid, match="is already running"):
                await engine.run_worker("w1", asyncio.Event())
            first.terminate()
            assert await asyncio.wait_for(first.communicate(), BOUND_SECONDS) == (b"", b"")
            assert first.returncode == 0
        assert (await engine.status("e1")).status is RunStatus.QUEUED


async def test_there_is_one_worker_in_a_process(home: Path) -> None:
    async with client(home) as (engine, referee, _):
        await engine.submit("play", "e1", {"door": referee.door, "do": [["step", "s"]]})
        async with working(engine):
            await referee.arrival("s")
            with pytest.raises(UsageInvalid, match="process"):
                await make(QUICK, home / "other").run_worker("w2", asyncio.Event())


async def test_starts_are_spread_over_time(home: Path) -> None:
    async with client(home) as (engine, referee, _):
        for number in range(4):
            await engine.submit("play", f"e{number}", {"door": referee.door, "do": [["step", f"s{number}"]]})
        async with working(engine, starts=2, period_seconds=2, per_agent=0):
            for number in range(4):
                await result(engine, f"e{number}")
        began = sorted([(await engine.status(f"e{number}")).ended_at for number in range(4)])
        assert began[2] - began[0] > 1


async def test_what_failed_goes_on_after_what_it_recorded(home: Path) -> None:
    async with client(home) as (engine, referee, _):
        referee.held = {"b"}
        await engine.submit("play", "e1", {"door": referee.door, "do": [["step", "a"], ["step", "b"]]})
        async with working(engine):
            (await referee.arrival("b")).refuse("ServerLost", "gone", "start it again")
            failed = await asyncio.wait_for(engine.wait("e1"), BOUND_SECONDS)
            assert (failed.status, failed.error) == (RunStatus.FAILED, "ServerLost: gone")
            await engine.resume("e1")
            (await referee.arrival("b", 2)).answer("B")
            assert await result(engine, "e1") == ["a", "B"]
        assert referee.names == ["a", "b", "b"]


class Evil:
    """Makes a directory when it is unpickled."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def __reduce__(self) -> Any:
        return os.mkdir, (self.directory,)


async def test_pickles_in_the_store_are_not_opened(home: Path) -> None:
    async with client(home) as (engine, referee, state):
        await engine.submit("play", "e1", {"door": referee.door, "do": []})
        evil = base64.b64encode(pickle.dumps(Evil(str(home / "opened")))).decode()
        with sqlite3.connect(state / "engine.db") as store:
            store.execute("UPDATE workflow_status SET serialization = 'py_pickle', inputs = ?", (evil,))
            store.execute("UPDATE workflow_input SET inputs = ?", (evil,))
        store.close()
        async with working(engine):
            ended = await asyncio.wait_for(engine.wait("e1"), BOUND_SECONDS)
        assert (ended.status, ended.error) == (RunStatus.FAILED, "stored data cannot be read")
        assert not (home / "opened").exists()
        pickle.loads(base64.b64decode(evil))
        assert (home / "opened").exists()


async def test_a_store_that_cannot_be_used_is_said_to_be_so(home: Path) -> None:
    (home / "file").write_text("")
    with pytest.raises(EngineUnavailable):
        await make(QUICK, home / "file").open()
    with pytest.raises(EngineUnavailable):
        await make(EngineSettings(database_url="postgresql://nobody@127.0.0.1:1/none"), home).open()
    with pytest.raises(EngineUnavailable, match="not open"):
        await make(QUICK, home / "state").status("e1")
    broken = home / "broken"
    broken.mkdir()
    (broken / "engine.db").write_text("this is no database, and long enough to be looked at as one" * 10)
    with pytest.raises(EngineUnavailable):
        await make(QUICK, broken).open()


@pytest.mark.torture  # contract/cli/test_cli_light.py: who looks at runs loads neither
async def test_nothing_is_imported_before_an_engine_is_needed() -> None:
    script = (
        "import sys; from pathlib import Path; from agentwire.plugins import load\n"
        "load('ccswarm.engines', 'dbos').store('', Path('/nowhere'))\n"
        "print([name for name in ('dbos', 'sqlalchemy') if name in sys.modules])"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert (await asyncio.wait_for(process.communicate(), BOUND_SECONDS))[0] == b"[]\n"


async def test_the_store_is_private(home: Path) -> None:
    async with client(home) as (engine, _, state):
        await engine.open(limits=Limits(at_once=2))
        await engine.close()
        assert (state / "engine.db").stat().st_mode & 0o077 == 0
        assert state.stat().st_mode & 0o077 == 0
