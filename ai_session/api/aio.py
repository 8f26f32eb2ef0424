"""Sessions and commands for asynchronous programs, with the names and arguments of the blocking API."""

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
from ai_session.client.connection import dial_program, error_from
from ai_session.client.dialing import open_streams
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
    """Return the session with that name, see ``ai_session.open``. Leaving its ``async with`` disconnects."""
    unique = name or f"python-{os.urandom(4).hex()}"
    connection = Connection()
    try:
        asked = steps.open_session(unique, directory, profile, shell, backend, env=env, rows=rows, cols=cols)
        info = await connection.drive(asked)
    except BaseException:
        await connection.close()
        raise
    return Session(info, connection, lasting=bool(name))


async def list_sessions() -> list[SessionInfo]:
    """Return all sessions. Raises DaemonUnavailable."""
    connection = Connection()
    try:
        return await connection.drive(steps.list_sessions())
    finally:
        await connection.close()


class Session:
    """A terminal with a shell. Several tasks may use it, on the event loop that opened it."""

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
        """Run a command; return its result when it ends, needs input or the timeout passes, as the blocking API.

        After the timeout, or if the task is cancelled, the command continues.
        """
        done = await self.drive(steps.run(self.id, command, timeout, stdin=stdin, apart=separate_stderr))
        return done.check() if check else done

    async def start(self, command: str, *, stdin: str | None = None, separate_stderr: bool = False) -> Command:
        """Start a command without waiting for it."""
        return Command(self, await self.drive(steps.start(self.id, command, stdin=stdin, apart=separate_stderr)))

    async def send(self, text: str) -> None:
        """Type text without adding Enter."""
        await self.drive(steps.send(self.id, text))

    async def keys(self, *names: str) -> None:
        """Press keys: ``"Enter"``, ``"C-c"``, ``"Up"``, ``"F1"`` …"""
        await self.drive(steps.send(self.id, "", names))

    async def screen(self) -> Screen:
        """Return what is visible now."""
        return await self.drive(steps.read_screen(self.id))

    async def read(self, offset: int = 0) -> str:
        """Return the terminal's output from byte ``offset`` on. Raises OutputExpired if it is no longer stored."""
        return await self.drive(steps.text(self.id, "all", offset))

    async def info(self) -> SessionInfo:
        """Return the session's current properties."""
        return await self.drive(steps.info(self.id))

    async def resize(self, rows: int, cols: int) -> None:
        """Change the size of the terminal."""
        await self.drive(steps.resize(self.id, rows, cols))

    async def close(self) -> None:
        """End the shell and everything that runs in it, and close the connection; may be called twice."""
        try:
            await self.drive(steps.close(self.id))
        finally:
            await self._connection.close()

    async def drive(self, conversation: Steps[T]) -> T:
        """Make the calls of an operation and return its value."""
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
    """A command that was started. It continues whether or not a caller waits for it."""

    def __init__(self, session: Session, command_id: str) -> None:
        self.session = session
        self.id = command_id
        self._reader = steps.Reader(session.id, command_id)

    async def wait(self, timeout: float | None = None) -> CommandResult:
        """Wait as ``Session.run`` does and return the result; the command continues after the timeout."""
        return await self.session.drive(steps.finish(self.session.id, self.id, steps.Wait(timeout)))

    async def poll(self) -> CommandResult | None:
        """Return the result, None while the command runs."""
        found = await self.wait(0)
        return None if found.status == "running" else found

    async def output(self) -> str:
        """Return all output so far. Raises OutputExpired if the beginning is no longer stored."""
        return await self.session.drive(steps.text(self.session.id, self.id))

    async def read(self) -> str:
        """Return the output since the last ``read`` or ``expect``."""
        return await self.session.drive(self._reader.read())

    async def expect(self, pattern: str | re.Pattern[str], timeout: float | None = 30.0) -> re.Match[str]:
        """Wait for a match after the end of the previous one. Raises NotExpected."""
        return await self.session.drive(self._reader.expect(pattern, timeout))

    async def send(self, text: str) -> None:
        """Type text without adding Enter."""
        await self.session.send(text)

    async def interrupt(self) -> CommandResult:
        """Send Ctrl-C, then stronger signals until the command ends. Raises NothingRunning if it has ended already."""
        return await self.session.drive(steps.interrupt(self.session.id, self.id))

    def __repr__(self) -> str:
        return f"<Command {self.id} in {self.session.name!r}>"


class Connection:
    """A connection to the daemon, opened on demand, for concurrent calls."""

    def __init__(self) -> None:
        self._link: Link | None = None
        self._dialing = asyncio.Lock()

    async def drive(self, conversation: Steps[T]) -> T:
        """Make the calls of an operation and return its value."""
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
                self._link = Link(*await open_streams(_dial, MAX_LINE_BYTES))
            return self._link

    async def close(self) -> None:
        """Close the connection; commands continue. A later call connects again."""
        link = self._link
        self._link = None
        if link:
            await link.close()


def _dial() -> socket.socket:
    try:
        return dial_program("python")
    except relay.Unreachable as error:
        raise error_from({"code": error.code, "message": error.message, "suggestion": error.suggestion}) from None


class Link:
    """One connection from its hello to its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.ended = False
        self._reading = asyncio.create_task(self._read())

    async def call(self, call: Call) -> Facts:
        """Return the structured result. Raises the tool's error, or DaemonUnavailable if the daemon disconnects."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        params = {"name": call.tool, "arguments": call.arguments, **({"profile": call.profile} if call.profile else {})}
        try:
            if self.ended:
                raise _disconnected()
            self._writer.write(json.dumps({"id": number, "method": "call", "params": params}).encode() + b"\n")
            message = await answer
        finally:
            del self._waiting[number]
        if "error" in message:
            raise error_from(message["error"])
        result = message["result"]
        if result["is_error"]:
            raise error_from(result["structured"].get("error") or {"message": result["text"]})
        return result["structured"]

    async def _read(self) -> None:
        try:
            await self._reader.readline()  # the daemon's hello
            while line := await self._reader.readline():
                message = json.loads(line)
                answer = self._waiting.get(message.get("id") or 0)
                if answer and not answer.done():
                    answer.set_result(message)
        except (ConnectionError, ValueError):
            pass  # like the end of the stream
        finally:
            self.ended = True
            self._writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(_disconnected())

    async def close(self) -> None:
        """Close the connection."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        with suppress(ConnectionError):
            await self._writer.wait_closed()


def _disconnected() -> DaemonUnavailable:
    return DaemonUnavailable(
        "the connection to the daemon ended", suggestion="try again; sessions keep running, a new daemon adopts them"
    )
