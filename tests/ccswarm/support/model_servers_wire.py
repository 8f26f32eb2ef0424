"""HTTP/1.1 on one connection, which can be broken anywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import h11


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """The server side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)

    async def read(self) -> Request | None:
        """Return the next request, or None if there is no other."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            return None
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        body = bytearray()
        while isinstance(data := await self._event(), h11.Data):
            body += data.data
        headers = {name.decode().lower(): value.decode() for name, value in head.headers}
        return Request(head.method.decode(), head.target.decode(), headers, bytes(body))

    async def _event(self) -> Any:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    await self._write(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(await self._reader.read(1 << 16))
        except h11.RemoteProtocolError:  # it is not HTTP, or ends in the middle
            return None
        return event

    async def _write(self, event: Any) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()

    async def send(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """Send a complete response in JSON."""
        await self.send_raw(status, json.dumps(body).encode(), {"content-type": "application/json", **(headers or {})})

    async def send_raw(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        """Send a complete response."""
        fields = {"content-length": str(len(data)), **headers}
        await self._write(h11.Response(status_code=status, headers=list(fields.items())))
        await self._write(h11.Data(data=data))
        await self._write(h11.EndOfMessage())

    async def begin_events(self) -> None:
        fields = {"content-type": "text/event-stream", "transfer-encoding": "chunked", "cache-control": "no-cache"}
        await self._write(h11.Response(status_code=200, headers=list(fields.items())))

    async def send_data(self, data: bytes) -> None:
        await self._write(h11.Data(data=data))

    async def end(self, tail: bytes) -> None:
        await self.send_data(tail)
        await self._write(h11.EndOfMessage())

    async def left(self) -> None:
        """Wait until the client disconnects."""
        while await self._reader.read(1 << 16):
            pass
        await self.cut()

    async def cut(self) -> None:
        """Reset the connection. Always raises ConnectionAbortedError."""
        self._writer.transport.abort()
        raise ConnectionAbortedError
