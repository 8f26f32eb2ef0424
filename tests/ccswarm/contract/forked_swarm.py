"""Verbs of ``ccswarm`` as processes of their own, forked from one that has loaded the program: a new one takes 2 s.

``python -m tests.ccswarm.contract.forked_swarm FD`` is that process. Each message on the socket ``FD`` asks for one
verb and brings along its three streams and a pipe, on which the verb's pid and wait status are told.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from tests.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[3]
LOADED = (
    "cli.main",
    "cli.run",
    "cli.watch",
    "cli.live_view",
    "cli.logs",
    "app",
    "clients.mcp.plugin",
    "clients.mcp.connection",
)
ENGINE = ("engines.dbos.client", "brains.playbook.plugin", "plan.check")
SERVING = (
    "cli.mcp_server",
    "servers.mcp.plugin",
    "servers.mcp.dispatch",
    "cli.serve",
    "servers.visionflow.plugin",
    "runs.service",
)
MESSAGE_BYTES = 1 << 17
NUMBER = struct.Struct("i")


@cache
def parent() -> socket.socket:
    """The way to the process that forks. It carries no test's HOME, as it belongs to none, and ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(theirs.fileno())],
            pass_fds=[theirs.fileno()], cwd=ROOT, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class Forked:
    """A verb that was started: what is used of ``subprocess.Popen`` with pipes for output and errors. With a file for
    ``errors`` there is a pipe for its input instead."""

    def __init__(
        self,
        words: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        terminal: int | None = None,
        errors: Path | None = None,
    ) -> None:
        told, tell = os.pipe()
        read: list[int] = []
        self.stdin: BinaryIO | None = None
        if errors:
            given, giver = os.pipe()
            self.stdin = open(giver, "wb", 0)  # noqa: SIM115
            said, sayer = os.pipe()
            read.append(said)
            streams = [given, sayer, os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT)]
        else:
            streams = [terminal] * 3 if terminal is not None else [os.open(os.devnull, os.O_RDONLY)]
        while len(streams) < 3:
            reader, writer = os.pipe()
            read.append(reader)
            streams.append(writer)
        plan = {"words": list(words), "cwd": str(cwd), "env": dict(env), "terminal": terminal is not None}
        socket.send_fds(parent(), [json.dumps(plan).encode()], [*streams, tell])
        for fd in {*streams, tell}:
            os.close(fd)
        self._told: BinaryIO = open(told, "rb", 0)  # noqa: SIM115
        self.stdout, self.stderr = ([open(fd, "rb", 0) for fd in read] + [None, None])[:2]  # noqa: SIM115
        self.pid: int = NUMBER.unpack(self._told.read(NUMBER.size))[0]
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, seconds: float) -> int:
        """Exit code, negative for a signal."""
        if self.returncode is None:
            if not select.select([self._told], [], [], seconds)[0]:
                raise subprocess.TimeoutExpired("ccswarm", seconds)
            self.returncode = os.waitstatus_to_exitcode(NUMBER.unpack(self._told.read(NUMBER.size))[0])
        return self.returncode

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        """All it says, until it has ended."""
        assert self.stdout
        assert self.stderr
        found: dict[Any, bytes] = {self.stdout: b"", self.stderr: b""}
        left = list(found)
        while left:
            ready = select.select(left, [], [], timeout)[0]
            if not ready:
                raise subprocess.TimeoutExpired("ccswarm", timeout)
            for stream in ready:
                data = os.read(stream.fileno(), 1 << 16)
                found[stream] += data
                if not data:
                    left.remove(stream)
        self.wait(timeout)
        return found[self.stdout], found[self.stderr]

    def close(self) -> None:
        """Killed if it has not ended."""
        self.kill()
        self.wait(BOUND_SECONDS)
        for stream in (self._told, self.stdin, self.stdout, self.stderr):
            if stream:
                stream.close()


def fork_verbs(link: socket.socket) -> None:
    """Until the other side ends. Who waits for a verb is a process of its own, so that verbs run side by side."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, fds, _, _ = socket.recv_fds(link, MESSAGE_BYTES, 4)
        if not message:
            return
        if os.fork() == 0:
            link.close()
            keep(json.loads(message), fds)
        for fd in fds:
            os.close(fd)


def keep(plan: dict[str, Any], fds: list[int]) -> NoReturn:
    """Forks the verb, and tells of its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        be_verb(plan, fds)
    for fd in fds[:3]:
        os.close(fd)
    os.write(fds[3], NUMBER.pack(pid))
    os.write(fds[3], NUMBER.pack(os.waitpid(pid, 0)[1]))
    os._exit(0)


def be_verb(plan: dict[str, Any], fds: list[int]) -> NoReturn:
    """As the interpreter starts one, on these streams."""
    from ccswarm import __main__

    if plan["terminal"]:
        os.setsid()
        fcntl.ioctl(fds[0], termios.TIOCSCTTY, 0)
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)
    os.chdir(plan["cwd"])
    os.environ.clear()
    os.environ.update(plan["env"])
    sys.argv = [str(ROOT / "ccswarm/__main__.py"), *plan["words"]]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, closefd=False)  # noqa: SIM115
    code: object = 1
    try:
        __main__.main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    for module in (*LOADED, *ENGINE, *SERVING):
        import_module(f"ccswarm.{module}")
    assert threading.active_count() == 1, "threads do not survive a fork"
    gc.freeze()
    fork_verbs(socket.socket(fileno=int(sys.argv[1])))
