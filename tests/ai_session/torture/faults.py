"""A daemon on a machine that has run out of something, a caller over MCP, and ways to break the machine."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.ai_session.support.mcp_client import BOUND_SECONDS, Client
from tests.conftest import UNBOXED_VARIABLES
from tests.support.process_ends import ending

ROOT = Path(__file__).parents[3]
SERVER = [sys.executable, "-m", "ai_session", "mcp-server", "--stdio"]
ELSEWHERE = str(ROOT / "tests/data/start_elsewhere.py")
BACKENDS = ["pty", "tmux"]
PTY_FIRST = ["pty", pytest.param("tmux", marks=pytest.mark.torture)]
TMUX_FIRST = ["tmux", pytest.param("pty", marks=pytest.mark.torture)]
"""Both, of which every run has the one."""
Facts = dict[str, Any]


class Caller(Client):
    """An MCP client that knows what it expects: a result or a refusal."""

    def __init__(self, prefix: list[str], environment: dict[str, str]) -> None:
        script = ELSEWHERE if "ELSEWHERE" in environment else ""
        super().__init__([*prefix, *SERVER], env=environment, cwd="/", script=script)
        self.initialize()

    def ok(self, tool: str, /, **arguments: Any) -> Facts:
        """The structured content of a call that succeeds."""
        result = self.call(tool, **arguments)
        assert not result.get("isError"), result
        return result["structuredContent"]

    def refused(self, code: str, tool: str, /, **arguments: Any) -> Facts:
        """The error of a call that is refused with ``code`` and a suggestion."""
        result = self.call(tool, **arguments)
        assert result.get("isError"), result
        error = result["_meta"]["ai-session/error"]
        assert error["code"] == code, error
        assert error["message"], error
        assert error["suggestion"], error
        return error

    def run(self, session: str, command: str, code: int = 0) -> str:
        """The output of a command that ends with ``code``."""
        facts = self.ok("execute_command", session_id=session, command=command)
        assert (facts["status"], facts.get("exit_code")) == ("finished", code), facts
        return facts["output"]

    def begin(self, session: str, command: str) -> str:
        """Start a command that goes on; its id."""
        facts = self.ok("execute_command", session_id=session, command=command, timeout_seconds=0)
        assert facts["status"] == "running", facts
        return facts["command_id"]

    def finish(self, session: str, command_id: str) -> Facts:
        """How a command ended."""
        wait = {"wait_for": "finish", "timeout_seconds": 50, "tail_lines": 5}
        facts = self.ok("read_output", session_id=session, command_id=command_id, **wait)
        assert facts["status"] != "running", facts
        return facts

    def state(self, session: str) -> str:
        """The session's state."""
        return self.ok("get_session_info", session_id=session)["state"]


class Machine:
    """Where one daemon lives: a HOME, what its processes are started through, and a mount namespace of theirs."""

    def __init__(self, home: Path, prefix: list[str] | None = None, keeper: int = 0, **variables: str) -> None:
        self.home = Path(f"/proc/{keeper}/root{home}") if keeper else home
        """The HOME as this process sees it."""
        self._prefix = prefix or []
        own = {"PYTHONPATH": str(ROOT), "HOME": str(home)}
        self._environment = {**os.environ, **UNBOXED_VARIABLES, **own, **variables}

    @property
    def runtime(self) -> Path:
        """The daemon's directory."""
        return self.home / ".local/state/ai-session"

    @contextmanager
    def caller(self, **variables: str) -> Iterator[Caller]:
        """A client; the first one starts the daemon."""
        with Caller(self._prefix, self._environment | variables) as client:
            yield client

    def daemon(self) -> int:
        """Pid of the daemon, as its hello says."""
        with self._hello(b"control") as (_, hello):
            return hello["pid"]

    @contextmanager
    def _hello(self, role: bytes) -> Iterator[tuple[socket.socket, Facts]]:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(BOUND_SECONDS)
            link.connect(str(self.runtime / "sock"))
            link.sendall(b'{"ai_session":1,"role":"%b"}\n' % role)
            yield link, json.loads(link.makefile("rb").readline())

    def stop_as_its_user(self) -> None:
        """The same for a daemon that talks to its own user only."""
        line = [*self._prefix, *SERVER[:3], "daemon", "stop"]
        subprocess.run(line, env=self._environment, cwd="/", check=True, stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        """End the daemon with its sessions, and wait until it has gone."""
        with (
            contextlib.suppress(FileNotFoundError, ConnectionRefusedError),
            self._hello(b"control") as (link, hello),
            ending(hello["pid"]),
        ):
            link.sendall(b'{"id":1,"method":"stop","params":{"sessions":true}}\n')


@contextmanager
def machine(home: Path, **variables: str) -> Iterator[Machine]:
    """Yield a machine without faults of its own."""
    here = Machine(home, **variables)
    try:
        yield here
    finally:
        here.stop()


@contextmanager
def mounted(home: Path, mounts: str) -> Iterator[Machine]:
    """Yield a machine on which a shell script has mounted something; as root or not."""
    alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    script = f"{mounts} && echo ready && exec cat"
    keeper = subprocess.Popen([*alone, "sh", "-ec", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert keeper.stdin
    assert keeper.stdout
    try:
        assert keeper.stdout.readline() == b"ready\n"
        here = Machine(home, keeper=keeper.pid, ELSEWHERE=str(keeper.pid))
        try:
            yield here
        finally:
            here.stop()
    finally:
        keeper.stdin.close()
        keeper.wait(BOUND_SECONDS)
        keeper.stdout.close()


def fill(machine: Machine) -> Path:
    """Takes all room that is left on the disk of the HOME; the file to remove."""
    path = machine.home / "filler"
    with path.open("ab", buffering=0) as file:
        for size in (1 << 16, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass
        with pytest.raises(OSError, match="No space left"):
            file.write(b"x")
    return path
