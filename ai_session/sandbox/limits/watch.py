"""Limits what all processes of a box use together: by a cgroup where possible, otherwise by polling.

A shell alone is polled once a second, which takes 0.1 ms, a running command ten times a second. If a box exceeds its
memory, its biggest processes are killed, as the kernel would do; if it keeps doing so, all but the shell, and the shell
only if it is too big itself. If it has too many processes, all but the shell are killed. The kernel does not count the
processes of root: a box of root's gets few process ids, so that it cannot fork faster than it is polled.
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
"""The part of its interval after which a box is polled along with others that are due."""
AFTERWARDS = 0.8
"""The part of its memory limit to which a box is brought back."""
STRIKES, FORGIVEN = 3.0, 0.1
"""How often a box may exceed its memory before all but its shell is killed; each poll without excess forgives some."""


class Limits(Protocol):
    """The limits of one box; a SandboxProfile has them."""

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
    """The processes killed for their memory, which they may still hold, with their start times."""
    ids_limited: bool = False
    """Whether process ids have been limited, as far as that is possible."""
    polled_at: float = -math.inf
    """When the box was last polled, in ``time.monotonic()`` seconds, and its interval until the next poll."""
    interval: float = BUSY_SECONDS


class ResourceWatch:
    """Limits boxes, on the running event loop. ``cgroups`` is the cgroup to make theirs in: see cgroup.delegated."""

    def __init__(self, cgroups: Path | None = None) -> None:
        self._cgroups = cgroups
        self._boxes: dict[str, _Box] = {}
        self._leaving: list[Cgroup] = []
        self._growth: FileGrowth | None = None
        self._watching: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    def add(self, session_id: str, root_pid: int, limits: Limits, on_limit: OnLimit) -> None:
        """Limit the box whose terminal runs ``root_pid``. ``on_limit`` is called on the loop with a message each time a
        limit is reached: which one, and what was done."""
        self.remove(session_id)
        box = _Box(session_id, root_pid, limits, on_limit)
        if self._cgroups is not None:
            self._contain(box, self._cgroups)
        self._boxes[session_id] = box
        if box.cgroup is None and (self._watching is None or self._watching.done()):
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        self._wake.set()

    def remove(self, session_id: str) -> None:
        """Stop limiting a box that has ended or is no longer ours. Unknown ids are ignored."""
        box = self._boxes.pop(session_id, None)
        if box is not None and box.cgroup is not None:
            for file in box.cgroup.event_files:
                if self._growth:
                    self._growth.remove(str(file))
            self._leaving.append(box.cgroup)
        self._leaving = [cgroup for cgroup in self._leaving if not cgroup.remove()]

    def close(self) -> None:
        """Stop polling. Boxes in cgroups stay limited."""
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
                with contextlib.suppress(OSError):  # it has ended; its children have a parent that is moved
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
            # Boxes that are nearly due are polled in the same round, so that many need no more rounds than one. The
            # others wait: while twenty boxes start, each of them would otherwise have all polled.
            due = [box for box in watched if now - box.polled_at >= box.interval * EARLIEST]
            for box, quiet, met in await asyncio.to_thread(_poll_all, due) if due else ():
                box.polled_at = now
                box.interval = QUIET_SECONDS if quiet else BUSY_SECONDS
                if met and self._boxes.get(box.session_id) is box:
                    box.on_limit(met)
            first = min(box.polled_at + box.interval for box in watched)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(first - time.monotonic()):
                    await self._wake.wait()


def _poll_all(boxes: list[_Box]) -> list[tuple[_Box, bool, str]]:
    return [_poll(box) for box in boxes]


def _poll(box: _Box) -> tuple[_Box, bool, str]:
    """Poll one box. Returns it, whether nothing but the shell runs, and a message if a limit was reached. Blocks."""
    box.ids_limited = box.ids_limited or box_processes.bound_numbers(box.root, box.limits.processes)
    overseers = box_processes.overseers(box.root)
    shell = next(iter(box_processes.children(overseers[-1])), 0)
    inside = set(box_processes.descendants(box.root)) - set(overseers)
    spared = {*overseers, shell}
    # A box whose shell has not started yet will start it soon, and that may run a command at once.
    message = _limit_processes(box, inside, spared) or _limit_memory(box, inside, shell, spared)
    return box, shell != 0 and inside <= {shell}, message


def _limit_processes(box: _Box, inside: set[int], spared: set[int]) -> str:
    if len(inside) <= box.limits.processes:
        return ""
    killed = box_processes.kill_below(box.root, spared)
    return f"processes: {len(inside)} of at most {box.limits.processes}; ended {killed}, all but the shell"


def _limit_memory(box: _Box, inside: set[int], shell: int, spared: set[int]) -> str:
    limit = box.limits.memory_bytes
    sizes: dict[int, int] = {}
    box.ended = {pid: start for pid, start in box.ended.items() if start and box_processes.began(pid) == start}
    inside = inside - box.ended.keys()
    # The first measures are quick and count too much; only what exceeds the limit by them is measured more exactly.
    for measure in (_at_most, _with_files, _exactly):
        sizes, more = measure(inside)
        if sum(sizes.values()) + more <= limit:
            box.strikes = max(0.0, box.strikes - FORGIVEN)
            return ""
    total = left = sum(sizes.values())
    excess = f"memory: {total} bytes of at most {limit}"
    box.strikes += 1
    if box.strikes >= STRIKES and sizes.get(shell, 0) <= limit:
        killed = box_processes.kill_below(box.root, spared)
        return f"{excess}; ended {killed} process{'es' * (killed != 1)}, all but the shell"
    killed = 0
    biggest_first = sorted(inside - {shell}, key=lambda pid: -sizes[pid])
    for pid in (*biggest_first, shell):
        if left <= limit * AFTERWARDS:
            break
        box.ended[pid] = box_processes.began(pid)
        killed += box_processes.kill((pid,))
        left -= sizes.get(pid, 0)
    return f"{excess}; ended the {killed} biggest"


Measure = tuple[dict[int, int], int]
"""Bytes of each process, and bytes that cannot be attributed to one."""


def _at_most(inside: set[int]) -> Measure:
    return {pid: box_processes.resident_bytes(pid) for pid in inside}, box_processes.machine_files_in_memory()


def _with_files(inside: set[int]) -> Measure:
    """Count what is shared for each process that holds it, and a mapped file twice."""
    files = box_processes.nameless_bytes(inside)
    return {pid: box_processes.resident_bytes(pid) + files[pid] for pid in inside}, 0


def _exactly(inside: set[int]) -> Measure:
    """Count only those files that are certainly not included in mapped memory."""
    files = box_processes.nameless_bytes(inside)
    mapped = {pid: box_processes.proportional_bytes(pid) for pid in inside}
    return {pid: size + max(0, files[pid] - shared) for pid, (size, shared) in mapped.items()}, 0
