"""A round: a plan of 30 steps is carried out, and one of its processes is killed or stopped at a random point."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ccswarm.config.settings import Settings
from ccswarm.journal.chain import parse_line
from ccswarm.journal.writer import Record
from ccswarm.models import Execution, RunStatus
from ccswarm.runs.app import App
from tests.conftest import processes
from tests.together.support.swarms import SwarmHome, Worker, submit

NEEDS = {"t1": (), "t2": (), "t3": (), "t4": ("t1", "t2"), "t5": ("t2", "t3"), "t6": ("t4", "t5")}
SUM = "tr ' ' '\\n' | awk '{ sum += $1 } END { print sum }'"
WORKS = ("one", "two", "three")
"""The steps of each task between opening and closing its session."""

STOPPED_SECONDS = 9.0
RUN_SECONDS = 240.0
LOOK_SECONDS = 0.01
SHELL_NAME = re.compile(rb"\0AI_SESSION_NAME=([^\0]*)")


def step(task: str, name: str, command: str) -> str:
    say = f"${{task.id}} {name}"
    text = (
        f"echo {say} >> ${{run.id}}.starts; grep -qx '{say}' ${{run.id}}.effects || echo {say} >> ${{run.id}}.effects"
    )
    return f"""
[[tasks.steps]]
id = "{name}"
tool = "ai-session.execute_command"
retry = {{ times = 3, seconds = 0.1 }}
args = {{ session_id = "${{steps.open.session_id}}", command = '''touch ${{run.id}}.effects; {text}; {command}''' }}
"""


def task(name: str, needs: tuple[str, ...]) -> str:
    """Return a task whose numbers depend on those of the tasks it needs, and whose second step fails the first time."""
    numbers = " ".join(f"${{q:needs.{need}.steps.three.output}}" for need in needs) or name[1:]
    fails = f"[ -e ${{run.id}}.{name} ] || {{ : > ${{run.id}}.{name}; exit_with() {{ return 3; }}; exit_with; }}"
    return f"""
[[tasks]]
id = "{name}"
needs = {list(needs)}
retry = {{ times = 6, seconds = 0.2, factor = 1 }}

[[tasks.steps]]
id = "open"
tool = "ai-session.create_session"
args = {{ name = "${{run.id}}-{name}" }}
gate = true
{step(name, "one", f"echo {numbers} | {SUM}")}
{step(name, "two", fails)}
{step(name, "three", f"echo ${{q:steps.one.output}} ${{q:steps.one.output}} | {SUM}")}
[[tasks.steps]]
id = "close"
tool = "ai-session.close_session"
args = {{ session_id = "${{steps.open.session_id}}" }}
"""


CREW = "".join(f'[[agents]]\nname = "{name}"\ngrants = ["ai-session.*"]\n' for name in ("ann", "bob", "cy"))
PLAN = "".join(task(name, needs) for name, needs in NEEDS.items())


def plain(run: Execution) -> dict[str, Any]:
    """Return a run's results without what differs between runs: names, times, agents and numbers of attempts."""
    return {
        name: {
            step: [facts["status"], facts.get("exit_code"), facts.get("output")]
            for step, facts in task["result"]["steps"].items()
        }
        for name, task in run.result["tasks"].items()
    }


class Fleet:
    """Worker processes, each of which is replaced when it ends."""

    def __init__(self, swarm_home: SwarmHome, size: int) -> None:
        self._swarm_home = swarm_home
        self._size = size
        self.workers: list[Worker] = []
        self._keepers: list[asyncio.Task[None]] = []
        self.codes: Counter[int] = Counter()

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        self.workers = [await self._swarm_home.start_worker() for _ in range(self._size)]
        self._keepers = [asyncio.create_task(self._keep(slot)) for slot in range(self._size)]
        try:
            yield
        finally:
            for keeper in self._keepers:
                keeper.cancel()
            await asyncio.gather(*self._keepers, return_exceptions=True)
            ended = await asyncio.gather(*(worker.end() for worker in self.workers))
        assert all(ended), (self._swarm_home.home / "workers.log").read_text()[-4000:]

    async def _keep(self, slot: int) -> None:
        while True:
            self.codes[await self.workers[slot].wait()] += 1
            await self.workers[slot].end()
            self.workers[slot] = await self._swarm_home.start_worker()

    def check(self) -> None:
        """Raise the exception of a replacement that failed."""
        for keeper in self._keepers:
            if keeper.done():
                keeper.result()


@dataclass
class Tally:
    """The results of a hundred rounds: the number of each kind, and of those that tried a task again."""

    kinds: Counter[str] = field(default_factory=Counter[str])
    again: Counter[str] = field(default_factory=Counter[str])
    recovery: float = 0.0
    wrong: list[str] = field(default_factory=list[str])

    def add(self, seed: int, one: Round, run: Execution, wrong: str) -> None:
        self.kinds[one.kind] += 1
        self.recovery = max(self.recovery, one.recovery)
        if run.result and any(task["attempts"] > 1 for task in run.result["tasks"].values()):
            self.again[one.kind] += 1
        if wrong:
            self.wrong.append(f"round {seed}, {one.kind}: {wrong}")
            print(self.wrong[-1], *one.ends(), sep="\n", flush=True)


def of_home(swarm_home: SwarmHome, words: str) -> list[int]:
    """Return the processes of this home whose command line contains ``words``."""
    needle = os.fsencode(swarm_home.home)
    return [
        pid
        for pid, what in processes()
        if needle in what and words.encode() in what.partition(b"\0\0")[0].replace(b"\0", b" ")
    ]


def shells_of(run_id: str) -> list[int]:
    """Return the shells of a run's sessions, each the first process of its session."""
    found: dict[bytes, int] = {}
    for pid, what in processes():
        if (name := SHELL_NAME.search(what)) and name[1].startswith(run_id.encode()):
            found[name[1]] = min(pid, found.get(name[1], pid))
    return list(found.values())


def sizes(swarm_home: SwarmHome) -> dict[Path, int]:
    """Return the sizes of the journals in bytes."""
    return {path: path.stat().st_size for path in (swarm_home.state / "journal").glob("*.jsonl")}


KINDS = {
    "worker": 40,
    "worker stopped": 8,
    "daemon": 16,
    "daemon stopped": 4,
    "relay": 12,
    "shell": 20,
}


class Round:
    """A run during which one process is killed or stopped."""

    def __init__(
        self,
        swarm_home: SwarmHome,
        app: App,
        fleet: Fleet,
        seed: int,
        journal_bytes: int,
        kinds: Mapping[str, int] = KINDS,
    ) -> None:
        self.swarm_home = swarm_home
        self.app = app
        self.fleet = fleet
        self.random = random.Random(seed)
        self.sizes = sizes(swarm_home)
        self.target = sum(self.sizes.values()) + self.random.randrange(1, journal_bytes)
        self.kind = self.random.choices(list(kinds), list(kinds.values()))[0]
        self.recovery = 0.0

    async def play(self, settings: Settings) -> Execution:
        self.run_id = await submit(self.app, settings, self.swarm_home)
        over = asyncio.create_task(self.app.engine.wait(self.run_id))
        try:
            async with asyncio.timeout(RUN_SECONDS):
                while sum(sizes(self.swarm_home).values()) < self.target and not over.done():
                    await self._pause(over, LOOK_SECONDS)
                await self._pause(over, self.random.uniform(0, 0.05))
                await self._strike(over)
                return await over
        finally:
            over.cancel()

    async def _pause(self, over: asyncio.Task[Execution], seconds: float) -> None:
        await asyncio.wait([over], timeout=seconds)

    async def _strike(self, over: asyncio.Task[Execution]) -> None:
        victims = self._victims()
        if not victims or over.done():
            self.kind += ", too late"
            return
        victim = self.random.choice(victims)
        stops = self.kind.endswith("stopped")
        began = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGSTOP if stops else signal.SIGKILL)
        if not stops and self.kind == "worker":
            await self._recovered(victim)
            self.recovery = time.monotonic() - began
        elif stops:
            with suppress(TimeoutError):  # a file that it has locked stays locked for the others
                async with asyncio.timeout(STOPPED_SECONDS):
                    await self._recovered(victim)
                    self.recovery = time.monotonic() - began
                    await asyncio.Event().wait()
            os.kill(victim, signal.SIGCONT)

    def _victims(self) -> list[int]:
        if self.kind.startswith("worker"):
            return [worker.pid for worker in self.fleet.workers if worker.returncode is None]
        if self.kind == "shell":
            return shells_of(self.run_id)
        return of_home(self.swarm_home, "mcp-server --stdio" if self.kind == "relay" else "daemon run --handed")

    async def _recovered(self, pid: int) -> None:
        """Wait until no run is the killed worker's; return at once for other processes."""
        while True:
            rows = await self.app.engine.list(limit=40)
            if not any(row.status is RunStatus.RUNNING and row.worker.endswith(f"-{pid}") for row in rows):
                return
            self.fleet.check()
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 0.05)

    def wrong(self, run: Execution, alone: Execution, most_seconds: float) -> str:
        """Return what is wrong with the result, or an empty text; ``alone`` is an undisturbed run."""
        if run.result is None or run.result["status"] != "succeeded":
            return f"it ended otherwise: {run.result or run.error}"
        if plain(run) != plain(alone):
            return f"the results differ: {plain(run)}"
        if self.recovery > most_seconds:
            return f"recovery took {self.recovery:.1f} s"
        return self._effects(run)

    def _effects(self, run: Execution) -> str:
        """Return what is wrong with the effects, or an empty text.

        Each effect must have happened once, and each command must have run once for each call key, however often it was
        sent. Unless a shell was killed, only a repeated task uses new keys.
        """
        everything = sorted(f"{name} {work}" for name in NEEDS for work in WORKS)
        if (found := sorted(self.swarm_home.lines(f"{self.run_id}.effects"))) != everything:
            return f"effects: {found}"
        keys: dict[str, set[str]] = {}
        for record in self.records():
            facts = record.facts
            if record.event == "call.begin" and facts["tool"].endswith("execute_command"):
                name = facts["task"].removeprefix(f"{self.run_id}.").partition("~")[0]
                keys.setdefault(f"{name} {facts['step'].partition('#')[0]}", set()).add(facts["key"])
        starts = Counter(self.swarm_home.lines(f"{self.run_id}.starts"))
        if more := {name: count for name, count in starts.items() if count > len(keys[name])}:
            return f"commands ran twice for one key: {more}"
        if self.kind == "shell":  # the result of its command is unknown, so the step is tried again
            return ""
        twice = {name: count for name, count in starts.items() if count != (2 if name.endswith("two") else 1)}
        return f"commands were sent with several keys: {twice}" if twice else ""

    def records(self) -> list[Record]:
        """Return the journals' records of this run's calls, in order of time."""
        found: list[Record] = []
        for path in sizes(self.swarm_home):
            with path.open("rb") as file:
                file.seek(self.sizes.get(path, 0))
                links = [link for line in file if (link := parse_line(line))]
            found += [link.record for link in links if link.record.facts.get("run") == self.run_id]
        return sorted(found, key=lambda record: record.at)

    def ends(self) -> list[str]:
        """Return the calls that failed, and all calls of tasks that were tried again."""
        names = ("task", "step", "tool", "status", "code", "message", "exit_code", "key")
        found = [(one, {name: one.facts[name] for name in names if name in one.facts}) for one in self.records()]
        return [
            f"{record.at:.3f} {record.worker} {record.event} {facts}"
            for record, facts in found
            if facts.get("status", "ok") != "ok" or "~" in facts["task"]
        ]
