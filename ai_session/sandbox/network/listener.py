"""A program that makes a listening socket inside another process's network namespace, passes it back and ends.

``python -I -S listener.py PID NET_INODE PORT`` sends the socket over descriptor 0, a Unix socket, and reports a failure
on standard error. It is a process of its own because only one with a single thread can join a user namespace. Standard
library only.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import sys

_NS_GET_USERNS = 0xB701
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
BACKLOG = 256


def join(namespace: int, kind: int) -> None:
    """Move this process into the namespace behind an open descriptor. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, kind) != 0:
        raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")


def identity(namespace: int | str) -> tuple[int, int]:
    """Return the device and inode that identify a namespace."""
    found = os.stat(namespace)
    return found.st_dev, found.st_ino


def enter(pid: int, inode: int) -> None:
    """Join the network namespace ``inode`` that ``pid`` is in.

    Raises OSError if ``pid`` is in another one, or in this process's own: nothing may ever listen on the host.
    """
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if identity(network)[1] != inode or identity(network) == identity("/proc/self/ns/net"):
        raise OSError(f"process {pid} is not in the box's network namespace")
    owner = fcntl.ioctl(network, _NS_GET_USERNS)
    # A box of root's may have no user namespace of its own, and joining the current one is an error.
    if identity(owner) != identity("/proc/self/ns/user"):
        join(owner, _CLONE_NEWUSER)
    join(network, _CLONE_NEWNET)


def main() -> int:
    """Listen on the loopback interface of the box and send the socket to the parent."""
    pid, inode, port = (int(word) for word in sys.argv[1:4])
    enter(pid, inode)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    with socket.socket(fileno=0) as channel:
        socket.send_fds(channel, [b"k"], [listener.fileno()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
