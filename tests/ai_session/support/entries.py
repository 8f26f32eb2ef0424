"""A daemon for tests of all its interfaces, with the audit log of each call and the changes on the disk."""

from __future__ import annotations

import contextlib
import hashlib
import io
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
from tests.ai_session.support.mcp_client import daemon_pids, living_in, runtime, stop_daemons
from tests.conftest import NO_RUNS, UNBOXED, environment
from tests.support.bounds import pause
from tests.support.process_ends import kill_process

SHUT = '[[policy.rules]]\nid = "shut"\ndecision = "deny"\ntools = ["*"]\n'
OWN = {"audit", "daemon.log", "lock", "sock"}
"""The files that a daemon writes for itself, regardless of requests."""

Pair = tuple[dict[str, Any], dict[str, Any]]
"""The start record and the end record of a call."""


class Audit:
    """The audit log of a runtime directory from now on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "audit"
        self._seen = max((record["seq"] for record in records(lines(self.directory))), default=0)

    def calls(self) -> list[Pair]:
        """Return the calls begun since the last query, each with its only end record."""
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
        """Return the last record of an event, however old."""
        return [record for record in records(lines(self.directory)) if record["event"] == event][-1]

    def tools(self) -> list[str]:
        """Return the tools of the calls since the last query, in order."""
        return [begin["tool"] for begin, _ in self.calls()]

    def denied(self) -> list[str]:
        """Return the tools of the calls since the last query, all of which the rule must have denied."""
        pairs = self.calls()
        assert all((end["outcome"], end["rule"]) == ("denied", "shut") for _, end in pairs), pairs
        return [begin["tool"] for begin, _ in pairs]


def verb(home: Path, *words: str) -> tuple[int, str]:
    """Run a verb with this home in this process; return its exit code and all it printed."""
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


class DaemonHome:
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
        """Run a verb in this process; return its exit code and all it printed."""
        return verb(self.home, *words)

    def open(self, rules: str = "") -> None:
        """Allow everything but what ``rules`` decide otherwise, from the next daemon on."""
        self._config.write_text(UNBOXED + rules + NO_RUNS)

    def shut(self, rules: str = SHUT) -> None:
        """Apply ``rules`` from now on, which deny everything by default."""
        self.open(rules)
        self.end_daemon()
        self.is_shut = True
        with self.line.client() as client:
            denial(client, "rename", session="nowhere", name="x")

    def settle(self) -> None:
        """Wait until no other connection is served, so that all their calls have end records."""
        with contextlib.suppress(DaemonUnavailable), self.line.client(start=False) as client:
            while client.request("status")["connections"] > 1:
                pause()

    def end_daemon(self) -> None:
        """End the daemon by a signal; sessions keep running."""
        (pid,) = daemon_pids(self.home)
        kill_process(pid, signal.SIGTERM)

    def state(self) -> dict[str, str]:
        """Return every file and directory of the home but the daemon's own, and the running daemon."""
        found = {str(pid): "daemon" for pid in daemon_pids(self.home)}
        for path in self.home.rglob("*"):
            inside = path.relative_to(self.runtime).parts if path.is_relative_to(self.runtime) else ("",)
            if not {*inside[:1]} & OWN:
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "there"
        return found


def denial(client: ControlClient, method: str, **params: Any) -> str:
    """Send a request and return its error message."""
    try:
        result = client.request(method, **params)
    except AiSessionError as error:
        return error.message
    return str(result.get("text", result))


@contextmanager
def daemon_home(home: Path, rules: str = "") -> Iterator[DaemonHome]:
    """Yield a home with a daemon and its sessions, all of which end afterwards."""
    made = DaemonHome(home)
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
