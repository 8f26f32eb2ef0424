"""The two directions between a server's pipes and the SDK: messages that wait to be read, messages that are sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

import anyio
from mcp.shared.message import SessionMessage

MAX_UNSENT_BYTES = 64 << 20
"""What a server that has stopped reading may leave behind before it counts as broken."""

WAITING_MESSAGES = 256
"""With so many unread the pipe waits, and continues at half of it."""

MESSAGES_IN_A_ROW = 32
"""After so many the loop has its turn: one read of a pipe may bring 2,000."""


class PipeTransport(Protocol):
    """What is used of asyncio's pipe transports."""

    def write(self, data: bytes) -> None: ...
    def get_write_buffer_size(self) -> int: ...


class Incoming:
    """Messages that wait for the SDK to read them. ``hold`` is called when no more should come, and when they may
    again."""

    def __init__(self, hold: Callable[[bool], None]) -> None:
        self._messages: deque[SessionMessage | Exception] = deque()
        self._reader: asyncio.Future[None] | None = None
        self.over = asyncio.Event()
        """Set when the last was read, or nobody reads any more."""
        self._hold = hold
        self._held = False
        self._ended = False
        self._in_a_row = 0

    def put(self, message: SessionMessage) -> None:
        """One more, whatever is waiting already."""
        if not self._ended:
            self._messages.append(message)
            if len(self._messages) >= WAITING_MESSAGES and not self._held:
                self._held = True
                self._hold(True)
            self._wake()

    def end(self) -> None:
        """No more will come; what waits may still be read."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def receive(self) -> SessionMessage | Exception:
        """Raises anyio.EndOfStream after the last."""
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
        if self._held and len(self._messages) <= WAITING_MESSAGES // 2:
            self._held = False
            self._hold(False)
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Drops what waits."""
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
    """Writes the SDK's messages to a server. Never waits: what a slow server has not read yet is kept, up to a bound,
    at which ``stuck`` is called."""

    def __init__(self, pipe: PipeTransport, stuck: Callable[[], None]) -> None:
        self._pipe = pipe
        self._stuck = stuck
        self._closed = False

    async def send(self, item: SessionMessage) -> None:
        """Raises anyio.ClosedResourceError after the end; ValueError for what JSON cannot hold."""
        if self._closed:
            raise anyio.ClosedResourceError
        self._pipe.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        if self._pipe.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._stuck()

    async def aclose(self) -> None:
        """What was sent still goes out."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()
