"""The host of the socket: one process per user, found by its socket, that serves every client of that user.

It answers a client's first lines before anything heavy is imported; sessions, tools and the gate start in a thread
meanwhile. It may crash at any moment: sessions live elsewhere, and the next daemon adopts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import json
import logging
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from agentwire import plugins
from ai_session import __version__
from ai_session.client import relay
from ai_session.client.resume import STOPPED
from ai_session.daemon import alone
from ai_session.errors import (
    AiSessionError,
    ConfigInvalid,
    DaemonUnavailable,
    Incompatible,
    InvalidArguments,
    SessionExists,
)
from ai_session.gate.consent import ancestry
from ai_session.models import Principal
from ai_session.servers.base import Connection, Server
from ai_session.system.runtime_directory import make_way, refusing_foreign
from ai_session.system.scheduling import take_short_turns

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from ai_session.daemon.app import App
    from ai_session.gate.gate import Gate

HELLO_BYTES = 4 << 20
"""Linux allows a program up to 2 MB of environment, which the hello contains."""

HELLO_SECONDS = 10.0
LEAVE_SECONDS = 10.0
FLUSH_SECONDS = 1.0
BACKLOG = 128
THREADS = 8
"""Started in advance: a session whose fork bomb leaves no room for another thread can still be ended."""

PROGRAM_SCOPES: dict[str, tuple[str, ...]] = {
    "look": ("sessions:read",),
    "type": ("sessions:write", "sessions:execute"),
    "approve": (),
}
"""The purposes that a connection may claim, with the scopes of a program that does so, as of a token. A connection that
claims none may do what its user may."""

ROLES = ("mcp", "fluxloop", "control", "front", "leave")
"""Roles that are answered before their server is loaded; any other is the name of a plug-in of ``servers/``."""

MakeApp = Callable[[Path], "tuple[App, float]"]

log = logging.getLogger(__name__)


class Daemon:
    """Serves connections on ``listener`` until it is stopped. Implements ``Host``."""

    def __init__(self, directory: Path, listener: socket.socket | None = None, make: MakeApp | None = None) -> None:
        self.directory = directory
        self._make = make or make_app
        self.app: App | None = None
        self._listener = listener
        self._connections: dict[asyncio.Task[Any], Connection] = {}
        self._servers: dict[str, Server] = {}
        self._starting: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._cleanup: asyncio.Task[None] | None = None
        self._start_error: AiSessionError | None = None
        self._leaving = asyncio.Event()
        # Without a listener no other process can reach the sessions, so they end with this one.
        self._end_sessions = listener is None
        self._idle_exit_seconds = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._born = time.monotonic()

    async def run(self, *, expected: bool = True) -> None:
        """Serve until ``stop``, SIGTERM or SIGINT, then leave within bounded time.

        ``expected``: a client is about to connect, whose first lines are answered before anything heavy. If not, a
        person watches this process, and what prevents the app from starting is raised.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, partial(self.stop, sessions=False))
        server = None
        if self._listener:
            server = await asyncio.start_unix_server(self.accept, sock=self._listener, limit=HELLO_BYTES)
        if not expected:
            self._watch_idleness()
        await self._leaving.wait()
        if server:
            server.close()
            (self.directory / "sock").unlink(missing_ok=True)
        await self._leave()
        if self._start_error and not expected:
            raise self._start_error

    async def gate(self) -> Gate:
        """Return the app's gate, starting the app if necessary. Raises what prevents it from starting."""
        if self.app is None:
            if self._starting is None or self._starting.done():
                self._starting = asyncio.create_task(self._start())
            await asyncio.shield(self._starting)
            assert self.app
        return self.app.gate

    @property
    def idle(self) -> bool:
        """Whether there is neither a connection nor a live session."""
        return not self._connections and not (self.app and self.app.busy)

    def status(self) -> dict[str, Any]:
        """Return facts about the daemon as plain JSON values."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "directory": str(self.directory),
            "uptime_seconds": round(time.monotonic() - self._born, 3),
            "connections": len(self._connections),
            "idle": self.idle,
        }

    def read_from(self) -> dict[str, Any]:
        """Return the files of the settings in force, as they were when they were read; empty before that."""
        return dict(self.app.read_from) if self.app else {}

    def stop(self, *, sessions: bool, asked: Collection[str] | None = None) -> list[str]:
        """Request the end of the process and return immediately. With ``sessions`` it ends them, too.

        Returns the names of those it ends. Raises SessionExists, and ends nothing, if there is one whose id is not
        among ``asked``.
        """
        ending = self.app.session_names() if sessions and self.app else {}
        if asked is not None and (others := [name for session_id, name in ending.items() if session_id not in asked]):
            raise SessionExists(f"{', '.join(others)}: opened meanwhile", suggestion="ai-session ls shows all sessions")
        self._end_sessions = self._end_sessions or sessions
        self._leaving.set()
        return list(ending.values())

    async def _start(self) -> None:
        try:
            asyncio.get_running_loop().set_default_executor(started_threads())
            await asyncio.to_thread(take_short_turns, os.getpid())
            with refusing_foreign(str(self.directory)):
                app, self._idle_exit_seconds = await asyncio.to_thread(self._make, self.directory)
                await app.start()
        except AiSessionError:
            raise
        except Exception as problem:
            log.exception("the daemon cannot start")
            raise DaemonUnavailable(
                f"the daemon cannot start: {type(problem).__name__}: {problem}",
                suggestion=f"see {self.directory}/daemon.log, or run: ai-session doctor",
            ) from problem
        self.app = app
        self._cleanup = asyncio.create_task(alone.end_abandoned())
        for connection in self._connections.values():
            _shorten_turns(connection)

    async def _leave(self) -> None:
        for task, connection in self._connections.items():
            if self._end_sessions and connection.hello.get("resumes"):
                connection.writer.write(STOPPED + b"\n")
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=LEAVE_SECONDS)
        if self._end_sessions and self._listener:
            # An earlier daemon may have left sessions; only an app that adopted them can end them.
            with contextlib.suppress(AiSessionError, TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self.gate()
        if self.app:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.app.stop(sessions=self._end_sessions)
        if self._cleanup:
            # Otherwise many short-lived daemons would begin the cleanup, and none would finish it.
            await asyncio.wait((self._cleanup,), timeout=LEAVE_SECONDS)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection from its hello to its end."""
        uid, pid = peer_credentials(writer.get_extra_info("socket"))
        try:
            if uid == os.getuid():
                await self._handshake(reader, writer, pid)
        except AiSessionError as error:
            facts = {"code": error.code, "message": error.message, "suggestion": error.suggestion}
            writer.write(json.dumps({"error": facts}).encode() + b"\n")
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            pass  # it disconnected, or sent no hello
        except asyncio.CancelledError:
            pass  # only _leave cancels, and asyncio logs a connection that ends cancelled as an error
        finally:
            writer.close()
            self._watch_idleness()

    async def _handshake(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pid: int | None) -> None:
        async with asyncio.timeout(HELLO_SECONDS):
            try:
                hello = parse_hello(await reader.readuntil(b"\n"))
            except asyncio.LimitOverrunError:
                raise InvalidArguments(f"the first line is longer than {HELLO_BYTES} bytes") from None
        if (role := hello["role"]) not in ROLES:
            try:
                await self._server(role)
            except ConfigInvalid:
                raise InvalidArguments(
                    f"no role {role[:40]!r}", suggestion="client and daemon may differ in version"
                ) from None
        facts: dict[str, Any] = {"ai_session": 1, "version": __version__, "pid": os.getpid(), "idle": self.idle}
        facts["protocol"] = relay.PROTOCOL
        if hello["scopes"] is not None:
            facts["scopes"] = hello["scopes"]
        writer.write(json.dumps(facts, separators=(",", ":")).encode() + b"\n")
        if hello["role"] == "leave":
            if self.idle:
                self.stop(sessions=False)
            return
        person = hello["role"] == "control" and not hello["client"]
        principal = Principal(
            kind="person" if person else "mcp",
            uid=os.getuid(),
            pid=pid,
            client=hello["client"],
            working_directory=hello["cwd"],
            env=hello["env"],
            scopes=_scopes(hello["scopes"], person=person),
            process=found.identity if pid and (found := ancestry.process(pid)) else "",
        )
        version = min(hello["protocol"][1], relay.PROTOCOL[1])
        await self._serve(Connection(reader, writer, principal, hello, self, version))

    async def _serve(self, connection: Connection) -> None:
        task = asyncio.current_task()
        assert task
        self._connections[task] = connection
        if self.app:
            _shorten_turns(connection)
        try:
            server = await self._server(connection.hello["role"])
            await server.serve(connection)
        finally:
            del self._connections[task]

    async def _server(self, role: str) -> Server:
        if role not in self._servers:
            self._servers[role] = await asyncio.to_thread(plugins.load, "ai_session.servers", role)
        return self._servers[role]

    def _watch_idleness(self) -> None:
        if self._idle_timer:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._connections or self._listener is None or self._leaving.is_set():
            return
        if self.app is None:
            self._settling = self._settling or asyncio.create_task(self._settle())
        elif self._idle_exit_seconds:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(self._idle_exit_seconds, self._leave_if_idle)

    async def _settle(self) -> None:
        """Load the settings, which contain how long to stay; a daemon that cannot start and has no client ends."""
        try:
            await self.gate()
        except AiSessionError as problem:
            if self.idle:
                self._start_error = problem
                self.stop(sessions=False)
        finally:
            self._settling = None
        if self.app:
            self._watch_idleness()

    def _leave_if_idle(self) -> None:
        if self.idle:
            self.stop(sessions=False)
        else:
            self._watch_idleness()


def _shorten_turns(connection: Connection) -> None:
    """Shorten the turns of a relay, which has no time to do this itself before its client's first request."""
    if connection.hello.get("resumes") and connection.principal.pid:
        take_short_turns(connection.principal.pid)


def parse_hello(line: bytes) -> dict[str, Any]:
    """Return the first line of a connection, checked. Raises InvalidArguments, Incompatible."""
    try:
        hello: dict[str, Any] = json.loads(line.decode(errors="surrogateescape"))
        found: dict[str, Any] = {"cwd": "", "env": {}, "client": "", "protocol": [1, 1], "scopes": None, **hello}
        oldest, newest = found["protocol"]
        scopes: list[Any] = [] if found["scopes"] is None else found["scopes"]
        texts: list[Any] = [
            *scopes,
            found["role"],
            found["cwd"],
            found["client"],
            *found["env"],
            *found["env"].values(),
        ]
        known = found["ai_session"] == 1 and type(scopes) is list and all(isinstance(text, str) for text in texts)
        fits = oldest <= relay.PROTOCOL[1] and newest >= relay.PROTOCOL[0]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found = {}
        known = False
        fits = False
        scopes = []
    if not known:
        raise InvalidArguments(
            "the first line is not a handshake of ai-session", suggestion="connect with ai-session itself"
        )
    if not fits:
        raise Incompatible(
            f"the client, {str(found.get('version'))[:40]}, speaks another protocol than the daemon, {__version__}",
            suggestion="run `ai-session daemon restart` of the version to be used; sessions keep running",
        )
    if unknown := [scope for scope in scopes if scope not in PROGRAM_SCOPES]:
        raise InvalidArguments(f"no scope {unknown[0][:40]!r}", suggestion=f"scopes are {', '.join(PROGRAM_SCOPES)}")
    return found


def _scopes(claimed: list[str] | None, *, person: bool) -> frozenset[str] | None:
    """Return the scopes of a connection that claims a purpose; a program's are those that the policy knows."""
    if claimed is None or person:
        return None if claimed is None else frozenset(claimed)
    return frozenset(scope for one in claimed for scope in PROGRAM_SCOPES[one])


def peer_credentials(peer: socket.socket) -> tuple[int, int | None]:
    """Return uid and pid of the process at the other end, as the kernel knows them."""
    if hasattr(socket, "SO_PEERCRED"):
        pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        return uid, pid
    # macOS: LOCAL_PEERCRED gives struct xucred {version, uid, …}, LOCAL_PEERPID an int.
    _, uid = struct.unpack_from("2I", peer.getsockopt(0, 1, 128))
    return uid, struct.unpack("i", peer.getsockopt(0, 2, 4))[0]


def main(arguments: list[str]) -> NoReturn:
    """Run `ai-session daemon run` in the foreground, or with a client's socket and lock as descriptors 3 and 4."""
    if arguments[:1] == ["--handed"]:
        directory, listener = Path(arguments[1]), socket.socket(fileno=3)
        for fd in (3, 4):
            os.set_inheritable(fd, False)
    else:
        try:
            directory, listener = listen()
        except AiSessionError as error:
            sys.exit(f"ai-session: {error.message}; {error.suggestion}")
        relay.warn(f"serving on {directory}/sock")
    run_and_leave(Daemon(directory, listener).run(expected=arguments[:1] == ["--handed"]))


def serve_stdio(make: MakeApp | None = None, role: str = "mcp", more: str = "") -> NoReturn:
    """Run `ai-session mcp-server --stdio --no-daemon`: one client, in this process; its sessions end with it.

    ``role`` and ``more`` are the content of its hello, as for relay.connect.
    """
    # Children must neither read the client's bytes nor write between ours.
    source, target = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    directory = alone.new()
    converse = partial(relay.converse, source=source, target=target, role=role, more=more)
    run_and_leave(_serve_one(Daemon(directory, None, make), converse), partial(remove, directory))


def started_threads() -> ThreadPoolExecutor:
    """Return an executor whose THREADS all run already; it never starts another."""
    from concurrent.futures import ThreadPoolExecutor

    pool, barrier = ThreadPoolExecutor(THREADS, "work"), threading.Barrier(THREADS)
    for _ in range(THREADS):
        pool.submit(barrier.wait)
    return pool


def remove(directory: Path) -> None:
    """Remove a directory in which an app that still starts may create files: it does not know the new name."""
    import shutil

    with contextlib.suppress(OSError):
        shutil.rmtree(directory.rename(f"{directory}.gone"))


async def _serve_one(daemon: Daemon, converse: Callable[[socket.socket], int]) -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours, limit=HELLO_BYTES)
    pumping = asyncio.get_running_loop().run_in_executor(None, converse, theirs)
    serving = asyncio.create_task(daemon.accept(reader, writer))
    serving.add_done_callback(lambda _: daemon.stop(sessions=True))
    await daemon.run()
    await asyncio.wait({pumping}, timeout=FLUSH_SECONDS)


def listen() -> tuple[Path, socket.socket]:
    """Return the directory and a new socket of a daemon that no client started; the lock stays held."""
    from ai_session.config import config

    directory = config.runtime_directory(config.home_directory(), os.getuid())
    turn = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)  # a client that wants to start a daemon waits, then finds the socket
        with refusing_foreign(str(directory)):
            lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DaemonUnavailable("a daemon runs already", suggestion="ai-session daemon status") from None
        relay.write_pid(lock)
        path = make_way(str(directory))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(BACKLOG)
    finally:
        os.close(turn)
    return directory, listener


def make_app(directory: Path) -> tuple[App, float]:
    """Return the app, and the seconds of idleness after which the daemon ends. Raises ConfigInvalid."""
    gc.disable()
    try:
        from ai_session.config import config
        from ai_session.daemon.app import App
        from ai_session.gate.policy import administrator

        read_from = {str(path): config.stamp(path) for path in (config.default_path(), administrator.FILE)}
        settings = config.load()
        return App(settings, directory, administrator.read(), read_from), settings.daemon.idle_exit_seconds
    finally:
        # All that was imported stays. A collection would search it now, for 25 ms.
        gc.freeze()
        gc.enable()


def run_and_leave(work: Coroutine[Any, Any, None], clean: Callable[[], None] | None = None) -> NoReturn:
    """Run ``work``, then exit immediately: tearing the interpreter down would keep clients waiting for 150 ms."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # The first answers share the interpreter with imports in a thread; the default, 5 ms, would delay each by as much.
    sys.setswitchinterval(0.001)

    async def run() -> None:
        status = 1
        try:
            await work
            status = 0
        except AiSessionError as error:
            relay.warn(f"{error.message}; {error.suggestion}")
        except Exception:
            log.exception("the daemon ends")
        finally:
            if clean:
                clean()
            os._exit(status)

    asyncio.run(run())
    raise AssertionError
