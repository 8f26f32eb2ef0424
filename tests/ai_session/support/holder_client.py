"""A blocking client of the holder, and functions that start and inspect holders."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ptyprocess  # pyright: ignore[reportMissingTypeStubs]

import ai_session
from ai_session.backends.pty.channel import Channel, Message
from ai_session.terminal.log import MappedLog
from tests.support.bounds import BOUND_SECONDS
from tests.support.process_ends import wait_ended

PACKAGE = Path(ai_session.__file__).parent
PATHS = [str(PACKAGE.parent), str(Path(ptyprocess.__file__).parents[1])]


class Client:
    """A blocking client of the holder. ``events`` are messages that are not responses."""

    def __init__(self, runtime: Path) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(runtime / "holder.sock"))
        except OSError:
            sock.close()
            raise
        self.runtime = runtime
        self.channel = Channel(sock)
        self.sock = sock
        self.events: list[Message] = []
        self.waiting: list[tuple[Message, list[int]]] = []
        self.fds: list[int] = []
        self.received: list[int] = []
        self.count = 0

    def send(self, op: str, fds: Sequence[int] = (), **fields: Any) -> int:
        self.count += 1
        done = self.channel.send({"n": self.count, "op": op, **fields}, fds)
        while not done:
            assert select.select([], [self.channel], [], BOUND_SECONDS)[1]
            done = self.channel.flush()
        return self.count

    def receive(self) -> tuple[Message, list[int]]:
        while not self.waiting:
            assert select.select([self.channel], [], [], BOUND_SECONDS)[0], "no answer"
            self.waiting = self.channel.receive()
        return self.waiting.pop(0)

    def ask(self, op: str, fds: Sequence[int] = (), **fields: Any) -> Message:
        number = self.send(op, fds, **fields)
        while True:
            message, self.fds = self.receive()
            self.received += self.fds
            if message.get("n") == number:
                return message
            self.events.append(message)

    def event(self) -> Message:
        return self.events.pop(0) if self.events else self.receive()[0]

    def spawn(self, session_id: str, script: str, **changes: Any) -> Message:
        directory = self.runtime / session_id
        directory.mkdir(exist_ok=True)
        fields = {
            "argv": ["/bin/sh", "-c", script],
            "env": {"HOME": str(self.runtime)},
            "cwd": "/",
            "rows": 24,
            "cols": 80,
        }
        fields |= {"id": session_id, "directory": str(directory), **changes}
        return self.ask("spawn", (), **fields)

    def exit_of(self, session_id: str) -> tuple[int | None, int | None]:
        """Take the session and return its child's exit code and signal, waiting for its end if needed."""
        ending = self.ask("take", id=session_id)["exit"] or self.event()
        return ending["code"], ending["signal"]

    def close(self) -> None:
        """Close the connection and the received descriptors. Idempotent."""
        self.channel.close()
        while self.received:
            os.close(self.received.pop())


def read_until(fd: int, text: bytes) -> bytes:
    data = b""
    while text not in data:
        assert select.select([fd], [], [], BOUND_SECONDS)[0], data
        data += os.read(fd, 65536)
    return data


class Keeper:
    """The holders of one runtime directory."""

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        self.clients: list[Client] = []

    def start(self) -> None:
        subprocess.run(self.command(), env={}, start_new_session=True, check=True, timeout=BOUND_SECONDS)

    def command(self) -> list[str]:
        return [sys.executable, "-I", "-S", str(PACKAGE / "backends/pty/holder.py"), str(self.runtime), *PATHS]

    def connect(self) -> Client:
        self.clients.append(Client(self.runtime))
        return self.clients[-1]

    def own(self) -> Client:
        client = self.connect()
        assert client.ask("own")["protocol"] == 1
        return client

    def pid(self) -> int:
        """Return the process id of the holder; the round trip shows that it still responds."""
        client = Client(self.runtime)
        try:
            return client.ask("version")["pid"]
        finally:
            client.close()

    def log(self, session_id: str, condition: Callable[[bytes], bool]) -> bytes:
        """Wait until ``condition`` holds for a session's log and return it. Requests to the holder pace the checks."""
        while True:
            self.pid()
            log = MappedLog(self.runtime / session_id / "log")
            data = log.read(log.first, log.end)
            log.close()
            if condition(data):
                return data

    def stop(self) -> None:
        """End the holder, if there is one, and close all clients."""
        for client in self.clients:
            client.close()
        with suppress(FileNotFoundError, ConnectionRefusedError, ConnectionResetError, EOFError):
            pid = self.pid()
            client = self.own()
            client.ask("stop")
            wait_ended(pid)
        for client in self.clients:
            client.close()
