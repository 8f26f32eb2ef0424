"""A terminal with its log, used as a session uses it, with waits for tests; and an owner that kills itself.

``python -m tests.ai_session.support.terminals JSON`` owns one terminal until its log has grown to a given size. Then it
kills itself at a given point of storing a chunk.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agentwire import plugins
from ai_session.backends.base import Backend, Terminal
from ai_session.models import ExitStatus, TerminalSpec
from ai_session.terminal.log import FollowedLog, MappedLog, OutputLog
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.support.forked import Forked

CHUNKS_PER_CALL = 8
ROOT = Path(__file__).parents[3]


class Owned:
    """A terminal whose output is stored in its log. ``at_exit`` is the log's end when the exit was reported."""

    def __init__(self, terminal: Terminal, directory: str) -> None:
        self.terminal = terminal
        self.log: OutputLog = (FollowedLog if terminal.writes_log else MappedLog)(Path(directory) / "log")
        self.exits: list[ExitStatus] = []
        self.at_exit = -1
        self._changed = asyncio.Event()
        terminal.start(self._on_output, self._on_exit)

    def _on_output(self) -> None:
        for _ in range(1 << 30 if self.terminal.writes_log else CHUNKS_PER_CALL):
            if not self.log.fill(self.source):
                break
        self._changed.set()

    def source(self, buffer: memoryview) -> int:
        return self.terminal.read_into(buffer)

    def _on_exit(self, status: ExitStatus) -> None:
        self.exits.append(status)
        self.at_exit = self.log.end
        self._changed.set()

    @property
    def output(self) -> bytes:
        return self.log.read(self.log.first, self.log.end)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds, which only output or the exit may change."""
        async with asyncio.timeout(BOUND_SECONDS):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def shows(self, text: bytes) -> bytes:
        """Wait until the output contains ``text`` and return all of it."""
        await self.until(lambda: text in self.output)
        return self.output

    async def holds(self, size: int) -> None:
        """Wait until the log has at least ``size`` bytes."""
        await self.until(lambda: self.log.end >= size)

    async def ended(self) -> ExitStatus:
        await self.until(lambda: bool(self.exits))
        return self.exits[0]

    async def close(self) -> None:
        await self.terminal.close()
        self.log.close()

    def detach(self) -> None:
        self.terminal.detach()
        self.log.close()


class BackendSetup:
    """A runtime directory and its backend."""

    def __init__(self, name: str, runtime: Path) -> None:
        self.name = name
        self.runtime = runtime
        self.count = 0
        self.backend = self.new_backend()

    def new_backend(self) -> Backend:
        return plugins.load("ai_session.backends", self.name)(self.runtime)

    def spec(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str = "/") -> TerminalSpec:
        self.count += 1
        directory = self.runtime / f"s{self.count}"
        directory.mkdir(mode=0o700)
        full = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]} if env is None else env
        return TerminalSpec(f"ses_{self.count}", str(directory), tuple(argv), full, cwd, 24, 80)

    def directory(self, session_id: str) -> str:
        return str(self.runtime / session_id.replace("ses_", "s"))

    async def open(self, *argv: str, env: Mapping[str, str] | None = None, cwd: str = "/") -> Owned:
        spec = self.spec(argv, env=env, cwd=cwd)
        return Owned(await self.backend.open(spec), spec.directory)

    async def sh(self, script: str, *, env: Mapping[str, str] | None = None, cwd: str = "/") -> Owned:
        return await self.open("/bin/sh", "-c", script, env=env, cwd=cwd)

    async def adopt(self) -> dict[str, Owned]:
        """Return the terminals that a later daemon adopts, by session id."""
        terminals = await self.backend.adopt()
        return {terminal.session_id: Owned(terminal, self.directory(terminal.session_id)) for terminal in terminals}

    async def succeed(self) -> dict[str, Owned]:
        """Let the daemon end in an orderly way, and return what a later one adopts."""
        await self.backend.aclose()
        self.backend = self.new_backend()
        return await self.adopt()


@asynccontextmanager
async def open_backend(name: str, home: Path) -> AsyncGenerator[BackendSetup]:
    runtime = home / "run"
    runtime.mkdir(mode=0o700)
    made = BackendSetup(name, runtime)
    try:
        yield made
    finally:
        await made.backend.stop()


async def start_owner(setup: BackendSetup, spec: TerminalSpec, kill_at: int, phase: str) -> tuple[Forked, int]:
    """Start a process that owns ``spec``'s terminal and kills itself. Return it and the pid of the terminal's child."""
    plan = {
        "backend": setup.name,
        "runtime": str(setup.runtime),
        "session_id": spec.session_id,
        "directory": spec.directory,
        "argv": list(spec.argv),
        "env": dict(spec.env),
        "kill_at": kill_at,
        "phase": phase,
    }
    process = forked.piped("ai_session", [json.dumps(plan)], cwd=ROOT, env=os.environ, script=__file__)
    assert process.stdout is not None
    return process, int(await asyncio.to_thread(process.stdout.readline))


class _Doomed(Owned):
    """Kills its process when the log reaches ``kill_at``: before a chunk is read, once it is read, or once stored."""

    kill_at = 0
    phase = ""

    def source(self, buffer: memoryview) -> int:
        if self.phase == "before":
            self._die()
        count = self.terminal.read_into(buffer)
        if self.phase == "read" and count:
            self._die(count)
        return count

    def _on_output(self) -> None:
        super()._on_output()
        if self.phase == "stored" or self.terminal.writes_log:
            self._die()

    def _die(self, stored: int = 0) -> None:
        if self.log.end + stored >= self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


async def _own(plan: dict[str, Any]) -> None:
    backend: Backend = plugins.load("ai_session.backends", plan["backend"])(Path(plan["runtime"]))
    spec = TerminalSpec(plan["session_id"], plan["directory"], tuple(plan["argv"]), plan["env"], "/", 24, 80)
    terminal = await backend.open(spec)
    _Doomed.kill_at = plan["kill_at"]
    _Doomed.phase = plan["phase"]
    os.write(1, f"{terminal.pid}\n".encode())
    _Doomed(terminal, spec.directory)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_own(json.loads(sys.argv[1])))
