"""The manager, which creates, finds, adopts, respawns and closes sessions.

The directory ``sessions/<id>`` has all that outlives the daemon: spec, log, history and the shell's saved state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentwire import plugins
from agentwire.counts import counted
from ai_session.backends.base import Backend, Terminal
from ai_session.errors import (
    AiSessionError,
    BackendUnavailable,
    ConfigInvalid,
    InvalidArguments,
    LimitReached,
    SessionExists,
    SessionExited,
    ShellUnavailable,
)
from ai_session.models import SandboxLevel, SessionSpec, TerminalSpec
from ai_session.sandbox.boxes import Boxes, hides
from ai_session.sessions.changes import ChangeFeed
from ai_session.sessions.leftovers import Looks
from ai_session.sessions.names import normalized
from ai_session.sessions.ownership import Visibility, is_of_run, widening
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession, SessionDefaults, find_shell, read, shell_for, shell_named, store
from ai_session.shells.base import Shell, group_leader
from ai_session.system.shares import share
from ai_session.system.turns import Turns
from ai_session.terminal.log import FollowedLog, MappedLog, OutputLog

log = logging.getLogger(__name__)

AUTO = ("tmux", "pty")
"""The backends that ``auto`` tries, best first."""

REQUESTED = ("profile", "call_key", "owner", "once")
"""The fields of a session's spec that are copied from the request."""

GONE = "gone"
"""The folder in which directories of closed sessions wait for removal, by the next daemon if this one is killed."""

JUST_SECONDS = 1.0
"""For so long after its end, a command may be the cause of what is observed."""
CLOSED_KNOWN = 256
"""The number of sessions closed without a request whose reason is remembered."""

DAY_SECONDS = 86_400.0

SPARE_DESCRIPTORS = 8
"""A new session must leave so many descriptors free, or the existing ones could not run commands."""


class SessionManager:
    """Owns every session of one runtime directory.

    ``event`` is called for each shell that was started ("session.create") and each session that was closed
    ("session.close"), with or without a request.
    """

    session_class = Session
    """The class of its sessions, which tests replace."""

    def __init__(
        self,
        runtime_directory: Path,
        defaults: SessionDefaults,
        boxes: Boxes | None = None,
        event: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self.runtime_directory = runtime_directory
        self._event = event
        self.turns = Turns()
        self._looks = Looks()
        self.boxes = boxes or Boxes()
        self.boxes.command_of = self._command_of
        self.defaults = defaults
        self._root = runtime_directory / "sessions"
        self._root.mkdir(mode=0o700, exist_ok=True)
        self._backends: dict[str, Backend] = {}
        self._sessions: dict[str, Session] = {}
        self.changes = ChangeFeed(self._sessions.values)
        self._names: dict[tuple[str, str], str] = {}
        self._choice: asyncio.Task[Backend] | None = None
        """The running or last choice of a backend for ``auto``."""
        self._opening: dict[tuple[str, str], asyncio.Event] = {}
        """An event for each owner and name that is being opened, set at the end."""
        self._reviving: set[Session] = set()
        self._closed: deque[tuple[SessionSpec, str]] = deque(maxlen=CLOSED_KNOWN)
        self._removals: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def _command_of(self, session_id: str) -> str:
        """Return the id of the command that runs in the session or has just ended; empty if there is none."""
        session = self._sessions.get(session_id)
        if session is None:
            return ""
        if session.running is not None:
            return session.running.record.command_id
        last = session.history.last
        ended = last.started_at + (last.duration_seconds or 0.0) if last is not None else 0.0
        return last.command_id if last is not None and time.time() - ended < JUST_SECONDS else ""

    @property
    def live(self) -> int:
        """The number of sessions whose shell has not ended."""
        return sum(1 for s in self._sessions.values() if s.exit is None)

    def all(self) -> list[Session]:
        """Return all sessions, oldest first."""
        return sorted(self._sessions.values(), key=lambda s: s.spec.created_at)

    def find(self, session_id: str) -> Session | None:
        """Return the session with this id, or None."""
        return self._sessions.get(session_id)

    def named(self, owner: str, name: str) -> Session | None:
        """Return the owner's session of this name, or None."""
        return self._sessions.get(self._names.get((owner, normalized(name)), ""))

    async def make_ready(self) -> None:
        """Do one-time preparations ahead of the first session. Failures are reported when a session is opened."""
        name = self.defaults.backend
        with contextlib.suppress(ConfigInvalid):
            self._backend(AUTO[0] if name == "auto" else name)  # loads it; what it needs starts with the first session
        with contextlib.suppress(AiSessionError, OSError):
            await self.boxes.make_ready()

    async def create(self, request: NewSession) -> Session:
        """Open a session, or start the ended one of that name again, and wait until its shell is ready.

        Waits while another call opens a session of that name. Raises SessionExists, LimitReached, InvalidArguments,
        and the errors of the shell, the sandbox and the backend.
        """
        known_as = (request.owner, request.name)
        while others := self._opening.get(known_as):
            await others.wait()
        done = self._opening[known_as] = asyncio.Event()
        try:
            return await self._create(request, known_as)
        finally:
            del self._opening[known_as]
            done.set()

    async def _create(self, request: NewSession, known_as: tuple[str, str]) -> Session:
        old = self.named(*known_as)
        if old is not None:
            await old.ended()
            if old.exit is None or old in self._reviving:
                raise SessionExists(
                    f"session {request.name!r} already exists ({old.spec.session_id})",
                    suggestion="use it as it is, or choose another name",
                )
            self._reviving.add(old)
            try:
                return await self._respawn(old, request.call_key)
            finally:
                self._reviving.discard(old)
        self._check_share(request)
        session_id, cookie = "ses_" + secrets.token_urlsafe(16), secrets.token_hex(16)
        self._names[known_as] = session_id
        directory = self._root / session_id
        try:
            shell_plugin, executable = await asyncio.to_thread(shell_for, request, self.defaults.shell)
            backend = await self._backend_for(request.backend or self.defaults.backend)
            directory.mkdir(mode=0o700)
            spec = SessionSpec(
                session_id=session_id,
                name=request.name,
                shell=executable,
                backend=backend.name,
                working_directory=request.working_directory,
                env=self.defaults.environment(request.client_env, request.env, self._env_allow(request)),
                rows=request.rows or self.defaults.rows,
                cols=request.cols or self.defaults.cols,
                created_at=time.time(),
                nonce=secrets.token_hex(8).upper(),
                cookie=cookie,
                **{name: getattr(request, name) for name in REQUESTED},
            )
            await self._looks.begin(cookie)
            spec, terminal = await self._open(spec, directory, shell_plugin, backend)
            session = await self._begin(spec, shell_plugin, terminal)
        except BaseException:
            self._looks.forget(cookie)
            await self.boxes.leave(session_id)
            self._names.pop(known_as, None)
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._sessions[session_id] = session
        self._follow(session)
        self._created(spec)
        await session.wait_started()
        return session

    def _check_share(self, request: NewSession) -> None:
        """Raise LimitReached if the owner may not have another session. Sessions being created count."""
        most = self.defaults.max_sessions
        if len(self._names) >= most:
            raise LimitReached(
                f"the limit of {counted(len(self._names), 'session')} is reached",
                suggestion="close one that is not needed, with close_session; session.max_sessions in the configuration"
                " sets the limit",
            )
        shares = () if request.person else widening(request.owner)
        for whose in reversed(shares):
            most = share(most, self.defaults.max_sessions_per_owner)
            count = sum(whose in widening(owner) for owner, _ in self._names)
            if count >= most:
                raise LimitReached(
                    f"{whose or 'this user'} has {counted(count, 'session')}, the limit for one owner",
                    suggestion="close one that is not needed, with close_session; session.max_sessions_per_owner in the"
                    " configuration sets the limit",
                )

    def _created(self, spec: SessionSpec) -> None:
        self.changes.listed(spec)
        self._event(
            "session.create",
            session=spec.session_id,
            name=spec.name,
            owner=spec.owner or None,
            shell=spec.shell,
            backend=spec.backend,
            cwd=spec.working_directory,
            profile=spec.profile.name,
            level=str(spec.level),
            network=spec.profile.network if spec.profile.name != "trusted" else "host",
        )

    def _env_allow(self, request: NewSession) -> tuple[str, ...]:
        return self.defaults.env_allow if request.profile.name == "trusted" else self.boxes.env_allow

    async def _respawn(self, session: Session, call_key: str) -> Session:
        spec = session.spec
        shell, _ = await asyncio.to_thread(find_shell, spec.shell)
        backend = await self._backend_for(spec.backend)
        directory = session.directory
        if session.terminal is not None:
            await session.terminal.close()
        if session.box_end is not None:
            # It would end the new shell as well.
            await session.box_end
        directories = (session.at.cwd, spec.working_directory, spec.profile.workspace, spec.env.get("HOME", ""))
        here = next((one for one in directories if os.path.isdir(one)), "/")
        spec = replace(spec, working_directory=here, call_key=call_key)
        # If the shell did not exit by itself, the saved state is an earlier one, in another directory.
        orderly = session.at.exit_code is not None
        session.spec, terminal = await self._open(spec, directory, shell, backend, "" if orderly else here)
        session.respawn(terminal)
        self._created(session.spec)
        await session.wait_started()
        return session

    async def _open(
        self, spec: SessionSpec, directory: Path, shell: Shell, backend: Backend, cwd: str = ""
    ) -> tuple[SessionSpec, Terminal]:
        """Open a terminal with the shell in its box. Return it and the spec with the box's level, which is stored."""
        if inside := await asyncio.to_thread(hides, spec.profile, spec.shell):
            raise ShellUnavailable(
                f"{spec.shell} is in the home directory, which the sandbox hides",
                suggestion=f'add "{inside}" to sandbox.readable in the configuration, or use a system shell: bash',
            )
        files = directory / "shell"
        files.mkdir(mode=0o700, exist_ok=True)
        integration = shell.install(
            files, spec.nonce, executable=spec.shell, user_rc=self.defaults.user_rc, login_env=spec.env
        )
        env = {**spec.env, **integration.env}
        if cwd:
            env["AI_SESSION_CWD"] = cwd
        argv = integration.argv
        own = {"AI_SESSION_ID": spec.cookie, "AI_SESSION_NAME": spec.name}
        if spec.profile.name != "trusted":
            starting = asyncio.create_task(_start(backend))
            try:
                boxed = await self.boxes.prepare(spec, directory, env | {"HOME": spec.profile.home})
            finally:
                await starting
            spec = replace(spec, level=boxed.level, unprotected=boxed.unprotected)
            # The program that makes the box does not change the TERM of its terminal.
            chosen = {name: spec.env[name] for name in ("TERM",) if name in spec.env}
            hidden = shell.needs_visible_group and boxed.level in (SandboxLevel.BWRAP, SandboxLevel.BWRAP_NOPROC)
            argv = (*boxed.argv, *(group_leader() if hidden else ()), *argv)
            env = dict(boxed.env) | chosen
        store(directory, spec)
        terminal = await backend.open(
            TerminalSpec(
                session_id=spec.session_id,
                directory=str(directory),
                argv=argv,
                env=env | own,
                working_directory=spec.working_directory,
                rows=spec.rows,
                cols=spec.cols,
                retain_bytes=self.defaults.retain_bytes,
            )
        )
        try:
            await self.boxes.enter(spec, terminal.pid)
        except BaseException:
            await terminal.close()
            raise
        return spec, terminal

    async def _begin(self, spec: SessionSpec, shell: Shell, terminal: Terminal) -> Session:
        """Return a session that reads its new terminal. On failure, the terminal is closed and its error raised."""
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(terminal.close)
            with contextlib.ExitStack() as spare:
                for _ in range(SPARE_DESCRIPTORS):
                    spare.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            log = self._log(spec, terminal)
            undo.callback(log.close)
            session = self.session_class(
                spec, self._root / spec.session_id, shell, log, terminal, self.turns, self._looks
            )
            undo.callback(session.history.close)
            session.start()
            undo.pop_all()
        return session

    def _log(self, spec: SessionSpec, terminal: Terminal | None) -> OutputLog:
        path = self._root / spec.session_id / "log"
        follows = terminal.writes_log if terminal else spec.backend != "pty"
        kind = FollowedLog if follows else MappedLog
        return kind(path, retain_bytes=self.defaults.retain_bytes)

    async def _backend_for(self, name: str) -> Backend:
        if name == "auto":
            # A tmux that does not answer is waited for once by all who ask meanwhile, and not remembered.
            if self._choice is None or self._choice.done():
                self._choice = asyncio.create_task(self._automatic())
            return await asyncio.shield(self._choice)
        try:
            return self._backend(name)
        except ConfigInvalid as error:
            raise InvalidArguments(f"no backend {name[:40]!r}", suggestion=f"{error.suggestion}, or auto") from error

    async def _automatic(self) -> Backend:
        """Return the first backend that can be started now, or the last one, whose ``open`` raises what is wrong."""
        for name in AUTO[:-1]:
            if await _start(self._backend(name)):
                return self._backend(name)
        return self._backend(AUTO[-1])

    def _backend(self, name: str) -> Backend:
        if name not in self._backends:
            self._backends[name] = plugins.load("ai_session.backends", name)(self.runtime_directory)
        return self._backends[name]

    def rename(self, session: Session, name: str) -> None:
        """Give a session another name. Raises SessionExists if another session of its owner has it."""
        spec = session.spec
        if self._names.get((spec.owner, name), spec.session_id) != spec.session_id:
            raise SessionExists(f"session {name!r} already exists", suggestion="choose another name")
        self._names.pop((spec.owner, spec.name), None)
        self._names[spec.owner, name] = spec.session_id
        self.change(session, name=name)

    def _follow(self, session: Session) -> None:
        self.changes.follow(session)
        session.became = lambda session, executable: self.change(session, shell=executable)

    def change(self, session: Session, **facts: Any) -> None:
        """Change fields of a session's spec, and store it."""
        before = session.spec
        session.spec = replace(before, **facts)
        store(session.directory, session.spec)
        self.changes.listed(session.spec, before=before)

    async def resize(self, session: Session, rows: int, cols: int) -> None:
        """Change a session's own size, which remains when a viewer's temporary size ends. Raises SessionExited."""
        await session.resize(rows, cols)
        if session.own_size:
            session.own_size = (rows, cols)
        store(session.directory, session.spec)
        self.changes.look(session)

    async def close_idle(self, now: float) -> None:
        """Close the sessions of runs that were not used for ``owned_idle_days`` before ``now``."""
        if self.defaults.owned_idle_days:
            closings = (self._close_if_idle(session, now) for session in self.all())
            await asyncio.gather(*closings, return_exceptions=True)

    async def _close_if_idle(self, session: Session, now: float) -> None:
        days = self.defaults.owned_idle_days
        if is_of_run(session.spec.owner) and not session.in_use and now - session.used_at >= days * DAY_SECONDS:
            await self.close(session, f"it was not used for {days:g} days (session.owned_idle_days)")

    def why_closed(self, reference: str, visibility: Visibility) -> str:
        """Return why the session with this id or name was closed without a request; empty if it was not."""
        fits = (
            why for spec, why in self._closed if reference in (spec.session_id, spec.name) and visibility.covers(spec)
        )
        return next(fits, "")

    async def close(self, session: Session, reason: str = "") -> None:
        """End a session and remove it. The ``reason`` of an unrequested end is reported to callers that look for it."""
        if reason:
            self._closed.appendleft((session.spec, reason))
        self._sessions.pop(session.spec.session_id, None)
        self._names.pop((session.spec.owner, session.spec.name), None)
        await session.close(self.defaults.close_grace_seconds)
        self._looks.forget(session.spec.cookie)
        self.changes.closed(session)
        await self.boxes.leave(session.spec.session_id)
        facts = {"reason": reason} if reason else {}
        self._event("session.close", session=session.spec.session_id, name=session.spec.name, **facts)
        removal = self._forget(session.directory)
        if self._short_of_room():
            await asyncio.wait((removal,))

    def _short_of_room(self) -> bool:
        """Report whether the disk lacks room for a session. Then ``close`` waits until the files are removed."""
        try:
            disk = os.statvfs(self.runtime_directory)
        except OSError:
            return True
        return disk.f_bavail * disk.f_frsize < self.defaults.retain_bytes

    def _forget(self, directory: Path) -> asyncio.Task[None]:
        """Move a session's directory away and return the task that removes it, which takes longer than the closing."""
        gone = self.runtime_directory / GONE / directory.name
        try:
            gone.parent.mkdir(mode=0o700, exist_ok=True)
            directory.rename(gone)
        except OSError:
            gone = directory
        return self._remove(gone)

    def _remove(self, directory: Path) -> asyncio.Task[None]:
        removal = asyncio.create_task(asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True))
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)
        return removal

    async def adopt(self) -> int:
        """Adopt the sessions of an earlier daemon, live or ended, and return the number of all sessions."""
        for directory in (self.runtime_directory / GONE).glob("*"):
            self._remove(directory)
        specs = [spec for path in self._root.glob("*/spec.json") if (spec := read(path.parent)) is not None]
        terminals: dict[str, Terminal] = {}
        for name in {s.backend for s in specs}:
            try:
                terminals |= {terminal.session_id: terminal for terminal in await self._backend(name).adopt()}
            except (AiSessionError, OSError) as problem:
                # Unknown is not lost: these sessions stay on disk for a daemon that can reach the backend.
                log.warning("sessions on %s are not resumed: %s", name, problem)
                specs = [spec for spec in specs if spec.backend != name]
        for spec in specs:
            self._adopt_one(spec, terminals.pop(spec.session_id, None))
        for stray in terminals.values():
            await stray.close()
        # The size of the window of a person who was attached to the earlier daemon may be left.
        for session in self._sessions.values():
            alive = session.terminal is not None and session.exit is None
            if alive:
                # The output read by now may include its end.
                with contextlib.suppress(SessionExited, BackendUnavailable):
                    await session.resize(session.spec.rows, session.spec.cols)
            pid = session.terminal.pid if session.terminal is not None and alive else 0
            await self.boxes.adopt(session.spec, pid, session.directory)
        return len(self._sessions)

    def _adopt_one(self, spec: SessionSpec, terminal: Terminal | None) -> None:
        directory = self._root / spec.session_id
        try:
            shell = shell_named(spec.shell)
            session = self.session_class(
                spec, directory, shell, self._log(spec, terminal), terminal, self.turns, self._looks
            )
        except (AiSessionError, OSError):
            return
        self._sessions[spec.session_id] = session
        self._names[spec.owner, spec.name] = spec.session_id
        self._follow(session)
        session.resume()

    async def end_all_left(self) -> None:
        """End all sessions that an earlier daemon left, and every holder and tmux server."""
        for name in AUTO:
            self._backend(name)
        await self.adopt()
        await self.stop()

    async def aclose(self) -> None:
        """Release all resources and leave every shell alive."""
        for session in self._sessions.values():
            session.release()
        await self.boxes.aclose()
        for backend in self._backends.values():
            await backend.aclose()
        await asyncio.gather(*self._removals)

    async def stop(self) -> None:
        """End every session, the holder and the tmux server."""
        if self._choice is not None:
            self._choice.cancel()
            await asyncio.wait([self._choice])
        await asyncio.gather(*(self.close(s) for s in list(self._sessions.values())), return_exceptions=True)
        for backend in self._backends.values():
            await backend.stop()
        await asyncio.gather(*self._removals)


async def _start(backend: Backend) -> bool:
    """Prepare the backend and return whether it works. Errors are ignored: opening the terminal raises them again."""
    try:
        await backend.make_ready()
    except (AiSessionError, OSError):
        return False
    return True
