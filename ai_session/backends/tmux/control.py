"""Speaks tmux's control mode: one line out, one answer per command back. Knows nothing of terminals or sessions.

``ReplyParser`` is pure (bytes in, answers and notices out, any chunking); ``ControlClient`` is one ``tmux -C`` process.
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
    """tmux answered a command with an error; the message is tmux's own."""


class ControlClosed(BackendUnavailable):
    """The control client has ended; whether the command was carried out is unknown."""


def quote(word: bytes | str) -> bytes:
    """One word of a tmux command line that stands for exactly these bytes. NUL cannot be carried."""
    raw = os.fsencode(word) if isinstance(word, str) else word
    # latin-1 makes one character of each byte, so that str.translate can spell them: 20 MB/s.
    return b'"' + raw.decode("latin-1").translate(_WORD).encode("latin-1") + b'"'


def join(words: Sequence[str]) -> bytes:
    """A command line. As on tmux's own command line ``;`` separates commands and ``\\;`` stands for itself."""
    return b" ".join(b";" if word == ";" else quote(word[1:] if _SEMICOLON.fullmatch(word) else word) for word in words)


def literal(word: str) -> str:
    """The word that ``join`` takes for exactly this one."""
    return "\\" + word if word == ";" or _SEMICOLON.fullmatch(word) else word


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one command; ``own`` is False for what this client did not ask for (a hook, the start-up)."""

    ok: bool
    own: bool
    lines: list[bytes]


class ReplyParser:
    """Control-mode output in any chunking to Replies and notices (``bytes`` lines starting with ``%``)."""

    def __init__(self) -> None:
        self._rest = b""
        self._guard: bytes | None = None
        self._lines: list[bytes] = []
        self.minimum = 0

    def feed(self, data: bytes) -> Iterator[Reply | bytes]:
        """Yields what became complete. Setting ``minimum`` while iterating is about the block that comes next.

        A block's end is believed only after ``minimum`` lines: a captured screen may itself show a line that
        reads like an end mark.
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
    """One ``tmux -C`` process. Made by ``start``; once it has ended it stays ended."""

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
        """Runs ``argv`` (tmux in control mode) and returns when it is attached.

        Raises ControlClosed with tmux's complaint when it ends before that. ``on_closed`` is called once, when an
        attached client ends for whatever reason but ``close``.
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
        """Process id of the client (not of the server)."""
        assert self._transport is not None
        return self._transport.get_pid()

    def send(self, line: bytes, blocks: int = 1, *, counted: bool = False) -> asyncio.Future[Blocks]:
        """Writes one command line now; the future gives one list of lines per command.

        ``blocks`` is the number of commands in the line. With ``counted`` the first answer's first word is the number
        of lines the second has at least. The future raises TmuxRefused when a command failed (the rest of the line
        was then not run) and ControlClosed when the client ended first.
        """
        future: asyncio.Future[Blocks] = asyncio.get_running_loop().create_future()
        if self.closed or self._stdin is None:
            future.set_exception(ControlClosed("the tmux control client has ended"))
        else:
            self._pending.append(_Pending(future, blocks, counted))
            self._stdin.write(line + b"\n")
        return future

    async def close(self) -> None:
        """Ends the client and waits until its process is gone. The server and its terminals stay. Idempotent."""
        self.closed = True
        if self._transport is not None:
            if not self._exited.is_set():
                # Not through the transport, which would take the status from under asyncio's own watcher.
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
        # The process is gone and all pipes are at their end, so the complaint is complete.
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
    """Runs a plain tmux command; what it complained of, or an empty text when it was carried out."""
    process = await asyncio.create_subprocess_exec(
        *argv, env=dict(env), cwd="/", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, complaint = await process.communicate()
    return "" if process.returncode == 0 else complaint.decode("utf-8", "replace").strip() or "it ended without a word"


async def take_lock(path: str, *, shared: bool) -> int:
    """Waits for a lock on a file and gives the descriptor that holds it.

    tmux before 3.7 crashes if it has a message for a control client that is just attaching. So attaching one takes the
    lock exclusively, and creating sessions takes it shared.
    """
    waiting = asyncio.ensure_future(asyncio.to_thread(lock_file, path, shared=shared))
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        waiting.add_done_callback(lambda lock: lock.exception() or os.close(lock.result()))
        raise


def lock_file(path: str, *, shared: bool) -> int:
    """A descriptor that holds the lock. Blocks: call it on a worker thread."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    except BaseException:
        os.close(lock)
        raise
    return lock


def end_left_client(record: Path, socket_path: str) -> None:
    """Kills the control client of an earlier daemon that was killed.

    tmux never lets go of a control client whose output nobody reads, and does not end while there is one.
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


def listener(path: str) -> int:
    """Process id of who listens on a Unix socket; 0 when nobody does or the system does not say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.setblocking(False)
        probe.connect(path)
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(credentials[:4], sys.byteorder)
    return 0
