"""The kernel's record of which processes hold which sockets and terminals, and which Unix sockets are connected."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
REQUEST, DUMP = 0x1, 0x300
ERROR, DONE = 2, 3
SHOW_PEER = 4
PEER_ATTRIBUTE = 2
EVERY_STATE = 0xFFFFFFFF
MESSAGE = struct.Struct("=IHHII")
QUERY = struct.Struct("=BBHIIIII")
ANSWER = struct.Struct("=BBBBIII")
ATTRIBUTE = struct.Struct("=HH")
READ_BYTES = 1 << 18


def unix_peers() -> dict[int, int]:
    """Return the inode of each connected Unix socket of this network namespace with the inode of its other end.

    Empty if the kernel does not report it (``unix_diag`` is missing, or forbidden).
    """
    found: dict[int, int] = {}
    query = QUERY.pack(socket.AF_UNIX, 0, 0, EVERY_STATE, 0, SHOW_PEER, EVERY_STATE, EVERY_STATE)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, SOCK_DIAG) as link:
            link.settimeout(2)
            link.send(MESSAGE.pack(MESSAGE.size + len(query), SOCK_DIAG_BY_FAMILY, REQUEST | DUMP, 1, 0) + query)
            while True:
                for kind, body in _messages(link.recv(READ_BYTES)):
                    if kind in (ERROR, DONE):
                        return found
                    inode = ANSWER.unpack_from(body)[4]
                    if (peer := _attribute(body[ANSWER.size :], PEER_ATTRIBUTE)) is not None:
                        found[inode] = struct.unpack_from("=I", peer)[0]
    except (OSError, AttributeError, struct.error):
        return found


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= MESSAGE.size:
        size, kind, *_ = MESSAGE.unpack_from(data)
        if size < MESSAGE.size:
            return
        yield kind, data[MESSAGE.size : size]
        data = data[(size + 3) & ~3 :]


def _attribute(data: bytes, wanted: int) -> bytes | None:
    while len(data) >= ATTRIBUTE.size:
        size, kind = ATTRIBUTE.unpack_from(data)
        if size < ATTRIBUTE.size:
            return None
        if kind == wanted:
            return data[ATTRIBUTE.size : size]
        data = data[(size + 3) & ~3 :]
    return None


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The descriptors of the processes that are readable by us: the holders of each socket, and of the master side of
    each terminal (by its number below ``/dev/pts``)."""

    sockets: Mapping[int, frozenset[int]]
    masters: Mapping[int, frozenset[int]]

    def of(self, pid: int) -> frozenset[int]:
        """Return the inodes of the sockets that ``pid`` holds."""
        return frozenset(inode for inode, holders in self.sockets.items() if pid in holders)


def open_descriptors(folder: Path = Path("/proc")) -> Descriptors:
    """Read the whole process table; processes of other users are omitted."""
    sockets: dict[int, set[int]] = {}
    masters: dict[int, set[int]] = {}
    for pid in map(int, filter(str.isdigit, os.listdir(folder))):
        process = f"{folder}/{pid}"
        for name, target in _open_files(process):
            if target.startswith("socket:["):
                sockets.setdefault(int(target[8:-1]), set()).add(pid)
            elif target.endswith("/ptmx") and (number := _terminal(f"{process}/fdinfo/{name}")) is not None:
                masters.setdefault(number, set()).add(pid)
    return Descriptors({k: frozenset(v) for k, v in sockets.items()}, {k: frozenset(v) for k, v in masters.items()})


def terminal_systems(pid: int, folder: Path = Path("/proc")) -> frozenset[str]:
    """Return the device numbers of the devpts file systems that ``pid`` sees: each has its own ``/dev/pts/3``."""
    try:
        lines = (folder / str(pid) / "mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    fields = (line.split() for line in lines)
    return frozenset(words[2] for words in fields if "-" in words and words[words.index("-") + 1] == "devpts")


def _open_files(process: str) -> Iterator[tuple[str, str]]:
    try:
        names = os.listdir(f"{process}/fd")
    except OSError:
        return
    for name in names:
        try:
            yield name, os.readlink(f"{process}/fd/{name}")
        except OSError:
            continue


def _terminal(info: str) -> int | None:
    try:
        with open(info) as lines:
            return next((int(line.partition(":")[2]) for line in lines if line.startswith("tty-index:")), None)
    except (OSError, ValueError):
        return None
