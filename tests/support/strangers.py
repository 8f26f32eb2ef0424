"""Processes of other users, which only root can create, and a kernel that does not tell a socket's user.

As a program it runs another one that may not query the kernel about sockets, as on systems without that query:
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
"""The bound of tests/support/bounds.py, which this file cannot import when it runs as a program."""
IS_ROOT = os.geteuid() == 0
USERS = (12345, 12346)
"""Ids of users without files or processes. Only root can become them."""

SOCKET = {"x86_64": 41, "aarch64": 198}
LOAD, EQUAL, RETURN, ALLOW, NOT_PERMITTED = 0x20, 0x15, 0x06, 0x7FFF0000, 0x50001
NUMBER, FIRST, THIRD = 0, 16, 32
AF_NETLINK, NETLINK_SOCK_DIAG = 16, 4


def as_that_user(user: int) -> None:
    """Change this process to a user, without other groups or root's rights."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def as_user(user: int, work: Callable[[], bytes]) -> bytes:
    """Return what ``work`` returns in a forked process of that user, or its error as text."""
    reported, tell = os.pipe()
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
    with open(reported, "rb") as pipe:
        found = pipe.read()
    os.waitpid(pid, 0)
    return found


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    """Change the effective user meanwhile, to which new sockets belong."""
    before = os.geteuid()
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(before)


def exchange(address: tuple[str, int], data: bytes, *, over: bool = True) -> bytes:
    """Send bytes and return the whole response, until the server closes. With ``over``, the sending side is closed."""
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
    """Do an ``exchange`` in a process of that user, forked from the one that has loaded ``package``."""
    from tests.support import forked  # not importable when this file runs as a program

    words = [str(user), address[0], str(address[1]), "over" if over else "open"]
    script = str(Path(__file__).parents[1] / "data/exchange.py")
    _, found, errors = forked.run(package, words, cwd=Path("/"), env=os.environ, given=data, script=script)
    assert not errors, errors
    return found


def without_sock_diag() -> list[str]:
    """Return the prefix of a command line whose program cannot query the users of connections."""
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
    """Forbid this process and its children to query the users of connections."""
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
