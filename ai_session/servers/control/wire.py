"""The stream of a connection of the control protocol: lines first, and frames once a terminal is attached."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ai_session.errors import InvalidArguments
from ai_session.servers.control.fields import number

HEADER = struct.Struct(">cI")
MAX_LINE_BYTES = 64 << 20
"""The longest request: a call whose standard input is 10 MB of characters that JSON escapes with six."""

MAX_FRAME_BYTES = 1 << 20
READ_BYTES = 1 << 16


class Incoming:
    """Reads lines first and frames later from one stream."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._held = bytearray()

    async def line(self) -> bytes | None:
        """Return the next line, or None at the end. Raises InvalidArguments for one that is too long."""
        searched = 0
        while (end := self._held.find(b"\n", searched)) < 0:
            searched = len(self._held)
            if searched > MAX_LINE_BYTES:
                raise InvalidArguments(f"a request is longer than {MAX_LINE_BYTES} bytes")
            if not await self._more():
                return None
        line = bytes(self._held[:end])
        del self._held[: end + 1]
        return line

    async def frame(self) -> tuple[bytes, bytes] | None:
        """Return type and payload of the next frame; None at the end or for an invalid frame."""
        header = await self.exactly(HEADER.size)
        if header is None:
            return None
        kind, size = HEADER.unpack(header)
        payload = await self.exactly(size) if size <= MAX_FRAME_BYTES else None
        return None if payload is None else (kind, payload)

    async def exactly(self, size: int) -> bytes | None:
        """Return that many bytes, or None if the stream ends before."""
        while len(self._held) < size:
            if not await self._more():
                return None
        data = bytes(self._held[:size])
        del self._held[:size]
        return data

    async def _more(self) -> bool:
        try:
            chunk = await self._reader.read(READ_BYTES)
        except ConnectionError:
            return False
        self._held += chunk
        return bool(chunk)


@dataclass(frozen=True, slots=True)
class Request:
    """One line of the client, checked for its types only."""

    id: Any
    method: str
    params: Mapping[str, Any]
    bytes: int = 0
    """The number of bytes that follow the line."""
    notification: bool = False
    """Whether no answer is expected."""


class OutOfSync(InvalidArguments):
    """The error after which it is unknown where the next line begins."""


def following(message: Mapping[str, Any]) -> int:
    """Return how many bytes follow the line."""
    try:
        return number(message, "bytes", 0, MAX_FRAME_BYTES, 0)
    except InvalidArguments as error:
        raise OutOfSync(error.message, fields=error.fields) from None
