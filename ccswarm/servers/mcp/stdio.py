"""Standard input and output as bytes. Whatever they are connected to, they never block the event loop."""

from __future__ import annotations

import asyncio
import fcntl
import os
import queue
import select
import threading

READ_BYTES = 1 << 16
MOST_READ = 16
"""How many pieces are read ahead; then the client has to wait."""

MOST_UNSENT = 4 << 20
"""How many unread bytes a client may have before no more of its messages are read."""


class Wire:
    """The exclusive use of descriptors 0 and 1: child processes read nothing there, and anything printed goes to
    standard error. Create it in the running loop; its threads read and write, and end with the process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = _take_over(0, os.open(os.devnull, os.O_RDONLY))
        self._target = _take_over(1, 2)
        self._read: asyncio.Queue[bytes] = asyncio.Queue(MOST_READ)
        self._unwritten: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._unsent = 0
        self._room = asyncio.Event()
        self._room.set()
        self._sent = asyncio.Event()
        self._sent.set()
        for work in (self._keep_reading, self._keep_writing):
            threading.Thread(target=work, daemon=True).start()

    async def read(self) -> bytes:
        """Return the received bytes; ``b""`` at the end."""
        return await self._read.get()

    def write(self, data: bytes) -> None:
        """Send ``data``, in order; it is dropped if the client no longer reads."""
        self._unsent += len(data)
        self._sent.clear()
        if self._unsent > MOST_UNSENT:
            self._room.clear()
        self._unwritten.put(data)

    async def room(self) -> None:
        """Wait until the client has read enough for its next messages to be read."""
        await self._room.wait()

    async def flushed(self, seconds: float) -> None:
        """Wait until everything is sent, at most for that time."""
        await asyncio.wait({asyncio.ensure_future(self._sent.wait())}, timeout=seconds)

    def _keep_reading(self) -> None:
        while True:
            try:
                data = os.read(self._source, READ_BYTES)
            except BlockingIOError:
                _wait_ready(self._source, select.POLLIN)
                continue
            except OSError:
                data = b""
            try:
                asyncio.run_coroutine_threadsafe(self._read.put(data), self._loop).result()
            except RuntimeError:
                return  # the loop has ended
            if not data:
                return

    def _keep_writing(self) -> None:
        connected = True
        while True:
            data = self._unwritten.get()
            left = memoryview(data)
            while connected and left:
                try:
                    left = left[os.write(self._target, left) :]
                except BlockingIOError:
                    _wait_ready(self._target, select.POLLOUT)
                except OSError:
                    connected = False
            try:
                self._loop.call_soon_threadsafe(self._written, len(data))
            except RuntimeError:
                return

    def _written(self, count: int) -> None:
        self._unsent -= count
        if self._unsent <= MOST_UNSENT:
            self._room.set()
        if not self._unsent:
            self._sent.set()


def _wait_ready(fd: int, event: int) -> None:
    """Wait for a descriptor that another process has made non-blocking."""
    poll = select.poll()
    poll.register(fd, event)
    poll.poll()


def _take_over(number: int, instead: int) -> int:
    """Duplicate descriptor ``number`` and replace it with ``instead``. Return the duplicate."""
    try:
        ours = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError:  # it is closed
        ours = fcntl.fcntl(instead, fcntl.F_DUPFD_CLOEXEC, 3)
    os.dup2(instead, number)
    return ours
