"""The client of MCP servers: started here or reached over HTTP, with every revision of the protocol."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Tool,
)

from ccswarm.clients.base import UNKNOWN_EFFECT, OnProgress, Person, ToolClient
from ccswarm.clients.mcp.answers import OWN_META, refusal, to_answer
from ccswarm.clients.mcp.connection import Connection, Era
from ccswarm.clients.mcp.elicitation import Ask
from ccswarm.clients.mcp.eras import EraFile
from ccswarm.clients.mcp.failures import LOGIN_NEEDED, NO_ANSWER, NOT_SENT, SESSION_GONE, advice
from ccswarm.clients.mcp.output_schemas import OutputSchemas
from ccswarm.clients.mcp.tools import to_infos
from ccswarm.config.settings import ServerSettings
from ccswarm.errors import CallTimedOut, InvalidArguments, LoginNeeded, ServerLost, ServerUnavailable, UnknownTool
from ccswarm.models import LoginFacts, ServerAnswer, ToolInfo

MAX_PAGES = 200
"""The most pages of one list of tools."""

TOO_LARGE_EVENT = "SSE stream failed"
"""The beginning of the SDK's message about an answer that is too large."""


class McpToolClient:
    """The client of one configured server. Implements ``ToolClient``.

    ``env`` provides the variables for the server and its headers. ``era_cache`` stores the era each server uses.
    ``on_stderr`` is called with the server's standard error as it arrives. ``state_directory`` holds the logins;
    without it there are none. ``ask`` answers a server's questions during a call; without it elicitation is not
    offered.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        env: Mapping[str, str],
        era_cache: MutableMapping[str, str],
        on_stderr: Callable[[str], None] | None = None,
        state_directory: Path | None = None,
        ask: Ask | None = None,
    ) -> None:
        self.name = settings.name
        self.problem = ""
        self.notes: Sequence[str] = ()
        self.about = ""
        self._settings = settings
        self._state_directory = state_directory
        self._ask = ask
        self._env = env
        self._eras = era_cache
        self._on_stderr = on_stderr
        self._slots = asyncio.Semaphore(settings.at_once)
        self._starting: asyncio.Task[Connection] | None = None
        self._connections: set[Connection] = set()
        self._listing = asyncio.Lock()
        self._tools: tuple[ToolInfo, ...] | None = None
        self._changes = 0
        self._schemas = OutputSchemas()
        self._closed = False

    async def list_tools(self, *, fresh: bool = False) -> Sequence[ToolInfo]:
        async with self._listing:
            connection = await self._connect()
            if self._tools is not None and not fresh:
                return self._tools
            try:
                return await self._list(connection)
            except ServerUnavailable:
                if not (self._settings.url and not connection.alive):
                    raise
            return await self._list(await self._connect())  # the server no longer knew the session

    async def _list(self, connection: Connection) -> tuple[ToolInfo, ...]:
        self._tools = None
        await connection.watch_tools()
        changes = self._changes
        tools = await self._fetch(connection)
        if changes == self._changes:
            self._tools = tools
        self.problem = ""
        return tools

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        timeout_seconds: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ServerAnswer:
        if not self._settings.tools.sees(name):
            raise self._unknown(name)
        seconds = self._settings.timeout_seconds if timeout_seconds is None else timeout_seconds
        async with self._slots:
            for may_repeat in (True, False):
                connection = await self._connect()
                clock = asyncio.timeout(seconds)
                try:
                    async with clock:
                        result = await connection.call_tool(name, arguments, meta, _progress_callback(on_progress))
                except TimeoutError:
                    if not clock.expired():
                        raise
                    raise CallTimedOut(
                        f"server {self.name} did not answer {name} within {seconds:g} s", suggestion=UNKNOWN_EFFECT
                    ) from None
                except MCPError as error:
                    if may_repeat and await self._repeatable(error, connection):
                        continue
                    return await self._handle_error(name, error, connection)
                except (ValueError, TypeError) as error:
                    raise InvalidArguments(f"the arguments of {name} are not JSON: {error}") from error
                self.problem = ""
                return self._check_schema(name, to_answer(result))
        raise AssertionError("the second try answers or raises")

    def _check_schema(self, name: str, answer: ServerAnswer) -> ServerAnswer:
        tool = next((tool for tool in self._tools or () if tool.name == name), None)
        if tool is None or tool.output_schema is None or answer.is_error:
            return answer
        problem = self._schemas.problem(name, tool.output_schema, answer.structured)
        return replace(answer, meta={**answer.meta, OWN_META: {"outputSchema": problem}}) if problem else answer

    async def close(self) -> None:
        self._closed = True
        for connection in list(self._connections):
            await connection.close()
        if self._starting is not None:
            await asyncio.wait([self._starting])

    async def _connect(self) -> Connection:
        """Return the connection, started if needed. Concurrent callers wait for the same start."""
        if self._closed:
            raise self._was_closed()
        starting = self._starting
        if starting is None or (starting.done() and (starting.exception() or not starting.result().alive)):
            starting = self._starting = asyncio.create_task(self._start())
            starting.add_done_callback(_consume_exception)
        try:
            return await asyncio.shield(starting)
        except ServerUnavailable as error:
            self.problem = error.message
            raise type(error)(error.message, suggestion=error.suggestion) from error

    async def _start(self) -> Connection:
        if self._closed:
            raise self._was_closed()
        self._changed()
        settings = self._settings
        identity = json.dumps([settings.command, settings.args, settings.url])
        key = f"{settings.name} {hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        known = self._eras.get(key, "")
        era: Era = "modern" if known == "modern" else "legacy" if known == "legacy" else ""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + settings.connect_seconds
        connection = self._connection()
        try:
            agreed = await connection.open(era, settings.connect_seconds)
        except ServerUnavailable:
            if not connection.ended_on_discover or self._closed:
                raise
            connection = self._connection()
            agreed = await connection.open("legacy", max(0.0, deadline - loop.time()))
        if agreed != known:
            self._eras[key] = agreed
        self.about = connection.about
        return connection

    def _connection(self) -> Connection:
        for former in list(self._connections):
            if former.over:
                self._connections.discard(former)
            elif not former.busy:
                former.abandon()
        connection = Connection(
            self._settings,
            self._env,
            on_stderr=self._on_stderr,
            on_change=self._changed,
            state_directory=self._state_directory,
            ask=self._ask,
        )
        self._connections.add(connection)
        return connection

    def _changed(self) -> None:
        self._tools = None
        self._changes += 1

    async def _fetch(self, connection: Connection) -> tuple[ToolInfo, ...]:
        notes: list[str] = []
        tools: list[Tool] = []
        seen: set[str] = set()
        cursor: str | None = None
        connection.left_out.clear()
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                for _ in range(MAX_PAGES):
                    page = await connection.list_page(cursor)
                    tools += page.tools
                    cursor = page.next_cursor
                    if not cursor:
                        break
                    if cursor in seen:
                        notes.append("its list of tools repeats itself: only new entries are used")
                        break
                    seen.add(cursor)
                else:
                    notes.append(f"its list of tools has more than {MAX_PAGES} pages: the rest is left out")
        except (MCPError, ValueError, TimeoutError) as error:
            if not (isinstance(error, MCPError) and error.code == METHOD_NOT_FOUND and connection.alive):
                raise await self._list_failure(error, connection) from error
            notes.append("it has no tools")
        notes += connection.left_out
        infos = to_infos(tools, self._settings, notes)
        self.notes = tuple(notes)
        return infos

    async def _list_failure(self, error: Exception, connection: Connection) -> ServerUnavailable:
        if isinstance(error, MCPError) and error.code == LOGIN_NEEDED:
            self.problem = error.message
            return LoginNeeded(error.message, suggestion=advice(error.data))
        if isinstance(error, MCPError) and error.code == SESSION_GONE:
            connection.abandon()
        if not connection.alive:
            problem = await connection.describe_end()
        elif isinstance(error, TimeoutError):
            problem = f"did not list its tools within {self._settings.timeout_seconds:g} s"
        else:
            problem = f"did not list its tools: {error}"
        self.problem = f"server {self.name} {problem}"
        return ServerUnavailable(self.problem)

    async def _repeatable(self, error: MCPError, connection: Connection) -> bool:
        """Report whether the call had no effect and is worth sending again."""
        if error.code == HEADER_MISMATCH:
            await self.list_tools(fresh=True)
            return True
        if self._settings.url and error.code == SESSION_GONE:
            connection.abandon()
            return True
        return False

    async def _handle_error(self, name: str, error: MCPError, connection: Connection) -> ServerAnswer:
        """Return the server's error as an answer, or raise the error of a call without an answer."""
        if not connection.alive and error.code == CONNECTION_CLOSED:
            how = "was closed" if self._closed else await connection.describe_end()
            self.problem = f"server {self.name} {how}"
            raise ServerLost(f"while {name} was called, {self.problem}", suggestion=UNKNOWN_EFFECT)
        if self._settings.url:
            self._raise_transport_error(name, error)
        if error.code == METHOD_NOT_FOUND:
            raise self._unknown(name)
        if error.code == INVALID_PARAMS:
            if name not in {tool.name for tool in await self.list_tools()}:
                raise self._unknown(name)
            raise InvalidArguments(f"{self.name} refuses the arguments of {name}: {error.message}")
        return refusal(error.message, error.code, error.data)

    def _raise_transport_error(self, name: str, error: MCPError) -> None:
        """Raise the error of a request that failed over HTTP, where each fails alone."""
        if error.code == LOGIN_NEEDED:
            self.problem = error.message
            raise LoginNeeded(error.message, suggestion=advice(error.data))
        if error.code == NOT_SENT:
            self._changed()
            self.problem = f"server {self.name} cannot be reached: {error.message}"
            raise ServerUnavailable(self.problem, suggestion=f"check that {self._settings.url} is up")
        if error.code in (NO_ANSWER, CONNECTION_CLOSED) and not error.message.startswith(TOO_LARGE_EVENT):
            self._changed()
            self.problem = f"server {self.name} did not answer: {error.message}"
            raise ServerLost(f"while {name} was called, {self.problem}", suggestion=UNKNOWN_EFFECT)

    def _was_closed(self) -> ServerUnavailable:
        return ServerUnavailable(f"server {self.name} was closed")

    def _unknown(self, name: str) -> UnknownTool:
        return UnknownTool(f"server {self.name} has no tool {name}", suggestion="ask for the list of its tools")


def _consume_exception(starting: asyncio.Task[Connection]) -> None:
    """Consume the exception of a start. The caller that awaited it may have been cancelled, so nobody else will."""
    if not starting.cancelled():
        starting.exception()


def _progress_callback(on_progress: OnProgress | None) -> ProgressFnT | None:
    if on_progress is None:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        on_progress(progress, total, message or "")

    return report


class McpClients:
    """The maker of MCP clients. A server is started on first use."""

    def open(self, settings: ServerSettings, *, env: Mapping[str, str], state_directory: Path) -> ToolClient:
        """Return a client of one server. It stores what it learns about servers in ``state_directory``."""
        eras = EraFile(state_directory / "eras.json")
        return McpToolClient(settings, env=env, era_cache=eras, state_directory=state_directory)

    async def log_in(
        self,
        settings: ServerSettings,
        env: Mapping[str, str],
        state_directory: Path,
        person: Person,
        *,
        scopes: Sequence[str] = (),
        seconds: float = 600.0,
    ) -> LoginFacts:
        """Log in and store the tokens. Raises as ``login.log_in`` does."""
        from ccswarm.clients.mcp.login import log_in

        return await log_in(settings, env, state_directory, person, scopes=scopes, seconds=seconds)

    async def log_out(
        self, settings: ServerSettings, env: Mapping[str, str], state_directory: Path
    ) -> tuple[bool, bool]:
        """Return whether there was a login, and whether the authorization server revoked its token."""
        from ccswarm.clients.mcp.login import log_out

        return await log_out(settings, env, state_directory)

    async def login(self, settings: ServerSettings, state_directory: Path) -> LoginFacts | None:
        """Return the stored facts of a login, or None."""
        from ccswarm.clients.mcp.login import stored_login

        return await stored_login(settings, state_directory)


PLUGIN = McpClients()
