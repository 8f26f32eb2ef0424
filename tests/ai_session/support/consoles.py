"""The console as a person starts it in a terminal, and other access to its port: plain requests, raw WebSockets."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pexpect
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, RejectConnection, Request, TextMessage

from tests.ai_session.support.mcp_client import living_in
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS

LINK = re.compile(rb"http://127\.0\.0\.1:(\d+)/#k=([\w-]+)")
Facts = dict[str, Any]


class Console:
    """A running console."""

    def __init__(self, person: forked.Person) -> None:
        self._person = person
        person.expect(LINK)
        self.port = int(person.match[1])

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def code(self) -> str:
        """Return a new code, which was not used yet."""
        self._person.send("\r")
        self._person.expect(LINK)
        return self._person.match[2].decode()

    def link(self) -> str:
        """Return a new link, which is valid for one tab."""
        return f"{self.origin}/#k={self.code()}"

    def killed(self) -> None:
        """Kill the console, which gets no chance to send anything."""
        self._person.program.kill()
        self._person.program.wait()

    def says(self, text: str) -> None:
        """Wait until it has printed ``text`` in its terminal."""
        self._person.expect_exact(text)

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes, Mapping[str, str]]:
        """Send a request; return status, body and headers. ``headers`` replace those of a harmless program."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND_SECONDS)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            data = b"" if body is None else json.dumps(body).encode()
            given = {"Host": f"127.0.0.1:{self.port}", "Content-Length": str(len(data))}
            given |= {name.replace("_", "-"): value for name, value in headers.items()}
            for name, value in given.items():
                connection.putheader(name, value)
            connection.endheaders(data)
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    def token(self) -> str:
        """Sign a new tab in and return its token."""
        status, body, _ = self.request("POST", "/login", {"code": self.code()})
        assert status == 200, body
        return json.loads(body)["token"]


@contextmanager
def console(home: Path, *words: str, directory: Path | None = None) -> Iterator[Console]:
    """Yield a console started in a person's window, in ``home`` or another directory, and ended with Ctrl-C."""
    env = {**living_in(home), "PYTHONPATH": str(forked.ROOT)}
    given = ["console", "--no-open", "--port", "0", "--link-seconds", "3600", *words]
    person = forked.Person("ai_session", given, cwd=directory or home, env=env, size=(24, 200))
    try:
        yield Console(person)
        if person.program.poll() is None:
            person.send("\x03")
            person.expect(pexpect.EOF)
            assert person.wait() == 0
    finally:
        person.program.kill()
        person.close()


class Tab:
    """A WebSocket without a page. ``status`` is 101 if it was accepted."""

    def __init__(self, console: Console, **headers: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", console.port), timeout=BOUND_SECONDS)
        self._wire = WSConnection(ConnectionType.CLIENT)
        self._events: list[Any] = []
        self._number = 0
        self.closed = 0
        given = {"Origin": console.origin, **headers}
        more = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items() if value]
        host = headers.get("Host") or f"127.0.0.1:{console.port}"
        extra = [one for one in more if one[0] != b"Host"]
        self._socket.sendall(self._wire.send(Request(host=host, target="/ws", extra_headers=extra)))
        first = self._next()
        self.status = 101 if isinstance(first, AcceptConnection) else getattr(first, "status_code", 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _next(self) -> AcceptConnection | RejectConnection | TextMessage | BytesMessage | CloseConnection:
        while not self._events:
            data = b""
            with suppress(ConnectionError):  # the console closed it before all was read
                data = self._socket.recv(1 << 16)
            self._wire.receive_data(data or None)
            self._events = list(self._wire.events())
        return self._events.pop(0)

    def say(self, text: str | bytes) -> None:
        message = TextMessage(text) if isinstance(text, str) else BytesMessage(text)
        self._socket.sendall(self._wire.send(message))

    def raw(self, data: bytes) -> None:
        """Send bytes unframed. An error of a connection that the console has closed is ignored."""
        with suppress(ConnectionError):
            self._socket.sendall(data)

    def text(self) -> str:
        """Return the next message, which must be a short text."""
        event = self._next()
        assert isinstance(event, TextMessage)
        return event.data

    def hear(self) -> Facts | None:
        """Return the next message without its bytes; None if the connection was closed, with the code in ``closed``."""
        text: str | bytes = ""
        while True:
            event = self._next()
            if isinstance(event, CloseConnection):
                self.closed = event.code
                return None
            assert isinstance(event, TextMessage | BytesMessage)
            text = event.data if not text else text + event.data  # type: ignore[operator]
            if event.message_finished:
                return json.loads(text if isinstance(text, str) else bytes(text).partition(b"\n")[0])

    def ask(self, method: str, **params: Any) -> Facts:
        """Send a request and return its response."""
        self._number += 1
        self.say(json.dumps({"id": self._number, "method": method, "params": params}))
        while (message := self.hear()) is not None and message.get("id") != self._number:
            pass
        assert message is not None, self.closed
        return message
