"""A FluxLoop client, which sends lines to a server process or to the daemon's socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.ai_session.support.mcp_client import BOUND_SECONDS, SERVER, Client, Message, living_in, runtime

FLUXLOOP = [*SERVER, "--dialect", "fluxloop"]
TOOLS = [
    "handshake",
    "faq",
    "analyze_repository",
    "detect_frameworks",
    "generate_integration_steps",
    "propose_edit_plan",
    "validate_edit_plan",
    "run_integration_workflow",
]


class Flux(Client):
    """A server process that speaks FluxLoop."""

    def __init__(self, home: Path, command: list[str] = FLUXLOOP, **options: Any) -> None:
        super().__init__(command, env=living_in(home), cwd=home, **options)

    def answer_to(self, message: Any) -> Message:
        """Send a message and return the response."""
        self.write(json.dumps(message) + "\n")
        return self.read()

    def tool(self, tool: str, **params: Any) -> Message:
        """Send a request and return the response."""
        self._id += 1
        answer = self.answer_to({"type": "request", "id": self._id, "tool": tool, "params": params})
        assert answer["id"] == self._id
        return answer


class Socket:
    """A connection to a daemon that names its role itself."""

    def __init__(self, home: Path, role: str, **more: Any) -> None:
        self._link = socket.socket(socket.AF_UNIX)
        self._link.settimeout(BOUND_SECONDS)
        self._link.connect(str(runtime(home) / "sock"))
        hello = {"ai_session": 1, "role": role, "cwd": str(home), "env": {"HOME": str(home)}, **more}
        self.send(json.dumps(hello).encode() + b"\n")
        self._lines = self._link.makefile("rb")
        self.hello: Mapping[str, Any] = json.loads(self._lines.readline())

    def send(self, data: bytes) -> None:
        self._link.sendall(data)

    def line(self) -> bytes:
        line = self._lines.readline()
        assert line.endswith(b"\n"), line
        return line

    def read(self) -> Message:
        return json.loads(self.line())

    def rest(self) -> list[Message]:
        """Close the sending side and return all messages until the end."""
        self._link.shutdown(socket.SHUT_WR)
        return [json.loads(line) for line in self._lines]

    def close(self) -> None:
        self._lines.close()
        self._link.close()


@contextmanager
def connected(home: Path, role: str = "fluxloop", **more: Any) -> Iterator[Socket]:
    with closing(Socket(home, role, **more)) as link:
        yield link
