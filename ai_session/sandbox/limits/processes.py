"""The processes of one box as /proc shows them from outside: which they are and how much memory they use.

A box has an overseer (the first process of a namespace, or a supervisor that adopts orphans), so every process of it
descends from the terminal's process, and the shell is the overseer's first child.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import threading
from collections.abc import Collection, Iterable
from pathlib import Path

from ai_session.system.processes import leads_a_namespace

_BLOCK_BYTES = 512
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SWEEP_ROUNDS = 50
_HIGHEST = Path("/proc/sys/kernel/pid_max")
_WRITE = ("/bin/sh", "-c", 'echo "$0" > "$1"')
_NEW_PID = 0x20000000
_OF_EACH_NAMESPACE = (6, 14)
"""The first kernel version in which each PID namespace has its own ``pid_max``; before, it is the machine's."""
_RESERVED = 301
"""Process ids that the kernel does not assign again after it has wrapped around."""


def children(pid: int) -> list[int]:
    """Return the children of all threads, oldest first per thread; none if the process has ended or is hidden."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as file:
                found += map(int, file.read().split())
    return found


def descendants(pid: int) -> list[int]:
    """Return all descendants of ``pid``, parents before their children."""
    found = children(pid)
    for each in found:
        found += children(each)
    return found


def overseers(root: int) -> list[int]:
    """Return the processes between terminal and shell, ``root`` first; the shell is the first child of the last."""
    below = children(root)
    return [root, below[0]] if below and leads_a_namespace(below[0]) else [root]


def bound_numbers(root: int, processes: int) -> bool:
    """Limit the process ids in a box of root's to few more than ``processes``, as RLIMIT_NPROC does not bind root.

    Returns False if the box has no PID namespace yet, so that it must be called again. Blocks for 3 ms.
    """
    kernel = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if os.geteuid() != 0 or kernel is None or tuple(map(int, kernel.groups())) < _OF_EACH_NAMESPACE:
        return True
    if len(found := overseers(root)) < 2:
        return False
    with contextlib.suppress(OSError, subprocess.TimeoutExpired), open(f"/proc/{found[-1]}/ns/pid") as inner:
        if os.path.samestat(os.fstat(inner.fileno()), os.stat("/proc/self/ns/pid")):
            return False
        ours = _HIGHEST.read_text()
        # A thread that has joined the namespace starts its children inside it, so this one starts nothing else.
        entering = threading.Thread(target=_write_inside, args=(inner.fileno(), processes + _RESERVED))
        entering.start()
        entering.join()
        if _HIGHEST.read_text() != ours:
            _HIGHEST.write_text(ours)
    return True


def _write_inside(namespace: int, highest: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _NEW_PID) == 0:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                (*_WRITE, str(highest), str(_HIGHEST)),
                env={},
                cwd="/",
                timeout=5,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )


def resident_bytes(pid: int) -> int:
    """Return the memory of the process in bytes, shared memory counted in full; 0 if it has ended. Takes 10 µs."""
    return (_resident_pages(whole := f"/proc/{pid}") or _resident_pages(_living(whole))) * _PAGE_BYTES


def _resident_pages(folder: str) -> int:
    try:
        with open(f"{folder}/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1])
    except (OSError, IndexError):
        return 0


def _living(whole: str) -> str:
    """Return the /proc directory of a process, or of another of its threads if the first one has ended."""
    with contextlib.suppress(OSError):
        if not _resident_pages(whole):
            threads = (f"{whole}/task/{name}" for name in os.listdir(f"{whole}/task"))
            return next(filter(_resident_pages, threads), whole)
    return whole


def proportional_bytes(pid: int) -> tuple[int, int]:
    """Return the process's memory with its share of what is shared, and how much of it is files in memory. Without
    permission to read that, return ``resident_bytes`` and 0. Takes 50 µs or more."""
    sizes: dict[bytes, int] = {}
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss"):
                    name, size = line.split()[:2]
                    sizes[name] = int(size) * 1024
    except OSError:
        pass
    return (sizes[b"Pss:"], sizes.get(b"Pss_Shmem:", 0)) if b"Pss:" in sizes else (resident_bytes(pid), 0)


def nameless_bytes(pids: Collection[int]) -> dict[int, int]:
    """Return each process's share of the nameless files (memfd_create) it has open, mapped or not. 2 µs for each."""
    holders: dict[tuple[int, int], list[int]] = {}
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        for file, size in _nameless(pid).items():
            holders.setdefault(file, []).append(pid)
            sizes[file] = size
    shares = dict.fromkeys(pids, 0)
    for file, those in holders.items():
        for pid in those:
            shares[pid] += sizes[file] // len(those)
    return shares


def _nameless(pid: int) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    folder = f"{_living(f'/proc/{pid}')}/fd"
    with contextlib.suppress(OSError):
        for number in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.readlink(path := f"{folder}/{number}").startswith("/memfd:"):
                    info = os.stat(path)
                    found[info.st_dev, info.st_ino] = info.st_blocks * _BLOCK_BYTES
    return found


def machine_files_in_memory() -> int:
    """Return the bytes of files in memory on the whole machine, an upper bound for any box. Takes 20 µs."""
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo", "rb", buffering=0) as file:
        text = file.read()
        return int(text[text.index(b"\nShmem:") :].split(maxsplit=2)[1]) * 1024
    return 0


def began(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def kill(pids: Iterable[int]) -> int:
    """Kill the processes and return how many of them still existed."""
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


def kill_below(root: int, spared: set[int]) -> int:
    """Kill the descendants of ``root`` and return how many; all are stopped first so that none can fork away."""
    count = 0
    for _ in range(_SWEEP_ROUNDS):
        stopped: set[int] = set()
        while fresh := set(descendants(root)) - stopped - spared:
            for pid in fresh:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= fresh
        if not stopped:
            break
        count = max(count, kill(stopped))
    return count
