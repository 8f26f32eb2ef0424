"""``ai-session sandbox`` as root and as an ordinary user: on pipes, on a terminal, from a shell with job control."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pexpect

from tests.ai_session.support import unprivileged
from tests.conftest import end_leftovers
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.support.forked import Forked

PATH = "/usr/local/bin:/usr/bin:/bin"
ROOT = Path(__file__).parents[3]
PROMPT = b"outside> "
INSIDE = b"inside> "
CONFIG = '[policy]\nmode = "trusted"\n'
USERS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)


@dataclass(frozen=True)
class Caller:
    """A user with a home and a workspace of its own."""

    root: bool
    home: Path

    @property
    def workspace(self) -> Path:
        return self.home / "ws"

    @property
    def line(self) -> list[str]:
        """The command line of ``ai-session`` without arguments."""
        return [sys.executable if self.root else unprivileged.interpreter(), "-m", "ai_session"]

    @property
    def env(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": PATH,
            "TERM": "xterm-256color",
            "SHELL": "/bin/bash",
            "PYTHONPATH": str(ROOT) if self.root else unprivileged.library_path(),
            "PYTHONDONTWRITEBYTECODE": "1",
            "INPUTRC": "/dev/null",
        }

    @property
    def identity(self) -> dict[str, Any]:
        return {} if self.root else unprivileged.identity()

    @contextmanager
    def start(
        self, *words: str, before: tuple[str, ...] = (), anew: bool = False, apart: bool = False, **options: Any
    ) -> Generator[subprocess.Popen[bytes] | Forked]:
        """Run a verb on pipes while the context lasts, with ``apart`` in a process group of its own.

        It is forked; with ``anew``, with words ``before`` its command line, and with options of subprocess.Popen it is
        executed.
        """
        if anew or before or options:
            given: dict[str, Any] = {**dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE), **self.identity}
            line = [*before, *self.line, *words]
            with subprocess.Popen(line, cwd=self.workspace, env=self.env, **{**given, **options}) as executed:
                yield executed
            return
        user = None if self.root or os.geteuid() != 0 else unprivileged.USER
        process = forked.piped(
            "ai_session", words, cwd=self.workspace, env=self.env, reads=True, user=user, apart=apart
        )
        try:
            yield process
        finally:
            process.close()

    def run(self, *words: str, given: bytes = b"", **options: Any) -> tuple[int, bytes, bytes]:
        """Run a verb on pipes; return its exit code, output and errors."""
        with self.start(*words, **options) as process:
            out, err = process.communicate(given, timeout=BOUND_SECONDS)
            return process.wait(BOUND_SECONDS), out, err

    def box(self, *command: str, given: bytes = b"") -> tuple[int, bytes, bytes]:
        """Run a command in a box; return its exit code, output and errors."""
        return self.run("sandbox", "--", *command, given=given)

    def sh(self, script: str) -> None:
        """Run a script in the workspace, outside of any box."""
        env = self.env | {"GIT_CONFIG_GLOBAL": "/dev/null"}
        subprocess.run(
            ["/bin/sh", "-ec", script], cwd=self.workspace, env=env, check=True, timeout=BOUND_SECONDS, **self.identity
        )

    @contextmanager
    def shell(self) -> Generator[pexpect.spawn[bytes]]:
        """Yield an interactive bash outside of any box, at its prompt, with the function ``box`` and without echo."""
        terminal: pexpect.spawn[bytes] = pexpect.spawn(
            "/bin/bash",
            ["--norc", "--noprofile", "-i"],
            cwd=str(self.workspace),
            env={**self.env, "PS1": PROMPT.decode(), "PROMPT_COMMAND": ""},  # pyright: ignore[reportArgumentType]
            dimensions=(24, 80),
            timeout=BOUND_SECONDS,
            echo=False,
            preexec_fn=None if self.root else unprivileged.become(),
        )
        terminal.expect_exact(PROMPT)
        words = " ".join(self.line)
        say(terminal, f"bind 'set enable-bracketed-paste off'; box() {{ {words} sandbox -- \"$@\"; }}")
        try:
            yield terminal
        finally:
            terminal.close()


def say(terminal: pexpect.spawn[bytes], line: str, prompt: bytes = PROMPT) -> bytes:
    """Type a line at a prompt and return what it prints until the next prompt."""
    terminal.sendline(line)
    terminal.expect_exact(prompt)
    assert terminal.before is not None
    return terminal.before.replace(b"\r\n", b"\n")


def enter(terminal: pexpect.spawn[bytes]) -> None:
    """Start an interactive bash in a box and wait for its prompt."""
    terminal.sendline(f"box /usr/bin/env 'PS1={INSIDE.decode()}' /bin/bash --norc --noprofile -i")
    terminal.expect_exact(INSIDE)
    say(terminal, "bind 'set enable-bracketed-paste off'", INSIDE)


@contextmanager
def caller(who: str, more: str = "") -> Generator[Caller]:
    """Yield one of USERS, with ``more`` configuration; no process of it may be left afterwards."""
    with unprivileged.directory() as directory:
        made = Caller(who == "root", directory / "h")
        for path in (made.home, made.workspace, made.home / ".config", made.home / ".config/ai-session"):
            path.mkdir(mode=0o700)
        (made.home / ".config/ai-session/config.toml").write_text(CONFIG + more)
        for path in (directory, made.home, *made.home.rglob("*")):
            if made.root:
                os.chown(path, 0, 0)
            else:
                unprivileged.give(path)
        try:
            yield made
        finally:
            made.run("daemon", "stop")
            left = end_leftovers(directory)
        assert not left, f"left behind: {left}"
