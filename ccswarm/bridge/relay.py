"""Connects stdio to the bridge of a task: ``ccswarm mcp-server --agent NAME``, started by the task's own program.

Standard library only: every program starts one of these and waits for it. The bridge ends with its worker, and the next
worker opens it at the same path. Until then requests are held back; then they are sent again, after the handshake of
their connection. The bridge identifies each by this connection's name and its id, so none is carried out twice.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any, NoReturn

VARIABLE = "CCSWARM_GUEST"
"""The variable with ``START.DIGEST@SOCKET``, by which a program finds its bridge and proves that it is the task's."""

PATIENCE_SECONDS = 180.0
"""How long the bridge may be unreachable. A lost worker is replaced in half a minute; pauses send no notice."""

POLL_SECONDS = 0.2
READ_BYTES = 1 << 16


class TaskOver(Exception):
    """The task is over, or does not accept this program. The message says which."""


def main(environ: Mapping[str, str]) -> NoReturn:
    """Relay standard input and output until either side ends. Exit with 0 after the program, 1 after the task."""
    try:
        Relay(environ[VARIABLE], 0, 1).run()
    except TaskOver as error:
        sys.stderr.write(f"ccswarm: {error}\n")
        sys.exit(1)
    sys.exit(0)


def dial(guest: str, **hello: Any) -> tuple[socket.socket, dict[str, Any], bytes] | None:
    """Connect to the bridge; return the connection, its reply and the bytes after that, or None if nothing listens.
    Raises TaskOver."""
    token, _, path = guest.partition("@")
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(20)
        link.connect(path)
        link.sendall(json.dumps({"ccswarm": 1, "token": token, **hello}).encode() + b"\n")
        answer = b""
        while b"\n" not in answer:
            piece = link.recv(READ_BYTES)
            if not piece:
                link.close()
                return None
            answer += piece
    except FileNotFoundError:
        link.close()
        raise TaskOver("the task is over") from None
    except PermissionError as error:
        link.close()
        raise TaskOver(f"the task's socket {path} cannot be used: {error.strerror}") from None
    except OSError:
        link.close()
        return None
    line, _, rest = answer.partition(b"\n")
    facts: dict[str, Any] = json.loads(line)
    if why := facts.get("error"):
        link.close()
        raise TaskOver(str(why))
    link.settimeout(None)
    return link, facts, rest


class Guest:
    """One end of a connection to the bridge, which is lost with a worker. ``guest`` is the value of VARIABLE."""

    def __init__(self, guest: str) -> None:
        self._guest = guest
        self._link: socket.socket | None = None
        self._lost_at = time.monotonic()
        self._received = b""

    def _read_link(self) -> bytes:
        """Return what has arrived, nothing if the connection is lost."""
        assert self._link
        try:
            chunk = self._link.recv(READ_BYTES)
        except OSError:
            chunk = b""
        if not chunk:
            self._disconnect()
        return chunk

    def _send(self, line: bytes) -> None:
        if self._link:
            try:
                self._link.sendall(line + b"\n")
            except OSError:
                self._disconnect()

    def _disconnect(self) -> None:
        if self._link:
            self._link.close()
        self._link = None
        self._received = b""
        self._lost_at = time.monotonic()


class Relay(Guest):
    """A relay between the descriptors ``source`` and ``target`` and the bridge."""

    def __init__(self, guest: str, source: int, target: int) -> None:
        super().__init__(guest)
        self._source = source
        self._target = target
        self._name = secrets.token_hex(4)
        self._waiting: dict[Any, bytes] = {}
        """The requests without an answer, in order."""
        self._handshake: list[tuple[Any, bytes]] = []
        """The handshake, which a new bridge needs again."""
        self._read = b""

    def run(self) -> None:
        """Relay until ``source`` ends. Raises TaskOver."""
        while True:
            if self._link is None:
                self._connect()
            ready = select.poll()
            ready.register(self._source, select.POLLIN)
            if self._link:
                ready.register(self._link, select.POLLIN)
            fds = {fd for fd, _ in ready.poll(None if self._link else POLL_SECONDS * 1000)}
            if self._link and self._link.fileno() in fds and (chunk := self._read_link()):
                self._receive(chunk)
            if self._source in fds and not self._from_program():
                if self._link:
                    self._link.close()
                return

    def _connect(self) -> None:
        try:
            found = dial(self._guest, role="tools", name=self._name)
        except TaskOver as error:
            for number in list(self._waiting):
                self._answer(number, str(error))
            raise
        if found is None:
            if time.monotonic() - self._lost_at > PATIENCE_SECONDS:
                raise TaskOver(f"the task was not resumed within {PATIENCE_SECONDS:g} s")
            return
        self._link, _, self._received = found
        handshake = [line for number, line in self._handshake if number not in self._waiting]
        for line in (*handshake, *self._waiting.values()):
            self._send(line)
        if self._received:
            self._receive(b"")

    def _from_program(self) -> bool:
        try:
            chunk = os.read(self._source, READ_BYTES)
        except OSError:
            chunk = b""
        *lines, self._read = (self._read + chunk).split(b"\n")
        for line in lines:
            message = _parse(line)
            method, number = message.get("method"), message.get("id")
            if method and number is not None:
                self._waiting[number] = line
            if method == "initialize":
                self._handshake = [(number, line)]
            elif method == "notifications/initialized":
                self._handshake.append((None, line))
            self._send(line)
        return bool(chunk)

    def _receive(self, chunk: bytes) -> None:
        *lines, self._received = (self._received + chunk).split(b"\n")
        for line in lines:
            message = _parse(line)
            number = message.get("id")
            if "method" not in message and number is not None:
                if number not in self._waiting:
                    continue  # a repeated answer to the handshake
                del self._waiting[number]
            self._write(line)

    def _answer(self, number: Any, why: str) -> None:
        error = {"code": -32000, "message": why}
        self._write(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())

    def _write(self, line: bytes) -> None:
        data = line + b"\n"
        try:
            while data:
                data = data[os.write(self._target, data) :]
        except OSError:
            raise TaskOver("the program has stopped reading") from None


def _parse(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}  # pyright: ignore[reportUnknownVariableType]
