"""The relay between stdio and the daemon's socket: `ai-session mcp-server --stdio`, and how clients find the daemon.

Standard library only: every MCP client starts one and waits for it. Neither ends with the other: a daemon that ends
during a conversation is replaced, and the new one gets the state of the conversation (``resume``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

from agentwire.system import inherited_signals
from ai_session import __version__
from ai_session.system import runtime_directory

PROTOCOL = (1, 2)
"""The oldest and the newest protocol of the socket that this version supports; mere additions do not change it."""

MOST_TRIES = 5
"""How often in a row a daemon may end before it has answered, as when one is killed while it starts."""

HELLO_SECONDS = 20.0
"""A daemon answers in a millisecond, a starting one in a tenth of a second; this allows for a machine under load."""

LOG_BYTES = 1 << 20
READ_BYTES = 1 << 16
PIPE_BYTES = select.PIPE_BUF
"""A write of this size does not block after POLLOUT; standard output may be a blocking pipe that is read slowly."""

ESCAPES = {code: f"\\u{code:04x}" for code in range(32)} | {0x22: '\\"', 0x5C: "\\\\"}

PASSED_NAMES = {"HOME", "PATH", "SHELL", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH"}
PASSED_PREFIXES = ("LC_", "PYTHON", "AI_SESSION_", "OTEL_", "DYLD_")
"""Variables that the daemon gets from the client that starts it; sessions get those in their client's hello."""

REMOVED = ("AI_SESSION_ID", "AI_SESSION_NAME")
"""Otherwise the daemon would be ended with the session in which it was started."""

ADDED = {"PYDANTIC_DISABLE_PLUGINS": "__all__"}
"""The daemon imports no other package's plug-in, nor searches for any, which would read every installed package."""


class Unreachable(Exception):
    """No daemon responds and none could be started. ``code`` is that of the corresponding AiSessionError."""

    def __init__(self, message: str, suggestion: str, code: str = "daemon_unavailable") -> None:
        super().__init__(f"{message}; {suggestion}")
        self.message = message
        self.suggestion = suggestion
        self.code = code


class NotRunning(Unreachable):
    """No daemon runs, and none was to be started."""


def main(role: str = "mcp", more: str = "") -> NoReturn:
    """Relay standard input and output in ``role`` until either side ends: status 0 after the client, else 1."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    try:
        if role != "mcp":
            os._exit(pump(_connect(role, more), 0, 1))
        from ai_session.client.resume import RESUMES, Conversation

        dial = partial(_connect, role, more + RESUMES)
        os._exit(Conversation(dial(), 0, 1, dial, Unreachable, warn).run())
    except Unreachable as error:
        warn(str(error))
        os._exit(1)


def _connect(role: str, more: str) -> socket.socket:
    link = connect(role, more=more)
    link.recv(READ_BYTES)  # the daemon's answer; it sends nothing else before the client does
    return link


def converse(link: socket.socket, source: int, target: int, role: str = "mcp", more: str = "") -> int:
    """Send the hello to the daemon at the other end of ``link``, then relay for a client on these descriptors."""
    _greet(link, role, more)
    link.recv(READ_BYTES)
    return pump(link, source, target)


def _leave(*_: object) -> NoReturn:
    os._exit(0)


def warn(text: str) -> None:
    """Print a line on standard error, or drop it if it is not read: two clients never do, and must not block us."""
    with contextlib.suppress(OSError):
        if _writable(2):
            os.write(2, f"ai-session: {text}\n".encode(errors="replace")[:PIPE_BYTES])


def connect(role: str, *, start: bool = True, more: str = "") -> socket.socket:
    """Return a connection whose hello is sent, and whose first line, the daemon's answer, is still to be read.

    Starts a daemon if there is none and ``start``. An idle daemon of an older version is replaced by one of this
    version; any other is used if both support a common protocol. ``more`` is added to the hello as it is. Raises
    Unreachable.
    """
    replaced = False
    tries = MOST_TRIES
    while True:
        link = _dial_any() or (_start() if start else None)
        if link is None and not start:
            raise NotRunning("no daemon is running", "start one: ai-session daemon start")
        answer = _greet(link, role, more) if link else b""
        if link is None or not answer.endswith(b"\n"):
            if link:
                link.close()
            tries -= 1  # it was ending when we connected, or it was killed
            if not tries:
                raise Unreachable("the daemon ended before it answered", _last_log_line())
            continue
        if answer.startswith(b'{"ai_session":1,"version":"%b",' % __version__.encode()):
            return link
        try:
            facts = _parse(answer, link.getpeername())
            outdated = start and facts.get("idle") and not replaced and _older(str(facts.get("version")), __version__)
            if not outdated:
                _check_protocol(facts)
                return link
        except Unreachable:
            link.close()
            raise
        replaced = True
        link.close()
        _end_idle_daemon()


def _older(version: str, than: str) -> bool:
    return _numbers(version) < _numbers(than)


def _numbers(version: str) -> list[int]:
    parts = version.split(".")
    return [int(part) if part.isdecimal() else 0 for part in parts]


def _check_protocol(facts: Mapping[str, Any]) -> None:
    oldest, newest = facts.get("protocol", (1, 1))
    if oldest > PROTOCOL[1] or newest < PROTOCOL[0]:
        raise Unreachable(
            f"the daemon (pid {facts.get('pid')}) is version {facts.get('version')} and speaks another protocol than "
            f"this one, {__version__}",
            "replace it: ai-session daemon restart; sessions keep running",
            "incompatible",
        )


def pump(link: socket.socket, source: int, target: int) -> int:
    """Copy bytes both ways, with no direction blocking the other, until one side ends; return the exit status."""
    link.setblocking(False)
    inward = _Flow(source, link.fileno(), READ_BYTES)
    outward = _Flow(link.fileno(), target, PIPE_BYTES)
    flows = (inward, outward)
    while outward.open or outward.pending:
        wanted = {target: 0}
        for flow in flows:
            if flow.pending:
                wanted[flow.target] = wanted.get(flow.target, 0) | select.POLLOUT
            elif flow.open:
                wanted[flow.source] = wanted.get(flow.source, 0) | select.POLLIN
        ready = select.poll()
        for fd, events in wanted.items():
            ready.register(fd, events)
        for fd, events in ready.poll():
            if fd == target and events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                return 0
            for flow in flows:
                if fd == (flow.target if flow.pending else flow.source):
                    flow.move()
        if not inward.open and not inward.pending:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_WR)
    if inward.open:
        warn("the daemon has ended; sessions stay alive, start the server again")
    return int(inward.open)


class _Flow:
    """Bytes from one descriptor to another; ``pending`` ones could not be written yet, and stop the reading."""

    def __init__(self, source: int, target: int, piece: int) -> None:
        self.source = source
        self.target = target
        self.piece = piece
        self.open = True
        self.pending = b""

    def move(self) -> None:
        """Read unless bytes are pending, and write what does not block."""
        if not self.pending:
            try:
                self.pending = os.read(self.source, READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                pass  # a reset, a terminal that hung up, a directory: nothing will follow
            self.open = bool(self.pending)
        try:
            while self.pending and _writable(self.target):
                self.pending = self.pending[os.write(self.target, self.pending[: self.piece]) :]
        except BlockingIOError:
            return
        except OSError:
            self.pending = b""  # its reader has closed it, as the descriptor's next event reports


def directories() -> Iterator[str]:
    """Yield where the socket may be, best first."""
    yield from runtime_directory.candidates(runtime_directory.home(os.environ), os.getuid())


def _writable(fd: int) -> bool:
    ready = select.poll()
    ready.register(fd, select.POLLOUT)
    return any(events & (select.POLLOUT | select.POLLERR) for _, events in ready.poll(0))


def _dial_any() -> socket.socket | None:
    with _usable():
        for directory in directories():
            if runtime_directory.is_there(directory, os.getuid()) and (link := _dial(directory)):
                return link
    return None


def _dial(directory: str) -> socket.socket | None:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.connect(os.path.join(directory, "sock"))
    except (FileNotFoundError, ConnectionRefusedError):
        link.close()
        return None
    return link


@contextlib.contextmanager
def _usable() -> Generator[None]:
    try:
        yield
    except Exception as error:
        from ai_session.errors import RuntimeDirectoryUnsafe  # 1 ms

        if not isinstance(error, RuntimeDirectoryUnsafe):
            raise
        raise Unreachable(error.message, error.suggestion, error.code) from None


def _greet(link: socket.socket, role: str, more: str = "") -> bytes:
    """Send the hello and return the answer, which is not consumed; empty if the daemon disconnected."""
    link.settimeout(HELLO_SECONDS)
    try:
        link.sendall(_hello(role, more))
        answer = link.recv(READ_BYTES, socket.MSG_PEEK)
    except TimeoutError:
        raise Unreachable(f"the daemon does not answer within {HELLO_SECONDS:g} s", _way_to_end_it()) from None
    except OSError:
        return b""
    link.settimeout(None)
    return answer


def _hello(role: str, more: str) -> bytes:
    """Return the hello. Bytes of the environment that are not text stay as they are, for surrogateescape."""
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = ""  # deleted, or not accessible
    env = ",".join(f"{_quoted(name)}:{_quoted(value)}" for name, value in os.environ.items())
    line = f'{{"ai_session":1,"protocol":[{PROTOCOL[0]},{PROTOCOL[1]}],"role":"{role}","version":"{__version__}"'
    line = f'{line},"cwd":{_quoted(cwd)}'
    return f'{line},"env":{{{env}}},"pid":{os.getpid()}{more}}}\n'.encode(errors="surrogateescape")


def _quoted(text: str) -> str:
    # json costs 6 ms to import, a third of a warm start.
    return f'"{text.translate(ESCAPES)}"'


def _parse(answer: bytes, path: str) -> Mapping[str, Any]:
    import json

    try:
        facts = json.loads(answer)
        error = facts.get("error")
    except (ValueError, AttributeError):
        raise Unreachable(
            f"what listens at {path} is not a daemon, it answered {answer[:60]!r}",
            "end that program, or remove the socket",
        ) from None
    if error:
        raise Unreachable(str(error.get("message")), str(error.get("suggestion")), str(error.get("code")))
    return facts


def write_pid(lock: int) -> None:
    """Write this process's id, the daemon's, into the file that it keeps locked."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)


def _way_to_end_it() -> str:
    for directory in directories():
        with contextlib.suppress(FileNotFoundError, ValueError), open(os.path.join(directory, "lock"), "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return f"kill -9 {int(lock.read(20))} ends it, sessions keep running; {_last_log_line()}"
    return _last_log_line()


def _last_log_line() -> str:
    for directory in directories():
        path = os.path.join(directory, "daemon.log")
        with contextlib.suppress(OSError), open(path, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 2000))
            if lines := log.read().decode(errors="replace").split("\n")[:-1]:
                return f"the last line of {path} is: {lines[-1]}"
    return "its log is empty; ai-session doctor looks for the cause"


def _end_idle_daemon() -> None:
    """Wait until the idle daemon has ended; it stays if another client uses it now."""
    if link := _dial_any():
        with contextlib.suppress(OSError, Unreachable):
            _greet(link, "leave")
            link.settimeout(HELLO_SECONDS)
            while link.recv(READ_BYTES):
                pass
        link.close()


def _start() -> socket.socket | None:
    """Return a connection to the daemon that this call, or another process meanwhile, started; None if it has ended.

    The socket is bound here and passed on with the lock that the daemon holds while it runs, so that clients can
    connect before it runs, and there is never a second one. This waits for a daemon that is ending: its lock ends with
    it.
    """
    with _usable():
        directory = runtime_directory.usable(runtime_directory.home(os.environ), os.getuid())
        try:
            with runtime_directory.refusing_foreign(directory):
                return _start_in(directory)
        except OSError as error:
            raise Unreachable(f"the daemon cannot be started: {error}", f"see {directory}/daemon.log") from None


def _start_in(directory: str) -> socket.socket | None:
    with (
        _opened(directory, os.O_RDONLY) as turn,
        _opened(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT) as lock,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        with _time_limit(HELLO_SECONDS):
            fcntl.flock(turn, fcntl.LOCK_EX)
            if link := _dial(directory):
                return link
            fcntl.flock(lock, fcntl.LOCK_EX)
        env = _passed()
        path = runtime_directory.make_way(directory)
        log_path = os.path.join(directory, "daemon.log")
        with contextlib.suppress(OSError):
            if os.stat(log_path).st_size > LOG_BYTES:
                os.replace(log_path, log_path + ".old")
        with _opened(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as log:
            listener.bind(path)
            os.chmod(path, 0o600)
            listener.listen(128)
            _spawn(directory, listener.fileno(), lock, log, env)
        return _dial(directory)


def _passed() -> dict[str, str]:
    """Return the daemon's environment, whose paths count from here. Raises Unreachable if that of the configuration
    cannot, because the current directory has been removed."""
    passed = {n for n in os.environ if n in PASSED_NAMES or n.startswith(PASSED_PREFIXES)}
    env = {n: os.environ[n] for n in passed.difference(REMOVED)} | ADDED
    if "PYTHONPATH" in env:
        env["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in env["PYTHONPATH"].split(os.pathsep))
    if named := env.get("AI_SESSION_CONFIG"):
        try:
            env["AI_SESSION_CONFIG"] = os.path.abspath(named)
        except FileNotFoundError:
            raise Unreachable(
                f"AI_SESSION_CONFIG is {named!r}, relative to the directory you are in, which no longer exists",
                "cd, or set it to an absolute path",
                "config_invalid",
            ) from None
    return env


@contextlib.contextmanager
def _opened(path: str, flags: int) -> Generator[int]:
    fd = os.open(path, flags, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _time_limit(seconds: float) -> Generator[None]:
    def expire(*_: object) -> NoReturn:
        raise TimeoutError("another daemon holds the lock and does not answer")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _spawn(directory: str, listener: int, lock: int, log: int, env: Mapping[str, str]) -> None:
    """Start the daemon in its own process session, not as our child and with none of our descriptors.

    Several clients kill the process group or the whole tree of their server.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _become_daemon(directory, listener, lock, log, env)
    finally:
        os._exit(0)


def _become_daemon(directory: str, listener: int, lock: int, log: int, env: Mapping[str, str]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    inherited = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (null, log, log, listener, lock)]
    for fd, source in enumerate(inherited):
        os.dup2(source, fd)
    for name in os.listdir("/dev/fd"):
        if int(name) >= len(inherited):
            with contextlib.suppress(OSError):
                os.close(int(name))
    write_pid(4)
    inherited_signals.reset()
    os.chdir("/")
    # -P: the client's directory must not decide what `import json` means.
    os.execve(sys.executable, [sys.executable, "-P", "-m", "ai_session", "daemon", "run", "--handed", directory], env)
