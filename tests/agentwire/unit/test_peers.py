"""Whose program is at the other end: asked of the kernel about real connections of real users."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentwire.system.peers import can_identify, is_own, user_of
from tests.support.bounds import BOUND_SECONDS
from tests.support.strangers import IS_ROOT, USERS, as_that_user, as_user, without_sock_diag

ROOT = Path(__file__).parents[3]
RESET = struct.pack("ii", 1, 0)
ADDRESSES = [
    ("127.0.0.1", "127.0.0.1"),
    ("127.0.0.9", "127.0.0.9"),
    ("0.0.0.0", "127.0.0.1"),
    ("127.0.0.1", "::ffff:127.0.0.1"),
    ("::1", "::1"),
    ("::", "127.0.0.1"),
    ("::", "::ffff:127.0.0.1"),
    ("::", "::1"),
]
"""Where is listened, and where that is called."""
ALONE = """
import socket, sys
from agentwire.system.peers import user_of
listener = socket.create_server(("127.0.0.1", 0))
there = socket.create_connection(listener.getsockname())
print(user_of(listener.accept()[0]))
"""


@contextmanager
def listening(host: str) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::") as listener:
        yield listener


@contextmanager
def connected(host: str = "127.0.0.1", called: str = "127.0.0.1") -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection: what was accepted, and what connected."""
    with listening(host) as listener, socket.socket(socket.AF_INET6 if ":" in called else socket.AF_INET) as there:
        there.connect((called, listener.getsockname()[1]))
        here, _ = listener.accept()
        with here:
            yield here, there


@pytest.mark.parametrize(("host", "called"), ADDRESSES)
def test_this_user_is_known_however_it_connects(host: str, called: str) -> None:
    with connected(host, called) as (here, there):
        assert (user_of(here), is_own(here)) == (os.getuid(), True)
        there.shutdown(socket.SHUT_WR)  # as `nc -N` does after its last line
        assert is_own(here)
    assert can_identify()


if IS_ROOT:  # nobody else can be somebody else

    @pytest.mark.corners
    @pytest.mark.parametrize("user", USERS)
    @pytest.mark.parametrize(("host", "called"), ADDRESSES)
    def test_another_user_is_known_for_who_it_is(host: str, called: str, user: int) -> None:
        called.encode("idna")  # as connecting does, which loads a codec that others may not read
        reported, tell = os.pipe()
        with listening(host) as listener:
            port, child = listener.getsockname()[1], os.fork()
            if child == 0:
                as_that_user(user)
                with socket.create_connection((called, port)):
                    os.read(reported, 1)
                os._exit(0)
            here, _ = listener.accept()
            with here:
                assert (user_of(here), is_own(here)) == (user, False)
            os.write(tell, b"x")
            os.waitpid(child, 0)
        os.close(reported)
        os.close(tell)


def test_root_is_not_this_user() -> None:
    """Of a server that is not root's, asked by one who is."""
    if not IS_ROOT:
        return

    def look() -> bytes:
        with socket.socket(fileno=here.fileno()) as end:
            return f"{user_of(end)} {is_own(end)}".encode()

    with connected() as (here, _):
        assert as_user(USERS[0], look) == b"0 False"


def test_whoever_has_hung_up_is_nobody() -> None:
    with connected() as (here, there):
        there.close()
        assert user_of(here) is None
    with connected() as (here, there):
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        there.close()
        assert user_of(here) is None
    with connected() as (here, _):
        here.close()
        assert user_of(here) is None


def test_an_address_that_somebody_else_took_over_tells_nothing_of_who_had_it() -> None:
    """What was sent before a reset can still be read, and by then the address may be this user's."""
    with listening("127.0.0.1") as listener:
        address = listener.getsockname()
        with socket.socket() as first:
            first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            first.connect(address)
            had = first.getsockname()
            first.sendall(b"work for you")
        with socket.socket() as second:
            second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            second.bind(had)
            second.connect(address)
            here, _ = listener.accept()
            later, _ = listener.accept()
            with here, later:
                assert (here.getpeername() if is_connected(here) else had) == later.getpeername() == had
                assert user_of(here) is None
                assert is_own(later)
                assert here.recv(100) == b"work for you"


def is_connected(end: socket.socket) -> bool:
    try:
        end.getpeername()
    except OSError:
        return False
    return True


class Elsewhere:
    """A connection that does not stay on the loopback."""

    family = socket.AF_INET

    def __init__(self, near: str, far: str) -> None:
        self._near = near
        self._far = far

    def getsockname(self) -> tuple[str, int]:
        return self._near, 9500

    def getpeername(self) -> tuple[str, int]:
        return self._far, 40000

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes:
        raise AssertionError((level, optname, buflen))


@pytest.mark.parametrize(
    ("near", "far"),
    [("192.0.2.1", "192.0.2.2"), ("192.0.2.1", "127.0.0.1"), ("127.0.0.1", "192.0.2.1"), ("::1", "127.0.0.1")],
)
def test_other_machines_are_nobody(near: str, far: str) -> None:
    assert user_of(Elsewhere(near, far)) is None


def test_over_a_unix_socket_too(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as there:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        there.connect(str(tmp_path / "s"))
        here, _ = listener.accept()
        with here:
            assert is_own(here)


def test_where_the_kernel_does_not_tell_everybody_is_nobody() -> None:
    line = [*without_sock_diag(), sys.executable, "-c", ALONE]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True, timeout=BOUND_SECONDS)
    assert done.stdout == "None\n"


def test_the_look_up_takes_as_long_with_many_connections() -> None:
    """It asks for one socket, and is answered with one, however many there are."""
    with listening("127.0.0.1") as listener:
        ends: list[socket.socket] = []
        for _ in range(200):
            ends.append(socket.create_connection(listener.getsockname()))
            ends.append(listener.accept()[0])
        assert all(is_own(end) for end in ends)
        for end in ends:
            end.close()
