"""Terminals as panes of a private tmux server that outlives the daemon; panes are listed through libtmux."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ai_session.backends.tmux.control import ControlClosed, TmuxRefused, join, listener_pid, literal, take_lock
from ai_session.backends.tmux.server import (
    ANSWER_SECONDS,
    EXIT_OPTION,
    INSTALL,
    OLDEST,
    ServerGone,
    TmuxServer,
    version_number,
)
from ai_session.backends.tmux.terminal import COPIES, SINK, SPARE_BYTES, TmuxTerminal, exit_status
from ai_session.errors import BackendUnavailable, DirectoryUnusable, OperatorError, StorageFull, TerminalsExhausted
from ai_session.models import BackendStatus, TerminalSpec
from ai_session.system.events import FileGrowth
from ai_session.system.temporary_directories import abandoned, trial_directory

if TYPE_CHECKING:
    import libtmux
    from libtmux.common import tmux_cmd

PROBE_SECONDS = 10.0
_KNOWN_PROGRAMS: dict[str | None, tuple[Sequence[str], str]] = {}
"""What ``TmuxBackend._programs`` has found, by the path of the program that copies."""

# Variables that tmux, the shell of the gate and the server's environment add to a child's.
ADDED = (
    "COLORTERM",
    "LC_ALL",
    "OLDPWD",
    "PATH",
    "PWD",
    "SHELL",
    "SHLVL",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "TMUX",
    "TMUX_PANE",
    "_",
)
# Variables that tmux or some sh would change or drop on the way; a sh also drops names that it cannot assign.
CHANGED = frozenset(ADDED) - {"PATH"} | {
    "BASHOPTS",
    "EUID",
    "IFS",
    "LINENO",
    "OPTIND",
    "PPID",
    "PS1",
    "PS2",
    "PS4",
    "SHELLOPTS",
    "TERM",
    "UID",
}
ASSIGNABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The look-up of a locale takes longer than the rest of env's work.
GATE = '{ read -r _ <"$1"; } 2>/dev/null; shift; LC_ALL=C exec "$@"'
PANES = "#{@ais-id} #{pane_pid} #{pane_tty} #{session_id} #{pane_id} #{@ais-dir}"
SESSION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
DUPLICATE = "duplicate session: "
EXHAUSTED = re.compile(r"fork|socketpair|too many|resource|device", re.IGNORECASE)
OUT_OF = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


class TmuxBackend:
    """All terminals of one runtime directory; see ``Backend``.

    Terminals hold their ttys open in addition to tmux. Without ``hold``, and where the kernel forbids it (Docker's
    seccomp, Yama for a server of an earlier daemon, macOS), input goes through tmux, a child that closes its tty for a
    while loses it, and tmux may drop what a child printed just before it ended. The exit status is always reported.
    """

    name = "tmux"

    def __init__(self, runtime_directory: str | os.PathLike[str], *, hold: bool = True) -> None:
        self.server = TmuxServer(runtime_directory, self._noticed, hold=hold)
        self._terminals: set[TmuxTerminal] = set()
        self._growth: FileGrowth | None = None
        self._abandoned: set[asyncio.Future[None]] = set()

    async def probe(self) -> BackendStatus:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                return await self._probe()
        except OperatorError as error:
            return BackendStatus(self.name, usable=False, reason=error.message, suggestion=error.suggestion or INSTALL)
        except (OSError, TimeoutError) as error:
            reason = str(error) or f"tmux did not answer within {PROBE_SECONDS:.0f} s"
            return BackendStatus(self.name, usable=False, reason=reason, suggestion=INSTALL)

    async def _probe(self) -> BackendStatus:
        _check_installation()
        for directory in abandoned("trial-tmux"):
            if server_pid := listener_pid(str(directory / "tmux.sock")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(server_pid, signal.SIGKILL)  # a stopped process reacts to no other signal
        with trial_directory("trial-tmux") as directory:
            server = TmuxServer(directory)
            try:
                await server.client(start=True)
                version = server.version
            finally:
                await server.stop()
        _check_version(version)
        return BackendStatus(self.name, usable=True, version=version)

    async def make_ready(self) -> None:
        _check_installation()
        if self.server.version:
            _check_version(self.server.version)
        await asyncio.gather(self.server.client(start=True), self._programs())
        try:
            _check_version(self.server.version)
        except BackendUnavailable:
            if not self._terminals:
                await self.server.stop()
            raise

    async def open(self, spec: TerminalSpec) -> TmuxTerminal:
        check(spec)
        try:
            try:
                return await self._open(spec)
            except (ControlClosed, ServerGone):
                # The server or its client was killed meanwhile. The child waits at its gate, so nothing runs twice.
                return await self._open(spec)
        except OperatorError:
            raise
        except OSError as error:
            raise backend_error(error) from error

    async def _open(self, spec: TerminalSpec) -> TmuxTerminal:
        terminal = self._terminal(spec.session_id, spec.directory)
        words = creation(spec, *await self._programs())
        try:
            await self.server.client(start=True)
            terminal.make_files()
        except BaseException:
            terminal.detach()
            raise
        creating = asyncio.ensure_future(self._create(words))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                try:
                    session, terminal.pane, pid, terminal.tty = (await asyncio.shield(creating)).split(" ")
                except TmuxRefused as refused:
                    raise refusal(refused.message) from None
                terminal.pid, terminal.hang_up = int(pid), self._hang_up(session)
                await terminal.begin()
        except (asyncio.CancelledError, TimeoutError) as problem:
            abandoning = asyncio.ensure_future(self._abandon(terminal, creating))
            self._abandoned.add(abandoning)
            abandoning.add_done_callback(self._abandoned.discard)
            if isinstance(problem, asyncio.CancelledError):
                raise
            raise self.server.silent() from None
        except BaseException:
            await self._abandon(terminal, creating)
            raise
        self._terminals.add(terminal)
        return terminal

    async def _create(self, words: Sequence[str]) -> str:
        lock = await take_lock(self.server.lock, shared=True)
        try:
            blocks = await self.server.ask(join(words), 1 + words.count(";"), again=False, pid=self.server.pid)
        finally:
            os.close(lock)
        return next(os.fsdecode(line) for block in blocks for line in block)

    async def _abandon(self, terminal: TmuxTerminal, creating: asyncio.Future[Any]) -> None:
        """End the terminal being created, before its gate opens."""
        await asyncio.wait((creating,))
        with contextlib.suppress(OperatorError):
            problem = creating.exception()
            if not isinstance(problem, TmuxRefused) or problem.message != DUPLICATE + terminal.session_id:
                await self.server.ask(join(["kill-session", "-t", f"={terminal.session_id}"]))
        terminal.detach()

    async def _programs(self) -> tuple[Sequence[str], str]:
        """Return the options of env and the command that copies output, as the programs of this system support them.

        tmux leaves SIGTTIN and SIGTTOU ignored in its children; GNU env can undo that, others cannot.
        """
        words = COPIES[0].split()
        if (found := shutil.which(words[0])) not in _KNOWN_PROGRAMS:
            signals = ["--default-signal"]
            resets, copies = await asyncio.gather(
                _succeeds("/usr/bin/env", *signals, "true"), _succeeds(*words, "count=0")
            )
            _KNOWN_PROGRAMS[found] = signals if resets else [], COPIES[0] if copies else COPIES[1]
        return _KNOWN_PROGRAMS[found]

    async def adopt(self) -> Sequence[TmuxTerminal]:
        self.server.look_again()
        try:
            await self.server.client()
        except ServerGone:
            return []
        panes, dead = await asyncio.to_thread(self._list)
        known = {terminal.session_id for terminal in self._terminals}
        terminals: list[TmuxTerminal] = []
        for session_id, value in dead:
            if session_id not in known:
                code, signal, pid, directory = value.split(",", 3)
                terminal = self._terminal(session_id, directory)
                terminal.pid = int(pid)
                terminal.ended = exit_status(code, signal)
                terminals.append(terminal)
                known.add(session_id)
        for session_id, pid, tty, session, pane, directory in (line.split(" ", 5) for line in panes):
            if session_id and session_id not in known:
                terminal = self._terminal(session_id, directory)
                terminal.pid = int(pid)
                terminal.tty = tty
                terminal.pane = pane
                terminal.hang_up = self._hang_up(session)
                terminals.append(terminal)
        return [terminal for terminal in terminals if await self._adopt(terminal)]

    async def _adopt(self, terminal: TmuxTerminal) -> bool:
        """Adopt a terminal. Return False after closing it if its directory does not exist any more."""
        try:
            terminal.adopt()
        except FileNotFoundError:
            await terminal.close()
            return False
        self._terminals.add(terminal)
        return True

    def _list(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Return all panes, and the options that record ended ones. Blocks, because libtmux is synchronous.

        Panes are read first, so one that ends meanwhile is in both lists instead of in none.
        """
        tmux = controlled_server()(self.server)
        panes = tmux.cmd("list-panes", "-a", "-F", PANES).stdout
        names = [line.split(" ")[0] for line in tmux.cmd("show-options", "-g").stdout if line.startswith(EXIT_OPTION)]
        dead = [(name.removeprefix(EXIT_OPTION), tmux.cmd("show-options", "-gv", name).stdout[0]) for name in names]
        return panes, dead

    async def aclose(self) -> None:
        for terminal in list(self._terminals):
            terminal.detach()
        self._terminals.clear()
        if self._abandoned:
            await asyncio.wait(self._abandoned, timeout=ANSWER_SECONDS)
        await self.server.close()
        if self._growth is not None:
            self._growth.close()
            self._growth = None

    async def stop(self) -> None:
        for terminal in list(self._terminals):
            terminal.detach()
        await self.server.stop()
        await self.aclose()

    def _forget(self, terminal: TmuxTerminal) -> None:
        self._terminals.discard(terminal)

    def _terminal(self, session_id: str, directory: str) -> TmuxTerminal:
        if self._growth is None:
            self._growth = FileGrowth()
        return TmuxTerminal(self.server, self._growth, session_id, directory, self._forget)

    def _noticed(self) -> None:
        for terminal in list(self._terminals):
            terminal.touch()

    def _hang_up(self, session: str) -> Callable[[], Awaitable[None]]:
        server = self.server.pid

        async def kill() -> None:
            with contextlib.suppress(TmuxRefused):  # the session has just ended by itself
                await self.server.ask(join(["kill-session", "-t", session]), pid=server)

        return kill


PLUGIN = TmuxBackend


@cache
def controlled_server() -> Callable[[TmuxServer], libtmux.Server]:
    """Return the class that presents a TmuxServer as libtmux's Server. Blocks: the import takes 70 ms."""
    import libtmux
    from libtmux.common import tmux_cmd

    class Answer(tmux_cmd):
        def __init__(self, cmd: list[str], stdout: list[str], stderr: list[str]) -> None:
            self.cmd = cmd
            self.stdout = stdout
            self.stderr = stderr
            self.returncode = int(bool(stderr))

    class ControlledServer(libtmux.Server):
        """Runs each command through the control client, in 0.1 ms instead of the 2 ms of a process."""

        def __init__(self, server: TmuxServer) -> None:
            super().__init__(socket_path=server.socket)
            self._control = server
            self._pid = server.pid

        def cmd(self, cmd: str, *args: Any, target: str | int | None = None) -> tmux_cmd:
            words = [cmd, *([] if target is None else ["-t", str(target)]), *map(str, args)]
            work = self._control.ask(join(words), pid=self._pid)
            asking = asyncio.run_coroutine_threadsafe(work, self._control.loop)
            try:
                lines = [os.fsdecode(line) for block in asking.result() for line in block]
            except TmuxRefused as refused:
                return Answer(words, [], [refused.message])
            return Answer(words, lines, [])

    return ControlledServer


def _check_installation() -> None:
    """Raise BackendUnavailable if libtmux is missing."""
    if find_spec("libtmux") is None:  # not imported here: that takes 70 ms
        missing = "reinstall ai-session with its dependencies, or use backend pty"
        raise BackendUnavailable("libtmux is not installed", suggestion=missing)


def _check_version(version: str) -> None:
    """Raise BackendUnavailable if this version of tmux is too old."""
    if version_number(version) < OLDEST:
        raise BackendUnavailable(f"tmux {version} is too old", suggestion=INSTALL)


def check(spec: TerminalSpec) -> None:
    """Raise BackendUnavailable or DirectoryUnusable for faults that tmux would only show on the new terminal."""
    if not SESSION_ID.fullmatch(spec.session_id):
        raise BackendUnavailable(
            f"{spec.session_id!r} is not a valid tmux session name", suggestion="use [A-Za-z0-9_-]"
        )
    if not os.path.isdir(spec.working_directory) or not os.access(spec.working_directory, os.X_OK):
        raise DirectoryUnusable(
            f"cannot enter {spec.working_directory!r}", suggestion="name an existing directory you may enter"
        )
    if shutil.which(spec.argv[0], path=spec.env.get("PATH", os.defpath)) is None:
        raise BackendUnavailable(f"cannot run {spec.argv[0]!r}", suggestion="name an installed program")


async def _succeeds(*words: str) -> bool:
    null = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(*words, stdin=null, stdout=null, stderr=null)
    except FileNotFoundError:
        return False
    return await process.wait() == 0


def creation(spec: TerminalSpec, env_options: Sequence[str], copy: str) -> list[str]:
    """Return the command line of a new terminal. tmux reads no output until it has run all of it, pipe included."""
    target = f"={spec.session_id}:"
    size = ["-x", str(spec.cols), "-y", str(spec.rows)]
    name = re.sub(r"[^\w.+-]", "_", os.path.basename(spec.argv[0]))
    start = ["new-session", "-d", "-E", "-s", spec.session_id, "-n", name, *size, "-c", "#{@ais-cwd}"]
    start += ["-P", "-F", "#{session_id} #{pane_id} #{pane_pid} #{pane_tty}"]
    # Through the session's environment and not as arguments of env, where other users could read them.
    start += [word for key, value in spec.env.items() for word in ("-e", f"{key}={value}")]
    child = ["/bin/sh", "-c", GATE, "sh", os.path.join(spec.directory, "gate"), "/usr/bin/env", *env_options]
    child += [*exact_environment(spec.env), *spec.argv]
    commands = [
        # Paths are passed as option values: in arguments, tmux would expand formats and times.
        ["set-option", "-g", "@ais-cwd", spec.working_directory],
        ["set-option", "-g", "@ais-python", sys.executable],
        ["set-option", "-g", "@ais-copy", copy],
        [*start, *map(literal, child)],
        ["set-option", "-p", "-t", target, "remain-on-exit", "on"],
        ["set-option", "-p", "-t", target, "@ais-id", spec.session_id],
        ["set-option", "-p", "-t", target, "@ais-dir", spec.directory],
        ["set-option", "-p", "-t", target, "@ais-keep", str(spec.retain_bytes + SPARE_BYTES)],
        ["select-pane", "-t", target, "-T", ""],
        # Keeps the size also while a person with a window of another size is attached.
        ["resize-window", "-t", target, *size],
        ["pipe-pane", "-O", "-t", target, SINK],
    ]
    return [word for command in commands for word in (";", *command)][1:]


def exact_environment(env: Mapping[str, str]) -> Iterator[str]:
    """Yield arguments of ``env`` that undo the changes on the way to a child, except for the terminal's TERM."""
    for name in ADDED:
        if name not in env:
            yield from ("-u", name)
    for name, value in env.items():
        if name in CHANGED or not ASSIGNABLE.fullmatch(name):
            yield f"{name}={value}"


def refusal(reason: str) -> OperatorError:
    """Return the error that reports tmux's message to the caller."""
    if EXHAUSTED.search(reason):
        return TerminalsExhausted(f"tmux: {reason}", suggestion="close sessions or raise the system's limits")
    return BackendUnavailable(f"tmux refused: {reason}", suggestion="run: ai-session doctor")


def backend_error(error: OSError) -> OperatorError:
    """Return the error that reports an error of the system to the caller."""
    if error.errno == errno.ENOSPC:
        return StorageFull(f"cannot write the session's files: {error.strerror}", suggestion="free space on the disk")
    if error.errno in OUT_OF:
        return TerminalsExhausted(f"the system is out of resources: {error.strerror}", suggestion="close sessions")
    return BackendUnavailable(f"cannot open a terminal: {error}", suggestion="run: ai-session doctor")
