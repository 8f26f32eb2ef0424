"""The client of a runtime directory's holder, which it also starts. ``holder`` describes the protocol."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ai_session.backends.pty.channel import PROTOCOL, Channel, Message
from ai_session.errors import AiSessionError, BackendUnavailable, DirectoryUnusable, TerminalsExhausted
from ai_session.models import TerminalSpec

START_SECONDS = 10.0
LEASE_SECONDS = 10.0
ANSWER_SECONDS = 10.0
ATTEMPTS = 3

Reply = tuple[Message, list[int]]


class HolderLost(Exception):
    """The connection closed before the response arrived."""


class HolderLink:
    """The connection to the holder, on which requests are sent and replies and events arrive."""

    def __init__(
        self, sock: socket.socket, on_event: Callable[[Message], None], on_lost: Callable[[HolderLink], None]
    ) -> None:
        self._channel = Channel(sock)
        self._fd = sock.fileno()
        self._on_event = on_event
        self._on_lost = on_lost
        self._pending: dict[int, asyncio.Future[Reply]] = {}
        self._count = 0
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._receive)

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def request(self, op: str, fds: Sequence[int] = (), **fields: Any) -> asyncio.Future[Reply]:
        """Send a request now and return the future of its reply, which raises HolderLost if the connection closes."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        if self._fd < 0:
            future.set_exception(HolderLost())
            return future
        self._count += 1
        self._pending[self._count] = future
        try:
            if not self._channel.send({"n": self._count, "op": op, **fields}, fds):
                self._loop.add_writer(self._fd, self._send)
        except OSError:
            self._lose()
        return future

    async def ask(self, op: str, fds: Sequence[int] = (), **fields: Any) -> Reply:
        """Send a request and return its reply. Raises BackendUnavailable after ANSWER_SECONDS, or HolderLost."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self.request(op, fds, **fields)
        except TimeoutError:
            raise unreachable(f"no answer within {ANSWER_SECONDS:.0f} s") from None

    async def spawn(self, fields: Message) -> Reply:
        """Call ``spawn`` as ``ask`` does; a terminal whose caller was cancelled or gave up waiting is freed."""

        def undo(done: asyncio.Future[Reply]) -> None:
            close_descriptors(done)
            if done.exception() is None and "error" not in done.result()[0]:
                self.notify("free", id=fields["id"])

        future = self.request("spawn", **fields)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(undo)
            raise
        except TimeoutError:
            future.add_done_callback(undo)
            raise unreachable(f"no answer within {ANSWER_SECONDS:.0f} s") from None

    def notify(self, op: str, **fields: Any) -> asyncio.Future[Reply]:
        """Send a request whose reply does not matter. The future may be awaited; descriptors in it are closed."""
        future = self.request(op, **fields)
        future.add_done_callback(close_descriptors)
        return future

    def _send(self) -> None:
        try:
            if self._channel.flush():
                self._loop.remove_writer(self._fd)
        except OSError:
            self._lose()

    def _receive(self) -> None:
        try:
            messages = self._channel.receive()
        except (OSError, EOFError, ValueError):
            self._lose()
            return
        for message, fds in messages:
            future = self._pending.pop(message.get("n", 0), None)
            if future is None:
                self._on_event(message)
            elif not future.done():
                future.set_result((message, fds))
            else:
                for fd in fds:
                    os.close(fd)
                if fds:
                    self.notify("release", id=message["id"])

    def _lose(self) -> None:
        if self._fd >= 0:
            self.close()
            self._on_lost(self)

    def close(self) -> None:
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._fd = -1
        self._channel.close()
        pending = self._pending
        self._pending = {}
        for future in pending.values():
            if not future.done():
                future.set_exception(HolderLost())


def close_descriptors(future: asyncio.Future[Reply]) -> None:
    if not future.cancelled() and future.exception() is None:
        for fd in future.result()[1]:
            os.close(fd)


def is_alive(directory: Path) -> bool:
    """Report whether a holder listens in ``directory``. Raises TerminalsExhausted, BackendUnavailable."""
    sock = _dial(directory)
    if sock is not None:
        sock.close()
    return sock is not None


async def lease(
    directory: Path, on_event: Callable[[Message], None], on_lost: Callable[[HolderLink], None]
) -> HolderLink:
    """Return a link that owns the terminals of ``directory``, starting a holder if there is none.

    Waits up to LEASE_SECONDS for another owner to disconnect. Raises BackendUnavailable, TerminalsExhausted.
    """
    for _ in range(ATTEMPTS):
        sock = _dial(directory)
        if sock is None:
            await _start_holder(directory)
            sock = _dial(directory)
        if sock is None:
            continue
        link = HolderLink(sock, on_event, on_lost)
        try:
            async with asyncio.timeout(LEASE_SECONDS):
                await link.request("own", protocol=PROTOCOL)
        except HolderLost:
            continue
        except TimeoutError:
            link.close()
            raise unreachable("another process uses the terminals, or the holder is stopped") from None
        except asyncio.CancelledError:
            link.close()
            raise
        return link
    raise unreachable("it ends right after its start")


def _dial(directory: Path) -> socket.socket | None:
    """Connect to the holder; return None if there is none. Raises TerminalsExhausted, BackendUnavailable."""
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise exhausted(str(error)) from None
    sock.setblocking(False)
    try:
        sock.connect(str(directory / "holder.sock"))
    except (FileNotFoundError, ConnectionRefusedError):
        sock.close()
        return None
    except OSError as error:
        sock.close()
        raise unreachable(str(error)) from None
    return sock


async def _start_holder(directory: Path) -> None:
    """Start a holder and wait until it listens. Raises BackendUnavailable, TerminalsExhausted.

    Its environment is empty, because with an inherited session cookie it would be killed together with that session.
    """
    holder, package = Path(__file__).with_name("holder.py"), Path(__file__).parents[2]
    ptyprocess = find_spec("ptyprocess")
    if ptyprocess is None or ptyprocess.origin is None:
        raise BackendUnavailable("ptyprocess is not installed", suggestion="install it: pip install ptyprocess")
    paths = [str(package.parent), str(Path(ptyprocess.origin).parents[1])]
    argv = [sys.executable, "-I", "-S", "-X", "utf8", str(holder), str(directory), *paths]
    try:
        await asyncio.to_thread(_run, argv)
    except subprocess.CalledProcessError as error:
        raise unreachable(error.stderr.decode("utf-8", "replace").strip()[-500:]) from None
    except subprocess.TimeoutExpired:
        raise unreachable(f"it was not ready after {START_SECONDS:.0f} s") from None
    except OSError as error:
        raise exhausted(f"cannot start the holder: {error}") from None


def _run(argv: list[str]) -> None:
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    subprocess.run(
        argv,
        check=True,
        timeout=START_SECONDS,
        stdin=null,
        stdout=null,
        stderr=pipe,
        cwd="/",
        env={},
        start_new_session=True,
    )


def unreachable(reason: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"the terminal holder does not answer: {reason}", suggestion="see `ai-session doctor`, or use the tmux backend"
    )


def exhausted(reason: str) -> TerminalsExhausted:
    return TerminalsExhausted(
        f"no terminal can be opened: {reason}",
        suggestion="close sessions, or raise the limits: ulimit -n (files), ulimit -u (processes), kernel.pty.max",
    )


def refusal(spec: TerminalSpec, error: Message) -> AiSessionError:
    kind, text = error["kind"], error["text"]
    if kind == "directory":
        return DirectoryUnusable(
            f"cannot work in {spec.working_directory}: {text}",
            suggestion="name an existing directory that can be entered",
        )
    if kind == "exhausted":
        return exhausted(text)
    if kind == "exec":
        return BackendUnavailable(
            f"cannot start {spec.argv[0]}: {text}", suggestion="check that the program is installed"
        )
    return BackendUnavailable(
        f"the terminal holder refused: {text}", suggestion="close the old session, or restart the daemon"
    )
