"""What blocks is done on a thread, and ends with who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ccswarm.system.bounded_process import Stop, stoppable

T = TypeVar("T")


async def in_thread(do: Callable[[], T]) -> T:
    """As ``asyncio.to_thread``; when the caller is cancelled a command that runs there is ended and none begins."""
    stop = Stop()
    future = asyncio.get_running_loop().run_in_executor(None, stoppable(stop, do))
    future.add_done_callback(lambda done: (stop.close(), done.cancelled() or done.exception()))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not future.done():
            stop.request()
        raise
