"""A person's connection to the daemon for an event loop: concurrent requests, events as they arrive, and the next
daemon after one has ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from ai_session.client import relay
from ai_session.client.connection import dial_started, error_from, wait_until_ended
from ai_session.client.dialing import open_streams
from ai_session.errors import AiSessionError, DaemonUnavailable

MAX_LINE_BYTES = 64 << 20


class Event(NamedTuple):
    """A message that is not a response; ``facts["event"]`` is its name, ``connected`` for a new connection."""

    facts: Mapping[str, Any]
    data: bytes = b""


class Feed:
    """One connection at a time, for one event loop."""

    def __init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._id = 0

    async def events(self) -> AsyncIterator[Event]:
        """Yield events until the daemon ends without a successor, then raise DaemonUnavailable."""
        while True:
            reader, self._writer = await self._dial()
            hello = json.loads(await reader.readline() or b"{}")
            if "error" in hello:
                raise error_from(hello["error"])
            yield Event({"event": "connected"})
            try:
                with suppress(OSError, EOFError):
                    while line := await reader.readline():
                        facts: dict[str, Any] = json.loads(line)
                        data = await reader.readexactly(facts["bytes"]) if facts.get("bytes") else b""
                        if "event" in facts:
                            yield Event(facts, data)
                        else:
                            self._resolve(facts)
                            await asyncio.sleep(0)  # the caller gets a stream's number before its first event
            finally:
                self._hang_up()
            await asyncio.to_thread(wait_until_ended, hello.get("pid", 0))

    async def ask(self, method: str, **params: Any) -> Any:
        """Return the result. Raises the daemon's error, or DaemonUnavailable if it ends meanwhile."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._id += 1
        self._waiting[self._id] = answer
        self._send({"id": self._id, "method": method, "params": params})
        return await answer

    async def call(self, tool: str, **arguments: Any) -> Mapping[str, Any]:
        """Return a tool's structured result. Raises as ``ask``, and the tool's error."""
        result = await self.ask("call", name=tool, arguments=arguments)
        if result["is_error"]:
            raise error_from(result["structured"].get("error") or {"message": result["text"]})
        return result["structured"]

    def send_request(self, method: str, **params: Any) -> None:
        """Send a request without waiting for its response."""
        with suppress(AiSessionError):
            self._send({"method": method, "params": params})

    def _send(self, request: Mapping[str, Any]) -> None:
        if self._writer is None:
            self._waiting.pop(request.get("id", 0), None)
            raise DaemonUnavailable("the daemon cannot be reached at the moment", suggestion="try again")
        self._writer.write(json.dumps(request).encode() + b"\n")

    def _resolve(self, facts: Mapping[str, Any]) -> None:
        answer = self._waiting.pop(facts.get("id") or 0, None)
        if answer is None or answer.done():
            return
        if "error" in facts:
            answer.set_exception(error_from(facts["error"]))
        else:
            answer.set_result(facts["result"])

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        waiting = self._waiting
        self._waiting = {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(DaemonUnavailable("the connection to the daemon ended", suggestion="try again"))

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await open_streams(partial(dial_started, "control", ""), MAX_LINE_BYTES)
        except relay.Unreachable as error:
            raise error_from({"code": error.code, "message": error.message, "suggestion": error.suggestion}) from None
