"""The two directions between a server's pipes and the SDK: bytes → messages that wait to be read, messages → bytes."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

MAX_MESSAGE_BYTES = 64 << 20
"""Of one message of a server. A longer one is read to its end and refused, so that only its call fails."""

MAX_UNSENT_BYTES = 64 << 20
"""What a server that has stopped reading may leave behind before it counts as broken."""

KEPT_BYTES = 4096
"""Of both ends of a message that is too long: its id stands there."""

WAITING_MESSAGES = 256
"""With so many unread the pipe waits, and goes on at half of it."""

_ID = rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\\x00-\x1f]|\\.){0,200}")'
_ID_AT_START = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_ID_AT_END = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


class LineCutter:
    """Cuts what a server writes into lines, in bounded memory."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._dropped = 0

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, int]]:
        """The lines ``chunk`` completes, each with the length it had: of one that was too long only both ends."""
        pieces = chunk.split(b"\n")
        for piece in pieces[:-1]:
            self._held += piece
            yield bytes(self._held), len(self._held) + self._dropped
            self._held.clear()
            self._dropped = 0
        self._held += pieces[-1]
        if len(self._held) > MAX_MESSAGE_BYTES or self._dropped:
            excess = len(self._held) - 2 * KEPT_BYTES
            if excess > 0:
                del self._held[KEPT_BYTES:-KEPT_BYTES]
                self._dropped += excess


def read_message(line: bytes, length: int) -> SessionMessage | None:
    """The message on a line; None where there is none, as on a banner."""
    if length > MAX_MESSAGE_BYTES:
        return _refusal(line, length)
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError:
        return None


def _refusal(line: bytes, length: int) -> SessionMessage | None:
    found = _ID_AT_START.match(line) or _ID_AT_END.search(line)
    if found is None:
        return None
    text = found[1].decode(errors="replace")
    message = f"the answer has {length} bytes; answers over {MAX_MESSAGE_BYTES} are not taken"
    return SessionMessage(
        JSONRPCError(
            jsonrpc="2.0",
            id=text[1:-1] if text.startswith('"') else int(text),
            error=ErrorData(code=INTERNAL_ERROR, message=message),
        )
    )


class PipeTransport(Protocol):
    """What is used of asyncio's pipe transports."""

    def write(self, data: bytes) -> None: ...
    def get_write_buffer_size(self) -> int: ...


class Incoming:
    """Messages that wait for the SDK to read them. ``hold`` is told when no more should come, and when they may."""

    def __init__(self, hold: Callable[[bool], None]) -> None:
        self._messages: deque[SessionMessage | Exception] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._hold = hold
        self._held = False
        self._ended = False

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
        while not self._messages:
            if self._ended:
                raise anyio.EndOfStream
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class Outgoing:
    """Writes the SDK's messages to a server. Never waits: what a slow server has not read yet is kept, up to a bound,
    and then ``stuck`` is told."""

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
