"""Two hundred runs that end in every way: afterwards there is nothing of them but the work that is kept."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ccswarm.runs.app import App
from tests.conftest import UNBOXED
from tests.support.bounds import BOUND_SECONDS
from tests.together.support.swarms import AI_SESSION, QUICK, ROOT, SwarmHome, git, open_swarm_home, over, submit
from tests.together.support.work_rounds import repository, steps
from tests.together.test_attempt_terminals import BEAT, begun, sessions

# Each ending has its own bound: how long all of them take is the machine's to say.
pytestmark = [pytest.mark.anyio, pytest.mark.torture, pytest.mark.timeout(0)]
RUNS = int(os.environ.get("ENDINGS_RUNS", "200"))
AGENT = '[[agents]]\nname = "ada"\nworkspace = "clone"\ngrants = ["ai-session.*"]\n'
WORK = '[[tasks]]\nid = "one"\nagent = "ada"\nrounds = 1\ngates = [{ command = "{gate}" }]\n' + steps("one")
ENDLESS = BEAT.replace(">begun", ">{pipe}")
PLANS = {
    "success": WORK.replace("{gate}", "true"),
    "failure": WORK.replace("{gate}", "false"),
    "budget": ENDLESS.replace('agent = "ada"', 'agent = "ada"\nbudget = { seconds = 3 }'),
    **dict.fromkeys(("cancel", "kill", "ctrl-c"), ENDLESS),
}
"""By how a run ends."""

ENVIRON = {"PYTHONPATH": str(ROOT)}


@asynccontextmanager
async def sweeping(swarm_home: SwarmHome) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A worker as people start it: it also ends what runs left that are over. It has begun when this returns."""
    words = (sys.executable, "-m", "ccswarm", "worker")
    environ = {**os.environ, **ENVIRON}
    worker = await asyncio.create_subprocess_exec(*words, cwd=swarm_home.home, env=environ, stderr=subprocess.PIPE)
    assert worker.stderr
    reading = asyncio.create_task(worker.stderr.read(0))
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            while b"carries out queued runs" not in (line := await worker.stderr.readline()):
                assert line, worker.returncode
        reading = asyncio.create_task(worker.stderr.read())
        yield worker
    finally:
        if worker.returncode is None:
            worker.terminate()
        await reading
        await worker.wait()


async def ended(swarm_home: SwarmHome, app: App, how: str) -> str:
    """A run that ends so; how it ended."""
    plan = swarm_home.plan(PLANS[how].replace("{pipe}", str(swarm_home.project.parent / "begun")))
    if how == "ctrl-c":
        return await interrupted(swarm_home, app)
    async with sweeping(swarm_home) as worker:
        run_id = await submit(app, plan, swarm_home)
        if how in ("cancel", "kill"):
            await begun(swarm_home.home)
        if how == "kill":
            worker.kill()
            await worker.wait()
        if how in ("cancel", "kill"):
            await app.engine.cancel(run_id)
        run = await over(app, run_id)
        return str(run.result["status"] if run.result else run.status)


async def interrupted(swarm_home: SwarmHome, app: App) -> str:
    """By Ctrl-C, and given up afterwards."""
    words = [sys.executable, "-m", "ccswarm", "run", str(swarm_home.home / "plan.toml"), "-c", str(swarm_home.file)]
    words += ["-w", str(swarm_home.project)]
    running = await asyncio.create_subprocess_exec(*words, env={**os.environ, **ENVIRON}, stdout=-3, stderr=-3)
    await begun(swarm_home.home)
    running.send_signal(signal.SIGINT)
    assert await running.wait() == 130
    (run,) = await app.engine.list(top=True, unfinished=True)
    await app.engine.cancel(run.id)
    return str((await over(app, run.id)).status)


async def test_endings(homes: Path) -> None:
    endings, random_ = Counter[str](), random.Random(7)
    with open_swarm_home(homes, QUICK + AI_SESSION + AGENT, UNBOXED) as swarm_home:
        repository(swarm_home)
        os.mkfifo(swarm_home.home / "begun")
        async with swarm_home.client() as app:
            for number in range(RUNS):
                how = (*PLANS, *random_.choices(list(PLANS), k=RUNS))[number]
                endings[f"{how}: {await ended(swarm_home, app, how)}"] += 1
        print(endings)
        async with swarm_home.client() as app, sweeping(swarm_home):
            assert (await over(app, await submit(app, swarm_home.plan(PLANS["success"]), swarm_home))).result[
                "status"
            ] == "succeeded"
        assert sessions(swarm_home) == []
        words = [sys.executable, "-m", "ccswarm", "clean", "--days", "0"]
        environ = {**os.environ, **ENVIRON}
        await asyncio.to_thread(
            subprocess.run, words, cwd=swarm_home.home, env=environ, check=True, timeout=BOUND_SECONDS
        )
        assert git(swarm_home.project, "for-each-ref", "--format=%(refname)", "refs/ccswarm") == ""
        clones = [path for path in (swarm_home.state / "workspaces").glob("run_*/*") if path.is_dir()]
        assert clones == []
        assert git(swarm_home.project, "branch", "--list", "agent/*") == ""
        assert git(swarm_home.project, "status", "--porcelain") == ""
