"""A hundred times a worker, the daemon of ai-session, the way to it or a shell is killed, or stopped for 9 s, in a run
of 30 steps: every effect once, and the results of a run left alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ccswarm.journal.writer import verify
from tests.ccswarm.torture.engine_postgres import database, server
from tests.conftest import UNBOXED
from tests.together.support.rounds import CREW, PLAN, Fleet, Round, Tally, plain, sizes
from tests.together.support.swarms import AI_SESSION, SwarmHome, open_swarm_home, over, submit

# Each round has its own bound: how long all of them take is the machine's to say.
pytestmark = [pytest.mark.anyio, pytest.mark.torture, pytest.mark.timeout(0)]
ROUNDS = 100
LOST_AFTER_SECONDS = 5.0
ENGINE = f"""
[engine]
poll_seconds = 0.05
heartbeat_seconds = 0.5
lost_after_seconds = {LOST_AFTER_SECONDS}
"""


@contextmanager
def sqlite(homes: Path, team: str = CREW) -> Generator[SwarmHome]:
    with open_swarm_home(homes, AI_SESSION + team + ENGINE, UNBOXED) as swarm_home:
        yield swarm_home


@contextmanager
def postgres(homes: Path, team: str = CREW) -> Generator[SwarmHome]:
    with server() as address:
        url = f'database_url = "{database(address, "swarm")}"\n'
        with open_swarm_home(homes, AI_SESSION + team + ENGINE + url, UNBOXED) as swarm_home:
            yield swarm_home


@pytest.mark.parametrize(("store", "size"), [(sqlite, 2), (postgres, 3)], ids=["sqlite", "postgres"])
async def test_rounds(homes: Path, store: object, size: int) -> None:
    tally = Tally()
    with store(homes) as swarm_home:  # type: ignore[operator]
        fleet, settings = Fleet(swarm_home, size), swarm_home.plan(PLAN)
        async with swarm_home.client() as app, fleet.working():
            alone = await over(app, await submit(app, settings, swarm_home))
            assert alone.result["status"] == "succeeded", alone.result
            journal_bytes = sum(sizes(swarm_home).values())
            for seed in range(ROUNDS):
                one = Round(swarm_home, app, fleet, seed, journal_bytes)
                run = await one.play(settings)
                tally.add(seed, one, run, one.wrong(run, alone, 2 * LOST_AFTER_SECONDS))
            assert plain(await over(app, await submit(app, settings, swarm_home))) == plain(alone)
        report = swarm_home.joined()
        print(tally, fleet.codes, f"{report.calls} calls, {len(report.open)} without an end")
        assert tally.wrong == []
        assert report.problems == []
        ends = Counter(record.facts["status"] for record in swarm_home.records() if record.event == "call.end")
        assert report.calls - report.joined <= len(report.open) + ends["lost"] + ends["cancelled"]  # not sent any more
        assert verify(swarm_home.state / "journal").problems == []
