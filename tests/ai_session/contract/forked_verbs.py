"""Verbs as processes of their own, forked from one that has loaded the program: each costs 10 ms, a new one 110.

``python -m tests.ai_session.contract.forked_verbs FD`` is that process. Each message on the socket ``FD`` asks for one
verb and brings along its three streams and a pipe, on which the verb's pid and wait status are told, and for a verb
that a person types the terminal it is typed in.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import io
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from pexpect.fdpexpect import fdspawn

from ai_session.cli import verbs

ROOT = Path(__file__).parents[3]
LOADED = ("ai_session.__main__", "ai_session.cli.main", "agentwire.mcp.clients", "ai_session.config.config")
"""Also what some verbs load late."""
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


def ask(
    words: Sequence[str], cwd: Path, env: Mapping[str, str], streams: Sequence[int], window: int | None = None
) -> Verb:
    """Have a verb started on the three ``streams``, in the terminal ``window`` where there is one."""
    told, tell = os.pipe()
    plan = json.dumps({"words": list(words), "cwd": str(cwd), "env": dict(env)}).encode()
    socket.send_fds(parent(), [plan], [*streams, tell, *([] if window is None else [window])])
    os.close(tell)
    return Verb(told)


class Verb:
    """One that was started. Its end is told on a pipe."""

    def __init__(self, told: int) -> None:
        self._told = open(told, "rb", 0)  # noqa: SIM115
        self.pid: int = NUMBER.unpack(self._told.read(NUMBER.size))[0]
        self._code: int | None = None

    def wait(self, seconds: float) -> int:
        """Exit code, negative for a signal. A verb that does not end is killed, and TimeoutExpired raised."""
        if self._code is None:
            if not select.select([self._told], [], [], seconds)[0]:
                os.kill(self.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired("ai-session", seconds)
            self._code = os.waitstatus_to_exitcode(NUMBER.unpack(self._told.read(NUMBER.size))[0])
            self._told.close()
        return self._code

    def drop(self) -> None:
        self._told.close()


@contextmanager
def window() -> Iterator[int]:
    """A terminal whose other side this process holds, as a terminal program does."""
    ours, theirs = pty.openpty()
    try:
        yield theirs
    finally:
        os.close(theirs)
        os.close(ours)


def run(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    given: bytes | None,
    seconds: float,
    typed: bool = False,
) -> tuple[int, bytes, bytes]:
    """Exit code, output and errors. Without ``given`` standard input is /dev/null. ``typed``: by a person, in a window;
    what comes and goes is no terminal's all the same."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, ExitStack() as stack:
        reader, writer = os.pipe() if given is not None else (os.open(os.devnull, os.O_RDONLY), -1)
        terminal = stack.enter_context(window()) if typed else None
        verb = ask(words, cwd, env, [reader, out.fileno(), err.fileno()], terminal)
        os.close(reader)
        if given is None:
            return verb.wait(seconds), contents(out), contents(err)
        feeding = threading.Thread(target=feed, args=(writer, given))
        feeding.start()
        try:
            return verb.wait(seconds), contents(out), contents(err)
        finally:
            feeding.join()


class Person(fdspawn):
    """What pexpect.spawn is, for a verb on a terminal of its own."""

    def __init__(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], size: tuple[int, int], seconds: float
    ) -> None:
        ours, theirs = pty.openpty()
        super().__init__(ours, timeout=seconds)
        self.exitstatus = None
        self._seconds = seconds
        self.setwinsize(*size)
        self._verb = ask(words, cwd, env, [theirs] * 3, theirs)
        self.pid = self._verb.pid
        os.close(theirs)

    def setwinsize(self, rows: int, cols: int) -> None:
        """As a terminal's window that changes."""
        fcntl.ioctl(self.child_fd, termios.TIOCSWINSZ, struct.pack("4H", rows, cols, 0, 0))

    def wait(self) -> int:
        """The verb's exit code, once it has ended by itself."""
        code = self._verb.wait(self._seconds)
        self.exitstatus = code
        return code

    def close(self) -> None:
        """Hang up, and wait for the end."""
        super().close()
        self.wait()

    def __del__(self) -> None:
        super().close()
        self._verb.drop()


def feed(fd: int, data: bytes) -> None:
    """All of it, or as much as is wanted."""
    try:
        with open(fd, "wb") as stream:
            stream.write(data)
    except BrokenPipeError:
        return


def contents(file: io.BufferedIOBase) -> bytes:
    file.seek(0)
    return file.read()


def fork_verbs(link: socket.socket) -> None:
    """Until the other side ends. Who waits for a verb is a process of its own, so that verbs run side by side."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, fds, _, _ = socket.recv_fds(link, MESSAGE_BYTES, 5)
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
    for fd in (*fds[:3], *fds[4:]):
        os.close(fd)
    os.write(fds[3], NUMBER.pack(pid))
    os.write(fds[3], NUMBER.pack(os.waitpid(pid, 0)[1]))
    os._exit(0)


def be_verb(plan: dict[str, Any], fds: list[int]) -> NoReturn:
    """As the interpreter starts one, on these streams."""
    from ai_session import __main__

    for terminal in fds[4:]:
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)
    os.chdir(plan["cwd"])
    # What a start without a locale puts into the environment.
    coerced = os.environ.get("LC_CTYPE")
    os.environ.clear()
    os.environ.update(plan["env"])
    if coerced and not plan["env"].keys() & {"LC_ALL", "LC_CTYPE", "LANG"}:
        os.environ["LC_CTYPE"] = coerced
    sys.argv = [str(ROOT / "ai_session/__main__.py"), *plan["words"]]
    sys.stdin = open(0, errors=sys.stdin.errors, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", errors=sys.stdout.errors, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors=sys.stderr.errors, closefd=False)  # noqa: SIM115
    code: object = 1
    try:
        __main__.main()
    except SystemExit as end:
        code = end.code or 0
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    for module in LOADED:
        import_module(module)
    for load in verbs.VERBS.values():
        load()
    gc.freeze()
    fork_verbs(socket.socket(fileno=int(sys.argv[1])))
