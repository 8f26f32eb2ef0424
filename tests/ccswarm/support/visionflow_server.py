"""``ccswarm serve --tcp`` in a process of its own, and clients that only use a socket."""

from __future__ import annotations

import json
import re
import select
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.ccswarm.support.runs import QUICK, SERVERS
from tests.ccswarm.support.serve_process import BOUND_SECONDS, Asking, Serving

IDS = re.compile(r"(swarm|agent|task)-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
SAY = 'tool = "small.echo"\nargs = { text = "${task.text}" }'
HOLD = 'tool = "pipe.read"\nargs = { path = "${workspace}/pipe" }'


def member(name: str, kind: str, step: str = SAY, more: str = "", grants: str = '"small.*"') -> str:
    """Return an agent with one step for tasks in words."""
    head = f'[[agents]]\nname = "{name}"\ntype = "{kind}"\ngrants = [{grants}]\n{more}\n'
    return head + f'[[agents.settings.steps]]\nid = "do"\n{step}\n'


CREW = (
    member("ada", "researcher", more='capabilities = ["analysis", "synthesis", "prose"]')
    + member("bob", "coder")
    + member("eve", "coordinator")
    + member("ann", "analyst", HOLD, grants='"pipe.*"')
    + member("mia", "writer", 'tool = "swarm.send_message"\nargs = { to = "bob", text = "hello" }', grants='"swarm.*"')
)
TEXT = QUICK + SERVERS + CREW


class Wire(Asking):
    """A connection."""

    def __init__(self, port: int, token: str = "", host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=BOUND_SECONDS)
        self._lines = self.socket.makefile("rb")
        self._number = 0
        if token:
            assert self.ask("authenticate", token=token) == {"authenticated": True}

    def send(self, message: Any) -> None:
        """Send a message as a line, or bytes as they are."""
        self.socket.sendall(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    def line(self) -> bytes:
        """Return the next line with its end; empty at the end of the connection."""
        return self._lines.readline()

    def answer(self) -> Any:
        """Return the next message, or None at the end of the connection."""
        line = self.line()
        return json.loads(line) if line else None

    def begin(self, method: str, params: Mapping[str, Any]) -> int:
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": dict(params)})
        return self._number

    def whole(self, method: str, /, **params: Any) -> Any:
        """Send a request and return the whole response."""
        number = self.begin(method, params)
        answer = self.answer()
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", number)
        return answer

    def tool(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool and return its text, parsed as JSON."""
        result = self.ask("tools/call", name=name, arguments=arguments)
        (content,) = result["content"]
        assert content["type"] == "text"
        return json.loads(content["text"])

    def swarm(self, topology: str = "mesh", *kinds: str, **more: Any) -> tuple[str, list[str]]:
        """Create a swarm with agents of these types; return its id and theirs."""
        swarm = self.ask("swarm_init", topology=topology, **more)["swarmId"]
        return swarm, [self.ask("agent_spawn", swarmId=swarm, type=kind)["agentId"] for kind in kinds]

    def over(self, task: str) -> Any:
        """Poll until a task has ended, at growing intervals because each request slows it down, and return it."""
        seconds = 0.05
        while (found := self.ask("task_status", taskId=task))["status"] in ("queued", "running"):
            assert not select.select([self.socket], [], [], seconds)[0]
            seconds = min(2 * seconds, 0.4)
        return found

    def close(self) -> None:
        self._lines.close()
        self.socket.close()


class Served(Serving):
    """The VisionFlow server."""

    flag, dialect = "--tcp", "VisionFlow"

    def wire(self, token: str = "") -> Wire:
        return Wire(self.port, token)


served = Served.meanwhile


def children(server: Served, what: str) -> list[str]:
    """Return the command lines of its child processes that contain ``what``."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if what in line and parent == str(server.process.pid):
            found.append(line)
    return found
