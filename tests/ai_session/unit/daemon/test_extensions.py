"""A shell and a way in that another distribution brings, found by their entry points."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai_session import __version__
from ai_session.daemon.host import Daemon
from ai_session.errors import ShellUnavailable
from ai_session.sessions.spec import shell_named
from tests.support import distributions
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

MODULE = """
from ai_session.shells._posix import PosixShell

class Own(PosixShell):
    name = "own"
    names = ("own", "own2")

class Echo:
    name = "echo"
    async def serve(self, connection):
        connection.writer.write(await connection.reader.readline())
        await connection.writer.drain()

OWN, ECHO = Own(), Echo()
"""


@pytest.fixture(autouse=True)
def distribution(home: Path) -> Iterator[None]:
    with distributions.installed(home / "site", MODULE, ai_session__shells="own", ai_session__servers="echo"):
        yield


def test_a_shell_is_found_by_the_name_of_its_program() -> None:
    assert shell_named("/usr/local/bin/own").name == "own"
    for strange in ("own3", "posix", "base", "_posix"):
        with pytest.raises(ShellUnavailable):
            shell_named(strange)


async def conversation(directory: Path, role: str, line: bytes) -> list[bytes]:
    """What a daemon answers to a client of that role, which then says ``line``."""
    ours, theirs = socket.socketpair()
    daemon = Daemon(directory)
    accepted = asyncio.create_task(daemon.accept(*await asyncio.open_connection(sock=ours)))
    reader, writer = await asyncio.open_connection(sock=theirs)
    async with asyncio.timeout(BOUND_SECONDS):
        hello = {"ai_session": 1, "role": role, "version": __version__, "protocol": [1, 1]}
        writer.write(json.dumps(hello).encode() + b"\n" + line)
        said = (await reader.read()).splitlines()
        await accepted
    writer.close()
    await writer.wait_closed()
    return said


async def test_a_way_in_is_found_by_its_role(home: Path) -> None:
    greeting, answer = await conversation(home, "echo", b"hello\n")
    assert json.loads(greeting)["ai_session"] == 1
    assert answer == b"hello"


@pytest.mark.parametrize("role", ["nobody", "base", "os.path", ""])
async def test_a_role_that_nobody_has_is_refused(home: Path, role: str) -> None:
    (answer,) = await conversation(home, role, b"")
    assert json.loads(answer)["error"]["code"] == "invalid_arguments"
