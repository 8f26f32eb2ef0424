"""Runs blocking functions on threads, and stops them with their caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ccswarm.system.bounded_process import Stop, stoppable

T = TypeVar("T")


async def in_thread(do: Callable[[], T]) -> T:
    """Run ``do`` on a thread. If the caller is cancelled, its running command is ended, and no other one starts."""
    stop = Stop()
    future = asyncio.get_running_loop().run_in_executor(None, stoppable(stop, do))
    future.add_done_callback(lambda done: (stop.close(), done.cancelled() or done.exception()))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not future.done():
            stop.request()
        raise
