"""A home with a swarm in it: its configuration, workers in processes of their own, and the logs of both sides."""

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

from ccswarm.app import App, new_run_id, submitting
from ccswarm.config import config
from ccswarm.config.settings import Settings
from ccswarm.engines.base import Execution
from ccswarm.journal.writer import JoinReport, Record, join, read
from ccswarm.plan import check
from ccswarm.plan.origin import Origin
from tests.bounds import BOUND_SECONDS
from tests.ccswarm.contract.verb_desk import agreed
from tests.conftest import client_environment, end_leftovers, environment, new_home

ROOT = Path(__file__).parents[2]
TELL_SECONDS = 5.0
"""For a worker that does not end, to say what it does instead."""
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


class House:
    """Where one swarm lives: ``project`` is the directory its agents work in."""

    def __init__(self, home: Path, text: str) -> None:
        self.home = home
        self.project = home / "project"
        self.project.mkdir()
        self.state = home / ".local/state/ccswarm"
        self.file = home / "ccswarm.toml"
        self.rewrite(text)
        self.settings = config.peek(self.file).settings

    def add(self, text: str) -> None:
        """More configuration, before anything is started."""
        self.rewrite(self.file.read_text() + text)
        self.settings = config.peek(self.file).settings

    def rewrite(self, text: str) -> None:
        """As a person who edits the configuration, and agrees to what it says now."""
        self.file.write_text(text)
        agreed(self.file, self.state)

    def script(self, name: str, *words: str) -> list[str]:
        return [sys.executable, str(DATA / name), str(self.file), str(self.state), *words]

    def plan(self, text: str, *problems: str) -> Settings:
        """A plan over the configuration, and what is wrong with it as far as that can be told without servers."""
        file = self.home / "plan.toml"
        file.write_text(text)
        settings = config.peek_plan(file, self.settings)
        assert check.check(settings, None) == list(problems)
        return settings

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[App]:
        async with submitting(self.settings, self.state) as app:
            yield app

    @asynccontextmanager
    async def worker(self) -> AsyncGenerator[asyncio.subprocess.Process]:
        """One that executes; whatever the test does to it, it is gone afterwards."""
        process = await self.start_worker()
        try:
            yield process
        finally:
            ended = await end(process)
        assert ended, (self.home / "workers.log").read_text()

    async def start_worker(self) -> asyncio.subprocess.Process:
        with (self.home / "workers.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self.script("swarm_worker.py"),
                cwd=self.project,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert process.stdout
        said = await asyncio.wait_for(process.stdout.readline(), BOUND_SECONDS)
        assert said == b"up\n", (self.home / "workers.log").read_text()
        return process

    def answer(self, word: str, by: str) -> list[dict[str, Any]]:
        """What waits for a person is answered by another process; what was asked."""
        done = subprocess.run(
            self.script("swarm_answer.py", word, by),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            timeout=BOUND_SECONDS,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    def records(self) -> list[Record]:
        return list(read(self.state / "journal"))

    def joined(self) -> JoinReport:
        """The journal against the audit log that the server keeps in this home."""
        files = sorted((self.home / ".local/state/ai-session/audit").glob("audit-*.jsonl"))
        assert files
        return join(self.state / "journal", (line for file in files for line in file.read_bytes().splitlines(True)))

    def lines(self, name: str) -> list[str]:
        """Of a file in the project; none where it is not there."""
        file = self.project / name
        return file.read_text().splitlines() if file.exists() else []


async def end(process: asyncio.subprocess.Process) -> bool:
    """The worker hands back what is unfinished and ends. Where it does not, it says in its log what it does instead,
    and is ended."""
    assert process.stdin
    if process.returncode is None:
        process.send_signal(signal.SIGCONT)
        process.stdin.close()
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            return await process.wait() in (0, -signal.SIGKILL)
    except TimeoutError:
        process.send_signal(signal.SIGUSR1)
        with suppress(TimeoutError):
            async with asyncio.timeout(TELL_SECONDS):
                await process.wait()
        process.kill()
        return False
    finally:
        await process.communicate()


@contextmanager
def open_house(world: Path, text: str, server_config: str) -> Iterator[House]:
    """Afterwards the daemon has ended and nobody is left."""
    home = new_home(world, server_config)
    with environment(client_environment(home)):
        try:
            yield House(home, text)
        finally:
            with environment({**os.environ, "PYTHONPATH": str(ROOT)}):
                stop = [sys.executable, "-m", "ai_session", "daemon", "stop", "--yes"]
                subprocess.run(stop, check=True, capture_output=True, timeout=BOUND_SECONDS)
    left = end_leftovers(home)
    assert not left, left


async def submit(app: App, settings: Settings, house: House) -> str:
    run_id = new_run_id()
    await app.swarm.submit(settings, run_id, str(house.project), origin=Origin.PERSON)
    return run_id


async def over(app: App, run_id: str) -> Execution:
    return await asyncio.wait_for(app.engine.wait(run_id), BOUND_SECONDS)


async def event(app: App, execution_id: str, name: str, **facts: Any) -> Mapping[str, Any]:
    """The first such event of a run or, once it has started, of a task."""
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
