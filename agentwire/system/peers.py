"""The user at the other end of a connection, as the kernel knows it."""

from __future__ import annotations

import os
import socket
import struct
import sys
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Protocol

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
REQUEST = struct.Struct("=IHHII BBBBI")
"""nlmsghdr, then the beginning of inet_diag_req_v2: family, protocol, extensions, padding, states."""

ADDRESSES = struct.Struct("!HH16s16s")
ANY_SOCKET = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
"""inet_diag_sockid: the ports and addresses, then any interface and no cookie."""

HEADER = struct.Struct("=IHHII BBBB")
FACTS = struct.Struct("=IIIII")
"""The end of inet_diag_msg: expires, two queues, the user, the inode."""

ESTABLISHED = 1
FIN_WAIT1 = 4
FIN_WAIT2 = 5
CLOSE_WAIT = 8
PEERS = (ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT)
"""States of a socket that still belongs to a process. In others the kernel reports root, or a mere listener."""

Address = IPv4Address | IPv6Address


def is_loopback(host: str) -> bool:
    """Report whether only this machine can reach a listener on ``host``: a name, or an address also in brackets."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Connection(Protocol):
    """A connected socket, or asyncio's view of one."""

    @property
    def family(self) -> int:
        """The address family: ``AF_UNIX``, ``AF_INET`` …"""
        ...

    def getsockname(self) -> tuple[str, int]:
        """Return the local address."""
        ...

    def getpeername(self) -> tuple[str, int]:
        """Return the remote address. Raises OSError if the connection is closed."""
        ...

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes:
        """Return the option's value, at most ``buflen`` bytes. Raises OSError."""
        ...


def user_of(connection: Connection) -> int | None:
    """Return the user id of the process at the other end, over a Unix socket or the loopback of this machine.

    None if it is unknown: the other end is on another machine or in another network namespace, it has closed the
    connection, or this system cannot look it up (TCP on anything but Linux). Does not block: 0.1 ms.
    """
    try:
        if connection.family == socket.AF_UNIX:
            return _user_of_unix(connection)
        near, far = connection.getsockname()[:2], connection.getpeername()[:2]
        user = _user_of_tcp(_address(near[0]), near[1], _address(far[0]), far[1])
        if user is None:
            return None
        # While this end holds both addresses, no other process can have taken the other end's.
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except (OSError, ValueError, AttributeError, struct.error):
        return None
    return user if state in (ESTABLISHED, CLOSE_WAIT) else None


def is_own(connection: Connection) -> bool:
    """Report whether the other end is known to be a process of this user."""
    return user_of(connection) == os.getuid()


def can_identify() -> bool:
    """Report whether this system knows the user of a process that connects over TCP."""
    return sys.platform == "linux"


def _address(text: str) -> Address:
    address = ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _user_of_unix(connection: Connection) -> int:
    if hasattr(socket, "SO_PEERCRED"):
        return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    # macOS: LOCAL_PEERCRED gives struct xucred {version, uid, …}.
    return struct.unpack_from("2I", connection.getsockopt(0, 1, 128))[1]


def _user_of_tcp(near: Address, near_port: int, far: Address, far_port: int) -> int | None:
    """Query the one socket that has these addresses in reverse: /proc/net/tcp would list all sockets."""
    if not (near.is_loopback and far.is_loopback) or near.version != far.version:
        return None
    four = near.version == 4
    pairs = [tuple(one.packed.ljust(16, b"\0") for one in (far, near))]
    if four:  # an IPv6 socket that is connected over IPv4 has both addresses mapped
        pairs.append(tuple(bytes(10) + b"\xff\xff" + one.packed for one in (far, near)))
    wanted = [ADDRESSES.pack(far_port, near_port, *pair) for pair in pairs]
    family = socket.AF_INET if four else socket.AF_INET6
    size = REQUEST.size + ADDRESSES.size + len(ANY_SOCKET)
    head = (size, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0, family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG) as kernel:
        kernel.setblocking(False)
        kernel.send(REQUEST.pack(*head) + wanted[0] + ANY_SOCKET)
        answer, (sender, _) = kernel.recvfrom(4096)
    _, kind, _, _, _, _, state, _, _ = HEADER.unpack_from(answer)
    *_, user, inode = FACTS.unpack_from(answer, HEADER.size + ADDRESSES.size + len(ANY_SOCKET))
    exact = answer[HEADER.size : HEADER.size + ADDRESSES.size] in wanted
    if sender or kind != SOCK_DIAG_BY_FAMILY or not exact or state not in PEERS or not inode:
        return None
    return None if user == _nobody() else user


@cache
def _nobody() -> int:
    """Return the user id that stands for every user without a number in this namespace."""
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return 65534
