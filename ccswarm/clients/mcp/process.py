"""A server started here: its pipes, its last output, its end, and the end of its process group."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import select
import shlex
import signal
import struct
import sys
import termios
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from shutil import which
from typing import Any, cast

from ccswarm.clients.mcp.framing import LineCutter, read_message
from ccswarm.clients.mcp.pipes import Incoming, Outgoing
from ccswarm.config.programs import Command
from ccswarm.config.settings import ServerSettings
from ccswarm.config.trust import ConfigTrust
from ccswarm.errors import ConfigInvalid, ServerUnavailable, SwarmError
from ccswarm.system.confined_files import pinned_path

LAST_OUTPUT_BYTES = 4096
LEAVE_SECONDS = 2.0
"""How long a connected server may take to end after its input ended; most take 5 to 270 ms."""

KILL_SECONDS = 4.0
"""The longest wait for the guardian, which sends SIGKILL after two seconds."""

INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")

NAMES = {int(number): number.name for number in signal.Signals}

GUARDIAN = r"""
left() {
    kill -0 "-$group" 2>/dev/null || return 1
    [ ! -e /proc/self/stat ] || grep -qsE "\) [^Z] [0-9]+ $group " /proc/[0-9]*/stat
}
read -r group || exit
read -r word
kill -TERM "-$group" 2>/dev/null || exit
turns=40
while [ $turns -gt 0 ] && left; do sleep 0.05; turns=$((turns - 1)); done
kill -KILL "-$group" 2>/dev/null
"""
"""A script that ends a process group when its own input ends: at close, and also if this process is killed with -9.
Zombies that are never reaped, as in containers without an init, are ignored."""


def child_environment(env: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server: some variables of ``env``, and those configured for it."""
    inherited = {name: value for name, value in env.items() if name in INHERITED or name.startswith("LC_")}
    return {**inherited, **own}


class ServerProcess(asyncio.SubprocessProtocol):
    """One start of a server. ``ended``: it can no longer be used. ``explained``: its exit code and output are known."""

    def __init__(self, on_stderr: Callable[[str], None] | None) -> None:
        self.incoming = Incoming(self._pause_reading)
        self.ended = asyncio.Event()
        self.explained = asyncio.Event()
        self.grace_seconds = 0.0
        self._on_stderr = on_stderr
        self._lines = LineCutter()
        self._last_output = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._reason = ""
        self._spoke = False
        self._exited = False
        self._open = {1, 2}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.SubprocessTransport", transport)
        self.outgoing = Outgoing(self._pipe(0), self._stuck)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._record_output(data)
            return
        for line, length in self._lines.feed(data):
            message = read_message(line, length, first=not self._spoke)
            if message is not None:
                self._spoke = True
                self.incoming.put(message)
            elif line.strip():
                self._record_output(bytes(line[-LAST_OUTPUT_BYTES:]) + b"\n")

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if fd == 1:
            self._end("closed its output")

    def process_exited(self) -> None:
        """Read what is in the pipes now, after what was read already, and mark the end. Its children may hold the pipes
        open forever, so the end of the pipes is not awaited."""
        self._exited = True
        for fd in self._open:
            self._pipe(fd).pause_reading()
        asyncio.get_running_loop().call_soon(self._read_last)

    def _read_last(self) -> None:
        for fd in tuple(self._open):
            pipe = self._pipe(fd)
            while (left := _unread_bytes(pipe)) and (data := os.read(pipe.get_extra_info("pipe").fileno(), left)):
                self.pipe_data_received(fd, data)
        self._end("ended")
        self.explained.set()

    def _pipe(self, fd: int) -> Any:
        return self.transport.get_pipe_transport(fd)

    def _pause_reading(self, pause: bool) -> None:
        if 1 in self._open and not self._exited:
            pipe = self._pipe(1)
            if pause:
                pipe.pause_reading()
            else:
                pipe.resume_reading()

    def _record_output(self, data: bytes) -> None:
        self._last_output += data
        del self._last_output[:-LAST_OUTPUT_BYTES]
        if self._on_stderr is not None:
            # Deferred, so that an error there does not look like a broken pipe.
            asyncio.get_running_loop().call_soon(self._on_stderr, self._decoder.decode(data))

    def _stuck(self) -> None:
        self._end("does not read its input")

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self.incoming.end()
        self.ended.set()

    @property
    def alive(self) -> bool:
        """Whether it can be used. Asks the kernel too, because the event loop may not have read the end yet."""
        if self.ended.is_set():
            return False
        pipe = self._pipe(0)
        if pipe.is_closing():
            return False
        poll = select.poll()
        poll.register(pipe.get_extra_info("pipe").fileno(), 0)
        return not poll.poll(0)

    def describe_end(self) -> str:
        """Describe its end, as far as known, and its last output."""
        status = self.transport.get_returncode()
        if status is None:
            end = self._reason
        elif status < 0:
            end = f"was ended by {NAMES.get(-status, f'signal {-status}')}"
        else:
            end = f"ended with exit code {status}"
        return self.with_last_output(end)

    def with_last_output(self, message: str) -> str:
        """Append its last output besides the protocol to ``message``."""
        words = self._last_output.decode(errors="replace").strip()
        return f"{message}. Its last output:\n{words}" if words else message

    async def stop(self) -> None:
        """Close its input, and wait up to ``grace_seconds`` for it to end."""
        self._pipe(0).close()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.grace_seconds):
                await self.explained.wait()


def _unread_bytes(pipe: Any) -> int:
    if pipe.is_closing():
        return 0
    count = fcntl.ioctl(pipe.get_extra_info("pipe").fileno(), termios.FIONREAD, bytes(4))
    return struct.unpack("i", count)[0]


def command_of(settings: ServerSettings, env: Mapping[str, str]) -> list[str]:
    """Return program and arguments. Raises ServerUnavailable if the program or directory does not exist. A program
    missing on PATH is searched next to this one, because desktop clients start it with the system's PATH."""
    suggestion = f"check command, args and cwd of {settings.name} in the configuration"
    try:
        words = [*shlex.split(settings.command), *settings.args]
    except ValueError as error:
        raise ServerUnavailable(
            f"server {settings.name} cannot be started: {error} in its command", suggestion=suggestion
        ) from error
    directory = settings.cwd or "."
    program = words[0] if words else ""
    # The kernel resolves a program named by a path from the directory.
    where = str(Path(directory, program)) if "/" in program else program
    problem = ""
    if any("\0" in word for word in words):
        problem = "a NUL character in its command"
    elif not Path(directory).is_dir():
        problem = f"no directory {directory}"
    elif which(where, path=env.get("PATH", os.defpath)) is None:
        sibling = which(where, path=os.path.dirname(sys.executable))
        problem = "" if sibling else f"no program {program!r}"
        words[:1] = [sibling or program]
    if problem:
        raise ServerUnavailable(f"server {settings.name} cannot be started: {problem}", suggestion=suggestion)
    return words


@asynccontextmanager
async def start_server(
    settings: ServerSettings,
    env: Mapping[str, str],
    on_stderr: Callable[[str], None] | None,
    state_directory: Path | None = None,
) -> AsyncGenerator[ServerProcess]:
    """Run a server; at the end no process of its group is left. Raises ServerUnavailable. With ``state_directory``, the
    files that its command names below its directory must be as a person approved them."""
    environment = child_environment(env, settings.env)
    words = command_of(settings, environment)
    guardian = await _guardian()
    try:
        if state_directory:
            await asyncio.to_thread(_require_approved, settings, words, environment, state_directory)
        with _directory(settings) as directory:
            _, process = await asyncio.get_running_loop().subprocess_exec(
                lambda: ServerProcess(on_stderr), *words, cwd=directory, env=environment, start_new_session=True
            )
    except SwarmError:
        await _end_guardian(guardian)
        raise
    except (OSError, ValueError) as error:
        await _end_guardian(guardian)
        raise ServerUnavailable(f"server {settings.name} cannot be started: {error}") from error
    try:
        _input(guardian).write(b"%d\n" % process.transport.get_pid())
        yield process
        await process.stop()
    finally:
        try:
            await _end_guardian(guardian)
            with suppress(TimeoutError):
                async with asyncio.timeout(KILL_SECONDS):
                    await process.explained.wait()
        finally:
            process.transport.close()


@contextmanager
def _directory(settings: ServerSettings) -> Generator[str | None]:
    """Yield the directory to start in. Raises ServerUnavailable if an agent's directory was replaced."""
    if not settings.placed:
        yield settings.cwd or None
        return
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(pinned_path(Path(settings.cwd)))
        except OSError as error:
            raise ServerUnavailable(
                f"server {settings.name} is not started: {settings.cwd} cannot be entered without following a link "
                f"({error.strerror})",
                suggestion="check who replaced it, and make it a directory again",
            ) from error
        yield directory


def _require_approved(
    settings: ServerSettings, words: list[str], env: Mapping[str, str], state_directory: Path
) -> None:
    """Raise ServerUnavailable if a file it would be started from is not as a person approved it."""
    command = Command(settings.name, tuple(words), settings.env, data=settings.data_files)
    try:
        change = ConfigTrust(state_directory).start_change(command, settings.cwd or os.getcwd(), env)
    except ConfigInvalid as error:
        raise ServerUnavailable(
            f"server {settings.name} is not started: {error.message}", suggestion=error.suggestion
        ) from None
    if change:
        error = change.error()
        raise ServerUnavailable(f"server {settings.name} is not started: {error.message}", suggestion=error.suggestion)


async def _guardian() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        GUARDIAN,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        env={"PATH": os.defpath},
        start_new_session=True,
    )


def _input(guardian: asyncio.subprocess.Process) -> asyncio.StreamWriter:
    assert guardian.stdin is not None
    return guardian.stdin


async def _end_guardian(guardian: asyncio.subprocess.Process) -> None:
    _input(guardian).close()
    with suppress(TimeoutError):
        async with asyncio.timeout(KILL_SECONDS):
            await guardian.wait()
