"""PostgreSQL is stopped for five seconds in the middle of runs and started again: they go on, and every effect happens
once."""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, Any

import pytest

from ccswarm.config.settings import EngineSettings
from ccswarm.models import RunStatus
from tests.ccswarm.support.engine_plays import Referee
from tests.ccswarm.support.engine_worker import make, started
from tests.ccswarm.support.runs import AGENTS, HELD, SERVERS, RunVerbs
from tests.ccswarm.torture.engine_postgres import Server, database, machine
from tests.conftest import client_environment, environment
from tests.support.bounds import BOUND_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.torture]
OUTAGE_SECONDS = 5
RUNS = 6


@pytest.fixture
def postgres() -> Iterator[Server]:
    with machine() as made:
        yield made


def plan(run: str) -> list[Any]:
    side = [[["step", f"{run}.{lane}{n}"] for n in range(4)] for lane in "xyz"]
    child = [
        "start",
        "play",
        f"{run}.t",
        [["step", f"{run}.t0"], ["spend", run, {"calls": 1}, {}], ["emit", {}]],
        "",
        "high",
    ]
    return [
        ["step", f"{run}.a"],
        child,
        ["beside", *side],
        ["outcome", f"{run}.t"],
        ["receive", "go", 60],
        ["step", f"{run}.b"],
    ]


async def test_a_restart_in_the_middle_is_ridden_out(home: Path, postgres: Server) -> None:
    address = database(postgres.address, "restart")
    settings = EngineSettings(poll_seconds=0.05, heartbeat_seconds=0.5, lost_after_seconds=30, database_url=address)
    engine = make(settings, home / "state")
    await engine.open()
    names = [f"r{number}" for number in range(RUNS)]
    async with Referee(home / "door", [f"{name}.y1" for name in names]) as referee:
        async with started(settings, home / "state", "w1") as first, started(settings, home / "state", "w2") as second:
            for name in names:
                await engine.submit("run", name, {"door": referee.door, "do": plan(name)})
            held = [await referee.arrival(f"{name}.y1") for name in names]
            followed = asyncio.create_task(following(engine, names[0]))
            await asyncio.to_thread(postgres.stop)
            for one in held[: RUNS // 2]:
                one.answer("before")  # what came of it is not recorded for a while
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(OUTAGE_SECONDS):
                    await asyncio.Event().wait()
            await asyncio.to_thread(postgres.start)
            for one in held[RUNS // 2 :]:
                one.answer("after")
            for name in names:
                await engine.send(name, "go", 1)
                ended = await asyncio.wait_for(engine.wait(name), BOUND_SECONDS)
                assert ended.status is RunStatus.SUCCEEDED, ended.error
                assert await engine.spent(name) == {"calls": 1}
            assert await asyncio.wait_for(followed, BOUND_SECONDS) == await following(engine, names[0])
            assert (first.returncode, second.returncode) == (None, None)
        assert len(referee.visits) == len(referee.keys) == RUNS * 15
    await engine.close()


async def following(engine: Any, name: str) -> list[int]:
    return [event["ended"] async for event in engine.events(name)]


def test_whoever_watches_a_run_sees_its_end(home: Path, postgres: Server) -> None:
    """``ccswarm run`` executes and watches, ``ccswarm logs -f`` only watches."""
    engine = f'[engine]\npoll_seconds = 0.05\ndatabase_url = "{database(postgres.address, "watched")}"\n'
    with environment(client_environment(home)):
        verbs = RunVerbs(home, engine + SERVERS + AGENTS + HELD)
        with verbs.started("run") as verb, verbs.held() as pipe, verbs.started("logs", "last", "-f") as logs:
            assert logs.process.stdout
            assert any(b"pipe.read" in line for line in logs.process.stdout)
            postgres.stop()
            assert not select.select([logs.process.stderr], [], [], OUTAGE_SECONDS)[0]
            postgres.start()
            pipe.write("x")
            pipe.close()
            out, err = verb.process.communicate(timeout=BOUND_SECONDS)
            assert verb.process.wait(BOUND_SECONDS) == 0, (out, err)
            assert (
                logs.process.communicate(timeout=BOUND_SECONDS)[0]
                .splitlines()[-1]
                .endswith(b" run succeeded: 1 succeeded")
            )
        calls = [one["facts"]["step"] for one in verbs.json("journal", "show", "last") if one["event"] == "call.begin"]
    assert calls == ["before", "wait", "after"]
