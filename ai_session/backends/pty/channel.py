"""JSON messages with file descriptors over a Unix stream socket; neither side ever waits for the other.

A frame is ``>II`` (length of the JSON text, number of descriptors that travel with the frame's first byte), then the
JSON. The standard library only: the holder starts with nothing else.
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

HEADER = struct.Struct(">II")
READ_BYTES = 1 << 18
MAX_MESSAGE_BYTES = 1 << 26
MAX_DESCRIPTORS = 8
CLOSE_ON_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

Message = dict[str, Any]


class Channel:
    """One connection. Received descriptors belong to the caller, sent ones stay the caller's."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._inbox = bytearray()
        self._batches: deque[list[int]] = deque()
        self._outbox: deque[tuple[bytes, Sequence[int]]] = deque()

    def fileno(self) -> int:
        return self._sock.fileno()

    def receive(self) -> list[tuple[Message, list[int]]]:
        """The messages that are complete now, each with its descriptors.

        A message whose descriptors found no room in this process comes with none. Raises EOFError when the peer has
        closed, OSError when the connection broke, ValueError when the peer does not speak this protocol.
        """
        try:
            space = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4)
            data, ancillary, flags, _ = self._sock.recvmsg(READ_BYTES, space, CLOSE_ON_EXEC)
        except BlockingIOError:
            return []
        self._keep(ancillary, cut=bool(flags & socket.MSG_CTRUNC))
        if not data:
            raise EOFError
        self._inbox += data
        return self._complete()

    def _keep(self, ancillary: list[tuple[int, int, bytes]], *, cut: bool) -> None:
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

    def _complete(self) -> list[tuple[Message, list[int]]]:
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
        """Queues a message and sends what the socket takes now; True when nothing is left (else call ``flush``)."""
        body = json.dumps(message).encode()
        self._outbox.append((HEADER.pack(len(body), len(fds)) + body, fds))
        return self.flush()

    def flush(self) -> bool:
        """Sends on, as far as the socket takes it; True when nothing is left.

        A peer that has closed is no error here: what it sent before can still be received, then comes the end.
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
        """Closes the connection and the descriptors nobody took."""
        self._sock.close()
        for batch in self._batches:
            for fd in batch:
                os.close(fd)
        self._batches.clear()
