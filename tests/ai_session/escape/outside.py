"""Everything outside that a box must not reach, run as the box's own user: listeners, shared memory, queues, keys.

Started with a JSON of names and secrets; prints a JSON of what it made, then answers each line on standard input with
the channels that heard the nonce in it. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import socket
import sys
from typing import Any

IPC_CREAT, IPC_NOWAIT, MESSAGE_BYTES = 0o1000, 0o4000, 64
ADD_KEY, KEYCTL, USER_KEYRING, SET_PERMISSIONS = 248, 250, -4, 5
if os.uname().machine == "aarch64":
    ADD_KEY, KEYCTL = 217, 219
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p


class Outside:
    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.selector = selectors.DefaultSelector()
        self.heard: dict[str, bytes] = {}
        self.queue = -1
        self.posix_queue = -1

    def listen(self, name: str, family: int, kind: int, address: Any) -> Any:
        sock = socket.socket(family, kind)
        if isinstance(address, str) and not address.startswith("\0"):
            os.makedirs(os.path.dirname(address), exist_ok=True)
            if os.path.exists(address):
                os.unlink(address)
        sock.bind(address)
        if kind == socket.SOCK_STREAM:
            sock.listen(64)
        sock.setblocking(False)
        self.selector.register(sock, selectors.EVENT_READ, name)
        return sock.getsockname()

    def share(self) -> None:
        secret = self.facts["shm_secret"].encode()
        segment = libc.shmget(self.facts["key"], 4096, IPC_CREAT | 0o600)
        ctypes.memmove(libc.shmat(segment, None, 0), secret, len(secret))
        self.facts["segment"] = segment
        self.queue = libc.msgget(self.facts["key"], IPC_CREAT | 0o600)
        with open(self.facts["dev_shm"], "wb") as file:
            file.write(secret)
        os.chmod(self.facts["dev_shm"], 0o600)
        key = libc.syscall(
            ADD_KEY,
            b"user",
            self.facts["key_name"].encode(),
            self.facts["key_secret"].encode(),
            ctypes.c_size_t(len(self.facts["key_secret"])),
            USER_KEYRING,
        )
        libc.syscall(KEYCTL, SET_PERMISSIONS, key, ctypes.c_uint32(0x3F3F0000))
        self.facts["key_id"] = key

        class Attributes(ctypes.Structure):
            _fields_ = [(name, ctypes.c_long) for name in ("flags", "most", "bytes", "now")] + [
                ("rest", ctypes.c_long * 4)
            ]

        attributes = Attributes(0, 8, MESSAGE_BYTES, 0)
        flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK
        self.posix_queue = libc.mq_open(self.facts["mq"].encode(), flags, 0o600, ctypes.byref(attributes))

    def drain(self) -> None:
        while ready := self.selector.select(0):
            for key, _ in ready:
                self.take(key.fileobj, key.data)
        buffer = ctypes.create_string_buffer(8 + MESSAGE_BYTES)
        while libc.msgrcv(self.queue, buffer, ctypes.c_size_t(MESSAGE_BYTES), ctypes.c_long(0), IPC_NOWAIT) >= 0:
            self.note("sysv-queue", buffer.raw[8:])
        while self.posix_queue >= 0 and (
            libc.mq_receive(self.posix_queue, buffer, ctypes.c_size_t(MESSAGE_BYTES), None) >= 0
        ):
            self.note("posix-queue", buffer.raw)

    def take(self, sock: Any, name: str) -> None:
        try:
            if sock.type == socket.SOCK_STREAM and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                peer, _ = sock.accept()
                peer.setblocking(False)
                self.selector.register(peer, selectors.EVENT_READ, name)
                return
            data, peer = sock.recvfrom(65536)
            if sock.family == socket.AF_INET and sock.type == socket.SOCK_DGRAM:
                sock.sendto(b"x", peer)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.note(name, data)
        if not data and sock.type == socket.SOCK_STREAM:
            self.selector.unregister(sock)
            sock.close()

    def note(self, name: str, data: bytes) -> None:
        self.heard[name] = self.heard.get(name, b"") + data

    def serve(self) -> None:
        self.selector.register(sys.stdin, selectors.EVENT_READ, "harness")
        print(json.dumps(self.facts), flush=True)
        while True:
            for key, _ in self.selector.select():
                if key.data != "harness":
                    self.take(key.fileobj, key.data)
                    continue
                line = os.read(0, 4096)
                if not line:
                    return
                self.selector.unregister(sys.stdin)
                self.drain()
                self.selector.register(sys.stdin, selectors.EVENT_READ, "harness")
                print(json.dumps([name for name, data in self.heard.items() if line.strip() in data]), flush=True)


def main() -> None:
    outside = Outside(json.loads(sys.argv[1]))
    facts = outside.facts
    inet, inet6, unix, stream, datagram = (
        *(socket.AF_INET, socket.AF_INET6, socket.AF_UNIX),
        *(socket.SOCK_STREAM, socket.SOCK_DGRAM),
    )
    facts["tcp"] = outside.listen("tcp", inet, stream, ("0.0.0.0", 0))[1]
    facts["udp"] = outside.listen("udp", inet, datagram, ("0.0.0.0", 0))[1]
    facts["tcp6"] = outside.listen("tcp6", inet6, stream, ("::1", 0))[1]
    outside.listen("unix", unix, stream, facts["unix"])
    outside.listen("unix-datagram", unix, datagram, facts["datagram"])
    outside.listen("abstract", unix, stream, "\0" + facts["abstract"])
    outside.share()
    outside.serve()


main()
