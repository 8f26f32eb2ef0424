"""Somebody else on this machine: another user's process, which root can make, and a kernel that tells nobody's user.

As a program it runs another one that may not ask the kernel about sockets, as on systems that have no such look-up:
``python tests/support/strangers.py -- PROGRAM ARGUMENT…``.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BOUND_SECONDS = 200.0
"""That of tests/support/bounds.py, which is not there for this file as a program."""
IS_ROOT = os.geteuid() == 0
USERS = (12345, 12346)
"""Nobody's files and processes. Only root can be them."""

SOCKET = {"x86_64": 41, "aarch64": 198}
LOAD, EQUAL, RETURN, ALLOW, NOT_PERMITTED = 0x20, 0x15, 0x06, 0x7FFF0000, 0x50001
NUMBER, FIRST, THIRD = 0, 16, 32
AF_NETLINK, NETLINK_SOCK_DIAG = 16, 4


def as_that_user(user: int) -> None:
    """From now on this process is that user's; it has no other groups and no rights of root's."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def as_user(user: int, work: Callable[[], bytes]) -> bytes:
    """What ``work`` gives in a process of that user, which has no other groups and no rights of root's."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            as_that_user(user)
            given = work()
        except BaseException as error:
            given = f"{type(error).__name__}: {error}".encode()
        with suppress(BaseException), open(tell, "wb") as pipe:
            pipe.write(given)
        os._exit(0)
    os.close(tell)
    with open(told, "rb") as pipe:
        found = pipe.read()
    os.waitpid(pid, 0)
    return found


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    """Sockets that are made meanwhile are that user's."""
    before = os.geteuid()
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(before)


def exchange(address: tuple[str, int], data: bytes, *, over: bool = True) -> bytes:
    """Everything that is answered to these bytes, until the server closes; ``over``: no more come."""
    with socket.create_connection(address, timeout=BOUND_SECONDS) as there:
        found = b""
        with suppress(ConnectionError):
            there.sendall(data)
            if over:
                there.shutdown(socket.SHUT_WR)
            while chunk := there.recv(1 << 16):
                found += chunk
        return found


def exchange_as(user: int, package: str, address: tuple[str, int], data: bytes, *, over: bool = True) -> bytes:
    """The same by a process of that user, forked from one that has ``package`` loaded and is small."""
    from tests.support import forked  # which is not there for this file as a program

    words = [str(user), address[0], str(address[1]), "over" if over else "open"]
    script = str(Path(__file__).parents[1] / "data/exchange.py")
    _, found, errors = forked.run(package, words, cwd=Path("/"), env=os.environ, given=data, script=script)
    assert not errors, errors
    return found


def without_sock_diag() -> list[str]:
    """Words before a command line: its program cannot learn whose connections are."""
    return [sys.executable, str(Path(__file__).resolve()), "--"]


def _filter() -> bytes:
    code = [
        (LOAD, 0, 0, NUMBER),
        (EQUAL, 0, 5, SOCKET[os.uname().machine]),
        (LOAD, 0, 0, FIRST),
        (EQUAL, 0, 3, AF_NETLINK),
        (LOAD, 0, 0, THIRD),
        (EQUAL, 0, 1, NETLINK_SOCK_DIAG),
        (RETURN, 0, 0, NOT_PERMITTED),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def ask_of_no_sockets() -> None:
    """From now on this process, and all that it starts, cannot learn whose connections are."""
    code = _filter()
    held = ctypes.create_string_buffer(code, len(code))
    filters = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, filters, 0, 0):
        sys.exit("no filter can be installed here")


def main() -> None:
    separator, *argv = sys.argv[1:]
    assert separator == "--"
    ask_of_no_sockets()
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
