"""A connection to the daemon for an event loop, which must not wait for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable


async def dialled(
    dial: Callable[[], socket.socket], max_line_bytes: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """What ``dial`` connects to, called in a thread. Where nobody waits any more, the connection is closed."""
    dialling = asyncio.ensure_future(asyncio.to_thread(dial))
    try:
        connection = await asyncio.shield(dialling)
    except asyncio.CancelledError:
        dialling.add_done_callback(_hang_up)
        raise
    return await asyncio.open_unix_connection(sock=connection, limit=max_line_bytes)


def _hang_up(dialling: asyncio.Future[socket.socket]) -> None:
    if not dialling.cancelled() and dialling.exception() is None:
        dialling.result().close()
