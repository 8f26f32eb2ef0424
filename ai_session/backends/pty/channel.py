"""JSON messages with file descriptors over a Unix stream socket; neither side ever blocks.

A frame is ``>II`` (length of the JSON text, number of descriptors sent with the frame's first byte), then the JSON.
Imports the standard library only, because the holder has little else.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any

PROTOCOL = 1
"""The version of the requests between a holder and its clients."""

HEADER = struct.Struct(">II")
READ_BYTES = 1 << 18
MAX_MESSAGE_BYTES = 1 << 26
MAX_DESCRIPTORS = 8
CLOSE_ON_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

Message = dict[str, Any]


class Channel:
    """One connection. The caller owns received descriptors and keeps the ownership of sent ones."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._inbox = bytearray()
        self._batches: deque[list[int]] = deque()
        self._outbox: deque[tuple[bytes, Sequence[int]]] = deque()

    def fileno(self) -> int:
        return self._sock.fileno()

    def receive(self) -> list[tuple[Message, list[int]]]:
        """Return the messages that are complete now, each with its descriptors.

        A message has no descriptors if this process had no room for them. Raises EOFError if the peer has closed,
        OSError if the connection broke, ValueError if the peer does not speak this protocol.
        """
        try:
            space = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4)
            data, ancillary, flags, _ = self._sock.recvmsg(READ_BYTES, space, CLOSE_ON_EXEC)
        except BlockingIOError:
            return []
        self._store_descriptors(ancillary, cut=bool(flags & socket.MSG_CTRUNC))
        if not data:
            raise EOFError
        self._inbox += data
        return self._take_complete()

    def _store_descriptors(self, ancillary: list[tuple[int, int, bytes]], *, cut: bool) -> None:
        batch: list[int] = []
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                batch += array.array("i", payload[: len(payload) // 4 * 4])
        for fd in batch:
            if cut:
                os.close(fd)
            elif not CLOSE_ON_EXEC:
                os.set_inheritable(fd, False)
        if batch or cut:
            self._batches.append([] if cut else batch)

    def _take_complete(self) -> list[tuple[Message, list[int]]]:
        messages: list[tuple[Message, list[int]]] = []
        start = 0
        while len(self._inbox) - start >= HEADER.size:
            size, carried = HEADER.unpack_from(self._inbox, start)
            if size > MAX_MESSAGE_BYTES:
                raise ValueError(f"a message of {size} bytes")
            body = start + HEADER.size
            if len(self._inbox) - body < size:
                break
            fds = self._batches.popleft() if carried and self._batches else []
            messages.append((json.loads(self._inbox[body : body + size]), fds))
            start = body + size
        del self._inbox[:start]
        return messages

    def send(self, message: Message, fds: Sequence[int] = ()) -> bool:
        """Queue a message and send what the socket accepts now. Return False if some is left: then call ``flush``."""
        body = json.dumps(message).encode()
        self._outbox.append((HEADER.pack(len(body), len(fds)) + body, fds))
        return self.flush()

    def flush(self) -> bool:
        """Send what the socket accepts now. Return whether the queue is empty.

        A closed peer is not an error here: what it sent before can still be received, then ``receive`` raises EOFError.
        """
        while self._outbox:
            data, fds = self._outbox[0]
            try:
                sent = socket.send_fds(self._sock, [data], list(fds)) if fds else self._sock.send(data)
            except BlockingIOError:
                return False
            except (BrokenPipeError, ConnectionResetError):
                self._outbox.clear()
                return True
            self._outbox.popleft()
            if sent < len(data):
                self._outbox.appendleft((data[sent:], ()))
        return True

    def close(self) -> None:
        """Close the connection and all descriptors that ``receive`` has not returned."""
        self._sock.close()
        for batch in self._batches:
            for fd in batch:
                os.close(fd)
        self._batches.clear()
