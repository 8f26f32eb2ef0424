"""Runs carried out by verbs, some in processes of their own, on pipes and on terminals."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import sqlite3
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from pexpect.fdpexpect import fdspawn

from tests.ccswarm.support.stores import add_store
from tests.ccswarm.support.verbs import BOUND_SECONDS, ROOT, Process, Verbs, agent, server
from tests.support import forked
from tests.support.forked import Forked

AGENTS = agent("ada", "small.*", "pipe.*") + agent("bob", "small.*", "pipe.*")
QUICK = "[engine]\npoll_seconds = 0.05\nheartbeat_seconds = 0.3\n"
SERVERS = server("small", "plain") + server("pipe", "pipes", more="trusted = true")
BASE = QUICK + SERVERS + AGENTS
SMALL = QUICK + server("small", "plain") + agent("ada", "small.*") + agent("bob", "small.*")
"""Like BASE without the pipe, because a run starts all servers of its agents."""


def step(name: str, tool: str = "small.echo", more: str = "", **args: str) -> str:
    """Return a step of a task in TOML."""
    given = ", ".join(f"{key} = {json.dumps(value)}" for key, value in (args or {"text": name}).items())
    return f'[[tasks.steps]]\nid = "{name}"\ntool = "{tool}"\nargs = {{ {given} }}\n{more}\n'


def task(name: str, *steps: str, more: str = "") -> str:
    """Return a task in TOML."""
    return f'[[tasks]]\nid = "{name}"\n{more}\n' + "".join(steps)


MAKER = """
[[agents]]
name = "mia"
type = "coder"
grants = ["small.*"]
[[agents.settings.steps]]
id = "do"
tool = "small.echo"
args = { text = "${task.text}" }
"""
"""An agent that makes one call, with the text of its task."""

TWO = task("one", step("say"), more='agent = "ada"') + task("two", step("say"), more='agent = "bob"\nneeds = ["one"]')
HELD = task("hold", step("before"), step("wait", "pipe.read", path="${workspace}/pipe"), step("after"))


class RunVerbs(Verbs):
    """Verbs with runs whose calls a test can hold and answer. If ``stored``, a configured home has a store of runs."""

    def __init__(self, home: Path, text: str = "", *, stored: bool = True) -> None:
        super().__init__(home, text)
        if text and stored:
            add_store(self.state)

    def result(self, *words: str, code: int = 0) -> Any:
        """Run a verb with ``--json`` and return the last document of its output."""
        return json.loads(self.run(*words, "--json", code=code).out.splitlines()[-1])

    def lines(self, *words: str) -> list[Any]:
        """Run a verb that prints a document on each line and return them."""
        return [json.loads(line) for line in self.run(*words).out.splitlines()]

    @property
    def pipe(self) -> Path:
        """The FIFO that the tool pipe.read of ``HELD`` reads."""
        return self.home / "pipe"

    @contextmanager
    def held(self) -> Iterator[TextIO]:
        """Wait for a call of pipe.read and yield a file; the text written to it is the result of the call."""
        self._make_pipe()
        with self.pipe.open("w") as writer:  # returns when there is a reader
            self.pipe.unlink()
            self._make_pipe()  # for the next call: the reader of this one may take a while to notice the end
            yield writer

    def _make_pipe(self) -> None:
        """Create the FIFO unless its reader has."""
        with suppress(FileExistsError):
            os.mkfifo(self.pipe)

    @contextmanager
    def answering(self, text: str) -> Iterator[None]:
        """Answer the next call of pipe.read with ``text`` meanwhile."""

        def answer() -> None:
            with self.held() as pipe:
                pipe.write(text)

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join()

    @contextmanager
    def store_held(self) -> Iterator[None]:
        """Lock the store of the runs, so that no other process can write to it."""
        with closing(sqlite3.connect(self.state / "engine.db", isolation_level=None)) as store:
            store.execute("BEGIN IMMEDIATE")
            yield

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    @contextmanager
    def started(self, *words: str) -> Iterator[Process]:
        """Yield a verb in a process of its own, which is killed afterwards."""
        process = forked.piped("ccswarm", words, cwd=self.home, env=self.env)
        try:
            yield Process(process)
        finally:
            process.close()

    @contextmanager
    def terminal(self, *words: str, ahead: bytes = b"") -> Iterator[tuple[fdspawn, Forked]]:
        """Yield a verb on a terminal of its own, in which ``ahead`` was typed before it started."""
        ours, theirs = pty.openpty()
        os.write(ours, ahead)
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 30, 110, 0, 0))
        typed = fdspawn(ours, timeout=BOUND_SECONDS)
        env = {**self.env, "TERM": "xterm-256color"}
        process = Forked("ccswarm", words, cwd=self.home, env=env, streams=[theirs] * 3, window=theirs)
        os.close(theirs)
        try:
            yield typed, process
        finally:
            process.close()
            typed.close()
