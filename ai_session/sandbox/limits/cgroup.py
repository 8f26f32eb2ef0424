"""Boxes in cgroups of their own, where the system has delegated a part of cgroup v2 to this user.

The kernel then limits memory, including files in memory, and processes, and reports when a limit was reached.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
CONTROLLERS = {"memory", "pids"}


def delegated(mounts: tuple[Path, ...] = MOUNTS, membership: Path = Path("/proc/self/cgroup")) -> Path | None:
    """Return the nearest cgroup, our own or above it, in which boxes can have memory and process limits, or None."""
    own = _own(membership)
    for mount in mounts:
        if own is not None and (mount / "cgroup.controllers").exists():
            here = mount / own
            for folder in (here, *here.parents):
                if _offers(folder):
                    return folder
                if folder == mount:
                    break
    return None


def _own(membership: Path) -> str | None:
    with contextlib.suppress(OSError):
        for line in membership.read_text().splitlines():
            if line.startswith("0::/"):
                return line[4:]
    return None


def _offers(folder: Path) -> bool:
    """Report whether this user may fill cgroups made below ``folder`` and both controllers are enabled there."""
    procs = folder / "cgroup.procs"
    try:
        enabled = set((folder / "cgroup.subtree_control").read_text().split())
    except OSError:
        return False
    return os.access(folder, os.W_OK) and os.access(procs, os.W_OK) and enabled >= CONTROLLERS


class Cgroup:
    """The cgroup of one box. The constructor raises OSError if the system does not allow it."""

    def __init__(self, parent: Path, name: str, memory_bytes: int, processes: int) -> None:
        self.path = parent / f"ai-session-{name}"
        self.path.mkdir(exist_ok=True)
        try:
            (self.path / "memory.max").write_text(str(memory_bytes))
            (self.path / "pids.max").write_text(str(processes))
            with contextlib.suppress(OSError):  # a kernel without swap accounting has no such file
                (self.path / "memory.swap.max").write_text("0")
        except OSError:
            self.path.rmdir()
            raise

    @property
    def event_files(self) -> tuple[Path, Path]:
        """The files the kernel writes to when a limit is reached."""
        return self.path / "memory.events", self.path / "pids.events"

    def take(self, pid: int) -> None:
        """Move one process into this cgroup; its future children start in it."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def met(self) -> dict[str, int]:
        """Return how often the kernel killed a process for memory, and refused one, since the cgroup was made."""
        memory, pids = self.event_files
        return {"memory": _count(memory, "oom_kill"), "processes": _count(pids, "max")}

    def remove(self) -> bool:
        """Kill what is still in the cgroup and remove it. Returns False while processes still end: call again."""
        with contextlib.suppress(OSError), open(self.path / "cgroup.kill", "r+") as file:
            file.write("1")
        try:
            self.path.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return False
        return True


def _count(file: Path, name: str) -> int:
    with contextlib.suppress(OSError):
        for line in file.read_text().splitlines():
            word, _, number = line.partition(" ")
            if word == name:
                return int(number)
    return 0
