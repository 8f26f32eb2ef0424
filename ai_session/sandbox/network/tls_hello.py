"""The server name in a TLS ClientHello, read from a connection's first bytes. No I/O."""

from __future__ import annotations

MAX_BYTES = 16384
"""A longer hello is refused; with post-quantum key shares, ordinary ones are about 2 kB."""

UNRECOGNIZED_NAME = bytes((21, 3, 3, 0, 2, 2, 112))
"""A fatal TLS alert that gives a refused client the cause."""

_HANDSHAKE = 22
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_HOST_NAME = 0


class Incomplete(Exception):
    """The bytes so far may begin a hello; more are needed."""


class NotHello(ValueError):
    """The bytes are not a TLS ClientHello, or one that two readers could read differently."""


class _Reader:
    """Reads the fields of a message of known length. Raises NotHello if a field does not fit."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise NotHello("a field is longer than the message")
        self.at, begin = end, self.at
        return self.data[begin:end]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> _Reader:
        return _Reader(self.take(self.number(size)))

    @property
    def done(self) -> bool:
        return self.at == len(self.data)


def server_name(data: bytes) -> str | None:
    """Return the host name in the hello that ``data`` begins with, in lower case, or None if it names no host.

    Raises Incomplete if bytes are missing and NotHello if more bytes would not help.
    """
    hello = _Reader(_message(data))
    hello.take(2 + 32)
    for size in (1, 2, 1):  # session, cipher suites, compression
        hello.vector(size)
    if hello.done:
        return None
    extensions, names = hello.vector(2), list[str]()
    if not hello.done:
        raise NotHello("bytes after the extensions")
    while not extensions.done:
        kind, body = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            names.append(_host_name(body))
    if len(names) > 1:
        raise NotHello("more than one server name")
    return names[0] if names else None


def _message(data: bytes) -> bytes:
    """Return the body of the hello, which may be split across several records."""
    message, at = b"", 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
        header = data[at : at + 5]
        if header[:1] != bytes((_HANDSHAKE,))[: len(header)] or header[1:2] != b"\3"[: len(header[1:2])]:
            raise NotHello("not a TLS handshake")
        if message[:1] not in (b"", bytes((_CLIENT_HELLO,))):
            raise NotHello("not a client hello")
        length = int.from_bytes(header[3:5], "big")
        if len(header) == 5 and not 0 < length <= 1 << 14:
            raise NotHello("a record of the wrong size")
        if len(data) < at + 5 + length or len(header) < 5:
            raise Incomplete
        message += data[at + 5 : at + 5 + length]
        at += 5 + length
    if message[0] != _CLIENT_HELLO:
        raise NotHello("not a client hello")
    end = 4 + int.from_bytes(message[1:4], "big")
    if len(message) != end:
        raise NotHello("bytes after the hello")
    return message[4:end]


def _host_name(body: _Reader) -> str:
    entries = body.vector(2)
    kind, name = entries.number(1), entries.vector(2).data
    if kind != _HOST_NAME or not entries.done or not body.done:
        raise NotHello("an unusual list of server names")
    try:
        return name.decode("ascii").lower()
    except UnicodeDecodeError:
        raise NotHello("a server name that is not ASCII") from None
