"""A client of tmux's control mode, which answers each command line with one block per command.

``ReplyParser`` is pure (bytes in, replies and notices out, any chunking); ``ControlClient`` is one ``tmux -C`` process.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from ai_session.errors import BackendUnavailable

Blocks = list[list[bytes]]

_PLAIN = frozenset(b" !#%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}")
_SEMICOLON = re.compile(r"\\+;")
_WORD = {code: chr(code) if code in _PLAIN else f"\\{code:03o}" for code in range(256)}


class TmuxRefused(BackendUnavailable):
    """tmux answered a command with an error; the message is tmux's."""


class ControlClosed(BackendUnavailable):
    """The control client has ended; whether the command was carried out is unknown."""


def quote(word: bytes | str) -> bytes:
    """Return one word of a tmux command line that stands for exactly these bytes. NUL cannot be expressed."""
    raw = os.fsencode(word) if isinstance(word, str) else word
    # latin-1 maps each byte to one character, so that str.translate can escape them: 20 MB/s.
    return b'"' + raw.decode("latin-1").translate(_WORD).encode("latin-1") + b'"'


def join(words: Sequence[str]) -> bytes:
    """Return a command line. As on tmux's own, ``;`` separates commands and ``\\;`` stands for a semicolon."""
    return b" ".join(b";" if word == ";" else quote(word[1:] if _SEMICOLON.fullmatch(word) else word) for word in words)


def literal(word: str) -> str:
    """Escape a word so that ``join`` passes on exactly this one."""
    return "\\" + word if word == ";" or _SEMICOLON.fullmatch(word) else word


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to one command; ``own`` is false if this client did not send the command (a hook, the start-up)."""

    ok: bool
    own: bool
    lines: list[bytes]


class ReplyParser:
    """The parser of control-mode output, which gives Replies and notices (``bytes`` lines that begin with ``%``)."""

    def __init__(self) -> None:
        self._rest = b""
        self._guard: bytes | None = None
        self._lines: list[bytes] = []
        self.minimum = 0

    def feed(self, data: bytes) -> Iterator[Reply | bytes]:
        """Yield what is complete now. Set ``minimum`` while iterating to apply it to the next block.

        An end mark counts only after ``minimum`` lines, because a captured screen may show a line that looks like one.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._guard is None:
                if line.startswith(b"%begin "):
                    self._guard = line[7:]
                    self._lines = []
                elif line.startswith(b"%"):
                    yield line
            elif line in (b"%end " + self._guard, b"%error " + self._guard) and len(self._lines) >= self.minimum:
                reply = Reply(line.startswith(b"%end"), self._guard.endswith(b" 1"), self._lines)
                self._guard = None
                self._lines = []
                self.minimum = 0
                yield reply
            else:
                self._lines.append(line)


@dataclass(slots=True)
class _Pending:
    future: asyncio.Future[Blocks]
    blocks: int
    counted: bool
    done: Blocks = field(default_factory=list[list[bytes]])


class ControlClient(asyncio.SubprocessProtocol):
    """One ``tmux -C`` process, created by ``start``. Once it has ended, a new client is needed."""

    def __init__(self, on_notice: Callable[[bytes], None], on_closed: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._on_notice = on_notice
        self._on_closed = on_closed
        self._parser = ReplyParser()
        self._pending: deque[_Pending] = deque()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._exited = asyncio.Event()
        self._complaint = b""
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self.closed = False

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        on_notice: Callable[[bytes], None] = lambda line: None,
        on_closed: Callable[[], None] = lambda: None,
    ) -> ControlClient:
        """Run ``argv`` (tmux in control mode) and return the client once it is attached.

        Raises ControlClosed with tmux's error message if it ends before that. ``on_closed`` is called once, when an
        attached client ends other than by ``close``.
        """
        loop = asyncio.get_running_loop()
        # Its own process session: a Ctrl-C at the daemon's terminal must not reach it.
        _, client = await loop.subprocess_exec(
            lambda: cls(on_notice, on_closed), *argv, env=dict(env), cwd="/", start_new_session=True
        )
        try:
            await client._ready
        except BaseException:
            await client.close()
            raise
        return client

    @property
    def pid(self) -> int:
        """The process id of the client (not of the server)."""
        assert self._transport is not None
        return self._transport.get_pid()

    def send(self, line: bytes, blocks: int = 1, *, counted: bool = False) -> asyncio.Future[Blocks]:
        """Write one command line now. The future's result is one list of lines per command.

        ``blocks`` is the number of commands in the line. With ``counted``, the first reply's first word is the least
        number of lines of the second. The future raises TmuxRefused if a command failed (the rest of the line was not
        run) and ControlClosed if the client ended first.
        """
        future: asyncio.Future[Blocks] = asyncio.get_running_loop().create_future()
        if self.closed or self._stdin is None:
            future.set_exception(ControlClosed("the tmux control client has ended"))
        else:
            self._pending.append(_Pending(future, blocks, counted))
            self._stdin.write(line + b"\n")
        return future

    async def close(self) -> None:
        """End the client and wait until its process has ended; the server and its terminals remain. Idempotent."""
        self.closed = True
        if self._transport is not None:
            if not self._exited.is_set():
                # Not through the transport, which would reap the process before asyncio's own watcher.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            await self._exited.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        data = cast("bytes", data)
        if fd == 2:
            self._complaint = (self._complaint + data)[-2000:]
            return
        for event in self._parser.feed(data):
            if isinstance(event, bytes):
                self._on_notice(event)
            elif event.own:
                self._answer(event)
            elif not self._ready.done():
                self._attached(event)

    def _attached(self, reply: Reply) -> None:
        if reply.ok:
            self._ready.set_result(None)
        else:
            self._complaint = b"\n".join(reply.lines)

    def _answer(self, reply: Reply) -> None:
        if not self._pending:
            return
        pending = self._pending[0]
        pending.done.append(reply.lines)
        if reply.ok and len(pending.done) < pending.blocks:
            if pending.counted and len(pending.done) == 1:
                self._parser.minimum = int(reply.lines[0].split()[0])
            return
        self._pending.popleft()
        if pending.future.done():
            return
        if reply.ok:
            pending.future.set_result(pending.done)
        else:
            pending.future.set_exception(TmuxRefused(b" ".join(reply.lines).decode("utf-8", "replace")))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._ended()

    def connection_lost(self, exc: Exception | None) -> None:
        # The process has ended and all pipes are at their end, so the complaint is complete.
        self._exited.set()
        self._ended()
        if self._transport is not None:
            self._transport.close()
        if not self._ready.done():
            self._ready.set_exception(ControlClosed(self._complaint.decode("utf-8", "replace").strip()))

    def _ended(self) -> None:
        attached = self._ready.done() and not self._ready.cancelled()
        expected = self.closed
        self.closed = True
        while self._pending:
            future = self._pending.popleft().future
            if not future.done():
                future.set_exception(ControlClosed("the tmux control client has ended"))
        if attached and not expected:
            self._on_closed()


async def complaint_of(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Run a plain tmux command and return its error message, which is empty if the command succeeded."""
    process = await asyncio.create_subprocess_exec(
        *argv, env=dict(env), cwd="/", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, complaint = await process.communicate()
    return (
        "" if process.returncode == 0 else complaint.decode("utf-8", "replace").strip() or "it ended without a message"
    )


async def take_lock(path: str, *, shared: bool) -> int:
    """Wait for a lock on a file and return the descriptor that holds it.

    tmux before 3.7 crashes if it has a message for a control client that is just attaching. So attaching a client takes
    the lock exclusively, and creating sessions takes it shared.
    """
    waiting = asyncio.ensure_future(asyncio.to_thread(lock_file, path, shared=shared))
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        waiting.add_done_callback(lambda lock: lock.exception() or os.close(lock.result()))
        raise


def lock_file(path: str, *, shared: bool) -> int:
    """Return a descriptor that holds the lock. Blocks: call it on a worker thread."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    except BaseException:
        os.close(lock)
        raise
    return lock


def kill_orphaned_client(record: Path, socket_path: str) -> None:
    """Kill the control client of an earlier daemon that was killed.

    tmux never disconnects a control client whose output is not read, and does not end while there is one.
    """
    with contextlib.suppress(OSError, ValueError):
        client, daemon = map(int, record.read_text().split())
        command = Path(f"/proc/{client}/cmdline").read_bytes().split(b"\0")
        if b"-C" in command and os.fsencode(socket_path) in command and not is_alive(daemon):
            os.kill(client, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def listener_pid(path: str) -> int:
    """Return the id of the process that listens on a Unix socket; 0 if none does or the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.setblocking(False)
        probe.connect(path)
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(credentials[:4], sys.byteorder)
    return 0
