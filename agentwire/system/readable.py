"""Waiting for input on file descriptors of any number: ``select.select`` refuses those from 1024 on, which processes
with many sessions or clients have."""

from __future__ import annotations

import math
import select
from collections.abc import Iterable


def readable(fds: Iterable[int], seconds: float | None = None) -> set[int]:
    """Return those of ``fds`` that can be read without blocking, including at their end, as soon as there is one; an
    empty set after ``seconds``. Without ``seconds`` it blocks until there is one."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(None if seconds is None else math.ceil(max(0.0, seconds) * 1000))}
