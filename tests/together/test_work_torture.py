"""A hundred times a worker, the daemon of ai-session or the way to it is killed, or stopped for 9 s, in a run with
clones, gates, merges and work handed on: what is checked out is what a run left alone leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ccswarm.journal.writer import verify
from tests.together.support.rounds import Fleet, Tally, sizes
from tests.together.support.swarms import over, submit
from tests.together.support.work_rounds import CREW, ENDINGS, PLAN, WorkRound, repository
from tests.together.test_swarm_torture import LOST_AFTER_SECONDS, postgres, sqlite

# Each round has its own bound: how long all of them take is the machine's to say.
pytestmark = [pytest.mark.anyio, pytest.mark.torture, pytest.mark.timeout(0)]
ROUNDS = int(os.environ.get("WORK_ROUNDS", "100"))
KINDS = {"worker": 60, "worker stopped": 8, "daemon": 20, "relay": 12}


@pytest.mark.parametrize(("store", "size"), [(sqlite, 2), (postgres, 3)], ids=["sqlite", "postgres"])
async def test_rounds(homes: Path, store: object, size: int) -> None:
    tally = Tally()
    with store(homes, CREW) as swarm_home:  # type: ignore[operator]
        repository(swarm_home)
        fleet, settings = Fleet(swarm_home, size), swarm_home.plan(PLAN)
        async with swarm_home.client() as app, fleet.working():
            before = sum(sizes(swarm_home).values())
            alone = await over(app, await submit(app, settings, swarm_home))
            found = {name: one["status"] for name, one in alone.result["tasks"].items()}
            assert found == ENDINGS, alone.result["tasks"]["lead"]
            journal_bytes = sum(sizes(swarm_home).values()) - before
            for seed in range(ROUNDS):
                one = WorkRound(swarm_home, app, fleet, seed, journal_bytes, KINDS)
                run = await one.play(settings)
                print(seed, one.kind, flush=True)
                tally.add(seed, one, run, one.wrong(run, alone, 2 * LOST_AFTER_SECONDS))
        report = swarm_home.joined()
        print(tally, fleet.codes, f"{report.calls} calls, {len(report.open)} without an end")
        assert tally.wrong == []
        assert report.problems == []
        assert verify(swarm_home.state / "journal").problems == []
