"""What the kernel writes of processes, in ``/proc``; nothing where it is missing, or not ours to look into."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import dropwhile

READ_BYTES = 1 << 16
CONTROLLING_TTY = os.makedev(5, 0)


@dataclass(frozen=True, slots=True)
class Stat:
    """Of one process: its short name, its state, who it belongs to, and when it was started."""

    name: str
    state: str
    parent: int
    group: int
    session: int
    foreground: int
    started: int


def newest_pid() -> int:
    """The number that was given last; 0 where nobody says."""
    if (load := _load()) is None:
        return 0
    text = os.pread(load, 256, 0).rpartition(b" ")[2].strip()
    return int(text) if text.isdigit() else 0


@cache
def _load() -> int | None:
    """Open for good, for it is read around each command."""
    try:
        return os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def all_pids() -> list[int]:
    """Of every process of the machine."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def besides_processes(folder: str = "/proc") -> Iterator[os.DirEntry[str]]:
    """What of ``/proc`` is no process. Raises OSError."""
    # To go through a thousand processes takes a millisecond, and a thread that does so while others compute hands the
    # interpreter on at each of them.
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.isdigit():
                yield entry
            elif _processes_come_last(folder):
                return


@cache
def _processes_come_last(folder: str) -> bool:
    """Whether this kernel lists processes after all else, as Linux does."""
    return all(name.isdigit() for name in dropwhile(lambda name: not name.isdigit(), os.listdir(folder)))


def group_of(pid: int) -> int:
    """Its process group, 0 where it has ended."""
    # 0.4 us; reading the same from /proc/PID/stat costs 10.
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def session_of(pid: int) -> int:
    """Who leads its kernel session, -1 where it has ended."""
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def read_stat(pid: int) -> Stat | None:
    """None where it has ended, or nobody says."""
    text = read_text(f"/proc/{pid}/stat")
    head, close, tail = text.rpartition(")")
    if not close:
        return None
    fields = tail.split()
    state, parent, group, session, _, tpgid = fields[:6]
    return Stat(head.partition("(")[2], state, int(parent), int(group), int(session), int(tpgid), int(fields[19]))


def status_number(pid: int, name: str, base: int) -> int:
    """The number behind ``name`` in its status; 0 where there is none."""
    _, found, rest = read_text(f"/proc/{pid}/status").partition("\n" + name)
    return int(rest.split(None, 1)[0], base) if found else 0


def read_text(path: str) -> str:
    """As ``read_bytes``, without the blanks around it."""
    return read_bytes(path).decode(errors="replace").strip()


def read_bytes(path: str) -> bytes:
    """The file's bytes; nothing when the process has gone or is not ours to look into."""
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
