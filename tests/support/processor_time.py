"""Durations without the time spent waiting for a processor, for promises such as "at once" on a shared machine."""

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
    """Repeat ``attempt`` until it takes at most ``bound`` seconds, because a shared machine delays single ones."""
    deadline = time.monotonic() + BOUND_SECONDS
    while (seconds := attempt()) > bound:
        assert time.monotonic() < deadline, f"it never took less than {bound:g} s; at last it took {seconds:g} s"


def computing_seconds(work: Callable[[], object]) -> float:
    """Return the processor time that ``work`` takes in this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


class Child(Protocol):
    """A child as ``subprocess.Popen`` has it. One that another process reaps has ``waited_seconds`` at its end."""

    @property
    def pid(self) -> int: ...

    def wait(self, timeout: float) -> int: ...


class OwnTime:
    """The time from now on, without waits for a processor of this thread and of the first thread of a child.

    The child must not be reaped before ``seconds_to_its_end``.
    """

    def __init__(self, child: Child) -> None:
        self._child = child
        self._before = self._waited()
        self._began = time.monotonic()

    def seconds_to_its_end(self) -> float:
        """Wait for the child's end, without reaping it, and return the seconds since the start."""
        with suppress(ProcessLookupError):  # it has ended and was reaped by its parent
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
    """Return how long a process has waited for a processor; 0.0 once it was reaped."""
    with suppress(OSError):
        return int(Path(process, "schedstat").read_text().split()[1]) / 1e9
    return 0.0


def processor_seconds(process: int) -> float:
    """Return the processor time that all threads of a process have used."""
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
