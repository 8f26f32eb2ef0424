"""What is said of a run that is watched."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ccswarm.cli.watch import Interrupts, Watch
from ccswarm.runs.app import App
from ccswarm.runs.feed import EventStream
from tests.ccswarm.support.swarms import MemoryWorker, settings, steps
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

PLAN = {"tasks": [{"id": "t", "agent": "ada", "steps": steps("a")}]}


async def test_all_of_a_new_run_is_said_however_far_it_is_when_it_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = MemoryWorker()
    worker.tool("srv.do")
    await worker.run(PLAN)
    app = App(settings(PLAN), tmp_path, worker.engine, worker.swarm)

    async def said(feed: EventStream, *before: object) -> list[str]:
        watch = Watch(app, feed, PLAN, await feed.past() if before else [], no_wait=False, as_json=False)
        async with asyncio.timeout(BOUND_SECONDS):
            assert await watch.until_left(Interrupts()) == 0
        return [line for line in capsys.readouterr().out.splitlines() if "\t" not in line]

    started, *_, ended, answer = await said(EventStream(worker.engine, "run_1"))
    assert (started, ended) == ("run started: 1 task, 1 agent", "run succeeded: 1 succeeded")
    assert answer == '{"status": "ok"}'
    assert await said(EventStream(worker.engine, "run_1"), "resumed") == [answer], (
        "what was said before is not said again"
    )
