"""Programs of this project as processes of their own, forked from one that has loaded them: a verb costs 10 ms instead
of 0.1 to 2 s, a daemon 50 instead of 500.

``python -m tests.support.forked PACKAGE FD`` is that process, one for each package and process of tests. Each message
on the socket ``FD`` asks for one program and passes its three streams, a pipe for its pid and wait status, and the
terminal for what a person types. Tests of how a program starts execute it instead.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import pty
import runpy
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
from contextlib import ExitStack, chdir, contextmanager, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from pexpect.fdpexpect import fdspawn

from tests.support.bounds import BOUND_SECONDS
from tests.support.forked_holders import HOLDERS, PR_SET_DUMPABLE, Holders, name_it
from tests.support.processor_time import waited_seconds

ROOT = Path(__file__).parents[2]
WORKING = """
__main__ brains.playbook.plugin cli.configured_servers cli.live_view cli.logs cli.main cli.mcp_server cli.plan
cli.run cli.serve cli.tools cli.watch cli.worker clients.mcp.connection clients.mcp.plugin
engines.dbos.client engines.dbos.engine engines.dbos.plugin plan.check runs.app runs.service servers.mcp.dispatch
servers.mcp.plugin servers.visionflow.plugin
"""
"""Modules of ccswarm that bring all that a verb, a worker and a server need; ai_session is loaded whole."""
LATER = {
    "ai_session": [
        "anyio._backends._asyncio",
        "libtmux",
        "pyghostty.core",
        "tree_sitter_bash",
        "typer._click.decorators",
    ],
    "ccswarm": [
        "agentwire.http.access_token",
        "anyio._backends._asyncio",
        "dbos._sys_db_sqlite",
        "typer._click.decorators",
    ],
}
"""What is loaded when it is first used; a terminal's screen alone takes 0.2 s."""
PLAN = f"""
[[mcp.servers]]
name = "small"
command = "{sys.executable}"
args = ["{ROOT / "tests/data/swarm_servers/plain.py"}"]
[[agents]]
name = "ada"
grants = ["small.*"]
[[tasks]]
id = "one"
[[tasks.steps]]
id = "say"
tool = "small.echo"
"""
PROGRAM = ["-m", "ai_session"]
DAEMON = ["-P", *PROGRAM]
LINE_BYTES = ENVIRONMENT_BYTES = 1 << 12
"""For the words and the environment of a program in /proc; what looks for programs knows them by these."""
MESSAGE_BYTES = 1 << 17
NUMBER = struct.Struct("i")
END = struct.Struct("id")
"""Wait status, and the seconds for which its first thread waited for a processor."""
LARGE_PAGE = 1 << 21
MADV_COLLAPSE = 25
PATH = os.environ["PATH"]
"""As it was before any test: a process that names the home of one is ended with it."""


@cache
def parent(package: str) -> socket.socket:
    """The way to the process that forks. It carries no test's HOME, as it belongs to none, and ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", __spec__.name, package, str(theirs.fileno())),
                *(HOLDERS.address().hex(), " " * LINE_BYTES),
            ],
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            env={"PATH": PATH, "PYTHONPATH": str(ROOT), "ROOM": " " * ENVIRONMENT_BYTES},
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class Forked:
    """A program that was started: what is used of ``subprocess.Popen``. Nobody but who made it may wait for it."""

    def __init__(
        self,
        package: str,
        words: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        streams: Sequence[int],
        window: int | None = None,
        script: str = "",
        user: int | None = None,
        apart: bool = False,
    ) -> None:
        """On the three ``streams``, which stay the caller's; in the terminal ``window`` where there is one. With
        ``script`` that file is what is run, in an interpreter that has the package loaded. ``apart``: in a process
        group of its own; ``user``: as that one, who reads no libraries of root's, so that what is loaded must do."""
        told, tell = os.pipe()
        plan = {"words": list(words), "cwd": str(cwd), "env": dict(env), "script": script, "user": user, "apart": apart}
        fds = [*streams, tell, *([] if window is None else [window])]
        socket.send_fds(parent(package), [json.dumps(plan).encode()], fds)
        os.close(tell)
        self._told: BinaryIO = open(told, "rb", 0)  # noqa: SIM115
        self.pid: int = NUMBER.unpack(self._told.read(NUMBER.size))[0]
        self.stdin: BinaryIO | None = None
        self.stdout: BinaryIO | None = None
        self.stderr: BinaryIO | None = None
        self.returncode: int | None = None
        self.waited_seconds = 0.0
        self._waiting = threading.Lock()

    def poll(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = BOUND_SECONDS) -> int:
        """Exit code, negative for a signal. Several threads may wait."""
        if not self._waiting.acquire(timeout=timeout):
            raise subprocess.TimeoutExpired("forked", timeout)
        try:
            if self.returncode is None:
                if not select.select([self._told], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("forked", timeout)
                status, self.waited_seconds = END.unpack(self._told.read(END.size))
                self.returncode = os.waitstatus_to_exitcode(status)
                self._told.close()
            return self.returncode
        finally:
            self._waiting.release()

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        """All it says, until it has ended."""
        found = {stream: b"" for stream in (self.stdout, self.stderr) if stream}
        left = list(found)
        while left:
            ready = select.select(left, [], [], timeout)[0]
            if not ready:
                raise subprocess.TimeoutExpired("forked", timeout)
            for stream in ready:
                data = os.read(stream.fileno(), 1 << 16)
                found[stream] += data
                if not data:
                    left.remove(stream)
        self.wait(timeout)
        said = [found[stream] if stream else b"" for stream in (self.stdout, self.stderr)]
        return said[0], said[1]

    def drop(self) -> None:
        """It is waited for no more."""
        self._told.close()

    def close(self) -> None:
        """Killed if it has not ended."""
        self.kill()
        self.wait(BOUND_SECONDS)
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream:
                stream.close()


def piped(
    package: str,
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    reads: bool = False,
    errors: Path | None = None,
    script: str = "",
    user: int | None = None,
    apart: bool = False,
) -> Forked:
    """A program whose output and errors are pipes here, its input as well where it ``reads``; its errors go to the end
    of a file where there is one. The rest is as in ``Forked``."""
    given, giver = os.pipe() if reads else (os.open(os.devnull, os.O_RDONLY), -1)
    said, sayer = os.pipe()
    if errors:
        blamed, blamer = -1, os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    else:
        blamed, blamer = os.pipe()
    streams = (given, sayer, blamer)
    forked = Forked(package, words, cwd=cwd, env=env, streams=streams, script=script, user=user, apart=apart)
    for fd in (given, sayer, blamer):
        os.close(fd)
    forked.stdin = open(giver, "wb", 0) if reads else None  # noqa: SIM115
    forked.stdout = open(said, "rb", 0)  # noqa: SIM115
    forked.stderr = None if errors else open(blamed, "rb", 0)  # noqa: SIM115
    return forked


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
    package: str,
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    given: bytes | None = None,
    seconds: float = BOUND_SECONDS,
    typed: bool = False,
    script: str = "",
) -> tuple[int, bytes, bytes]:
    """Exit code, output and errors. Without ``given`` standard input is /dev/null. ``typed``: by a person, in a window;
    what comes and goes is no terminal's all the same. One that does not end is killed, and TimeoutExpired raised."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, ExitStack() as stack:
        reader, writer = os.pipe() if given is not None else (os.open(os.devnull, os.O_RDONLY), -1)
        terminal = stack.enter_context(window()) if typed else None
        streams = (reader, out.fileno(), err.fileno())
        program = Forked(package, words, cwd=cwd, env=env, streams=streams, window=terminal, script=script)
        stack.callback(program.close)
        os.close(reader)
        if given is not None:
            feeding = threading.Thread(target=feed, args=(writer, given))
            feeding.start()
            stack.callback(feeding.join)
        return program.wait(seconds), contents(out), contents(err)


def daemon(env: Mapping[str, str]) -> None:
    """One of ``ai_session`` is there for that HOME, forked where there was none. Whoever comes next is told what keeps
    it from starting."""
    # A daemon holds its lock for life.
    with (
        suppress(FileNotFoundError, NotADirectoryError),
        (Path(env["HOME"]) / ".local/state/ai-session/lock").open("r+") as lock,
    ):
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return
    run("ai_session", [], cwd=ROOT, env=env, script=str(ROOT / "tests/data/start_daemon.py"))


class Person(fdspawn):
    """What pexpect.spawn is, for a verb on a terminal of its own."""

    def __init__(
        self,
        package: str,
        words: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        size: tuple[int, int],
        seconds: float = BOUND_SECONDS,
    ) -> None:
        ours, theirs = pty.openpty()
        super().__init__(ours, timeout=seconds)
        self.exitstatus = None
        self._seconds = seconds
        self.setwinsize(*size)
        self.program = Forked(package, words, cwd=cwd, env=env, streams=[theirs] * 3, window=theirs)
        self.pid = self.program.pid
        os.close(theirs)

    def setwinsize(self, rows: int, cols: int) -> None:
        """As a terminal's window that changes."""
        fcntl.ioctl(self.child_fd, termios.TIOCSWINSZ, struct.pack("4H", rows, cols, 0, 0))

    def wait(self) -> int:
        """The verb's exit code, once it has ended by itself."""
        self.exitstatus = code = self.program.wait(self._seconds)
        return code

    def close(self) -> None:
        """Hang up, and wait for the end."""
        super().close()
        self.wait()

    def __del__(self) -> None:
        super().close()
        self.program.drop()


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


def fork_programs(package: str, link: socket.socket) -> None:
    """Until the other side ends. Of each program its pid is told at once and its wait status when it has ended."""
    running: dict[int, tuple[int, int]] = {}  # by descriptor of the process: its pid, and where its end is told
    ready = select.poll()
    ready.register(link, select.POLLIN)
    while True:
        for fd, _ in ready.poll():
            if fd != link.fileno():
                pid, tell = running.pop(fd)
                ready.unregister(fd)
                os.close(fd)
                waited = waited_seconds(f"/proc/{pid}")
                status = os.waitpid(pid, 0)[1]
                with suppress(BrokenPipeError):  # nobody waits any more
                    os.write(tell, END.pack(status, waited))
                os.close(tell)
                continue
            message, fds, _, _ = socket.recv_fds(link, MESSAGE_BYTES, 5)
            if not message:
                return
            pid = os.fork()
            if pid == 0:
                link.close()
                for theirs, (_, tell) in running.items():
                    os.close(theirs)
                    os.close(tell)
                begin(package, json.loads(message), fds)
            for given in (*fds[:3], *fds[4:]):
                os.close(given)
            with suppress(BrokenPipeError):
                os.write(fds[3], NUMBER.pack(pid))
            process = os.pidfd_open(pid)
            ready.register(process, select.POLLIN)
            running[process] = pid, fds[3]


def begin(package: str, plan: dict[str, Any], fds: list[int]) -> NoReturn:
    """In the process that is to be the program."""
    if plan["apart"]:
        os.setpgid(0, 0)
    for terminal in fds[4:]:
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)
    if plan["user"] is not None:
        os.setgroups([])
        os.setgid(plan["user"])
        os.setuid(plan["user"])
        # As a program that is executed by that user, it can be looked into by others of that user.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)
    os.chdir(plan["cwd"])
    become(package, [sys.executable, "-m", package, *plan["words"]], plan["env"], plan["script"])


def become(package: str, line: Sequence[str], env: Mapping[str, str], script: str = "") -> NoReturn:
    """As ``os.execve`` of this interpreter with that package or script, which need not be loaded again."""
    # What a start without a locale puts into the environment.
    coerced = os.environ.get("LC_CTYPE")
    os.environ.clear()
    os.environ.update(env)
    if coerced and not env.keys() & {"LC_ALL", "LC_CTYPE", "LANG"}:
        os.environ["LC_CTYPE"] = coerced
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    name_it(line, env)
    words = line[line.index(package) + 1 :]
    sys.argv = [script or str(ROOT / package / "__main__.py"), *words]
    sys.stdin = open(0, errors=sys.stdin.errors, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", errors=sys.stdout.errors, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors=sys.stderr.errors, closefd=False)  # noqa: SIM115
    code: object = 1
    try:
        if script:
            sys.path.insert(0, str(Path(script).parent))
            runpy.run_path(script, run_name="__main__")
        else:
            importlib.import_module(f"{package}.__main__").main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def stay_loaded() -> None:
    """A daemon that a verb starts, and what a script in front of ``ai_session`` ends in, is this process, as if it had
    executed the interpreter anew."""
    execute = os.execve

    def begin(path: str, line: Sequence[str], env: Mapping[str, str]) -> NoReturn:
        if path == sys.executable and (list(line[1:3]) == PROGRAM or list(line[1:4]) == DAEMON):
            become("ai_session", line, env)
        execute(path, line, env)

    os.execve = begin  # type: ignore[assignment]
    os.execv = lambda path, line: begin(path, line, dict(os.environ))  # type: ignore[assignment]


def run_once() -> None:
    """One run of ccswarm, of which nothing is left but what a process prepares once: for each program that is forked a
    sixth of what a run takes."""
    with tempfile.TemporaryDirectory(prefix="forked-", dir="/tmp") as home, chdir(home):
        os.environ["HOME"] = home
        Path("ccswarm.toml").write_text(PLAN)
        for words in (["trust", "--yes"], ["run"]):
            sys.argv = ["ccswarm", *words]
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                try:
                    importlib.import_module("ccswarm.__main__").main()
                except SystemExit as end:
                    if end.code:
                        raise
        del os.environ["HOME"]


def rehearse() -> None:
    """What each daemon would do when it is first called, which takes 20 ms: patterns and schemas are compiled."""
    from ai_session.config.settings import Settings
    from ai_session.daemon.app import installed_tools, make_masking

    for tool in installed_tools().values():
        tool.arguments.model_rebuild()
    with tempfile.TemporaryDirectory() as directory:
        masking = make_masking(Settings(), Path(directory))
        masking.learn({"A_TOKEN": "of nobody"})
        masking.masked("A_TOKEN=of nobody")


def use_large_pages() -> None:
    """Of what is loaded, so that a fork takes half the time: it copies an entry for each page. A kernel that has none
    goes on with small ones."""
    madvise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, rights, _, _, inode, *_ = line.split()
        first, last = (int(number, 16) for number in where.split("-"))
        first, last = -(-first // LARGE_PAGE) * LARGE_PAGE, last // LARGE_PAGE * LARGE_PAGE
        if rights == "rw-p" and inode == "0" and first < last:
            madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), MADV_COLLAPSE)


if __name__ == "__main__":
    gc.disable()  # until all is loaded, which stays
    package, link = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    loaded = [f"{package}.{name}" for name in WORKING.split()]
    if package == "ai_session":
        trees = [([str(ROOT / name)], f"{name}.") for name in ("agentwire", package)]
        loaded = [module.name for tree in trees for module in pkgutil.walk_packages(*tree)]
        stay_loaded()
        Holders(bytes.fromhex(sys.argv[3])).use()
    for name in (*loaded, *LATER[package]):
        importlib.import_module(name)
    if package == "ccswarm":
        run_once()
    else:
        rehearse()
    assert threading.active_count() == 1, "threads do not survive a fork"
    gc.freeze()
    gc.enable()
    use_large_pages()
    fork_programs(package, link)
