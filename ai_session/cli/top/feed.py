"""A person's connection to the daemon for an event loop: requests side by side, events as they come, the next daemon
where one went away."""

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
    """A message of the daemon without a request; ``facts["event"]`` is its name, ``connected`` for a new connection."""

    facts: Mapping[str, Any]
    data: bytes = b""


class Feed:
    """One; it belongs to its event loop."""

    def __init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._id = 0

    async def events(self) -> AsyncIterator[Event]:
        """Until there is no daemon any more, and none to follow: then raises DaemonUnavailable."""
        while True:
            reader, self._writer = await self._dialled()
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
                            self._answered(facts)
                            await asyncio.sleep(0)  # who asked learns a stream's number before its first event
            finally:
                self._hang_up()
            await asyncio.to_thread(wait_until_ended, hello.get("pid", 0))

    async def ask(self, method: str, **params: Any) -> Any:
        """The result. Raises the error that the daemon names, DaemonUnavailable where it goes away meanwhile."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._id += 1
        self._waiting[self._id] = answer
        self._send({"id": self._id, "method": method, "params": params})
        return await answer

    async def call(self, tool: str, **arguments: Any) -> Mapping[str, Any]:
        """A tool's structured result. Raises as ``ask``, and what the tool failed with."""
        result = await self.ask("call", name=tool, arguments=arguments)
        if result["is_error"]:
            raise error_from(result["structured"].get("error") or {"message": result["text"]})
        return result["structured"]

    def tell(self, method: str, **params: Any) -> None:
        """Sends a request whose answer is not waited for."""
        with suppress(AiSessionError):
            self._send({"method": method, "params": params})

    def _send(self, request: Mapping[str, Any]) -> None:
        if self._writer is None:
            self._waiting.pop(request.get("id", 0), None)
            raise DaemonUnavailable("the daemon is not reached at the moment", suggestion="try again")
        self._writer.write(json.dumps(request).encode() + b"\n")

    def _answered(self, facts: Mapping[str, Any]) -> None:
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

    async def _dialled(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await open_streams(partial(dial_started, "control", ""), MAX_LINE_BYTES)
        except relay.Unreachable as error:
            raise error_from({"code": error.code, "message": error.message, "suggestion": error.suggestion}) from None
