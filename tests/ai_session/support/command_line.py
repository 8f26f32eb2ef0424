"""The real command line as processes, on pipes and terminals, in a home of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from ai_session.client.connection import ControlClient, connect
from ai_session.errors import DaemonUnavailable
from tests.conftest import environment
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.support.forked import Forked, Person

ROOT = Path(__file__).parents[3]
LINE = [sys.executable, "-m", "ai_session"]


class CommandLine:
    """``ai-session`` with one folder as HOME and current directory. Its exit ends the daemon and every session.

    ``HOME`` among the variables is for a user whose daemon has another home.
    """

    def __init__(self, home: Path, **variables: str) -> None:
        self.home = home
        self._variables = {"HOME": str(home), **variables}

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), **self._variables}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with self.client(start=False) as client:
                gone = os.pidfd_open(client.hello["pid"])
                if (Path(client.request("status")["directory"]) / "sessions").exists():
                    client.request("stop", sessions=True)
                else:  # without sessions, a signal avoids loading the modules that end them
                    os.kill(client.hello["pid"], signal.SIGTERM)
        except DaemonUnavailable:
            self.run("daemon", "stop")  # sessions may be left
            return
        assert select.select([gone], [], [], BOUND_SECONDS)[0], "the daemon does not end"
        os.close(gone)

    def end_sessions(self) -> None:
        """Close all sessions of a daemon that other tests use afterwards."""
        with self.client() as client:
            for row in client.call("list_sessions").structured["sessions"]:
                client.call("close_session", session_id=row["session_id"])

    @contextmanager
    def client(self, *, start: bool = True) -> Iterator[ControlClient]:
        """Yield the connection that a verb has, in this process."""
        if start:
            forked.daemon(self.env)
        with environment(self.env):
            client = connect(start=start)
        with client:
            yield client

    def run(self, *words: str, code: int = 0, **options: Any) -> subprocess.CompletedProcess[Any]:
        """Run a verb on pipes, with ``typed`` in a person's window; its exit code must be ``code``."""
        text, given = options.get("text", True), options.get("input")
        status, out, err = forked.run(
            "ai_session",
            words,
            cwd=options.get("cwd", self.home),
            env=self.env,
            given=given.encode() if isinstance(given, str) else given,
            seconds=options.get("timeout", BOUND_SECONDS),
            typed=options.get("typed", False),
        )
        assert status == code, (words, status, out, err)
        streams = (out.decode(), err.decode()) if text else (out, err)
        return subprocess.CompletedProcess(words, status, *streams)

    def out(self, *words: str, **options: Any) -> str:
        """Run a verb that must succeed and return its standard output."""
        return self.run(*words, **options).stdout

    def json(self, *words: str, code: int = 0) -> Any:
        """Run a verb with ``--json`` and return its parsed output."""
        return json.loads(self.run(words[0], "--json", *words[1:], code=code).stdout)

    @contextmanager
    def start(self, *words: str) -> Iterator[Forked]:
        """Yield a running verb with its output on an unbuffered pipe, which is killed afterwards."""
        process = forked.piped("ai_session", words, cwd=self.home, env=self.env)
        try:
            yield process
        finally:
            process.close()

    def spawn(self, *words: str, size: tuple[int, int] = (24, 80)) -> Person:
        """Start a verb on a terminal of its own."""
        return Person("ai_session", words, cwd=self.home, env=self.env, size=size)

    def daemon_pid(self) -> int:
        """Return the process id of the running daemon."""
        with self.client(start=False) as client:
            return client.hello["pid"]


def finish(process: Forked) -> tuple[str, str]:
    """Wait for the end and return the rest of output and errors."""
    out, err = process.communicate(timeout=BOUND_SECONDS)
    return out.decode(), err.decode()
