"""A daemon whose every way in is tried: what the audit says of each, and whether anything changed on the disk."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import ai_session.config.config  # noqa: F401 - what verbs load late is there when they are forked
from ai_session.audit.files import lines, records
from ai_session.cli import main
from ai_session.client.connection import ControlClient
from ai_session.errors import AiSessionError, DaemonUnavailable
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import BOUND_SECONDS, daemon_pids, living_in, runtime, stop_daemons
from tests.conftest import UNBOXED, environment
from tests.support.bounds import pause

SHUT = '[[policy.rules]]\nid = "shut"\ndecision = "deny"\ntools = ["*"]\n'
OWN = {"audit", "daemon.log", "lock", "sock"}
"""What a daemon writes for itself, whatever is asked of it."""

Pair = tuple[dict[str, Any], dict[str, Any]]
"""Both records of one call."""


class Audit:
    """The log of a runtime directory, from now on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "audit"
        self._seen = max((record["seq"] for record in records(lines(self.directory))), default=0)

    def calls(self) -> list[Pair]:
        """Calls begun since the last look, each with its one end."""
        fresh = [record for record in records(lines(self.directory)) if record["seq"] > self._seen]
        self._seen = fresh[-1]["seq"] if fresh else self._seen
        starts = [record for record in fresh if record["event"] == "tool.start"]
        ends = [record for record in fresh if record["event"] == "tool.end"]
        assert sorted(record["seq"] for record in starts) == sorted(record["start"] for record in ends), (starts, ends)
        by_start = {record["start"]: record for record in ends}
        assert len({record["call"] for record in starts}) == len(starts)
        pairs = [(record, by_start[record["seq"]]) for record in starts]
        assert all((begin["call"], begin["tool"]) == (end["call"], end["tool"]) for begin, end in pairs)
        return pairs

    def newest(self, event: str) -> dict[str, Any]:
        """The last record of that event, however old."""
        return [record for record in records(lines(self.directory)) if record["event"] == event][-1]

    def tools(self) -> list[str]:
        """What these calls asked for, in order."""
        return [begin["tool"] for begin, _ in self.calls()]

    def denied(self) -> list[str]:
        """As ``tools``; each must have been denied by the rule."""
        pairs = self.calls()
        assert all((end["outcome"], end["rule"]) == ("denied", "shut") for _, end in pairs), pairs
        return [begin["tool"] for begin, _ in pairs]


def verb(home: Path, *words: str) -> tuple[int, str]:
    """A verb of who lives there, in this process: exit code, and all it printed."""
    printed = io.TextIOWrapper(io.BytesIO(), write_through=True)
    before = sys.argv
    sys.argv = ["ai-session", *words]
    try:
        with (
            environment(living_in(home)),
            contextlib.chdir(home),
            redirect_stdout(printed),
            redirect_stderr(printed),
        ):
            main.main()
    except SystemExit as left:
        printed.seek(0)
        return int(left.code or 0), printed.read()
    finally:
        sys.argv = before
    raise AssertionError


class House:
    """A HOME with a daemon, two sessions ``s`` and ``t``, a workspace ``w``, and a config file that can be changed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.line = CommandLine(home)
        self.is_shut = False
        self._config = home / ".config/ai-session/config.toml"

    @property
    def runtime(self) -> Path:
        return runtime(self.home)

    def verb(self, *words: str) -> tuple[int, str]:
        """A verb in this process: exit code, and all it printed."""
        return verb(self.home, *words)

    def open(self, rules: str = "") -> None:
        """Everything is allowed, from the next daemon on, but what ``rules`` say."""
        self._config.write_text(UNBOXED + rules)

    def shut(self, rules: str = SHUT) -> None:
        """Everything is denied, from now on, or what ``rules`` say."""
        self.open(rules)
        self.end_daemon()
        self.is_shut = True
        with self.line.client() as client:
            denial(client, "rename", session="nowhere", name="x")

    def settle(self) -> None:
        """Returns when no connection but this one is served, so that what they asked for has its end record."""
        with contextlib.suppress(DaemonUnavailable), self.line.client(start=False) as client:
            while client.request("status")["connections"] > 1:
                pause()

    def end_daemon(self) -> None:
        """As a person can without asking it; sessions go on."""
        (pid,) = daemon_pids(self.home)
        gone = os.pidfd_open(pid)
        os.kill(pid, signal.SIGTERM)
        assert select.select([gone], [], [], BOUND_SECONDS)[0]
        os.close(gone)

    def state(self) -> dict[str, str]:
        """Every file and directory of the home but the daemon's own, and which daemon there is."""
        found = {str(pid): "daemon" for pid in daemon_pids(self.home)}
        for path in self.home.rglob("*"):
            inside = path.relative_to(self.runtime).parts if path.is_relative_to(self.runtime) else ("",)
            if not {*inside[:1]} & OWN:
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "there"
        return found


def denial(client: ControlClient, method: str, **params: Any) -> str:
    """What a refused request says."""
    try:
        result = client.request(method, **params)
    except AiSessionError as error:
        return error.message
    return str(result.get("text", result))


@contextmanager
def house(home: Path, rules: str = "") -> Iterator[House]:
    """With a daemon and its sessions; all of it has gone afterwards."""
    made = House(home)
    made.open(rules)
    (home / "w").mkdir()
    with made.line.client() as client:
        for name in ("s", "t"):
            client.call("create_session", name=name, backend="pty", working_directory=str(home))
    try:
        yield made
    finally:
        made.open()
        if made.is_shut:
            made.end_daemon()
        if not daemon_pids(home):
            made.line.run("daemon", "stop")  # sessions may be left
        stop_daemons(home)
