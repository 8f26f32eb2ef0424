"""Sessions and commands for programs that await: the names and arguments of the blocking API."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import socket
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from ai_session.api import steps
from ai_session.api.steps import Call, Facts, Steps
from ai_session.api.values import CommandResult, Screen, SessionInfo
from ai_session.client import relay
from ai_session.client.connection import dial_program, error_named
from ai_session.client.dialing import dialled
from ai_session.errors import AiSessionError, DaemonUnavailable

T = TypeVar("T")

ATTEMPTS = 3
MAX_LINE_BYTES = 512 << 20


async def open(  # noqa: A001
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
    """The session with that name, found or made, as ``ai_session.open``. Leaving its ``async with`` hangs up."""
    made = name or f"python-{os.urandom(4).hex()}"
    wanted = {"working_directory": os.path.abspath(directory), "shell": shell, "backend": backend, "env": env}
    connection = Connection()
    try:
        info = await connection.drive(steps.open_session(made, profile, **wanted, rows=rows, cols=cols))
    except BaseException:
        await connection.close()
        raise
    return Session(info, connection, lasting=bool(name))


async def list_sessions() -> list[SessionInfo]:
    """All sessions there are. Raises DaemonUnavailable."""
    connection = Connection()
    try:
        return await connection.drive(steps.listed())
    finally:
        await connection.close()


class Session:
    """A terminal with a shell. Several tasks may use it; it belongs to the event loop that opened it."""

    def __init__(self, info: SessionInfo, connection: Connection, *, lasting: bool) -> None:
        self.name = info.name
        self.id = info.session_id
        self._connection = connection
        self._lasting = lasting

    async def run(
        self,
        command: str,
        *,
        timeout: float | None = None,
        check: bool = False,
        stdin: str | None = None,
        separate_stderr: bool = False,
    ) -> CommandResult:
        """``timeout`` ends the wait, never the command, which then continues; so does cancelling the task.

        Returns once the command is over, wants input or ``timeout`` seconds have passed, as the blocking API's.
        """
        done = await self.drive(steps.run(self.id, command, timeout, stdin=stdin, apart=separate_stderr))
        return done.check() if check else done

    async def start(self, command: str, *, stdin: str | None = None, separate_stderr: bool = False) -> Command:
        """Begin a command and return at once."""
        return Command(self, await self.drive(steps.start(self.id, command, stdin=stdin, apart=separate_stderr)))

    async def send(self, text: str) -> None:
        """Type text as it is; no Enter is added."""
        await self.drive(steps.send(self.id, text))

    async def keys(self, *names: str) -> None:
        """Press keys: ``"Enter"``, ``"C-c"``, ``"Up"``, ``"F1"`` …"""
        await self.drive(steps.send(self.id, "", names))

    async def screen(self) -> Screen:
        """What is visible now."""
        return await self.drive(steps.read_screen(self.id))

    async def read(self, offset: int = 0) -> str:
        """All that the terminal printed from that byte on, as text. Raises OutputExpired where it is not kept."""
        return await self.drive(steps.text(self.id, "all", offset))

    async def info(self) -> SessionInfo:
        """The session as it is now."""
        return await self.drive(steps.info(self.id))

    async def resize(self, rows: int, cols: int) -> None:
        """Another size of the terminal."""
        await self.drive(steps.resize(self.id, rows, cols))

    async def close(self) -> None:
        """End the shell and all that runs in it, and hang up; may be called again."""
        try:
            await self.drive(steps.close(self.id))
        finally:
            await self._connection.close()

    async def drive(self, conversation: Steps[T]) -> T:
        """Carry the calls of an operation out."""
        return await self._connection.drive(conversation)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self._connection.close() if self._lasting else self.close())

    def __repr__(self) -> str:
        return f"<Session {self.name!r} {self.id}>"


class Command:
    """A command that was begun. It continues whether or not anybody waits for it."""

    def __init__(self, session: Session, command_id: str) -> None:
        self.session = session
        self.id = command_id
        self._reader = steps.Reader(session.id, command_id)

    async def wait(self, timeout: float | None = None) -> CommandResult:
        """``timeout`` ends the wait, never the command. Returns as ``Session.run`` does."""
        return await self.session.drive(steps.finish(self.session.id, self.id, steps.Wait(timeout)))

    async def poll(self) -> CommandResult | None:
        """What came of it, None while it runs."""
        found = await self.wait(0)
        return None if found.status == "running" else found

    async def output(self) -> str:
        """All that it printed until now. Raises OutputExpired where the beginning is not kept."""
        return await self.session.drive(steps.text(self.session.id, self.id))

    async def read(self) -> str:
        """What it printed since the last ``read`` or ``expect``."""
        return await self.session.drive(self._reader.read())

    async def expect(
        self,
        pattern: str | re.Pattern[str],
        timeout: float | None = 30.0,
    ) -> re.Match[str]:
        """Wait until it prints what matches, from the end of the last match on. Raises NotExpected."""
        return await self.session.drive(self._reader.expect(pattern, timeout))

    async def send(self, text: str) -> None:
        """Type text as it is; no Enter is added."""
        await self.session.send(text)

    async def interrupt(self) -> CommandResult:
        """Ctrl-C, then what is stronger until it ends. Raises NothingRunning when it is over."""
        return await self.session.drive(steps.interrupt(self.session.id, self.id))

    def __repr__(self) -> str:
        return f"<Command {self.id} in {self.session.name!r}>"


class Connection:
    """One to the daemon, made when it is needed, with many calls at a time."""

    def __init__(self) -> None:
        self._link: Link | None = None
        self._dialing = asyncio.Lock()

    async def drive(self, conversation: Steps[T]) -> T:
        """Carry the calls out until there is a value."""
        try:
            call = next(conversation)
            while True:
                try:
                    facts = await self._call(call)
                except AiSessionError as error:
                    call = conversation.throw(error)
                else:
                    call = conversation.send(facts)
        except StopIteration as done:
            return done.value
        except AiSessionError as error:
            steps.explain(error)
            raise

    async def _call(self, call: Call) -> Facts:
        for last in range(ATTEMPTS - 1, -1, -1):
            try:
                return await (await self._connected()).call(call)
            except DaemonUnavailable:
                if not last:
                    raise
        raise AssertionError

    async def _connected(self) -> Link:
        async with self._dialing:
            if self._link is None or self._link.ended:
                self._link = Link(*await dialled(_dial, MAX_LINE_BYTES))
            return self._link

    async def close(self) -> None:
        """Hang up; commands continue. A later call connects again."""
        link = self._link
        self._link = None
        if link:
            await link.close()


def _dial() -> socket.socket:
    try:
        return dial_program("python")
    except relay.Unreachable as error:
        raise error_named({"code": error.code, "message": error.message, "suggestion": error.suggestion}) from None


class Link:
    """A connection from its hello to its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.ended = False
        self._reading = asyncio.create_task(self._read())

    async def call(self, call: Call) -> Facts:
        """The structured result. Raises what the tool failed with, DaemonUnavailable when the daemon goes away."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        params = {"name": call.tool, "arguments": call.arguments, **({"profile": call.profile} if call.profile else {})}
        try:
            if self.ended:
                raise _gone()
            self._writer.write(json.dumps({"id": number, "method": "call", "params": params}).encode() + b"\n")
            message = await answer
        finally:
            del self._waiting[number]
        if "error" in message:
            raise error_named(message["error"])
        result = message["result"]
        if result["is_error"]:
            raise error_named(result["structured"].get("error") or {"message": result["text"]})
        return result["structured"]

    async def _read(self) -> None:
        try:
            await self._reader.readline()  # what it says of itself
            while line := await self._reader.readline():
                message = json.loads(line)
                answer = self._waiting.get(message.get("id") or 0)
                if answer and not answer.done():
                    answer.set_result(message)
        except (ConnectionError, ValueError):
            pass  # the same as its end
        finally:
            self.ended = True
            self._writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(_gone())

    async def close(self) -> None:
        """Hang up."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        with suppress(ConnectionError):
            await self._writer.wait_closed()


def _gone() -> DaemonUnavailable:
    return DaemonUnavailable(
        "the daemon went away", suggestion="try again; sessions stay alive and a new daemon finds them"
    )
