"""A real box waits until its proxy listens inside it; whatever fails, its shell has no network or does not start."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import ai_session
from ai_session.errors import SandboxUnavailable
from ai_session.sandbox.network.entry import PORT, Box, listen_inside, open_gate, read_box
from ai_session.sandbox.network.proxy import SessionProxy
from ai_session.sandbox.network.rules import NetworkRules
from tests.ai_session.support.networks import BOUND_SECONDS, NAME, origin

pytestmark = pytest.mark.anyio
ANYBODY = 12345
"""The number of a user that nobody is."""

FETCH = (
    f"fetch() {{ exec 3<>/dev/tcp/127.0.0.1/{PORT} || return\n"
    r"printf '%s %s HTTP/1.1\r\nHost: x\r\n\r\n' "
    """"$1" "$2" >&3; IFS= read -r line <&3; echo "${line%$'\\r'}"; exec 3>&-; }
"""
)
"""A function of bash: method and target; prints the status line."""

SYSTEM = [path for path in map(Path, ("/bin", "/etc", "/lib", "/lib64", "/tmp", "/usr")) if path.exists()]
EVERYTHING = " ".join(f"--ro-bind {path} {path}" for path in SYSTEM)
"""Below a root of the box's own, as every box has."""


async def boxed(directory: Path, script: str) -> asyncio.subprocess.Process:
    """bash in a box, which goes on when ``open_gate`` lets it."""
    (directory / "block").unlink(missing_ok=True)
    os.mkfifo(directory / "block")
    bwrap = f"bwrap --unshare-user --unshare-pid --unshare-net --disable-userns {EVERYTHING} --proc /proc --dev /dev"
    start = f'exec {bwrap} --die-with-parent --info-fd 7 --block-fd 6 -- bash -c "$0" 6<block 7>>info'
    return await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", start, FETCH + script),
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


async def said(program: asyncio.subprocess.Process) -> list[str]:
    async with asyncio.timeout(BOUND_SECONDS):
        output, _ = await program.communicate(b"\n")
    return output.decode().splitlines()


def proxy_to(port: int) -> SessionProxy:
    async def here(name: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    return SessionProxy(NetworkRules([NAME], [port], ["127.0.0.1"]), resolve=here)


async def opened(directory: Path, start: Callable[[Box], Awaitable[None]]) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        await open_gate(directory / "info", directory / "block", start)


async def test_a_box_reaches_what_is_listed_and_nothing_else(home: Path) -> None:
    async with origin(home) as server:
        proxy = proxy_to(server.port)
        script = f"""
            fetch GET http://{NAME}:{server.port}/
            fetch GET http://evil.org:{server.port}/
            fetch CONNECT 127.0.0.1:{server.port}
            (exec 4<>/dev/tcp/127.0.0.1/{server.port}) 2>/dev/null || echo nothing else
        """
        program = await boxed(home, script)
        await opened(home, proxy.start)
        assert await said(program) == [
            "HTTP/1.1 200 OK",
            "HTTP/1.1 403 evil.org is not on this session's list of allowed domains",
            "HTTP/1.1 403 127.0.0.1 is an address, not a name",
            "nothing else",
        ]
        await proxy.aclose()


async def test_the_shell_does_not_start_before_the_proxy_listens(home: Path) -> None:
    program = await boxed(home, "echo started")
    stdout = program.stdout
    assert stdout
    early: list[str] = []

    async def start(box: Box) -> None:
        # What is on the pipe now would be read at once.
        reading = asyncio.ensure_future(stdout.read(100))
        for _ in range(100):
            await asyncio.sleep(0)
        early.append("started" if reading.done() else "waiting")
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        listener = await listen_inside(box, PORT)
        listener.close()

    await opened(home, start)
    assert await said(program) == ["started"]
    assert early == ["waiting"]


async def test_a_gate_can_be_opened_before_the_box_is_begun(home: Path) -> None:
    os.mkfifo(home / "block")
    (home / "info").write_text(json.dumps({"child-pid": os.getpid(), "net-namespace": 1}))
    started: list[Box] = []

    async def start(box: Box) -> None:
        started.append(box)

    opening = asyncio.create_task(opened(home, start))
    await asyncio.sleep(0)
    (home / "block").rename(home / "kept")
    program = await boxed_with(home, "kept")
    await opening
    assert await said(program) == ["in"]
    assert started[0].pid != os.getpid()


async def boxed_with(directory: Path, fifo: str) -> asyncio.subprocess.Process:
    start = f"exec bwrap --unshare-net {EVERYTHING} --info-fd 7 --block-fd 6 -- echo in 6<{fifo} 7>>info"
    return await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", start), cwd=directory, stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )


async def test_a_box_whose_proxy_fails_never_starts_its_shell(home: Path) -> None:
    async def fail(box: Box) -> None:
        raise SandboxUnavailable("no")

    program = await boxed(home, "echo started")
    with pytest.raises(SandboxUnavailable):
        await opened(home, fail)
    assert await said(program) == []
    assert program.returncode != 0


async def test_a_gate_that_is_given_up_never_starts_the_shell(home: Path) -> None:
    waiting = asyncio.Event()

    async def hang(box: Box) -> None:
        waiting.set()
        await asyncio.Event().wait()

    program = await boxed(home, "echo started")
    opening = asyncio.create_task(opened(home, hang))
    async with asyncio.timeout(BOUND_SECONDS):
        await waiting.wait()
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    assert await said(program) == []


async def test_a_box_is_served_again_after_its_proxy_has_gone(home: Path) -> None:
    async with origin(home) as server:
        first, second = proxy_to(server.port), proxy_to(server.port)
        line = f"fetch GET http://{NAME}:{server.port}/"
        program = await boxed(home, f"{line}; read -r; {line} 2>/dev/null || echo refused; read -r; {line}")
        assert program.stdin
        assert program.stdout
        async with asyncio.timeout(BOUND_SECONDS):
            await opened(home, first.start)
            assert await program.stdout.readline() == b"HTTP/1.1 200 OK\n"
            await first.aclose()
            program.stdin.write(b"\n")
            assert await program.stdout.readline() == b"refused\n"
            box = read_box(home / "info")
            assert box
            await second.start(box)
            program.stdin.write(b"\n")
            assert await said(program) == ["HTTP/1.1 200 OK"]
        await second.aclose()


async def test_nothing_listens_where_the_box_has_ended_or_another_process_has_its_number(home: Path) -> None:
    host = os.stat("/proc/self/ns/net").st_ino
    program = await boxed(home, "read -r")
    boxes: list[Box] = []

    async def keep(box: Box) -> None:
        boxes.append(box)

    await opened(home, keep)
    inside = boxes[0]
    for box in (Box(os.getpid(), host), Box(os.getpid(), inside.network), Box(inside.pid, host), Box(2**22 + 1, host)):
        with pytest.raises(SandboxUnavailable):
            await listen_inside(box, PORT)
    taken = await listen_inside(inside, PORT)
    with taken, pytest.raises(SandboxUnavailable, match="in use"):
        await listen_inside(inside, PORT)
    await said(program)
    with pytest.raises(SandboxUnavailable):
        await listen_inside(inside, PORT)


def test_half_a_message_about_a_box_is_none(home: Path) -> None:
    info = home / "info"
    whole = '{\n    "child-pid": 5,\n    "net-namespace": 6\n}\n'
    assert read_box(info) is None
    for end in range(len(whole) - 2):
        info.write_text(whole[:end])
        assert read_box(info) is None
    info.write_text(whole)
    assert read_box(info) == Box(5, 6)


def test_all_of_it_works_for_a_user_who_is_not_root(home: Path) -> None:
    """In a process of its own, by the first Python that such a user can run."""
    program = textwrap.dedent(
        """
        import asyncio, os
        from pathlib import Path
        from tests.ai_session.contract.sandbox.test_box_entry import NAME, boxed, opened, proxy_to, said

        async def main():
            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            proxy = proxy_to(port)
            line = f"fetch GET http://{NAME}:"
            box = await boxed(Path.cwd(), f"id -u; {line}{port}/; {line}{port + 1}/")
            await opened(Path.cwd(), proxy.start)
            print(*await said(box), sep="|")
            await proxy.aclose()
            server.close()

        async def answer(reader, writer):
            await reader.readline()
            writer.write(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
            writer.close()

        asyncio.run(main())
        """
    )
    os.chmod(home.parent, 0o755)
    os.chown(home, ANYBODY, ANYBODY)
    answer = subprocess.run(
        [usable_python(home), "-c", program],
        user=ANYBODY,
        group=ANYBODY,
        extra_groups=[],
        cwd=home,
        env={"HOME": str(home), "PATH": os.defpath, "PYTHONPATH": os.pathsep.join(importable())},
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
    )
    expected = f"{ANYBODY}|HTTP/1.1 200 OK|HTTP/1.1 403 port "
    assert answer.stdout.startswith(expected), answer.stdout + answer.stderr


def usable_python(home: Path) -> str:
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            subprocess.run([python, "-c", ""], user=ANYBODY, group=ANYBODY, cwd=home, env={}, check=True)
        except OSError:
            continue
        return python
    raise AssertionError("no Python that others than root can run")


def importable() -> list[str]:
    return [str(Path(ai_session.__file__).parents[1]), *(path for path in sys.path if path.endswith("-packages"))]
