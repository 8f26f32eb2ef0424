"""The way into a box: waits until it is set up, adds a listening socket or mounts, then lets its shell start.

bubblewrap is started with ``--info-fd`` on a file and ``--block-fd`` on a FIFO, both invisible in the box. A failure
here leaves the box without any network.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import select
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, cast

from ai_session.errors import SandboxUnavailable
from ai_session.sandbox import guard
from ai_session.sandbox.limits import processes
from ai_session.sandbox.network import listener as network_listener
from ai_session.system.events import FileGrowth

PORT = 3128
"""The port inside the box on which the proxy listens."""

LISTEN_SECONDS = 10.0
"""The listening program takes 25 ms; a machine that needs longer than this has other problems."""


log = logging.getLogger(__name__)

_ROOT = re.compile(rb"^\d+ \d+ \S+ /newroot / ", re.MULTILINE)
"""The line of ``mountinfo`` that shows bubblewrap's own tree as the root directory."""
_ESCAPED = re.compile(rb"\\([0-7]{3})")


class Box(NamedTuple):
    """A process in a box and the inode of its network namespace, since a pid alone may be reused by another process."""

    pid: int
    network: int


def environment() -> dict[str, str]:
    """Return the variables that make programs in a box use the proxy."""
    proxy = f"http://127.0.0.1:{PORT}"
    values = {"http_proxy": proxy, "https_proxy": proxy, "all_proxy": proxy, "no_proxy": "localhost,127.0.0.1,::1"}
    return values | {name.upper(): value for name, value in values.items()}


def read_box(info_path: str | os.PathLike[str]) -> Box | None:
    """Return what bubblewrap wrote about its box, or None if it has not written all of it."""
    try:
        info = cast(dict[str, int], json.loads(Path(info_path).read_text()))
        return Box(int(info["child-pid"]), int(info["net-namespace"]))
    except (OSError, ValueError, KeyError):
        return None


async def open_gate(
    info_path: str | os.PathLike[str], block_path: str | os.PathLike[str], start: Callable[[Box], Awaitable[None]]
) -> None:
    """Await ``start`` when the box is set up, and only then let bubblewrap start the shell.

    Call it before or while bubblewrap starts, which waits at opening ``block_path`` until then. If ``start`` fails or
    this is cancelled, the box is killed before its shell starts. Use a timeout: a bubblewrap that never reports its box
    is not noticed here.
    """
    # Truncated first: bubblewrap writes it after opening the FIFO, so anything in it now describes an earlier box.
    os.close(os.open(info_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    gate = os.open(block_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        box = await _box_reported(info_path)
        try:
            pidfd = os.pidfd_open(box.pid)
        except ProcessLookupError:
            raise _unavailable("the box ended while it was being set up") from None
        try:
            await _set_up(box.pid, pidfd)
            await start(box)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            raise
        finally:
            os.close(pidfd)
        os.write(gate, b"\n")
    finally:
        os.close(gate)


async def _box_reported(info_path: str | os.PathLike[str]) -> Box:
    written, growth = asyncio.Event(), FileGrowth()
    try:
        growth.add(os.fspath(info_path), written.set)
        while (box := read_box(info_path)) is None:
            await written.wait()
            written.clear()
        return box
    finally:
        growth.close()


async def _set_up(pid: int, pidfd: int) -> None:
    """Wait until the box's own tree is the root of ``pid``, after which bubblewrap makes no more mounts."""
    changed, loop = asyncio.Event(), asyncio.get_running_loop()
    path = Path(f"/proc/{pid}/mountinfo")
    with path.open("rb") as table, select.epoll() as changes:
        changes.register(table, select.EPOLLPRI)
        changes.register(pidfd, select.EPOLLIN)
        loop.add_reader(changes.fileno(), changed.set)
        try:
            # Opened again each time: an open mountinfo shows the root as it was when it was opened.
            while not _ROOT.search(path.read_bytes()):
                await changed.wait()
                changed.clear()
                if any(fd == pidfd for fd, _ in changes.poll(0)):
                    raise _unavailable("the box ended while it was being set up")
        finally:
            loop.remove_reader(changes.fileno())


async def listen_inside(box: Box, port: int) -> socket.socket:
    """Return a non-blocking socket that listens on 127.0.0.1:``port`` of the box.

    Raises SandboxUnavailable if the box has ended or something in it already listens there.
    """
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with here, there:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", network_listener.__file__, str(box.pid), str(box.network), str(port)),
            stdin=there.fileno(),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={},
        )
        there.close()
        try:
            async with asyncio.timeout(LISTEN_SECONDS):
                _, complaint = await program.communicate()
        except TimeoutError:
            raise _unavailable("no socket could be made inside the box in time") from None
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
        here.setblocking(False)
        if program.returncode == 0:
            _, descriptors, _, _ = socket.recv_fds(here, 1, 1)
            listener = socket.socket(fileno=descriptors[0])
            listener.setblocking(False)
            return listener
    reason = complaint.decode(errors="replace").strip().rpartition("\n")[2]
    raise _unavailable(f"no socket could be made inside the box: {reason}")


@cache
def can_guard() -> bool:
    """Report whether paths can be protected in a running box: the kernel has the calls since Linux 5.12."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release) if sys.platform == "linux" else None
    return version is not None and (int(version[1]), int(version[2])) >= (5, 12)


async def guard_inside(pid: int, guards: Sequence[tuple[str, str]]) -> None:
    """Protect ``(path, kind)`` pairs in the box of ``pid``, as sandbox/guard.py describes them.

    Raises SandboxUnavailable if a path could not be protected or the box has ended.
    """
    if not guards:
        return
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", guard.__file__, str(pid)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
    )
    try:
        async with asyncio.timeout(LISTEN_SECONDS):
            answer, complaint = await program.communicate(json.dumps(guards).encode())
    except TimeoutError:
        raise _unavailable("nothing could be protected inside the box in time") from None
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    if program.returncode != 0:
        reason = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise _unavailable(f"nothing could be protected inside the box: {reason}")
    if failed := json.loads(answer):
        path, why = failed[0]
        raise _unavailable(f"{len(failed)} paths could not be protected inside the box: {path[:200]!r}: {why}")


async def renew(outer: int, guards: Sequence[tuple[str, str]]) -> list[str]:
    """Protect again what has lost its protection in the box that ``outer`` made, and return the paths that had."""
    inner = first_inside(outer) if guards else None
    missing = await asyncio.to_thread(unguarded, inner, guards) if inner else []
    if missing and inner:
        try:
            await guard_inside(inner, missing)
        except SandboxUnavailable as problem:
            log.warning("%s", problem.message)
    return [path for path, kind in missing if kind != "kept"]


def unguarded(pid: int, guards: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the paths that exist but are no longer mounted in the namespace of ``pid``: replacing a file from outside
    removes its mount. Returns none if the process has ended. Blocks."""
    try:
        with open(f"/proc/{pid}/mountinfo", "rb") as table:
            mounted = {_ESCAPED.sub(_unescaped, row.split(b" ", 5)[4]) for row in table}
    except OSError:
        return []
    return [
        (path, kind)
        for path, kind in guards
        if os.fsencode(path) not in mounted and os.path.lexists(path) and not os.path.islink(path)
    ]


def first_inside(pid: int) -> int | None:
    """Return the first process of the box that ``pid`` made, or None if it has ended."""
    found = processes.children(pid)
    return found[0] if found else None


def _unescaped(match: re.Match[bytes]) -> bytes:
    return bytes((int(match[1], 8),))


def _unavailable(message: str) -> SandboxUnavailable:
    return SandboxUnavailable(message, suggestion="create the session again; if that does not help: ai-session doctor")
