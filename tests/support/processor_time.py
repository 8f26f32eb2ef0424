"""How long something took, without what it waited for a processor: what promises of "early" and "at once" are held to,
on a machine that others use too."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tests.support.bounds import BOUND_SECONDS


def once_within(bound: float, attempt: Callable[[], float]) -> None:
    """At least one of many attempts takes no more seconds. Others share the machine, so that any one may; what waits
    for something always does."""
    deadline = time.monotonic() + BOUND_SECONDS
    while (seconds := attempt()) > bound:
        assert time.monotonic() < deadline, f"it never took less than {bound:g} s; at last it took {seconds:g} s"


def computing_seconds(work: Callable[[], object]) -> float:
    """Processor time that ``work`` takes in this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


class Child(Protocol):
    """As ``subprocess.Popen`` has it. One that somebody else waits for has ``waited_seconds`` in the end."""

    @property
    def pid(self) -> int: ...

    def wait(self, timeout: float) -> int: ...


class OwnTime:
    """From now on, for this thread and the first thread of a child, which this process must not wait for before."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._before = self._waited()
        self._began = time.monotonic()

    def seconds_to_its_end(self) -> float:
        """Returns once the child has ended; it can be waited for then."""
        with suppress(ProcessLookupError):  # it has ended, and whoever waits for it knows
            fd = os.pidfd_open(self._child.pid)
            try:
                assert select.select([fd], [], [], BOUND_SECONDS)[0], "it does not end"
            finally:
                os.close(fd)
        seconds = time.monotonic() - self._began
        if hasattr(self._child, "waited_seconds"):
            self._child.wait(BOUND_SECONDS)
        return seconds - (self._waited() - self._before)

    def _waited(self) -> float:
        theirs = getattr(self._child, "waited_seconds", 0.0) or waited_seconds(f"/proc/{self._child.pid}")
        return waited_seconds("/proc/thread-self") + theirs


def waited_seconds(process: str) -> float:
    """For a processor, since it began; of one that has ended, until somebody waited for it."""
    with suppress(OSError):
        return int(Path(process, "schedstat").read_text().split()[1]) / 1e9
    return 0.0


def processor_seconds(process: int) -> float:
    """That it has taken, all its threads together."""
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
