"""Inspection of the tmux backend for its tests, and persons who attach to a terminal with tmux itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from ai_session.backends.tmux.plugin import TmuxBackend
from ai_session.backends.tmux.terminal import TmuxTerminal
from ai_session.system.events import process_ended
from tests.ai_session.support.terminals import BOUND_SECONDS, BackendSetup, Owned
from tests.conftest import contents, pids

CAT = "stty raw -echo; printf ready; exec cat"
ECHOES = 'stty -echo; echo ready; while read -r line; do echo "<$line>"; done'


class TmuxWorld(BackendSetup):
    """A runtime directory with the tmux backend. ``hold``: whether terminals may hold their ttys open themselves."""

    hold = True

    def new_backend(self) -> TmuxBackend:
        return TmuxBackend(self.runtime, hold=self.hold)


@asynccontextmanager
async def a_world(home: Path, *, hold: bool = True) -> AsyncGenerator[TmuxWorld]:
    runtime = home / "run"
    runtime.mkdir(mode=0o700)
    made = TmuxWorld("tmux", runtime)
    made.hold = hold
    made.backend = made.new_backend()
    try:
        yield made
    finally:
        await made.backend.stop()


def backend(here: BackendSetup) -> TmuxBackend:
    assert isinstance(here.backend, TmuxBackend)
    return here.backend


def client_pid(here: BackendSetup) -> int:
    """The process id of the control client, 0 while there is none."""
    client = backend(here).server._client  # pyright: ignore[reportPrivateUsage]
    return client.pid if client and not client.closed else 0


def pane(owned: Owned) -> TmuxTerminal:
    assert isinstance(owned.terminal, TmuxTerminal)
    return owned.terminal


async def tmux(here: BackendSetup, *words: str) -> str:
    """Run a person's tmux command on the server and return its output."""
    process = await asyncio.create_subprocess_exec(
        "tmux", "-S", backend(here).server.socket, *words, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(BOUND_SECONDS):
        out, _ = await process.communicate()
    return out.decode().rstrip("\n")


def sinks(owned: Owned) -> list[int]:
    """Return the processes that append to the log."""
    wanted = os.stat(pane(owned).log).st_ino
    found: list[int] = []
    for pid in pids():
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}/fd/1").st_ino == wanted and contents(f"/proc/{pid}/comm") == b"dd\n":
                found.append(pid)
    return found


def holder(fifo: Path) -> int:
    """Return the process other than this one that has ``fifo`` open."""
    wanted = os.stat(fifo).st_ino
    for pid in pids():
        with contextlib.suppress(OSError):
            if any(os.stat(f"/proc/{pid}/fd/{fd}").st_ino == wanted for fd in os.listdir(f"/proc/{pid}/fd")):
                return pid
    raise AssertionError(f"nobody holds {fifo}")


async def kill_sink(owned: Owned) -> None:
    [sink] = sinks(owned)
    os.kill(sink, signal.SIGKILL)
    await process_ended(sink)


async def until_piped(owned: Owned) -> None:
    """Wait for a sink. Each check sends a request to tmux, which makes the terminal try to start one."""
    async with asyncio.timeout(BOUND_SECONDS):
        while not sinks(owned):
            await owned.terminal.capture()


class Person:
    """A person attached to a terminal with tmux itself, from a terminal of another size."""

    def __init__(self, owned: Owned, elsewhere: BackendSetup, here: BackendSetup) -> None:
        self.owned = owned
        self._elsewhere = elsewhere
        self._here = here

    @classmethod
    async def attach(cls, here: BackendSetup, owned: Owned) -> Person:
        """Attach a person, whose emulator is a terminal of another backend."""
        command = ("tmux", "-S", backend(here).server.socket, "attach", "-t", pane(owned).session_id)
        elsewhere = BackendSetup("pty", here.runtime.parent / "p")
        elsewhere.runtime.mkdir(mode=0o700)
        env = {"PATH": os.environ["PATH"], "TERM": "xterm"}
        person = cls(await elsewhere.open(*command, env=env), elsewhere, here)
        await person.owned.shows(b"ready")
        return person

    async def leave(self) -> None:
        # Not by its key: tmux treats keys that arrive within a millisecond as pasted text.
        await tmux(self._here, "detach-client", "-a", "-t", f"client-{client_pid(self._here)}")
        await self.owned.ended()
        await self.owned.close()
        await self._elsewhere.backend.stop()
