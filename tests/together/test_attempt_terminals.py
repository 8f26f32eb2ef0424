"""Real terminals of attempts: however a run ends, no command of it goes on."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccswarm.models import RunStatus
from tests.conftest import ends_within, processes
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.support.products import first
from tests.together.support.swarms import AI_SESSION, QUICK, ROOT, SwarmHome, open_swarm_home, over, submit

pytestmark = pytest.mark.anyio

ADA = """
[[agents]]
name = "ada"
grants = ["ai-session.*"]
"""
BEAT = """
[[tasks]]
id = "t"
agent = "ada"
[[tasks.steps]]
id = "open"
tool = "ai-session.create_session"
args = { name = "work", working_directory = "${workspace}" }
[[tasks.steps]]
id = "beat"
tool = "ai-session.execute_command"
[tasks.steps.args]
session_id = "${steps.open.session_id}"
command = "echo up >begun; while sleep 0.1; do date >>beat; done; touch after"
[[tasks.steps]]
id = "wait"
tool = "ai-session.read_output"
args = { session_id = "${steps.open.session_id}", wait_for = "finish", timeout_seconds = 55 }
retry = { times = 50, seconds = 0 }
expect = { status = "finished" }
"""

ENDS = """
[[tasks]]
id = "t"
agent = "ada"
[[tasks.steps]]
id = "look"
tool = "ai-session.list_sessions"
"""


@pytest.fixture
def swarm_home(homes: Path) -> Iterator[SwarmHome]:
    with open_swarm_home(homes, QUICK + AI_SESSION + ADA, "") as made:
        os.mkfifo(made.project / "begun")
        yield made


async def begun(directory: Path) -> None:
    """Returns when the command runs."""
    heard = asyncio.Event()
    pipe = os.open(directory / "begun", os.O_RDWR | os.O_NONBLOCK)
    asyncio.get_running_loop().add_reader(pipe, heard.set)
    try:
        await asyncio.wait_for(heard.wait(), BOUND_SECONDS)
        os.read(pipe, 100)  # as long as its writer has it open, the next one would hear the same word
    finally:
        asyncio.get_running_loop().remove_reader(pipe)
        os.close(pipe)


def sessions(swarm_home: SwarmHome) -> list[str]:
    """Those that are there, with what runs in them."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    code, said, errors = forked.run("ai_session", ["ls", "--json"], cwd=swarm_home.home, env=env)
    assert code == 0, errors
    return [f"{one['name']} {one['state']}" for one in json.loads(said)]


@pytest.mark.torture  # unit/swarm/test_attempt_terminals.py; below Ctrl-C
@pytest.mark.parametrize("how", first(("cancel", "pause", "budget"), "cancel"))
async def test_no_command_of_a_run_that_was_stopped_goes_on(swarm_home: SwarmHome, how: str) -> None:
    text = BEAT.replace('agent = "ada"', 'agent = "ada"\nbudget = { seconds = 8 }') if how == "budget" else BEAT
    async with swarm_home.client() as app:
        async with swarm_home.worker():
            run_id = await submit(app, swarm_home.plan(text), swarm_home)
            if how == "budget":
                assert (await over(app, run_id)).result["status"] == RunStatus.EXHAUSTED
            else:
                await begun(swarm_home.project)
                await (app.engine.cancel if how == "cancel" else app.engine.pause)(run_id)
        found = await app.engine.status(run_id)
    there = sessions(swarm_home)
    if how == "pause":
        assert (found.status, there) == (RunStatus.PAUSED, ["work ready"])
    else:
        assert there == []
    assert not (swarm_home.project / "after").exists(), "the rest of the command line ran"


def test_ctrl_c_leaves_no_command_running(swarm_home: SwarmHome) -> None:
    plan = swarm_home.home / "beat.toml"
    plan.write_text(BEAT)
    words = ["run", str(plan), "-c", str(swarm_home.file), "-w", str(swarm_home.project)]
    running = forked.piped("ccswarm", words, cwd=swarm_home.home, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        asyncio.run(begun(swarm_home.project))
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=BOUND_SECONDS)
    finally:
        running.close()
    assert running.returncode == 130, said
    assert sessions(swarm_home) == ["work ready"], said
    assert not (swarm_home.project / "after").exists(), "the rest of the command line ran"


@pytest.mark.torture  # test_cli_run.py has it without terminals
def test_a_second_ctrl_c_ends_at_once_and_a_process_in_the_background_pauses_the_run(swarm_home: SwarmHome) -> None:
    plan, needle = swarm_home.home / "beat.toml", re.escape(os.fsencode(swarm_home.home))
    plan.write_text(BEAT)
    words = ["run", str(plan), "-c", str(swarm_home.file), "-w", str(swarm_home.project)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = forked.piped("ccswarm", words, cwd=swarm_home.home, env=environ)
    try:
        asyncio.run(begun(swarm_home.project))
        _, facts, _ = forked.run("ai_session", ["daemon", "status", "--json"], cwd=swarm_home.home, env=environ)
        daemon = int(json.loads(facts)["pid"])
        os.kill(daemon, signal.SIGSTOP)  # so the first does not come to an end
        try:
            running.send_signal(signal.SIGINT)
            assert running.stderr
            assert any(b"Ctrl-C again ends at once" in line for line in running.stderr)
            running.send_signal(signal.SIGINT)
            assert running.wait(BOUND_SECONDS) == 130
            behind = [pid for pid, what in processes() if re.search(rb"\0pause\0run_.*%b" % needle, what)]
        finally:
            os.kill(daemon, signal.SIGCONT)
    finally:
        running.close()
    assert behind
    assert all(ends_within(pid, time.monotonic() + BOUND_SECONDS) for pid in behind)
    assert sessions(swarm_home) == ["work ready"]
    assert '"paused"' in asyncio.run(verb(swarm_home, "runs", "list", "--json"))


@pytest.mark.torture  # unit/swarm/test_attempt_terminals.py
async def test_what_runs_left_whose_worker_was_killed_is_ended_by_cancel_clean_and_the_next_run(
    swarm_home: SwarmHome,
) -> None:
    plan, done = swarm_home.plan(BEAT), swarm_home.home / "done.toml"
    done.write_text(ENDS)
    async with swarm_home.client() as app:
        async with swarm_home.worker() as worker:
            runs: list[str] = []
            for _ in range(3):
                runs.append(await submit(app, plan, swarm_home))
                await begun(swarm_home.project)
            worker.kill()
            await worker.wait()
        assert sessions(swarm_home) == ["work running"] * 3
        said = await verb(swarm_home, "cancel", runs[0])
        assert "No worker was carrying it out any more: 1 of its terminals is closed" in said
        assert sessions(swarm_home) == ["work running"] * 2, "the others are of runs that are not over"
        await app.engine.cancel(runs[1])
        assert "1 terminal is closed" in await verb(swarm_home, "clean")
        assert sessions(swarm_home) == ["work running"]
        assert "1 of its terminals is interrupted" in await verb(swarm_home, "pause", runs[2])
        assert sessions(swarm_home) == ["work ready"]
        await app.engine.cancel(runs[2])
        said = await verb(swarm_home, "run", str(done), "-w", str(swarm_home.project))
        assert "1 terminal is of finished runs closed" in said
    assert sessions(swarm_home) == []


async def verb(swarm_home: SwarmHome, *words: str) -> str:
    """What a person is told who says this."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = (*words, "-c", str(swarm_home.file))
    code, said, errors = await asyncio.to_thread(forked.run, "ccswarm", words, cwd=swarm_home.home, env=env)
    assert code == 0, errors
    return (said + errors).decode()


@pytest.mark.torture
async def test_a_worker_ends_what_a_run_left_whose_worker_was_killed_before_it_was_cancelled(
    swarm_home: SwarmHome,
) -> None:
    async with swarm_home.client() as app:
        async with swarm_home.worker() as worker:
            run_id = await submit(app, swarm_home.plan(BEAT), swarm_home)
            await begun(swarm_home.project)
            worker.kill()
            await worker.wait()
        await app.engine.cancel(run_id)
        assert sessions(swarm_home) == ["work running"]
        words, environ = (sys.executable, "-m", "ccswarm", "worker"), {**os.environ, "PYTHONPATH": str(ROOT)}
        other = await asyncio.create_subprocess_exec(*words, cwd=swarm_home.home, env=environ, stderr=subprocess.PIPE)
        assert other.stderr
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                while b"has closed 1 terminal of finished runs" not in await other.stderr.readline():
                    assert other.returncode is None
            assert sessions(swarm_home) == []
        finally:
            other.terminate()
            await other.wait()
