"""The ends of processes that need not be children of the test, waited for under a bound."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.bounds import BOUND_SECONDS


@contextmanager
def ending(pid: int) -> Iterator[None]:
    """Wait after the block until the process that has this id now has ended. Raises ProcessLookupError."""
    fd = os.pidfd_open(pid)
    try:
        yield
        assert select.select([fd], [], [], BOUND_SECONDS)[0], f"process {pid} does not end"
    finally:
        os.close(fd)


def kill_process(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a process and wait for its end. Raises ProcessLookupError."""
    with ending(pid):
        os.kill(pid, number)


def wait_ended(pid: int) -> None:
    """Wait for the end of a process, which may have ended already."""
    with suppress(ProcessLookupError), ending(pid):
        pass


async def ended(pid: int) -> None:
    """Wait for the end of a process, which may have ended already, without blocking the event loop."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(fd, event.set)
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            await event.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
