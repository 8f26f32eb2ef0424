"""Verbs of ``ccswarm`` in a home with a configuration, in this process or in processes of their own."""

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

import typer

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
    """Return a server of ``tests/data/swarm_servers`` in TOML."""
    args = json.dumps([str(SERVERS / f"{program}.py"), *words])
    return f'[[mcp.servers]]\nname = "{name}"\ncommand = "{sys.executable}"\nargs = {args}\n{more}\n'


def agent(name: str, *grants: str, more: str = "") -> str:
    """Return an agent in TOML."""
    return f'[[agents]]\nname = "{name}"\ngrants = {json.dumps(grants)}\n{more}\n'


class Stream(io.TextIOWrapper):
    """The standard output of a verb. ``terminal``: whether it reports to be a terminal."""

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


def all_verbs() -> dict[str, Any]:
    """Return every command that does something, by the words it is called with."""

    def found(command: Any, *path: str) -> Iterator[tuple[str, Any]]:
        for name in getattr(command, "commands", ()):
            yield from found(command.get_command(None, name), *path, name)
        if not hasattr(command, "commands"):
            yield " ".join(path), command

    return dict(found(typer.main.get_command(main.app)))


@dataclass(frozen=True)
class VerbResult:
    """A verb's exit code and output; ``err`` is without ``first_use``, the line on a configuration's first use."""

    code: int
    out: str
    err: str
    first_use: str = ""

    @property
    def rows(self) -> list[list[str]]:
        """The lines of the output, split at tabs."""
        return [line.split("\t") for line in self.out.splitlines()]


def agreed(file: Path, state: Path) -> None:
    """Agree to a configuration as ``ccswarm trust --yes FILE`` does."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)

    def record() -> None:
        content, trust = look(file), ConfigTrust(state)
        for one in (*(program.content for program in programs(content, None)), content):
            trust.record(one)

    with ThreadPoolExecutor(1) as thread:  # because a running event loop must not be blocked
        thread.submit(record).result()


class Verbs:
    """A home in which verbs run, with ``text`` as its ccswarm.toml."""

    def __init__(self, home: Path, text: str = "") -> None:
        self.home = home
        self.state = home / ".local/state/ccswarm"
        self.file = home / "ccswarm.toml"
        if text and self.file.exists():
            self.rewrite(text)
        elif text:
            self.file.write_text(text)

    def rewrite(self, text: str, file: Path | None = None) -> None:
        """Replace the configuration, or another file, and agree to it, as a person does."""
        (file or self.file).write_text(text)
        agreed(file or self.file, self.state)

    def run(self, *words: str, code: int = 0, terminal: bool = False) -> VerbResult:
        """Run a verb and return its output; its exit code must be ``code``."""
        before, out, err = sys.argv, Stream(terminal=terminal), Stream(terminal=False)
        sys.argv = ["ccswarm", *words]
        try:
            with chdir(self.home), redirect_stdout(out), redirect_stderr(err):
                main.main()
        except SystemExit as end:
            lines = err.said.splitlines(keepends=True)
            first = [line for line in lines if FIRST_USE in line]
            others = "".join(line for line in lines if line not in first)
            said = VerbResult(int(end.code or 0), out.said, others, "".join(first))
        finally:
            sys.argv = before
        assert said.code == code, (words, said)
        return said

    def json(self, *words: str, code: int = 0) -> Any:
        """Run a verb with ``--json`` and return its document; it must print nothing on standard error."""
        said = self.run(*words, "--json", code=code)
        assert said.err == ""
        return json.loads(said.out)

    @contextmanager
    def worker(self, *words: str) -> Iterator[Process]:
        """Yield ``ccswarm worker`` in a process of its own, which is killed afterwards."""
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = forked.piped("ccswarm", ["worker", *words], cwd=self.home, env=env)
        try:
            yield Process(process)
        finally:
            process.close()


class Process:
    """A running verb, and the lines that it has printed on standard error."""

    def __init__(self, process: Forked | subprocess.Popen[bytes]) -> None:
        self.process = process
        self._held = b""
        self.lines: list[str] = []

    def until(self, words: str) -> str:
        """Wait for a line with ``words`` and return it."""
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
        """Send a signal, wait for the end and return exit code and standard output."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=BOUND_SECONDS)
        self.lines += (self._held + err).decode().splitlines()
        return self.process.returncode, out.decode()
