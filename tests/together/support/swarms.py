"""A home with a swarm: its configuration, workers in processes of their own, the journal and the audit log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from ccswarm.config import config
from ccswarm.config.settings import Settings
from ccswarm.journal.writer import JoinReport, Record, join, read
from ccswarm.models import Execution
from ccswarm.plan import check
from ccswarm.plan.origin import Origin
from ccswarm.runs.app import App, new_run_id, submitting
from tests.ccswarm.support.stores import add_store
from tests.ccswarm.support.verbs import agreed
from tests.conftest import client_environment, end_leftovers, environment, new_home
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.support.forked import Forked

ROOT = Path(__file__).parents[3]
TELL_SECONDS = 5.0
"""The time for a worker that does not end to log what it does instead."""
LIFE_SECONDS = 86_400.0
"""More than the life of any test's worker: of a hundred rounds, each has its own bound."""
DATA = ROOT / "tests/data"
AI_SESSION = f"""
[[mcp.servers]]
name = "ai-session"
command = "{sys.executable} -m ai_session mcp-server --stdio"
env = {{ PYTHONPATH = "{ROOT}" }}
"""
QUICK = """
[engine]
poll_seconds = 0.05
heartbeat_seconds = 0.3
lost_after_seconds = 2.0
"""


class Worker:
    """A worker process, with the used parts of ``asyncio.subprocess.Process``."""

    def __init__(self, process: Forked) -> None:
        self._process = process
        self.pid = process.pid
        self.send_signal = process.send_signal
        self.kill = process.kill

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    async def wait(self) -> int:
        return await asyncio.to_thread(self._process.wait, LIFE_SECONDS)

    async def up(self) -> bool:
        """Wait until it carries out runs. Return False if it has ended instead."""
        assert self._process.stdout
        return await asyncio.to_thread(self._process.stdout.readline) == b"up\n"

    async def end(self) -> bool:
        """Let it hand back unfinished work and end; else have it log what it does, kill it, and return False."""
        assert self._process.stdin
        self.send_signal(signal.SIGCONT)
        self._process.stdin.close()
        try:
            return await asyncio.to_thread(self._process.wait) in (0, -signal.SIGKILL)
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGUSR1)
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, TELL_SECONDS)
            return False
        finally:
            await asyncio.to_thread(self._process.close)


class SwarmHome:
    """The home of a swarm; its agents work in the directory ``project``."""

    def __init__(self, home: Path, text: str) -> None:
        self.home = home
        self.project = home / "project"
        self.project.mkdir()
        self.state = home / ".local/state/ccswarm"
        self.file = home / "ccswarm.toml"
        self.rewrite(text)
        add_store(self.state)
        self.settings = config.peek(self.file).settings

    def add(self, text: str) -> None:
        """Add to the configuration, before anything is started."""
        self.rewrite(self.file.read_text() + text)
        self.settings = config.peek(self.file).settings

    def rewrite(self, text: str) -> None:
        """Replace the configuration and agree to it, as a person does."""
        self.file.write_text(text)
        agreed(self.file, self.state)

    @property
    def own(self) -> tuple[str, str]:
        """The first arguments of scripts for this swarm: the configuration and the state directory."""
        return str(self.file), str(self.state)

    def plan(self, text: str, *problems: str) -> Settings:
        """Return a plan with the configuration. The check without servers must find exactly ``problems``."""
        file = self.home / "plan.toml"
        file.write_text(text)
        settings = config.peek_plan(file, self.settings)
        assert check.plan_problems(settings, None) == list(problems)
        return settings

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[App]:
        async with submitting(self.settings, self.state) as app:
            yield app

    @asynccontextmanager
    async def worker(self) -> AsyncGenerator[Worker]:
        """Yield a worker, which ends afterwards whatever the test does to it."""
        worker = await self.start_worker()
        try:
            yield worker
        finally:
            ended = await worker.end()
        assert ended, (self.home / "workers.log").read_text()

    async def start_worker(self) -> Worker:
        log, script = self.home / "workers.log", str(DATA / "swarm_worker.py")
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        worker = Worker(
            forked.piped("ccswarm", self.own, cwd=self.project, env=env, reads=True, errors=log, script=script)
        )
        assert await worker.up(), log.read_text()
        return worker

    def answer(self, word: str, by: str) -> list[dict[str, Any]]:
        """Answer all that waits for a person, in another process; return the questions."""
        env, script = {**os.environ, "PYTHONPATH": str(ROOT)}, str(DATA / "swarm_answer.py")
        code, said, errors = forked.run("ccswarm", [*self.own, word, by], cwd=self.home, env=env, script=script)
        assert code == 0, errors
        return [json.loads(line) for line in said.splitlines()]

    def records(self) -> list[Record]:
        return list(read(self.state / "journal"))

    def joined(self) -> JoinReport:
        """Return the comparison of the journal with the audit log in this home."""
        files = sorted((self.home / ".local/state/ai-session/audit").glob("audit-*.jsonl"))
        assert files
        return join(self.state / "journal", (line for file in files for line in file.read_bytes().splitlines(True)))

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file in the project; none if it does not exist."""
        file = self.project / name
        return file.read_text().splitlines() if file.exists() else []


@contextmanager
def open_swarm_home(homes: Path, text: str, server_config: str, *, served: bool = True) -> Iterator[SwarmHome]:
    """Yield a new home with a swarm, and with a daemon if it is ``served``; afterwards no process of it may be left."""
    home = new_home(homes, server_config)
    with environment(client_environment(home)):
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        if served:
            forked.daemon(env)
        try:
            yield SwarmHome(home, text)
        finally:
            stopped = forked.run("ai_session", ["daemon", "stop", "--yes"], cwd=home, env=env)
            assert stopped[0] == 0, stopped
    left = end_leftovers(home)
    assert not left, left


async def submit(app: App, settings: Settings, swarm_home: SwarmHome) -> str:
    run_id = new_run_id()
    await app.swarm.submit(settings, run_id, str(swarm_home.project), origin=Origin.PERSON)
    return run_id


async def over(app: App, run_id: str) -> Execution:
    return await asyncio.wait_for(app.engine.wait(run_id), BOUND_SECONDS)


async def event(app: App, execution_id: str, name: str, **facts: Any) -> Mapping[str, Any]:
    """Wait for an event of a run or a task, with these facts, and return the first."""
    run_id, _, task = execution_id.partition(".")
    if task:
        await event(app, run_id, "task.started", execution=execution_id)
    async with asyncio.timeout(BOUND_SECONDS):
        async for one in app.engine.events(execution_id):
            if one.get("event") == name and facts.items() <= one.items():
                return one
    raise AssertionError(f"{execution_id} ended without {name} {facts}")


def git(directory: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@b")
    done = subprocess.run(["git", *who, *words], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()
