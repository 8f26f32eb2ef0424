"""Waiting for input on descriptors of any number: ``select.select`` takes none from 1024 on, and who serves many
sessions or clients has such."""

from __future__ import annotations

import math
import select
from collections.abc import Iterable


def readable(fds: Iterable[int], seconds: float | None = None) -> set[int]:
    """Those of ``fds`` that a read would not wait for, the end included, as soon as there is one; none of them after
    ``seconds``. Without ``seconds`` it waits for one."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(None if seconds is None else math.ceil(max(0.0, seconds) * 1000))}
