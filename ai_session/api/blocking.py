"""Sessions and commands for blocking programs. Several threads may use one session."""

from __future__ import annotations

import atexit
import os
import re
from types import TracebackType
from typing import Self, TypeVar

from ai_session.api import steps
from ai_session.api.steps import Call, Facts, Steps
from ai_session.api.values import CommandResult, Screen, SessionInfo
from ai_session.client import relay
from ai_session.client.connection import ControlClient, connect_program
from ai_session.errors import AiSessionError, DaemonUnavailable

T = TypeVar("T")

ATTEMPTS = 3
"""The number of attempts of a call if daemons end; with its key it is carried out only once."""


def open(  # noqa: A001
    name: str = "",
    *,
    directory: str | os.PathLike[str] = "",
    shell: str = "",
    backend: str = "",
    profile: str = "",
    env: dict[str, str] | None = None,
    rows: int = 0,
    cols: int = 0,
) -> Session:
    """Return the session with that name: an existing one as it is, or a new one with the other arguments.

    A session without a name is closed at the end of its ``with`` block; any other stays open until it is closed,
    whatever happens to this program. ``directory`` defaults to this program's; ``profile`` requests a sandbox profile
    other than the configured one. Raises AiSessionError: SessionExists if an existing session has another profile,
    shell or backend, or a workspace without ``directory``; ConsentNeeded if a person has to agree first, Denied,
    ConfigInvalid …
    """
    unique = name or f"python-{os.urandom(4).hex()}"
    found = drive(steps.open_session(unique, directory, profile, shell, backend, env=env, rows=rows, cols=cols))
    return Session(found, lasting=bool(name))


def list_sessions() -> list[SessionInfo]:
    """Return all sessions. Raises DaemonUnavailable."""
    return drive(steps.list_sessions())


class Session:
    """A terminal with a shell: its directory, variables, functions and jobs persist between commands."""

    def __init__(self, info: SessionInfo, *, lasting: bool) -> None:
        self.name = info.name
        self.id = info.session_id
        self._lasting = lasting

    def run(
        self,
        command: str,
        *,
        timeout: float | None = None,
        check: bool = False,
        stdin: str | None = None,
        separate_stderr: bool = False,
    ) -> CommandResult:
        """Run a command; return its result when it ends, needs input (``input_mode``) or ``timeout`` seconds pass.

        After the timeout the command continues, and ``status`` is ``running``. An exit code is data; with ``check``,
        raises CommandFailed unless the command finished with exit code 0. ``stdin`` is the command's standard input
        instead of the terminal. Raises SessionBusy while another command runs.
        """
        done = drive(steps.run(self.id, command, timeout, stdin=stdin, apart=separate_stderr))
        return done.check() if check else done

    def start(self, command: str, *, stdin: str | None = None, separate_stderr: bool = False) -> Command:
        """Start a command without waiting for it."""
        return Command(self, drive(steps.start(self.id, command, stdin=stdin, apart=separate_stderr)))

    def send(self, text: str) -> None:
        """Type text for the program that reads the terminal, without adding Enter."""
        drive(steps.send(self.id, text))

    def keys(self, *names: str) -> None:
        """Press keys: ``"Enter"``, ``"C-c"``, ``"Up"``, ``"F1"`` …"""
        drive(steps.send(self.id, "", names))

    def screen(self) -> Screen:
        """Return what is visible now, also of a full-screen program."""
        return drive(steps.read_screen(self.id))

    def read(self, offset: int = 0) -> str:
        """Return the terminal's output from byte ``offset`` on. Raises OutputExpired if it is no longer stored."""
        return drive(steps.text(self.id, "all", offset))

    def info(self) -> SessionInfo:
        """Return the session's current properties."""
        return drive(steps.info(self.id))

    def resize(self, rows: int, cols: int) -> None:
        """Change the size of the terminal."""
        drive(steps.resize(self.id, rows, cols))

    def close(self) -> None:
        """End the shell and everything that runs in it; may be called twice."""
        drive(steps.close(self.id))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._lasting:
            self.close()

    def __repr__(self) -> str:
        return f"<Session {self.name!r} {self.id}>"


class Command:
    """A command that was started. It continues whether or not a caller waits for it."""

    def __init__(self, session: Session, command_id: str) -> None:
        self.session = session
        self.id = command_id
        self._reader = steps.Reader(session.id, command_id)

    def wait(self, timeout: float | None = None) -> CommandResult:
        """Wait as ``Session.run`` does and return the result; the command continues after the timeout."""
        return drive(steps.finish(self.session.id, self.id, steps.Wait(timeout)))

    def poll(self) -> CommandResult | None:
        """Return the result, None while the command runs."""
        found = self.wait(0)
        return None if found.status == "running" else found

    def output(self) -> str:
        """Return all output so far. Raises OutputExpired if the beginning is no longer stored."""
        return drive(steps.text(self.session.id, self.id))

    def read(self) -> str:
        """Return the output since the last ``read`` or ``expect``."""
        return drive(self._reader.read())

    def expect(self, pattern: str | re.Pattern[str], timeout: float | None = 30.0) -> re.Match[str]:
        """Wait for a match after the end of the previous one, and return it.

        Raises NotExpected if ``timeout`` seconds pass or the command ends before.
        """
        return drive(self._reader.expect(pattern, timeout))

    def send(self, text: str) -> None:
        """Type text without adding Enter."""
        self.session.send(text)

    def interrupt(self) -> CommandResult:
        """Send Ctrl-C, then stronger signals until the command ends. Raises NothingRunning if it has ended already."""
        return drive(steps.interrupt(self.session.id, self.id))

    def __repr__(self) -> str:
        return f"<Command {self.id} in {self.session.name!r}>"


class Connections:
    """The idle connections of this process, by the runtime directory to which the environment leads."""

    def __init__(self) -> None:
        self._idle: dict[str, list[ControlClient]] = {}
        os.register_at_fork(after_in_child=self.close)
        atexit.register(self.close)

    def call(self, call: Call) -> Facts:
        """Return the structured result of one call. Raises the tool's error, or DaemonUnavailable."""
        for last in range(ATTEMPTS - 1, -1, -1):
            try:
                return self._call(call)
            except DaemonUnavailable:
                self.close()
                if not last:
                    raise
        raise AssertionError

    def _call(self, call: Call) -> Facts:
        idle = self._idle.setdefault(next(relay.directories()), [])
        # A new session gets the current environment, which is sent when a connection is opened.
        connection = _pop(idle) if call.tool != "create_session" else None
        connection = connection or connect_program("python")
        usable = False
        try:
            facts = connection.call(call.tool, box=call.profile, **call.arguments).structured
            usable = True
        except DaemonUnavailable:
            raise
        except AiSessionError:
            usable = True
            raise
        finally:
            if usable:
                idle.append(connection)
            else:
                connection.close()  # also after an interrupted wait, whose response would be taken for the next one's
        return facts

    def close(self) -> None:
        """Close all idle connections; the next call connects again."""
        for idle in list(self._idle.values()):
            while connection := _pop(idle):
                connection.close()


def _pop(idle: list[ControlClient]) -> ControlClient | None:
    """Return an idle connection that no other thread gets; None if there is none."""
    try:
        return idle.pop()
    except IndexError:
        return None


_connections = Connections()


def drive(conversation: Steps[T]) -> T:
    """Make the calls of an operation and return its value."""
    try:
        call = next(conversation)
        while True:
            try:
                facts = _connections.call(call)
            except AiSessionError as error:
                call = conversation.throw(error)
            else:
                call = conversation.send(facts)
    except StopIteration as done:
        return done.value
    except AiSessionError as error:
        steps.explain(error)
        raise
