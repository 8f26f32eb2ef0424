"""The kernel's files about processes in ``/proc``; results are empty where that is missing or unreadable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import dropwhile

READ_BYTES = 1 << 16
CONTROLLING_TTY = os.makedev(5, 0)
NO_TERMINAL = -1
"""The foreground process group of a process without a terminal."""


@dataclass(frozen=True, slots=True)
class Stat:
    """The short name of one process, its state, what it belongs to, and its start time in clock ticks after boot.

    ``foreground`` is the foreground process group of its terminal, ``NO_TERMINAL`` without one.
    """

    name: str
    state: str
    parent: int
    group: int
    session: int
    foreground: int
    started: int


def newest_pid() -> int:
    """Return the most recently assigned pid; 0 if unknown."""
    if (load := _load()) is None:
        return 0
    text = os.pread(load, 256, 0).rpartition(b" ")[2].strip()
    return int(text) if text.isdigit() else 0


@cache
def _load() -> int | None:
    """Return a descriptor that stays open, because it is read for each command."""
    try:
        return os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def all_pids() -> list[int]:
    """Return the pids of all processes on the machine."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def besides_processes(folder: str = "/proc") -> Iterator[os.DirEntry[str]]:
    """Yield the entries of ``/proc`` that are not processes. Raises OSError."""
    # Listing a thousand processes takes a millisecond, and a thread that does so while others compute gives up the
    # interpreter's lock at each of them.
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.isdigit():
                yield entry
            elif _processes_come_last(folder):
                return


@cache
def _processes_come_last(folder: str) -> bool:
    """Report whether this kernel lists processes after everything else, as Linux does."""
    return all(name.isdigit() for name in dropwhile(lambda name: not name.isdigit(), os.listdir(folder)))


def group_of(pid: int) -> int:
    """Return its process group, 0 if it has ended."""
    # 0.4 us; reading the same from /proc/PID/stat costs 10.
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def session_of(pid: int) -> int:
    """Return the leader of its kernel session, -1 if it has ended."""
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def read_stat(pid: int) -> Stat | None:
    """Return the facts about a process; None if it has ended, or if unknown."""
    text = read_text(f"/proc/{pid}/stat")
    head, close, tail = text.rpartition(")")
    if not close:
        return None
    fields = tail.split()
    state, parent, group, session, _, tpgid = fields[:6]
    return Stat(head.partition("(")[2], state, int(parent), int(group), int(session), int(tpgid), int(fields[19]))


def status_number(pid: int, name: str, base: int) -> int:
    """Return the number after ``name`` in the process status; 0 if there is none."""
    _, found, rest = read_text(f"/proc/{pid}/status").partition("\n" + name)
    return int(rest.split(None, 1)[0], base) if found else 0


def read_text(path: str) -> str:
    """Return the file's text without surrounding blanks; empty like ``read_bytes``."""
    return read_bytes(path).decode(errors="replace").strip()


def read_bytes(path: str) -> bytes:
    """Return the file's bytes; empty if the process has ended or the file is not readable by us."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    found = b""
    try:
        while chunk := os.read(fd, READ_BYTES):
            found += chunk
    except OSError:
        return b""
    finally:
        os.close(fd)
    return found
