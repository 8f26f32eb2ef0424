"""The two directions between a server's pipes and the SDK: messages to read, and messages to send."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

import anyio
from mcp.shared.message import SessionMessage

MAX_UNSENT_BYTES = 64 << 20
"""How much a server may leave unread before it counts as stuck."""

WAITING_MESSAGES = 256
"""The number of unread messages at which the pipe is paused; it resumes at half of it."""

MESSAGES_IN_A_ROW = 32
"""The number of messages after which other tasks run: one read of a pipe may bring 2,000."""


class PipeTransport(Protocol):
    """The used part of asyncio's pipe transports."""

    def write(self, data: bytes) -> None: ...
    def get_write_buffer_size(self) -> int: ...


class Incoming:
    """Messages that wait for the SDK. ``pause`` is called with true to pause the pipe, with false to resume it."""

    def __init__(self, pause: Callable[[bool], None]) -> None:
        self._messages: deque[SessionMessage | Exception] = deque()
        self._reader: asyncio.Future[None] | None = None
        self.over = asyncio.Event()
        """Set when the last message was read, or reading has stopped."""
        self._pause = pause
        self._paused = False
        self._ended = False
        self._in_a_row = 0

    def put(self, message: SessionMessage) -> None:
        """Add a message, however many are waiting."""
        if not self._ended:
            self._messages.append(message)
            if len(self._messages) >= WAITING_MESSAGES and not self._paused:
                self._paused = True
                self._pause(True)
            self._wake()

    def end(self) -> None:
        """Mark the end. Waiting messages can still be read."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises anyio.EndOfStream after the last."""
        self._in_a_row += 1
        if self._in_a_row >= MESSAGES_IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)
        while not self._messages:
            if self._ended:
                self.over.set()
                raise anyio.EndOfStream
            self._in_a_row = 0
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        message = self._messages.popleft()
        if self._paused and len(self._messages) <= WAITING_MESSAGES // 2:
            self._paused = False
            self._pause(False)
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Drop waiting messages."""
        self._messages.clear()
        self.end()
        self.over.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class Outgoing:
    """A writer of the SDK's messages to a server. It never waits. What a slow server has not read is buffered, up to a
    limit at which ``stuck`` is called."""

    def __init__(self, pipe: PipeTransport, stuck: Callable[[], None]) -> None:
        self._pipe = pipe
        self._stuck = stuck
        self._closed = False

    async def send(self, item: SessionMessage) -> None:
        """Write a message. Raises anyio.ClosedResourceError after the end, and ValueError for what is not JSON."""
        if self._closed:
            raise anyio.ClosedResourceError
        self._pipe.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        if self._pipe.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._stuck()

    async def aclose(self) -> None:
        """Accept no more messages. Those sent are still written."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()
