"""A connection to the daemon from an event loop, which it does not block."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable


async def open_streams(
    dial: Callable[[], socket.socket], max_line_bytes: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of the connection that ``dial`` returns, called in a thread; cancelling this closes it."""
    dialing = asyncio.ensure_future(asyncio.to_thread(dial))
    try:
        connection = await asyncio.shield(dialing)
    except asyncio.CancelledError:
        dialing.add_done_callback(_hang_up)
        raise
    return await asyncio.open_unix_connection(sock=connection, limit=max_line_bytes)


def _hang_up(dialing: asyncio.Future[socket.socket]) -> None:
    if not dialing.cancelled() and dialing.exception() is None:
        dialing.result().close()
