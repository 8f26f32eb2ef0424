"""stdio ↔ the bridge of a task: all that ``ccswarm mcp-server --agent NAME`` is where the task's own program starts it.

Standard library only: every program starts one of these and waits for it. A worker that is killed takes its bridge with
it, and the next one opens it again at the same place: until then requests are held, and sent again with the handshake
they belong to. The bridge knows each by this connection's name and its id, so none counts twice.
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
"""``START.DIGEST@SOCKET``: how a program of a task finds its bridge, and shows that it is of that task."""

PATIENCE_SECONDS = 180.0
"""How long the bridge may be unserved: a lost worker is replaced within half a minute, but a cancelled or paused run
does not announce itself."""

LOOK_SECONDS = 0.2
READ_BYTES = 1 << 16


class Over(Exception):
    """There is no such task any more, or it has no room for this program; the message says which."""


def main(environ: Mapping[str, str]) -> NoReturn:
    """Relay standard input and output until either side ends. Status 0 after the program's end, 1 after the task's."""
    try:
        Relay(environ[VARIABLE], 0, 1).run()
    except Over as error:
        sys.stderr.write(f"ccswarm: {error}\n")
        sys.exit(1)
    sys.exit(0)


def dial(guest: str, **hello: Any) -> tuple[socket.socket, dict[str, Any], bytes] | None:
    """A connection to the bridge, its answer to the hello, and what came behind that; None while nobody is there.
    Raises Over."""
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
        raise Over("the task is over") from None
    except PermissionError as error:
        link.close()
        raise Over(f"the task's socket {path} cannot be used: {error.strerror}") from None
    except OSError:
        link.close()
        return None
    line, _, rest = answer.partition(b"\n")
    facts: dict[str, Any] = json.loads(line)
    if why := facts.get("error"):
        link.close()
        raise Over(str(why))
    link.settimeout(None)
    return link, facts, rest


class Relay:
    """From ``source`` to the bridge and back to ``target``, both descriptors. ``guest`` is what VARIABLE says."""

    def __init__(self, guest: str, source: int, target: int) -> None:
        self._guest = guest
        self._source = source
        self._target = target
        self._name = secrets.token_hex(4)
        self._link: socket.socket | None = None
        self._left = time.monotonic()
        self._waiting: dict[Any, bytes] = {}
        """Requests without an answer, in their order."""
        self._opening: list[tuple[Any, bytes]] = []
        """The handshake, which a new bridge has to hear again."""
        self._read = b""
        self._heard = b""

    def run(self) -> None:
        """Returns when ``source`` has ended; raises Over."""
        while True:
            if self._link is None:
                self._connect()
            ready = select.poll()
            ready.register(self._source, select.POLLIN)
            if self._link:
                ready.register(self._link, select.POLLIN)
            fds = {fd for fd, _ in ready.poll(None if self._link else LOOK_SECONDS * 1000)}
            if self._link and self._link.fileno() in fds:
                self._from_bridge()
            if self._source in fds and not self._from_program():
                if self._link:
                    self._link.close()
                return

    def _connect(self) -> None:
        try:
            found = dial(self._guest, role="tools", name=self._name)
        except Over as error:
            for number in list(self._waiting):
                self._answer(number, str(error))
            raise
        if found is None:
            if time.monotonic() - self._left > PATIENCE_SECONDS:
                raise Over(f"the task was not resumed within {PATIENCE_SECONDS:g} s")
            return
        self._link, _, self._heard = found
        opening = [line for number, line in self._opening if number not in self._waiting]
        for line in (*opening, *self._waiting.values()):
            self._send(line)
        if self._heard:
            self._take(b"")

    def _from_program(self) -> bool:
        try:
            chunk = os.read(self._source, READ_BYTES)
        except OSError:
            chunk = b""
        *lines, self._read = (self._read + chunk).split(b"\n")
        for line in lines:
            message = _parsed(line)
            method, number = message.get("method"), message.get("id")
            if method and number is not None:
                self._waiting[number] = line
            if method == "initialize":
                self._opening = [(number, line)]
            elif method == "notifications/initialized":
                self._opening.append((None, line))
            self._send(line)
        return bool(chunk)

    def _from_bridge(self) -> None:
        assert self._link
        try:
            chunk = self._link.recv(READ_BYTES)
        except OSError:
            chunk = b""
        if chunk:
            self._take(chunk)
        else:
            self._lose()

    def _take(self, chunk: bytes) -> None:
        *lines, self._heard = (self._heard + chunk).split(b"\n")
        for line in lines:
            message = _parsed(line)
            number = message.get("id")
            if "method" not in message and number is not None:
                if number not in self._waiting:
                    continue  # the handshake's, for the second time
                del self._waiting[number]
            self._write(line)

    def _send(self, line: bytes) -> None:
        if self._link:
            try:
                self._link.sendall(line + b"\n")
            except OSError:
                self._lose()

    def _lose(self) -> None:
        if self._link:
            self._link.close()
        self._link = None
        self._heard = b""
        self._left = time.monotonic()

    def _answer(self, number: Any, why: str) -> None:
        error = {"code": -32000, "message": why}
        self._write(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())

    def _write(self, line: bytes) -> None:
        data = line + b"\n"
        try:
            while data:
                data = data[os.write(self._target, data) :]
        except OSError:
            raise Over("the program has stopped reading") from None


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}  # pyright: ignore[reportUnknownVariableType]
