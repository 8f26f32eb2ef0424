"""Bounds what all processes of a box hold together: by a cgroup where one can be had, else by looking.

Looking costs nothing to speak of while a shell is alone (once a second, 0.1 ms), and continues ten times a second while
something runs. Over its memory a box loses its biggest processes, as it would to the kernel; if that does not hold
it, all but the shell. The shell goes when it is itself what is too big. Over its processes it loses all but the shell;
a box of root's, which the kernel does not count, gets few numbers for processes, so that none outruns the look.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ai_session.sandbox.limits import processes as box_processes
from ai_session.sandbox.limits.cgroup import Cgroup
from ai_session.system.events import FileGrowth

log = logging.getLogger(__name__)

BUSY_SECONDS = 0.1
QUIET_SECONDS = 1.0
EARLIEST = 0.75
"""Of these."""
AFTERWARDS = 0.8
"""Part of its memory that a box is brought back to."""
STRIKES, FORGIVEN = 3.0, 0.1
"""How often a box may go over its memory before all of it goes, and how much of that each round without it forgives."""


class Limits(Protocol):
    """Bounds of one box; a SandboxProfile has them."""

    @property
    def memory_bytes(self) -> int: ...

    @property
    def processes(self) -> int: ...


OnLimit = Callable[[str], None]


@dataclass(slots=True)
class _Box:
    session_id: str
    root: int
    limits: Limits
    on_limit: OnLimit
    cgroup: Cgroup | None = None
    met: dict[str, int] = field(default_factory=dict[str, int])
    strikes: float = 0.0
    ended: dict[int, int] = field(default_factory=dict[int, int])
    """What was ended for its memory and may still hold it, with its start: a large one takes a while to go."""
    numbered: bool = False
    """Whether the kernel's own limit on processes has been set, as far as it can be."""
    seen: float = -math.inf
    """When it was looked at last, and how long after that it is looked at again."""
    again: float = BUSY_SECONDS


class ResourceWatch:
    """Watches boxes on the running loop. ``cgroups`` is where boxes get cgroups of their own: see cgroup.delegated."""

    def __init__(self, cgroups: Path | None = None) -> None:
        self._cgroups = cgroups
        self._boxes: dict[str, _Box] = {}
        self._leaving: list[Cgroup] = []
        self._growth: FileGrowth | None = None
        self._watching: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    def add(self, session_id: str, root_pid: int, limits: Limits, on_limit: OnLimit) -> None:
        """Limit the box whose terminal runs ``root_pid``; ``on_limit`` is called, on the loop, with the limit that was
        reached and what was done."""
        self.remove(session_id)
        box = _Box(session_id, root_pid, limits, on_limit)
        if self._cgroups is not None:
            self._contain(box, self._cgroups)
        self._boxes[session_id] = box
        if box.cgroup is None and (self._watching is None or self._watching.done()):
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        self._wake.set()

    def remove(self, session_id: str) -> None:
        """The box is gone, or no longer ours to bound; unknown ids are no error."""
        box = self._boxes.pop(session_id, None)
        if box is not None and box.cgroup is not None:
            for file in box.cgroup.event_files:
                if self._growth:
                    self._growth.remove(str(file))
            self._leaving.append(box.cgroup)
        self._leaving = [cgroup for cgroup in self._leaving if not cgroup.remove()]

    def close(self) -> None:
        """Stop watching; what is in a cgroup stays bounded."""
        self._boxes.clear()
        if self._watching is not None:
            self._watching.cancel()
        if self._growth is not None:
            self._growth.close()
            self._growth = None

    def _contain(self, box: _Box, parent: Path) -> None:
        try:
            cgroup = Cgroup(parent, box.session_id, box.limits.memory_bytes, box.limits.processes)
            cgroup.take(box.root)
        except OSError as problem:
            log.warning("a box is limited by polling, because there is no cgroup: %s", problem)
            return
        moved = {box.root}
        while fresh := set(box_processes.descendants(box.root)) - moved:
            for pid in fresh:
                with contextlib.suppress(OSError):  # it has ended; its children come to one that is here
                    cgroup.take(pid)
            moved |= fresh
        box.cgroup = cgroup
        box.met = cgroup.met()
        try:
            self._growth = self._growth or FileGrowth()
            for file in cgroup.event_files:
                self._growth.add(str(file), lambda: self._report(box))
        except OSError as problem:
            log.warning("a box is limited, but reaching a limit cannot be reported: %s", problem)

    def _report(self, box: _Box) -> None:
        if box.cgroup is None:
            return
        met = box.cgroup.met()
        for what, count in met.items():
            if count > box.met.get(what, 0):
                bound = box.limits.memory_bytes if what == "memory" else box.limits.processes
                done = "the kernel ended its biggest process" if what == "memory" else "no more could be started"
                box.on_limit(f"{what}: all of {bound} in use; {done}")
        box.met = met

    async def _watch(self) -> None:
        while watched := [box for box in self._boxes.values() if box.cgroup is None]:
            self._wake.clear()
            now = time.monotonic()
            # Those that are nearly due come along, so that there are no more rounds for many than for one; the rest
            # does not: while twenty begin, each of them would have all looked at.
            due = [box for box in watched if now - box.seen >= box.again * EARLIEST]
            for box, quiet, met in await asyncio.to_thread(_look_at_all, due) if due else ():
                box.seen = now
                box.again = QUIET_SECONDS if quiet else BUSY_SECONDS
                if met and self._boxes.get(box.session_id) is box:
                    box.on_limit(met)
            first = min(box.seen + box.again for box in watched)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(first - time.monotonic()):
                    await self._wake.wait()


def _look_at_all(boxes: list[_Box]) -> list[tuple[_Box, bool, str]]:
    return [_look(box) for box in boxes]


def _look(box: _Box) -> tuple[_Box, bool, str]:
    """Whether nothing but the shell is there, and what limit was met, if any, with what was done. Blocks some ms."""
    box.numbered = box.numbered or box_processes.bound_numbers(box.root, box.limits.processes)
    overseers = box_processes.overseers(box.root)
    shell = next(iter(box_processes.children(overseers[-1])), 0)
    inside = set(box_processes.descendants(box.root)) - set(overseers)
    spared = {*overseers, shell}
    # Until the shell is there it is soon to be, and may begin at once.
    return box, shell != 0 and inside <= {shell}, _count(box, inside, spared) or _weigh(box, inside, shell, spared)


def _count(box: _Box, inside: set[int], spared: set[int]) -> str:
    if len(inside) <= box.limits.processes:
        return ""
    killed = box_processes.kill_below(box.root, spared)
    return f"processes: {len(inside)} of at most {box.limits.processes}; ended {killed}, all but the shell"


def _weigh(box: _Box, inside: set[int], shell: int, spared: set[int]) -> str:
    limit = box.limits.memory_bytes
    sizes: dict[int, int] = {}
    box.ended = {pid: start for pid, start in box.ended.items() if start and box_processes.began(pid) == start}
    inside = inside - box.ended.keys()
    # The first measures are quick and count too much; only what is too much that way is worth a closer look.
    for measure in (_at_most, _with_files, _exactly):
        sizes, more = measure(inside)
        if sum(sizes.values()) + more <= limit:
            box.strikes = max(0.0, box.strikes - FORGIVEN)
            return ""
    total = left = sum(sizes.values())
    said = f"memory: {total} bytes of at most {limit}"
    box.strikes += 1
    if box.strikes >= STRIKES and sizes.get(shell, 0) <= limit:
        killed = box_processes.kill_below(box.root, spared)
        return f"{said}; ended {killed} processes, all but the shell"
    killed = 0
    biggest_first = sorted(inside - {shell}, key=lambda pid: -sizes[pid])
    for pid in (*biggest_first, shell):
        if left <= limit * AFTERWARDS:
            break
        box.ended[pid] = box_processes.began(pid)
        killed += box_processes.kill((pid,))
        left -= sizes.get(pid, 0)
    return f"{said}; ended the {killed} biggest"


Measured = tuple[dict[int, int], int]
"""Bytes of each process, and bytes that cannot be attributed to one."""


def _at_most(inside: set[int]) -> Measured:
    return {pid: box_processes.resident_bytes(pid) for pid in inside}, box_processes.machine_files_in_memory()


def _with_files(inside: set[int]) -> Measured:
    """What is shared counts for each of its holders, a file that is mapped twice."""
    files = box_processes.nameless_bytes(inside)
    return {pid: box_processes.resident_bytes(pid) + files[pid] for pid in inside}, 0


def _exactly(inside: set[int]) -> Measured:
    """Of files what is certainly not counted as mapped memory."""
    files = box_processes.nameless_bytes(inside)
    mapped = {pid: box_processes.proportional_bytes(pid) for pid in inside}
    return {pid: size + max(0, files[pid] - shared) for pid, (size, shared) in mapped.items()}, 0
