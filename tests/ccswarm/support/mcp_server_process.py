"""``ccswarm mcp-server`` in a process of its own, forked because a new one takes 2 s, and a client of lines."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import forked
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[3]
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Started(subprocess.Popen[bytes]):
    """A new process, for tests of the program as it is installed."""

    def __init__(self, words: list[str], home: Path, env: Mapping[str, str]) -> None:
        with (home / "server.log").open("ab") as log:
            super().__init__(
                [sys.executable, "-m", "ccswarm", *words],
                cwd=home,
                env=env,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def close(self) -> None:
        self.kill()
        self.wait(BOUND_SECONDS)
        for stream in (self.stdin, self.stdout):
            assert stream
            stream.close()


class ServerClient:
    """A server process and its client. Responses may arrive in any order; ``notified`` are the notifications."""

    def __init__(self, home: Path, *words: str, new: bool = False) -> None:
        self.began = time.monotonic()
        given = {**os.environ, "PYTHONPATH": str(ROOT)}
        line = ["mcp-server", "--stdio", *words]
        self.process = (
            Started(line, home, given)
            if new
            else forked.piped("ccswarm", line, cwd=home, env=given, reads=True, errors=home / "server.log")
        )
        self._held = b""
        self._number = 0
        self.answers: dict[Any, dict[str, Any]] = {}
        self.notified: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any] | bytes) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        assert self.process.stdin
        self.process.stdin.write(line + b"\n")

    def begin(self, method: str, params: dict[str, Any] | None = None) -> int:
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}})
        return self._number

    def answer(self, number: Any) -> dict[str, Any]:
        """Wait for the response to a request and return all of it."""
        while number not in self.answers:
            self._take(self.line())
        return self.answers.pop(number)

    def notification(self, method: str) -> dict[str, Any]:
        """Wait for a notification of that kind and return its parameters."""
        while True:
            for one in self.notified:
                if one["method"] == method:
                    self.notified.remove(one)
                    return one.get("params", {})
            self._take(self.line())

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return its result."""
        answer = self.answer(self.begin(method, params))
        assert "result" in answer, answer
        return answer["result"]

    def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", {"name": name, "arguments": arguments})

    def tool(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool and return its structured content."""
        result = self.call(name, **arguments)
        assert not result.get("isError"), result
        return result["structuredContent"]

    def refused(self, name: str, /, **arguments: Any) -> dict[str, str]:
        """Call a tool that must be refused and return the error."""
        result = self.call(name, **arguments)
        assert result.get("isError"), result
        error = result["_meta"]["ccswarm/error"]
        assert error["message"] in result["content"][0]["text"]
        assert "structuredContent" not in result
        return error

    def follow(self, run: str, until: str = "", cursor: str = "") -> list[dict[str, Any]]:
        """Return the events of a run until the first of a kind, or until its end."""
        found: list[dict[str, Any]] = []
        while True:
            page = self.tool("run_events", run=run, cursor=cursor, wait_seconds=45)
            cursor = page["cursor"]
            found += page["events"]
            if page["over"] or (until and any(one["event"] == until for one in page["events"])):
                assert until or found[-1]["event"] == "run.ended", (found, page)
                return found

    def follow_whole(self, run: str, until: str = "") -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return a run's events to its end or the first of a kind, and the last page. Calls must wait their time."""
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            began = time.monotonic()
            page = self.tool("run_events", run=run, cursor=cursor, until="over", wait_seconds=45)
            cursor = page["cursor"]
            found += page["events"]
            if page["over"] or (until and any(one["event"] == until for one in page["events"])):
                return found, page
            assert time.monotonic() - began >= 45, page

    def line(self) -> bytes:
        """Return the server's next line."""
        assert self.process.stdout
        deadline = time.monotonic() + BOUND_SECONDS
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                line, newline, rest = self._held.partition(b"\n")
                if newline:
                    self._held = rest
                    return line
                assert ready.select(deadline - time.monotonic()), (self._held[:200], self.process.returncode)
                data = os.read(self.process.stdout.fileno(), 1 << 20)
                assert data, "the server has ended"
                self._held += data

    def _take(self, line: bytes) -> None:
        message = json.loads(line)  # nothing else may be on its standard output
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            self.notified.append(message)
        else:
            self.answers[message["id"]] = message

    def leave(self) -> tuple[int, float]:
        """Close the server's input, as a client that ends. Return the exit code and the seconds until the end."""
        assert self.process.stdin
        assert self.process.stdout
        began = time.monotonic()
        self.process.stdin.close()
        for line in self.process.stdout.read().splitlines():
            self._take(line)
        self.process.stdout.close()
        return self.process.wait(BOUND_SECONDS), time.monotonic() - began

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(BOUND_SECONDS)


@contextmanager
def serving(home: Path, *words: str, new: bool = False) -> Iterator[ServerClient]:
    """Yield a server after the handshake, which ends afterwards."""
    client = ServerClient(home, *words, new=new)
    try:
        client.ask("initialize", INITIALIZE)
        client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield client
        if client.process.returncode is None:
            assert client.leave()[0] == 0, (home / "server.log").read_text()
    finally:
        client.process.close()
