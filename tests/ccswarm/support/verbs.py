"""Verbs of ``ccswarm`` in this process, with streams of their own, in a directory with a configuration; and in real
processes where a process is the subject."""

from __future__ import annotations

import io
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccswarm.cli import main
from ccswarm.config.trust import ConfigTrust, look, programs
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.support.forked import Forked

FIRST_USE = " is used for the first time: "
ROOT = Path(__file__).parents[3]
SERVERS = ROOT / "tests/data/swarm_servers"
LINE = [sys.executable, "-m", "ccswarm"]


def server(name: str, program: str, *words: str, more: str = "") -> str:
    """A server of ``tests/data/swarm_servers``, as a configuration has it."""
    args = json.dumps([str(SERVERS / f"{program}.py"), *words])
    return f'[[mcp.servers]]\nname = "{name}"\ncommand = "{sys.executable}"\nargs = {args}\n{more}\n'


def agent(name: str, *grants: str, more: str = "") -> str:
    """An agent, as a configuration has it."""
    return f'[[agents]]\nname = "{name}"\ngrants = {json.dumps(grants)}\n{more}\n'


class Stream(io.TextIOWrapper):
    """Standard output of a verb: ``terminal`` is what it is told that it is."""

    def __init__(self, *, terminal: bool) -> None:
        self.kept = io.BytesIO()
        self._terminal = terminal
        super().__init__(self.kept, "utf-8", write_through=True)

    def isatty(self) -> bool:
        return self._terminal

    @property
    def said(self) -> str:
        self.flush()
        return self.kept.getvalue().decode()


@dataclass(frozen=True)
class Said:
    """How a verb ended, and what it said: on standard error beside ``first_use``, the line about a configuration that
    was never used before."""

    code: int
    out: str
    err: str
    first_use: str = ""

    @property
    def rows(self) -> list[list[str]]:
        """Its tab-separated lines."""
        return [line.split("\t") for line in self.out.splitlines()]


def agreed(file: Path, state: Path) -> None:
    """As ``ccswarm trust --yes FILE``."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)

    def record() -> None:
        content, trust = look(file), ConfigTrust(state)
        for one in (*(program.content for program in programs(content, None)), content):
            trust.record(one)

    with ThreadPoolExecutor(1) as thread:  # where a loop runs nothing may block it
        thread.submit(record).result()


class Desk:
    """Where verbs are used: ``home`` is current, and holds ccswarm.toml where there is a ``text``."""

    def __init__(self, home: Path, text: str = "") -> None:
        self.home = home
        self.state = home / ".local/state/ccswarm"
        self.file = home / "ccswarm.toml"
        if text and self.file.exists():
            self.rewrite(text)
        elif text:
            self.file.write_text(text)

    def rewrite(self, text: str, file: Path | None = None) -> None:
        """As a person who edits the configuration, or another file, and agrees to what it says now."""
        (file or self.file).write_text(text)
        agreed(file or self.file, self.state)

    def run(self, *words: str, code: int = 0, terminal: bool = False) -> Said:
        """One verb; its exit code must be ``code``."""
        before, out, err = sys.argv, Stream(terminal=terminal), Stream(terminal=False)
        sys.argv = ["ccswarm", *words]
        try:
            with chdir(self.home), redirect_stdout(out), redirect_stderr(err):
                main.main()
        except SystemExit as end:
            lines = err.said.splitlines(keepends=True)
            first = [line for line in lines if FIRST_USE in line]
            others = "".join(line for line in lines if line not in first)
            said = Said(int(end.code or 0), out.said, others, "".join(first))
        finally:
            sys.argv = before
        assert said.code == code, (words, said)
        return said

    def json(self, *words: str, code: int = 0) -> Any:
        """The one document of a verb with ``--json``, which says nothing on standard error."""
        said = self.run(*words, "--json", code=code)
        assert said.err == ""
        return json.loads(said.out)

    @contextmanager
    def worker(self, *words: str) -> Iterator[Process]:
        """``ccswarm worker`` in a process of its own, killed when the test leaves it."""
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = forked.piped("ccswarm", ["worker", *words], cwd=self.home, env=env)
        try:
            yield Process(process)
        finally:
            process.close()


class Process:
    """A verb that goes on, and what it says on standard error, line by line."""

    def __init__(self, process: Forked | subprocess.Popen[bytes]) -> None:
        self.process = process
        self._held = b""
        self.lines: list[str] = []

    def until(self, words: str) -> str:
        """The next line with ``words``."""
        assert self.process.stderr
        deadline = time.monotonic() + BOUND_SECONDS
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stderr, selectors.EVENT_READ)
            while True:
                line, newline, rest = self._held.partition(b"\n")
                if newline:
                    self._held = rest
                    self.lines.append(line.decode())
                    if words in self.lines[-1]:
                        return self.lines[-1]
                    continue
                assert ready.select(deadline - time.monotonic()), (words, self.lines)
                data = os.read(self.process.stderr.fileno(), 1 << 16)
                assert data, (words, self.lines)
                self._held += data

    def end(self, number: int) -> tuple[int, str]:
        """Its exit code and standard output, when it was sent that signal."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=BOUND_SECONDS)
        self.lines += (self._held + err).decode().splitlines()
        return self.process.returncode, out.decode()
