"""One round: a command prints megabytes, something is killed -9 at a random byte, what is left is judged."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ai_session.client.connection import ControlClient, connect
from ai_session.config.config import runtime_directories
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS, pause

LINES = 200_000
EXPECTED = "\n".join(map(str, range(1, LINES + 1))) + "\n"


def spin(holds: Callable[[], object], what: str) -> None:
    """Looks again and again; for facts that no event announces."""
    end = time.monotonic() + BOUND_SECONDS
    while not holds():
        assert time.monotonic() < end, what
        pause()


def runtime() -> Path:
    """Where the daemon of this test's HOME lives."""
    return next(p for p in runtime_directories(Path(os.environ["HOME"]), os.getuid()) if (p / "sock").exists())


def keepers(name: str) -> list[int]:
    """Pids of this HOME's processes whose command line matches: the holder, the tmux server."""
    home = os.environ["HOME"].encode()
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        if home in line and re.search(name.encode(), line):
            found.append(int(folder.name))
    return found


class Round:
    """A session with a variable set and a command that prints ``EXPECTED`` and exits 7."""

    def __init__(self, client: ControlClient, backend: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.name = f"r{seed}"
        self.backend = backend
        made = client.call("create_session", name=self.name, backend=backend).structured
        self.directory = runtime() / "sessions" / made["session_id"]
        client.call("execute_command", session_id=self.name, command=f"kept={seed}; cd /usr")
        self.pid = client.call("get_session_info", session_id=self.name).structured["pid"]

    def begin(self) -> None:
        """Start the command that prints."""
        self.start = self.written()
        with connect() as client:
            begun = client.call(
                "execute_command", session_id=self.name, command=f"seq 1 {LINES}; (exit 7)", timeout_seconds=0
            )
        self.command_id = begun.structured["command_id"]

    def written(self) -> int:
        """Bytes the log holds so far."""
        end = self.directory / "log.end"
        if end.exists():
            return int.from_bytes(end.read_bytes()[:8], "little")
        return (self.directory / "log").stat().st_size

    def wait_random_byte(self) -> None:
        """Returns when a random part of the output is in the log."""
        target = self.start + self.random.randrange(0, int(len(EXPECTED) * 0.7))
        spin(lambda: self.written() >= target, f"{self.written()} of {target} bytes")

    def output(self, client: ControlClient) -> str:
        """The command's whole output, page by page."""
        text, offset = "", 0
        while True:
            page = client.call(
                "read_output", session_id=self.name, command_id=self.command_id, offset=offset, max_output_chars=200_000
            ).structured
            text += page["output"]
            if page["next_offset"] >= page["end_offset"]:
                return text
            offset = page["next_offset"]

    def check_survived(self, client: ControlClient) -> None:
        """Output, exit code and the shell's state are exact."""
        end = client.call(
            "read_output", session_id=self.name, command_id=self.command_id, wait_for="finish", timeout_seconds=50
        ).structured
        assert (end["status"], end.get("exit_code")) == ("finished", 7), end
        assert self.output(client) == EXPECTED
        state = client.call("execute_command", session_id=self.name, command="echo $kept; pwd").structured
        assert state["output"] == f"{self.name[1:]}\n/usr\n", state

    def check_ended(self, client: ControlClient, state: str) -> None:
        """The session says how it ended, and the output so far is exact."""
        end = client.call(
            "read_output", session_id=self.name, command_id=self.command_id, wait_for="finish", timeout_seconds=50
        ).structured
        if end.get("exit_code") == 7:
            # It had ended before the kill came; then nothing of it may be missing.
            assert self.output(client) == EXPECTED
        else:
            assert end["status"] == ("lost" if state == "lost" else "finished"), end
        info = client.call("get_session_info", session_id=self.name).structured
        assert info["state"] == state, info
        text = self.output(client)
        assert EXPECTED.startswith(text.removesuffix("\n").rpartition("\n")[0])


@contextmanager
def daemon() -> Iterator[None]:
    """A daemon of this HOME; afterwards it and everything it kept is gone."""
    forked.daemon({**os.environ, "PYTHONPATH": str(forked.ROOT)})
    try:
        yield
    finally:
        with connect() as client:
            client.request("stop", sessions=True)
            client.wait_closed()
