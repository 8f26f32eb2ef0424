"""A shell on a raw pseudo-terminal, driven with blocking calls: the minimum that shows what a Shell plug-in does."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agentwire import plugins
from ai_session.sessions.executor import CLEARS
from ai_session.shells._posix import PosixShell
from ai_session.shells.base import KIND, CommandText, Shell
from ai_session.system.shell_words import in_one_line, is_whole
from tests.ai_session.support.shell_cases import OF_SHELL, Case
from tests.conftest import contents, pids
from tests.support.bounds import BOUND_SECONDS

READY_SECONDS = 0.3
WHERE_IS_THE_CURSOR = b"\x1b[6n"
"""A query that busybox sends at each prompt; without a reply it sleeps 20 ms after a line."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A mark in the log. ``fields`` are the parts after the kind."""

    kind: str
    fields: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command. ``output`` has LF line ends; ``ended`` is true if the shell has ended."""

    output: bytes
    exit_code: int | None
    ended: bool = False


class RawSession:
    """A shell started by ``plugin``; ``directory`` must exist and be private."""

    def __init__(
        self,
        plugin: Shell,
        directory: Path,
        env: Mapping[str, str],
        *,
        wanted: str = "",
        user_rc: bool = True,
        cwd: str = "/",
        argv_prefix: tuple[str, ...] = (),
    ) -> None:
        self.plugin = plugin
        self.directory = directory
        self.env = {"LANG": "C.UTF-8", **env}  # as a session's environment has it
        self.wanted = wanted
        self.user_rc = user_rc
        self.cwd = cwd
        self.argv_prefix = argv_prefix
        self.nonce = os.urandom(8).hex()
        self.log = bytearray()
        self.seq = 0
        self.position = 0
        self.last = 0
        self.flags = ""
        self.as_typed = False
        self._pattern = re.compile(rb"\x1b\]7777;" + self.nonce.encode() + rb";([A-Z])(?:;([^\x07]*))?\x07")
        self.start()

    def start(self) -> None:
        """Start the shell (again) and wait until it is at its first prompt."""
        integration = self.plugin.install(
            self.directory,
            self.nonce,
            executable=self.plugin.find(self.wanted),
            user_rc=self.user_rc,
            login_env=self.env,
        )
        argv = (*self.argv_prefix, *integration.argv)
        self.position = len(self.log)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(self.cwd)
                os.execve(argv[0], argv, {**self.env, **integration.env})
            finally:
                os._exit(127)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.status: int | None = None
        try:
            self.until(lambda: self.mark("R", self.position) is not None, "the shell to start")
            self.until(lambda: self.mark("AB", self.position) is not None, "the first prompt")
            self.wait_ready()
        except (EOFError, TimeoutError):
            self.close()
            raise

    def pump(self, seconds: float) -> bool:
        """Read output that arrives within ``seconds``; return whether there was any. Raises EOFError at the end."""
        if not select.select([self.fd], [], [], max(0.0, seconds))[0]:
            return False
        try:
            chunk = os.read(self.fd, 65536)
        except OSError:
            chunk = b""
        if not chunk:
            raise EOFError
        self.log += chunk
        for _ in range(chunk.count(WHERE_IS_THE_CURSOR)):
            self.send(b"\x1b[1;1R")
        return True

    def until(self, condition: Callable[[], bool], what: str, bound: float = BOUND_SECONDS) -> None:
        """Read until ``condition`` holds. Raises TimeoutError, with the end of the log."""
        deadline = time.monotonic() + bound
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"waited for {what}: {bytes(self.log[-400:])!r}")
            self.pump(min(left, 0.01))

    def marks(self, start: int = 0) -> list[Seen]:
        """Return all marks whose first byte is at ``start`` or later."""
        return [
            Seen(m[1].decode(), tuple((m[2] or b"").decode(errors="surrogateescape").split(";")), m.start(), m.end())
            for m in self._pattern.finditer(self.log, start)
        ]

    def mark(self, kind: str, start: int, seq: int | None = None) -> Seen | None:
        """Return the first mark after ``start`` with one of the letters in ``kind``, and with ``seq`` if given."""
        for found in self.marks(start):
            if found.kind in kind and (seq is None or found.fields[0] == str(seq)):
                return found
        return None

    def wait_ready(self, bound: float = READY_SECONDS) -> bool:
        """Wait for the prompt. Return False if it was not reported within ``bound``."""
        kind = "B" if self.plugin.line_editor else "A"
        try:
            self.until(lambda: self.mark(kind, self.position) is not None, "the prompt", bound)
        except TimeoutError:
            return False
        return True

    def send(self, data: bytes) -> None:
        """Type ``data``."""
        os.write(self.fd, data)

    def begin(
        self, text: str, *, stdin_path: str = "", stderr_path: str = "", title: str = "", header: str = ""
    ) -> None:
        """Let the shell start the command ``text``."""
        ready = self.wait_ready()
        for seen in self.marks(self.position):
            if seen.kind in "AD":
                self.last = int(seen.fields[1])
                self.flags = seen.fields[3]
            if seen.kind == "B":
                self.as_typed = seen.fields[0] == "t"
        self.seq += 1
        command = CommandText(
            seq=self.seq,
            text=text,
            nonce=self.nonce,
            header=header,
            stdin_path=stdin_path,
            stderr_path=stderr_path,
            last_exit_code=self.last,
            flags=self.flags,
            title=title,
            as_typed=self.as_typed,
            sound=is_whole(text),
            line=in_one_line(text),
        )
        more = self.plugin.write_command(self.directory, command)
        while self.pump(0):
            ready = ready or self.wait_ready(0)
        self.position = len(self.log)
        trigger = self.plugin.trigger(ready=ready and self.plugin.line_editor, traced="x" in self.flags)
        self.send(self._after_clearing(trigger) + more)

    def _after_clearing(self, line: bytes) -> bytes:
        """Return ``line`` with the terminal's own key after its keys for the line editor, as a session types it, if the
        terminal edits lines itself."""
        bare = line.lstrip(CLEARS)
        modes = termios.tcgetattr(self.fd)
        if bare == line or not self.plugin.line_editor or not modes[3] & termios.ICANON:
            return line
        return line.removesuffix(bare) + modes[6][termios.VKILL] + bare

    def finish(self, bound: float = BOUND_SECONDS) -> Outcome:
        """Wait for the end of the command begun last."""
        try:
            self.until(lambda: self.mark("C", self.position, self.seq) is not None, "the start mark", bound)
            begun = self.mark("C", self.position, self.seq)
            assert begun is not None
            self.position = begun.end
            self._until_end(begun.end, bound)
        except EOFError:
            return Outcome(text_of(bytes(self.log[self.position :])), self.reap(), ended=True)
        ended = self.mark("DAX", begun.end, self.seq)
        assert ended is not None
        self.position = ended.end
        self.last = int(ended.fields[1])
        self.flags = ended.fields[3]
        output = bytes(self.log[begun.end : ended.start])
        output = self.plugin.strip_trace(output, self.nonce)
        return Outcome(text_of(output), self.last, ended=ended.kind == "X")

    def _until_end(self, start: int, bound: float) -> None:
        """Wait for the end mark. A shell back at its prompt without one is probed, as a session does it."""
        deadline = time.monotonic() + bound
        quiet, asked = 0, False
        while self.mark("DAX", start, self.seq) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited for the end mark: {bytes(self.log[-400:])!r}")
            quiet = 0 if self.pump(0.05) else quiet + 1
            if quiet > 3 and not asked and self.at_prompt():
                asked = True
                self.send(self.plugin.write_probe(self.directory, self.seq, 130, 1))

    def run(self, text: str, *, stdin_path: str = "", stderr_path: str = "", title: str = "") -> Outcome:
        """Run ``text`` to its end."""
        self.begin(text, stdin_path=stdin_path, stderr_path=stderr_path, title=title)
        return self.finish()

    def foreground(self) -> int:
        """Return the process group that owns the terminal."""
        return struct.unpack("i", fcntl.ioctl(self.fd, termios.TIOCGPGRP, b"\0\0\0\0"))[0]

    def at_prompt(self) -> bool:
        """Report whether the shell owns the terminal and its line editor has switched canonical mode off."""
        return self.foreground() == self.pid and not termios.tcgetattr(self.fd)[3] & termios.ICANON

    def wait_when(self, when: str) -> None:
        """Wait for the event ``when`` of a case's keys."""
        self.until(lambda: self.mark("C", self.position, self.seq) is not None, "the start mark")
        begun = self.mark("C", self.position, self.seq)
        assert begun is not None
        if when == "foreground":
            self.until(lambda: command_line(self.foreground()) not in (command_line(self.pid), b""), when)
        elif when == "reading":
            self.until(lambda: reads_terminal(self.foreground()), when)
        elif when.startswith("text:"):
            wanted = when[5:].encode()
            self.until(lambda: wanted in self.log[begun.end :].replace(b"\r\n", b"\n"), when)

    def wait_end(self) -> None:
        """Read until the shell has ended. Raises TimeoutError."""
        if self.status is None:
            try:
                self.until(self.has_ended, "the shell to end")
                self.until(lambda: not self.pump(0), "the last output")
            except EOFError:
                pass
            self.reap()

    def has_ended(self) -> bool:
        """Report whether the shell's process has ended, even if others have the terminal open."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reap(self) -> int:
        """Wait for the shell's end and return its exit code, or the signal as a negative number."""
        if self.status is None:
            os.close(self.fd)
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def close(self) -> None:
        """End the shell and every job it has."""
        if self.status is None:
            for job in children(self.pid):
                kill_group(job)
            kill_group(self.pid)
            self.reap()


PLUGINS = {
    executable: name
    for name in plugins.names(KIND)
    for executable in plugins.load(KIND, name).names
    if executable not in ("sh", "ksh") and shutil.which(executable)
}
"""The plug-in of every installed shell, by the name of its executable. sh is one of the others, and ksh another name of
one of them.
"""
SHELLS = tuple(PLUGINS)
SH_LIKE = tuple(name for name in SHELLS if name != "fish")


def kin(shell: str) -> str:
    """Return the shell's name if it has an integration script of its own, else ``posix``."""
    return "posix" if isinstance(plugins.load(KIND, PLUGINS[shell]), PosixShell) else shell


def cases_of(shell: str) -> tuple[Case, ...]:
    """Return the cases of one of ``SHELLS``."""
    return OF_SHELL.get(shell) or OF_SHELL[PLUGINS[shell]]


def start_file(shell: str) -> str:
    """Return the path in HOME of the shell's start file; without one of its own, it is named by ``$ENV``."""
    return (*plugins.load(KIND, PLUGINS[shell]).start_files, ".shrc")[0]


def start(shell: str, home: Path, text: str = "", *, user_rc: bool = True, **env: str | None) -> RawSession:
    """Start one of ``SHELLS`` with HOME ``home`` and a start file with ``text``; None removes a variable."""
    folder = home / "it's a session"
    folder.mkdir(mode=0o700, exist_ok=True)
    # Without it, fish first reads all manual pages of the system.
    (home / ".local/share/fish/generated_completions").mkdir(parents=True, exist_ok=True)
    # That of fish itself runs git at each prompt.
    prompt = home / ".config/fish/functions/fish_prompt.fish"
    prompt.parent.mkdir(parents=True, exist_ok=True)
    prompt.write_text("function fish_prompt; echo '> '; end\n")
    file = home / start_file(shell)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    own = {"ENV": str(file)} if file.name == ".shrc" else {}
    merged = {**os.environ, **own, **env}
    kept = {name: value for name, value in merged.items() if value is not None}
    return RawSession(plugins.load(KIND, PLUGINS[shell]), folder, kept, user_rc=user_rc, wanted=shell)


def text_of(output: bytes) -> bytes:
    """Return raw output with LF line ends."""
    return output.replace(b"\r\n", b"\n")


def reads_terminal(group: int) -> bool:
    """Report whether a process of ``group`` sleeps in a read of a terminal."""
    for pid in pids():
        with suppress(OSError):
            if os.getpgid(pid) == group and contents(f"/proc/{pid}/wchan") == b"wait_woken":
                return True
    return False


def command_line(pid: int) -> bytes:
    """Return the arguments of a process as /proc has them; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def children(pid: int) -> list[int]:
    """Return the direct children of a process."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kill_group(group: int) -> None:
    """Send SIGKILL to a process group and its leader."""
    for kill in (os.killpg, os.kill):
        try:
            kill(group, signal.SIGKILL)
        except OSError:
            continue
