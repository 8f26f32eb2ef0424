"""A hundred times a worker is killed, or stopped for 9 s, somewhere in a plan of 30 steps with dependencies: every
effect happens once for its key, everything is counted once, and the results are those of a plan left alone."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ccswarm.config.settings import EngineSettings
from ccswarm.engines.dbos.workers import FENCED
from ccswarm.models import RunStatus
from tests.ccswarm.support.engine_plays import Referee
from tests.ccswarm.support.engine_worker import make, start
from tests.ccswarm.torture.engine_postgres import database, server
from tests.support.bounds import BOUND_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from pathlib import Path

    from ccswarm.engines.base import Engine

pytestmark = [pytest.mark.anyio, pytest.mark.torture, pytest.mark.timeout(1500)]
ROUNDS, AT_ONCE, STEPS = 100, 5, 30
STOPPED_SECONDS = 9
LOST_AFTER = 4.0
CAPS = {"calls": 1000.0}


def task(run: str, name: str, lanes: int) -> list[Any]:
    """Two steps, four side by side of which each is a chain, two more: ``2 + 2 * lanes + 2`` steps."""
    side = [[["step", f"{run}.{name}.{n}a"], ["step", f"{run}.{name}.{n}b"]] for n in range(lanes)]
    before, after = ([["step", f"{run}.{name}.{end}{n}"] for n in range(2)] for end in ("x", "z"))
    return [*before, ["spend", run, {"calls": 2 + 2 * lanes + 2}, CAPS], ["beside", *side], *after]


def plan(run: str) -> list[Any]:
    """Two tasks, and a third that needs both."""
    first = [["start", "play", f"{run}.{name}", task(run, name, 3), name, "high"] for name in ("t1", "t2")]
    ends = [["outcome", f"{run}.{name}"] for name in ("t1", "t2", "t3")]
    last = ["start", "play", f"{run}.t3", task(run, "t3", 3), "t1", "low"]
    return [*first, *ends[:2], last, ends[2], ["emit", {"end": run}]]


def plain(result: list[Any]) -> list[Any]:
    """What the three tasks returned, without what may differ: which of the steps side by side ended first."""
    outcomes: list[Any] = [result[2], result[3], result[5]]
    return [[status, acts[:3], acts[3][1], acts[4:]] for status, acts, _ in outcomes]


class Company:
    """Workers, each of which is replaced when it ends: every other time under its own name."""

    def __init__(self, settings: EngineSettings, directory: Path, size: int) -> None:
        self._settings = settings
        self._directory = directory
        self._size = size
        self._slots: dict[str, asyncio.subprocess.Process] = {}
        self._made = 0
        self.codes: list[int] = []
        self.failed: list[tuple[int, bytes]] = []
        """Code and words of those that ended in another way than they may: killed, by themselves, or because PostgreSQL
        ended the connection of one that was stopped while it opened the store."""

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        keepers = [asyncio.create_task(self._keep(number)) for number in range(self._size)]
        try:
            yield
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            for process in self._slots.values():
                if process.returncode is None:
                    process.kill()
                await process.communicate()

    async def _keep(self, number: int) -> None:
        name = f"w{number}"
        while True:
            self._slots[name] = process = await start(self._settings, self._directory, name)
            self.codes.append(await process.wait())
            _, written = await process.communicate()
            if self.codes[-1] not in (-signal.SIGKILL, FENCED) and b"EngineUnavailable" not in written:
                self.failed.append((self.codes[-1], written))
            del self._slots[name]
            self._made += 1
            name = name if self._made % 2 else f"w{number}.{self._made}"

    def kill(self, name: str) -> None:
        self._slots[name].kill()

    def strike(self, chance: random.Random) -> str:
        """kill -9, or every fourth time a sleep."""
        alive = sorted(name for name, process in self._slots.items() if process.returncode is None)
        if not alive:
            return "nobody"
        process = self._slots[chance.choice(alive)]
        if chance.random() < 0.75:
            process.kill()
            return "killed"
        process.send_signal(signal.SIGSTOP)
        asyncio.get_running_loop().call_later(STOPPED_SECONDS, wake, process)
        return "stopped"


def wake(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGCONT)


async def play(engine: Engine, referee: Referee, company: Company | None, run: str, seed: int) -> tuple[Any, str]:
    """One plan, and where a company is given what happens to one of its workers after some of the steps."""
    chance = random.Random(seed)
    await engine.submit("run", run, {"door": referee.door, "do": plan(run)})
    what = ""
    if company is not None:
        await referee.visited(f"{run}.", chance.randrange(1, STEPS))
        what = company.strike(chance)
    ended = await asyncio.wait_for(engine.wait(run), 120)
    assert ended.status is RunStatus.SUCCEEDED, ended.error
    return plain(ended.result), what


async def rounds(settings: EngineSettings, home: Path, workers: int) -> None:
    engine = make(settings, home / "state")
    await engine.open()
    company = Company(settings, home / "state", workers)
    struck: list[str] = []

    async def lane(number: int) -> None:
        for turn in range(number, ROUNDS, AT_ONCE):
            run = f"r{turn}"
            result, what = await play(engine, referee, company, run, turn)
            struck.append(what)
            assert str(result).replace(run, "calm") == expected, run
            keys = {key: name for key, name in referee.keys.items() if name.startswith(f"{run}.")}
            assert len(keys) == len(set(keys.values())) == STEPS, run
            assert await engine.spent(run) == {"calls": STEPS}
            assert [event async for event in engine.events(run)] == [{"end": run}]

    async with Referee(home / "door") as referee, company.working():
        expected = str((await play(engine, referee, None, "calm", 0))[0])
        async with asyncio.TaskGroup() as lanes:
            for number in range(AT_ONCE):
                lanes.create_task(lane(number))
    await engine.close()
    assert struck.count("killed") > ROUNDS / 2
    assert struck.count("stopped") > ROUNDS / 10
    assert company.failed == []
    again = len(referee.visits) - len(referee.keys)
    ended = company.codes.count(FENCED)
    print(f"{struck.count('killed')} killed, {struck.count('stopped')} stopped, {ended} of them ended by themselves;")
    print(f"{again} of {len(referee.visits)} visits were of a step that was begun again")


async def test_a_hundred_times_on_a_file(home: Path) -> None:
    settings = EngineSettings(poll_seconds=0.05, heartbeat_seconds=0.5, lost_after_seconds=LOST_AFTER)
    await rounds(settings, home, 2)


@pytest.fixture
def postgres() -> Iterator[str]:
    with server() as address:
        yield database(address, "kills")


async def test_a_hundred_times_on_a_server_with_three_workers(home: Path, postgres: str) -> None:
    settings = EngineSettings(
        poll_seconds=0.05, heartbeat_seconds=0.5, lost_after_seconds=LOST_AFTER, database_url=postgres
    )
    await rounds(settings, home, 3)


async def test_a_killed_worker_is_made_up_for_within_twice_the_time_out(home: Path) -> None:
    settings = EngineSettings(poll_seconds=0.05, heartbeat_seconds=0.5, lost_after_seconds=LOST_AFTER)
    engine = make(settings, home / "state")
    await engine.open()
    company, took = Company(settings, home / "state", 2), list[float]()
    async with Referee(home / "door") as referee, company.working():
        for number in range(8):
            name = f"e{number}"
            referee.held = {f"{name}.a"}
            await engine.submit("play", name, {"door": referee.door, "do": [["step", f"{name}.a"]]})
            await referee.arrival(f"{name}.a")
            company.kill((await engine.status(name)).worker)
            killed = time.monotonic()
            again = await referee.arrival(f"{name}.a", 2)
            took.append(again.at - killed)
            again.answer()
            assert (await asyncio.wait_for(engine.wait(name), BOUND_SECONDS)).status is RunStatus.SUCCEEDED
    await engine.close()
    print(f"taken over after {', '.join(f'{seconds:.1f}' for seconds in sorted(took))} s")
    assert max(took) <= 2 * LOST_AFTER
