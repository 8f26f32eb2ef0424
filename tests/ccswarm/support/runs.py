"""A desk at which runs are carried out, some in processes of their own, on pipes and on terminals."""

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

from tests.ccswarm.support.verbs import BOUND_SECONDS, ROOT, Desk, Process, agent, server
from tests.support import forked
from tests.support.forked import Forked

AGENTS = agent("ada", "small.*", "pipe.*") + agent("bob", "small.*", "pipe.*")
QUICK = "[engine]\npoll_seconds = 0.05\nheartbeat_seconds = 0.3\n"
SERVERS = server("small", "plain") + server("pipe", "pipes", more="trusted = true")
BASE = QUICK + SERVERS + AGENTS


def step(name: str, tool: str = "small.echo", more: str = "", **args: str) -> str:
    """A step of a task, as a plan has it."""
    given = ", ".join(f"{key} = {json.dumps(value)}" for key, value in (args or {"text": name}).items())
    return f'[[tasks.steps]]\nid = "{name}"\ntool = "{tool}"\nargs = {{ {given} }}\n{more}\n'


def task(name: str, *steps: str, more: str = "") -> str:
    """A task, as a plan has it."""
    return f'[[tasks]]\nid = "{name}"\n{more}\n' + "".join(steps)


TWO = task("one", step("say"), more='agent = "ada"') + task("two", step("say"), more='agent = "bob"\nneeds = ["one"]')
HELD = task("hold", step("before"), step("wait", "pipe.read", path="${workspace}/pipe"), step("after"))


class RunDesk(Desk):
    """See Desk."""

    def result(self, *words: str, code: int = 0) -> Any:
        """The last document of a verb with ``--json``."""
        return json.loads(self.run(*words, "--json", code=code).out.splitlines()[-1])

    def lines(self, *words: str) -> list[Any]:
        """The documents of a verb that says one on each line."""
        return [json.loads(line) for line in self.run(*words).out.splitlines()]

    @property
    def pipe(self) -> Path:
        """What the tool pipe.read of ``HELD`` reads from."""
        return self.home / "pipe"

    @contextmanager
    def held(self) -> Iterator[TextIO]:
        """While a call of pipe.read goes on; what is written to it until then is the answer."""
        self._make_pipe()
        with self.pipe.open("w") as writer:  # returns when there is a reader
            self.pipe.unlink()
            self._make_pipe()  # for the next call: the reader of this one may take a while to hear of the end
            yield writer

    def _make_pipe(self) -> None:
        """Unless its reader was first."""
        with suppress(FileExistsError):
            os.mkfifo(self.pipe)

    @contextmanager
    def answering(self, text: str) -> Iterator[None]:
        """While the next call of pipe.read is answered with ``text``, whoever waits for that."""

        def answer() -> None:
            with self.held() as pipe:
                pipe.write(text)

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join()

    @contextmanager
    def store_held(self) -> Iterator[None]:
        """While nobody else can write to the store of the runs."""
        with closing(sqlite3.connect(self.state / "engine.db", isolation_level=None)) as store:
            store.execute("BEGIN IMMEDIATE")
            yield

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    @contextmanager
    def started(self, *words: str) -> Iterator[Process]:
        """A verb in a process of its own, killed when the test leaves it."""
        process = forked.piped("ccswarm", words, cwd=self.home, env=self.env)
        try:
            yield Process(process)
        finally:
            process.close()

    @contextmanager
    def terminal(self, *words: str, ahead: bytes = b"") -> Iterator[tuple[fdspawn, Forked]]:
        """A verb on a terminal of its own, at which ``ahead`` was typed before it started."""
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
