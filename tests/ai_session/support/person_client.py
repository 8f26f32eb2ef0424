"""A client of the person protocol on the daemon's socket: requests, events, and the bytes that belong to them."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.ai_session.support.mcp_client import runtime
from tests.support.bounds import BOUND_SECONDS

Message = dict[str, Any]


class Received(NamedTuple):
    """A line of the daemon, and the bytes after it."""

    facts: Message
    data: bytes = b""


class Person:
    """A connection. ``version`` is the newest protocol version in its hello."""

    def __init__(self, home: Path, version: int = 2, **hello: Any) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(runtime(home) / "sock"))
        self._held = bytearray()
        self._id = 0
        self.events: list[Received] = []
        """Events that arrived while another message was awaited."""
        self.write({"ai_session": 1, "role": "control", "protocol": [1, version], "env": dict(os.environ)} | hello)
        self.hello = self.next().facts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def write(self, line: Message | bytes, data: bytes = b"") -> None:
        raw = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
        self._socket.sendall(raw + data)

    def next(self) -> Received:
        """Return the daemon's next message. Raises EOFError at the end."""
        end = self._until(lambda: self._held.find(b"\n") + 1)
        facts: Message = json.loads(self._held[:end])
        size = facts.get("bytes", 0)
        self._until(lambda: len(self._held) >= end + size)
        data = bytes(self._held[end : end + size])
        del self._held[: end + size]
        return Received(facts, data)

    def _until(self, found: Callable[[], int]) -> int:
        deadline = time.monotonic() + BOUND_SECONDS
        while not (at := found()):
            assert select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0], bytes(self._held)
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise EOFError(bytes(self._held))
            self._held += chunk
        return at

    def ask(self, method: str, data: bytes = b"", **params: Any) -> Message:
        """Send a request and return the response, with ``result`` or ``error``. Acknowledges output before it."""
        self._id += 1
        self.write({"id": self._id, "method": method, "params": params, "bytes": len(data)}, data)
        while (received := self.next()).facts.get("id") != self._id:
            self.take(received)  # otherwise a flood fills the window before the response, and nothing arrives any more
            self.events.append(received)
        return received.facts

    def done(self, method: str, data: bytes = b"", **params: Any) -> Message:
        """Send a request that must succeed and return its result."""
        answer = self.ask(method, data, **params)
        assert "result" in answer, answer
        return answer["result"]

    def refused(self, method: str, data: bytes = b"", **params: Any) -> str:
        """Send a request that must be refused and return the error code."""
        answer = self.ask(method, data, **params)
        assert "error" in answer, answer
        return answer["error"]["code"]

    def call(self, tool: str, **arguments: Any) -> Message:
        """Call a tool and return its result."""
        return self.done("call", name=tool, arguments=arguments)

    def tell(self, method: str, data: bytes = b"", **params: Any) -> None:
        """Send a notification, which has no response."""
        self.write({"method": method, "params": params, "bytes": len(data)}, data)

    def event(self, name: str, stream: int | None = None) -> Received:
        """Wait for an event of that name and return it; others before it are stored in ``events``."""
        return self.until(
            lambda received: received.facts.get("event") == name and stream in (None, received.facts.get("stream"))
        )

    def until(self, holds: Callable[[Received], object]) -> Received:
        """Return the first stored or new message for which ``holds`` is true. Acknowledges output."""
        for number, received in enumerate(self.events):
            if holds(received):
                del self.events[number]
                return received
        while True:
            received = self.next()
            self.take(received)
            if holds(received):
                return received
            self.events.append(received)

    def take(self, received: Received) -> None:
        """Acknowledge the output in a message, if it has any."""
        if "next" in received.facts:
            self.tell("acknowledge", stream=received.facts["stream"], offset=received.facts["next"])

    def output(self, stream: int, holds: Callable[[bytes], object]) -> bytes:
        """Return a stream's output from now on until ``holds`` is true for all of it."""
        shown = b""
        while not holds(shown):
            shown += self.until(lambda received: received.facts.get("stream") == stream and received.data).data
        return shown
