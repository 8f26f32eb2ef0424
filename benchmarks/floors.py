"""The cost of the machine itself, with blocking calls and none of our code: the floors of all measurements."""

from __future__ import annotations

import os
import pty
import time
from pathlib import Path

READY = b"\x1b]7777;B\x07"
DONE = b"\x1b]7777;D;0\x07"
RECORD = b"x" * 600
FILES_IN_EACH = 5


class RawReadline:
    """bash with readline on a pseudo-terminal: a typed `` . file``, marks by PS0 and PROMPT_COMMAND, blocking reads."""

    def __init__(self, directory: Path) -> None:
        rc, command = directory / "floor.rc", directory / "floor.sh"
        command.write_text(":\n")
        rc.write_text(
            "PROMPT_COMMAND='printf \"\\e]7777;D;%s\\a\" $?'\nPS1='\\$ \\[\\e]7777;B\\a\\]'\n"
            "HISTFILE=\nHISTCONTROL=ignorespace\n"
        )
        self._typed = f" . {command}\n".encode()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe("bash", ["bash", "--rcfile", str(rc), "-i"], {**os.environ, "TERM": "xterm-256color"})
        self._buffer = bytearray()
        self._until(READY)

    def _until(self, mark: bytes) -> None:
        while (at := self._buffer.find(mark)) < 0:
            self._buffer += os.read(self.fd, 65536)
        del self._buffer[: at + len(mark)]

    def once(self) -> float:
        """Return the seconds from the typed line to the end mark; the next prompt is awaited outside of them."""
        start = time.perf_counter()
        os.write(self.fd, self._typed)
        self._until(DONE)
        end = time.perf_counter()
        self._until(READY)
        return end - start

    def close(self) -> None:
        os.close(self.fd)
        os.waitpid(self.pid, 0)


class SyncedWrite:
    """A blocking append and sync of as many bytes as a record of the audit log."""

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def once(self) -> float:
        """Return the seconds of one."""
        start = time.perf_counter()
        os.write(self._fd, RECORD)
        (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(self._fd)
        return time.perf_counter() - start

    def close(self) -> None:
        os.close(self._fd)


def files_seconds(directory: Path, sessions: int) -> float:
    """Return the seconds for creating as many files as so many sessions in boxes have."""
    start = time.perf_counter()
    for number in range(sessions):
        for folder in ("", "shell", "shell/out", "box"):
            target = directory / str(number) / folder
            target.mkdir(parents=True)
            for name in range(FILES_IN_EACH):
                os.close(os.open(target / f"file{name}", os.O_CREAT | os.O_WRONLY))
    return time.perf_counter() - start


def read_loop_seconds(command: list[str]) -> tuple[float, int]:
    """Return the seconds and bytes of a blocking read loop over a pseudo-terminal on which ``command`` prints."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    start, total = time.perf_counter(), 0
    try:
        while chunk := os.read(fd, 65536):
            total += len(chunk)
    except OSError:
        pass
    seconds = time.perf_counter() - start
    os.close(fd)
    os.waitpid(pid, 0)
    return seconds, total
