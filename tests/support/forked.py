"""Programs of this project in processes of their own, forked from one that has loaded them: a verb costs 10 ms instead
of 0.1 to 2 s, a daemon 50 instead of 500.

``python -m tests.support.forked PACKAGE FD`` is that process; there is one for each package, for all workers. Each
message on the socket ``FD`` requests one program and passes its three streams, a pipe for its pid and wait status, and
the terminal for a person's program. Tests of how a program starts execute it instead.
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
from tests.support.strangers import as_that_user

ROOT = Path(__file__).parents[2]
WORKING = """
__main__ brains.playbook.plugin cli.configured_servers cli.live_view cli.logs cli.main cli.mcp_server cli.plan
cli.run cli.serve cli.tools cli.watch cli.worker clients.mcp.connection clients.mcp.plugin
engines.dbos.engine engines.dbos.plugin plan.check runs.app runs.service
servers.a2a.agentvault.calls servers.a2a.plugin servers.a2a.standard.jsonrpc servers.mcp.dispatch servers.mcp.plugin
servers.visionflow.plugin
"""
"""The modules of ccswarm that import all that a verb, a worker and a server need; ai_session is loaded completely."""
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
        "encodings.idna",
        "typer._click.decorators",
        "uvicorn.lifespan.off",
        "uvicorn.protocols.http.h11_impl",
    ],
}
"""Modules that programs import at their first use; a terminal's screen alone takes 0.2 s."""
PLAN = f"""
[[mcp.servers]]
name = "small"
command = "{sys.executable}"
args = ["{ROOT / "tests/data/swarm_servers/plain.py"}"]
connect_seconds = {BOUND_SECONDS}
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
"""The room for a program's arguments and environment in /proc, by which programs are found."""
MESSAGE_BYTES = 1 << 17
NUMBER = struct.Struct("i")
END = struct.Struct("id")
"""The wait status, and the seconds for which the first thread waited for a processor."""
LARGE_PAGE = 1 << 21
MADV_COLLAPSE = 25
PATH = os.environ["PATH"]
"""PATH before any test, because a process whose environment names a test's home is ended with that test."""


PARENTS: list[subprocess.Popen[bytes]] = []
"""What ``parent`` started, kept also where its exit handlers are not, in a fork of this process."""


STARTER = os.getpid()
"""The process that was loaded before there were workers, or the only one."""


@cache
def parent(package: str, _starter: int, /) -> socket.socket:
    """Return the socket of the process that forks for all tests, so without a HOME. It ends with its starter.

    All workers share that of STARTER, from which they are forked; another one has a worker's pid as its starter.
    """
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

    PARENTS.append(process)

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class Forked:
    """A started program, with the used parts of ``subprocess.Popen``. Only the process that started it may wait."""

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
        descends: bool = False,
    ) -> None:
        """Start it on the three ``streams``, which the caller keeps, and in the terminal ``window`` if there is one.

        With ``script``, that file runs in an interpreter that has loaded the package. ``apart``: in a process group of
        its own. ``user``: as that user, who cannot read root's libraries, so the loaded modules must suffice.
        ``descends``: this process is its ancestor, also if it is a worker.
        """
        reported, tell = os.pipe()
        plan = {"words": list(words), "cwd": str(cwd), "env": dict(env), "script": script, "user": user, "apart": apart}
        fds = [*streams, tell, *([] if window is None else [window])]
        socket.send_fds(parent(package, os.getpid() if descends else STARTER), [json.dumps(plan).encode()], fds)
        os.close(tell)
        self._told: BinaryIO = open(reported, "rb", 0)  # noqa: SIM115
        self.pid: int = NUMBER.unpack(self._told.read(NUMBER.size))[0]
        self.stdin: BinaryIO | None = None
        self.stdout: BinaryIO | None = None
        self.stderr: BinaryIO | None = None
        self.returncode: int | None = None
        self.waited_seconds = 0.0
        self._waiting = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        # Its parent may have reaped it, and be about to say so.
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = BOUND_SECONDS) -> int:
        """Wait for the end and return the exit code, negative for a signal. Several threads may wait."""
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

    def communicate(self, given: bytes = b"", timeout: float = BOUND_SECONDS) -> tuple[bytes, bytes]:
        """Return all its output and errors, once it has ended. A program that reads gets ``given`` and then the end of
        its input. Raises TimeoutExpired."""
        if self.stdin:
            given_fd = os.dup(self.stdin.fileno())
            self.stdin.close()
            threading.Thread(target=feed, args=(given_fd, given)).start()
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
        """Give up waiting for it."""
        self._told.close()

    def close(self) -> None:
        """Kill it if it has not ended, and close its streams."""
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
    """Start a program with pipes for its output, its errors and, if it ``reads``, its input.

    With ``errors``, its errors are appended to that file. The other arguments are as in ``Forked``.
    """
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
    """Yield the slave of a terminal whose master this process holds, as a terminal program does."""
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
    user: int | None = None,
    descends: bool = False,
) -> tuple[int, bytes, bytes]:
    """Run a program and return its exit code, output and errors.

    Without ``given``, standard input is /dev/null. With ``typed``, a person runs it in a window, though its streams are
    not the terminal. ``descends`` is as in ``Forked``. If it does not end within ``seconds``, it is killed. Raises
    TimeoutExpired.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, ExitStack() as stack:
        reader, writer = os.pipe() if given is not None else (os.open(os.devnull, os.O_RDONLY), -1)
        terminal = stack.enter_context(window()) if typed else None
        streams = (reader, out.fileno(), err.fileno())
        program = Forked(
            package,
            words,
            cwd=cwd,
            env=env,
            streams=streams,
            window=terminal,
            script=script,
            user=user,
            descends=descends,
        )
        stack.callback(program.close)
        os.close(reader)
        if given is not None:
            feeding = threading.Thread(target=feed, args=(writer, given))
            feeding.start()
            stack.callback(feeding.join)
        return program.wait(seconds), contents(out), contents(err)


def daemon(env: Mapping[str, str]) -> None:
    """Start ai-session's daemon for the HOME in ``env`` if there is none. Its errors are left to the next client."""
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
    """A verb on a terminal of its own, used like a pexpect.spawn."""

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
        """Change the size of the terminal."""
        fcntl.ioctl(self.child_fd, termios.TIOCSWINSZ, struct.pack("4H", rows, cols, 0, 0))

    def wait(self) -> int:
        """Wait until the verb ends by itself and return its exit code."""
        self.exitstatus = code = self.program.wait(self._seconds)
        return code

    def close(self) -> None:
        """Hang up and wait for the end."""
        super().close()
        self.wait()

    def __del__(self) -> None:
        super().close()
        self.program.drop()


def feed(fd: int, data: bytes) -> None:
    """Write ``data`` and close ``fd``; stop if the reader closes its end."""
    try:
        with open(fd, "wb") as stream:
            stream.write(data)
    except BrokenPipeError:
        return


def contents(file: io.BufferedIOBase) -> bytes:
    file.seek(0)
    return file.read()


def fork_programs(package: str, link: socket.socket) -> None:
    """Fork programs until the other side ends, and send the pid of each at once and its wait status at its end."""
    running: dict[int, tuple[int, int]] = {}  # pidfd → pid, and the pipe for the wait status
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
                with suppress(BrokenPipeError):  # the test does not wait any more
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
    """Set the forked process up and run the program in it."""
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
        as_that_user(plan["user"])
        # Like a program that the user executes, it may be inspected by that user's other processes.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)
    os.chdir(plan["cwd"])
    become(package, [sys.executable, "-m", package, *plan["words"]], plan["env"], plan["script"])


def become(package: str, line: Sequence[str], env: Mapping[str, str], script: str = "") -> NoReturn:
    """Do what ``os.execve`` of this interpreter with a package or script would do, without loading it again."""
    # A start without a locale sets this variable.
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
    """Patch ``os.execve`` so that it runs ai-session's programs in this process instead of loading them again."""
    execute = os.execve

    def begin(path: str, line: Sequence[str], env: Mapping[str, str]) -> NoReturn:
        if path == sys.executable and (list(line[1:3]) == PROGRAM or list(line[1:4]) == DAEMON):
            become("ai_session", line, env)
        execute(path, line, env)

    os.execve = begin  # type: ignore[assignment]
    os.execv = lambda path, line: begin(path, line, dict(os.environ))  # type: ignore[assignment]


def run_once() -> None:
    """Carry out a run of ccswarm, to have done what a process prepares once: a sixth of the time of a run."""
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
    """Do what each daemon would do once: compile the patterns and schemas of its first call, which takes 20 ms, and
    draw a first screen, for which cffi parses the name of each type against all others: 300 ms."""
    from ai_session.config.settings import Settings
    from ai_session.daemon.app import installed_tools, make_masking
    from ai_session.terminal.screen import Screen

    for tool in installed_tools().values():
        tool.arguments.model_rebuild()
    with tempfile.TemporaryDirectory() as directory:
        masking = make_masking(Settings(), Path(directory))
        masking.learn({"A_TOKEN": "of nobody"})
        masking.masked("A_TOKEN=of nobody")
    screen = Screen(4, 4)
    for data in (b"\x1b[41m\x1b[K\r\n\x1b[48;2;1;2;3m\x1b[K\r\nfull", b"\x1b[?1049h"):
        screen.feed(data)
        screen.snapshot()
        screen.styled()
        screen.ansi()


def use_large_pages() -> None:
    """Move loaded memory to large pages: a fork copies an entry for each page, so it takes half the time.

    Has no effect on a kernel without large pages.
    """
    madvise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, rights, _, _, inode, *_ = line.split()
        first, last = (int(number, 16) for number in where.split("-"))
        first, last = -(-first // LARGE_PAGE) * LARGE_PAGE, last // LARGE_PAGE * LARGE_PAGE
        if rights == "rw-p" and inode == "0" and first < last:
            madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), MADV_COLLAPSE)


if __name__ == "__main__":
    gc.disable()  # until all is loaded, because that is never freed
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
    for thread in {*threading.enumerate()} - {threading.current_thread()}:
        thread.join(BOUND_SECONDS)  # the engine does not wait for the last of its own
    assert threading.active_count() == 1, "threads do not survive a fork"
    gc.freeze()
    gc.enable()
    use_large_pages()
    fork_programs(package, link)
