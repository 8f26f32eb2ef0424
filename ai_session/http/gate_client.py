"""The gate of the daemon, for a process without sessions of its own: `ai-session mcp-server --http`.

One connection carries the calls of all clients. If the daemon ends, calls in progress fail with an error, because how
far they came is unknown; the next request finds or starts another daemon.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from ai_session.client import relay
from ai_session.client.connection import dial_started, error_from
from ai_session.client.dialing import open_streams
from ai_session.errors import AiSessionError, DaemonUnavailable, InsufficientScope, UnknownTool
from ai_session.gate.api import Asker
from ai_session.http.gate_changes import RemoteChanges
from ai_session.models import ChangeKind, Principal, Question, ToolCall, ToolResult
from ai_session.servers.front.wire import Listed, answer_facts, call_facts, question_of, result_of

MAX_LINE_BYTES = 512 << 20
UNAUTHENTICATED = ',"authentication":"none"'
LOST = "check its effect (list_sessions, read_output) before you repeat it; with its call_key it never runs twice"

Message = dict[str, Any]


class Waiting(Protocol):
    """The receiver of one request's messages."""

    def put(self, message: Message | None) -> None:
        """Accept a message of the daemon, or None at the end."""
        ...


class Replies:
    """The messages of one request in order. Implements ``Waiting``."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue()

    def put(self, message: Message | None) -> None:
        self._messages.put_nowait(message)

    async def next(self) -> Message:
        """Return the next message. Raises the daemon's error, or DaemonUnavailable if the connection was lost."""
        return checked_reply(await self._messages.get())


class Link:
    """One connection to a daemon, from its hello to its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._waiting: dict[int, Waiting] = {}
        self.ended = False
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            await self._reader.readline()  # its hello
            while line := await self._reader.readline():
                message: Message = json.loads(line)
                waiting = self._waiting.get(message.get("id") or 0)
                if waiting:
                    waiting.put(message)
        except (ConnectionError, ValueError):
            pass  # treated as the end
        finally:
            self.ended = True
            self._writer.close()
            for waiting in list(self._waiting.values()):
                waiting.put(None)

    async def begin(self, waiting: Waiting, method: str, **params: Any) -> int:
        """Make a request and return its number, with which to end it."""
        number = next(self._ids)
        self._waiting[number] = waiting
        if self.ended:
            waiting.put(None)
        self.send({"id": number, "method": method, **params})
        try:
            await self._writer.drain()
        except ConnectionError:
            waiting.put(None)
        except BaseException:
            self.end(number, cancelled=True)
            raise
        return number

    def end(self, number: int, *, cancelled: bool) -> None:
        """Drop a request; if it is unanswered, the daemon is notified."""
        if self._waiting.pop(number, None) and cancelled:
            self.send({"cancel": number})

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one line, unless the connection has ended."""
        if not self.ended:
            self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    async def close(self) -> None:
        """Disconnect. Calls in progress are cancelled, but commands continue."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        with suppress(ConnectionError):
            await self._writer.wait_closed()


class RemoteGate:
    """The gate for servers, over the socket. ``authenticated`` means that every principal has a subject.

    No request is ever sent twice.
    """

    def __init__(self, *, authenticated: bool) -> None:
        self._more = "" if authenticated else UNAUTHENTICATED
        self._link: Link | None = None
        self._connecting: asyncio.Task[Link] | None = None
        self._closed = False

    async def call(self, call: ToolCall, asker: Asker | None = None) -> ToolResult:
        """Run one call in the daemon. Raises only UnknownTool; every other failure, also of a daemon that is
        unreachable or ends meanwhile, is a result with ``is_error``.

        If the result has a ``question``, nothing was run, and the caller's person must answer it first. Cancelling the
        wait never ends a command.
        """
        replies = Replies()
        asks = "" if asker is None else "return" if asker.deferred else "form"
        try:
            link = await self.link()
            number = await link.begin(replies, "call", who=who(call.principal), call=call_facts(call), asks=asks)
            cancelled = True
            asking: asyncio.Task[None] | None = None
            try:
                while "result" not in (message := await replies.next()):
                    if asking:
                        asking.cancel()
                    if "question" in message and asker:
                        question = question_of(message["question"], call.principal)
                        asking = asyncio.create_task(_ask(link, number, asker, question))
                cancelled = False
            finally:
                link.end(number, cancelled=cancelled)
                if asking:
                    asking.cancel()
        except UnknownTool:
            raise
        except AiSessionError as error:
            return ToolResult.failure(error.code, error.message, error.suggestion, call.call_id)
        return result_of(message["result"], call.principal)

    async def list_tools(self, principal: Principal, also: Collection[str] = ()) -> Sequence[Listed]:
        """Return the tools that are listed, or in ``also``, and that this principal may ever use, sorted by name.
        Raises DaemonUnavailable, and any error that prevents the daemon's gate from starting."""
        result = await self._ask("tools", who=who(principal), also=sorted(also))
        return [Listed(**facts) for facts in result["tools"]]

    async def watch_changes(
        self, principal: Principal, agent: str = "", run: str = "", kinds: Collection[ChangeKind] | None = None
    ) -> RemoteChanges:
        """Return the changes from now on in the sessions this caller sees; of all ``kinds`` if none is given. The watch
        outlives the daemon.

        Raises InsufficientScope, Denied, RateLimited, StorageFull, DaemonUnavailable.
        """
        wanted = {"who": who(principal), "agent": agent, "run": run, "kinds": sorted(kinds) if kinds else None}
        changes = RemoteChanges(self.link, wanted, checked_reply)
        await changes.begin()
        return changes

    async def started(self) -> None:
        """Return once the daemon's gate answers. Raises DaemonUnavailable, ConfigInvalid."""
        await self._ask("started")

    async def close(self) -> None:
        """Disconnect for good: later requests raise DaemonUnavailable."""
        self._closed = True
        if self._connecting:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._link:
            await self._link.close()

    async def link(self) -> Link:
        """Return the current connection, or a new one. Raises DaemonUnavailable."""
        if self._link and not self._link.ended:
            return self._link
        if self._closed:
            raise DaemonUnavailable("this server is shutting down", suggestion=LOST)
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())
        return await asyncio.shield(self._connecting)

    async def _ask(self, method: str, **params: Any) -> Message:
        link, replies = await self.link(), Replies()
        number = await link.begin(replies, method, **params)
        answered = False
        try:
            message = await replies.next()
            answered = True
        finally:
            link.end(number, cancelled=not answered)
        return message["result"]

    async def _connect(self) -> Link:
        try:
            streams = await open_streams(partial(dial_started, "front", self._more), MAX_LINE_BYTES)
        except relay.Unreachable as error:
            facts = {"code": error.code, "message": error.message, "suggestion": error.suggestion}
            raise error_from(facts) from None
        # Stored here, because the callers that wait for it may have been cancelled meanwhile.
        self._link = Link(*streams)
        return self._link


async def _ask(link: Link, number: int, asker: Asker, question: Question) -> None:
    word = await asker.ask(question)
    link.send({"answer": number, "word": answer_facts(word) if word else None})


def who(principal: Principal) -> Message:
    """Return the principal of a request in the form that is sent."""
    scopes = None if principal.scopes is None else sorted(principal.scopes)
    return {"subject": principal.subject, "scopes": scopes, "client": principal.client}


def checked_reply(message: Message | None) -> Message:
    """Return a message that is not an error. Raises the daemon's error, or DaemonUnavailable for None."""
    if message is None:
        raise DaemonUnavailable("the connection to the daemon was lost", suggestion=LOST)
    if "error" in message:
        facts = message["error"]
        if facts["code"] == InsufficientScope.code:
            raise InsufficientScope(facts["message"], facts["required_scope"])
        raise error_from(facts)
    return message
