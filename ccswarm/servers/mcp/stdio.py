"""Standard input and output as a wire of bytes: whatever they are, reading and writing never hold the loop up."""

from __future__ import annotations

import asyncio
import fcntl
import os
import queue
import select
import threading

READ_BYTES = 1 << 16
MOST_READ = 16
"""Pieces read ahead; a client that sends more waits."""

MOST_UNSENT = 4 << 20
"""Bytes that a client has not read, beyond which nothing more of it is taken."""


class Wire:
    """Takes descriptors 0 and 1 away from everybody else: children find nothing to read, and what anybody prints goes
    to standard error. Made on the running loop; threads of its own read and write, and end with the process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = _taken(0, os.open(os.devnull, os.O_RDONLY))
        self._target = _taken(1, 2)
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
        """What came; ``b""`` when the client will send no more."""
        return await self._read.get()

    def write(self, data: bytes) -> None:
        """Sent in order; dropped where the client does not listen any more."""
        self._unsent += len(data)
        self._sent.clear()
        if self._unsent > MOST_UNSENT:
            self._room.clear()
        self._unwritten.put(data)

    async def room(self) -> None:
        """Returns when the client has read enough for more to be asked."""
        await self._room.wait()

    async def flushed(self, seconds: float) -> None:
        """Returns when all is sent, and after that time."""
        await asyncio.wait({asyncio.ensure_future(self._sent.wait())}, timeout=seconds)

    def _keep_reading(self) -> None:
        while True:
            try:
                data = os.read(self._source, READ_BYTES)
            except BlockingIOError:
                _ready(self._source, select.POLLIN)
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
        open_ = True
        while True:
            data = self._unwritten.get()
            left = memoryview(data)
            while open_ and left:
                try:
                    left = left[os.write(self._target, left) :]
                except BlockingIOError:
                    _ready(self._target, select.POLLOUT)
                except OSError:
                    open_ = False
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


def _ready(fd: int, event: int) -> None:
    """Waits for a descriptor that whoever shares it has made non-blocking."""
    poll = select.poll()
    poll.register(fd, event)
    poll.poll()


def _taken(number: int, instead: int) -> int:
    """A descriptor of our own for what was ``number``, which is ``instead`` from now on."""
    try:
        ours = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError:  # it was closed
        ours = fcntl.fcntl(instead, fcntl.F_DUPFD_CLOEXEC, 3)
    os.dup2(instead, number)
    return ours
