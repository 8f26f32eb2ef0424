"""Sessions and commands for programs that wait. Several threads may use one session."""

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
"""How often a call is made while daemons die; with its key it is carried out once."""


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
    """The session with that name: found, and then taken as it is, or made with the other arguments.

    It is there until it is closed, whatever becomes of this program; one without a name is closed with its ``with``
    block. ``directory`` is this program's own unless given; ``profile`` asks for a sandbox profile other than the
    configured one. Raises AiSessionError: ConsentNeeded where a person has to agree first, Denied, ConfigInvalid …
    """
    made = name or f"python-{os.urandom(4).hex()}"
    wanted = {"working_directory": os.path.abspath(directory), "shell": shell, "backend": backend, "env": env}
    return Session(drive(steps.open_session(made, profile, **wanted, rows=rows, cols=cols)), lasting=bool(name))


def list_sessions() -> list[SessionInfo]:
    """All sessions there are. Raises DaemonUnavailable."""
    return drive(steps.listed())


class Session:
    """A terminal with a shell: directory, variables, functions and jobs stay between commands."""

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
        """``timeout`` ends the wait, never the command, which then continues (``status`` is ``running``).

        Returns once the command is over, wants input (``input_mode`` says which) or ``timeout`` seconds have passed.
        An exit code is data; with ``check``, CommandFailed is raised unless the command finished with exit code 0.
        ``stdin`` is the command's standard input instead of the terminal. Raises SessionBusy while another runs.
        """
        done = drive(steps.run(self.id, command, timeout, stdin=stdin, apart=separate_stderr))
        return done.check() if check else done

    def start(self, command: str, *, stdin: str | None = None, separate_stderr: bool = False) -> Command:
        """Begin a command and return at once."""
        return Command(self, drive(steps.start(self.id, command, stdin=stdin, apart=separate_stderr)))

    def send(self, text: str) -> None:
        """Type text as it is, for the program that reads the terminal; no Enter is added."""
        drive(steps.send(self.id, text))

    def keys(self, *names: str) -> None:
        """Press keys: ``"Enter"``, ``"C-c"``, ``"Up"``, ``"F1"`` …"""
        drive(steps.send(self.id, "", names))

    def screen(self) -> Screen:
        """What is visible now, as of a full-screen program."""
        return drive(steps.read_screen(self.id))

    def read(self, offset: int = 0) -> str:
        """All that the terminal printed from that byte on, as text. Raises OutputExpired where it is not kept."""
        return drive(steps.text(self.id, "all", offset))

    def info(self) -> SessionInfo:
        """The session as it is now."""
        return drive(steps.info(self.id))

    def resize(self, rows: int, cols: int) -> None:
        """Another size of the terminal."""
        drive(steps.resize(self.id, rows, cols))

    def close(self) -> None:
        """End the shell and all that runs in it; may be called again."""
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
    """A command that was begun. It continues whether or not anybody waits for it."""

    def __init__(self, session: Session, command_id: str) -> None:
        self.session = session
        self.id = command_id
        self._reader = steps.Reader(session.id, command_id)

    def wait(self, timeout: float | None = None) -> CommandResult:
        """``timeout`` ends the wait, never the command. Returns as ``Session.run`` does."""
        return drive(steps.finish(self.session.id, self.id, steps.Wait(timeout)))

    def poll(self) -> CommandResult | None:
        """What came of it, None while it runs."""
        found = self.wait(0)
        return None if found.status == "running" else found

    def output(self) -> str:
        """All that it printed until now. Raises OutputExpired where the beginning is not kept."""
        return drive(steps.text(self.session.id, self.id))

    def read(self) -> str:
        """What it printed since the last ``read`` or ``expect``."""
        return drive(self._reader.read())

    def expect(self, pattern: str | re.Pattern[str], timeout: float | None = 30.0) -> re.Match[str]:
        """Wait until it prints what matches, searched from the end of the last match on.

        Raises NotExpected when ``timeout`` seconds have passed or the command ends before.
        """
        return drive(self._reader.expect(pattern, timeout))

    def send(self, text: str) -> None:
        """Type text as it is; no Enter is added."""
        self.session.send(text)

    def interrupt(self) -> CommandResult:
        """Ctrl-C, then what is stronger until it ends. Raises NothingRunning when it is over."""
        return drive(steps.interrupt(self.session.id, self.id))

    def __repr__(self) -> str:
        return f"<Command {self.id} in {self.session.name!r}>"


class Connections:
    """Those of this process that nobody uses now, to whichever daemon its environment leads."""

    def __init__(self) -> None:
        self._idle: dict[str, list[ControlClient]] = {}
        os.register_at_fork(after_in_child=self.close)
        atexit.register(self.close)

    def call(self, call: Call) -> Facts:
        """The structured result of one call. Raises what the tool failed with, DaemonUnavailable."""
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
        # A new session gets the current environment, which a connection sends when it is made.
        connection = _taken(idle) if call.tool != "create_session" else None
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
                connection.close()  # also where a wait was interrupted: its answer would be taken for the next one's
        return facts

    def close(self) -> None:
        """Hang up; the next call connects again."""
        for idle in list(self._idle.values()):
            while connection := _taken(idle):
                connection.close()


def _taken(idle: list[ControlClient]) -> ControlClient | None:
    """One that no other thread takes as well; None where there is none."""
    try:
        return idle.pop()
    except IndexError:
        return None


_connections = Connections()


def drive(conversation: Steps[T]) -> T:
    """Carry the calls out until there is a value."""
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
