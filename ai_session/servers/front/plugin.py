"""The calls of an HTTP front's many clients over one connection.

After the hello both sides send JSON objects, one a line. The front sends requests, each with a number of its own, which
run concurrently::

    {id, method: "call", who, call, asks}           → {id, result}, what the gate returned
    {id, method: "tools", who, also}                → {id, result: {tools}}, including unlisted ones in also
    {id, method: "watch", who, agent, run, kinds}   → {id, result: {}}, then {id, changes} again and again
    {id, method: "started"}                         → {id, result: {}} once the gate answers
    {cancel: id}                                      the request ends without an answer; commands continue

An error is {id, error: {code, message, suggestion}}, with required_scope if the code is insufficient_scope. ``who`` is
{subject, scopes, client}: the subject of the request's token, and the client's own name. The front vouches for it, as
only its own user can reach this socket. Without a subject a request is the user's own, which is refused unless the
hello contains ``"authentication":"none"``. No caller on this connection counts as a person.

With ``asks`` "form", a question may be sent while the call waits: {id, question}, answered by {answer: id, word}, null
if there is no answer, or withdrawn by {id, withdrawn: true}. With "return" it is in the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ai_session.errors import AiSessionError, Denied, InsufficientScope, InvalidArguments
from ai_session.models import Answer, Principal, Question
from ai_session.servers.base import call_gate
from ai_session.servers.front.wire import answer_of, call_of, question_facts, result_facts, table, text, tool_facts

if TYPE_CHECKING:
    from ai_session.servers.base import Connection

log = logging.getLogger(__name__)

READ_BYTES = 1 << 16
MAX_LINE_BYTES = 512 << 20
"""A request of 64 MiB, the most a front accepts, of characters that JSON escapes with six, and some room."""

ENDED_SECONDS = 5.0


@dataclass(slots=True)
class Request:
    """One request in progress. ``answer`` gets the answer of the front's client to a question."""

    id: int
    method: str
    params: Mapping[str, Any]
    answer: asyncio.Future[Answer | None] | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class FrontAsker:
    """The person behind a client of the front, asked while the call waits."""

    deferred = False

    def __init__(self, request: Request, send: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        self._request = request
        self._send = send

    async def ask(self, question: Question) -> Answer | None:
        """Return the answer to a question; if it is no longer awaited, the HTTP server is notified."""
        answer = self._request.answer = asyncio.get_running_loop().create_future()
        await self._send({"id": self._request.id, "question": question_facts(question)})
        try:
            return await answer
        except asyncio.CancelledError:
            await self._send({"id": self._request.id, "withdrawn": True})
            raise
        finally:
            self._request.answer = None


class DeferredAsker:
    """Asks by returning the question in the result."""

    deferred = True

    async def ask(self, question: Question) -> Answer | None:
        """Never called."""
        return None


class GatewayConnection:
    """The connection of one front."""

    def __init__(self, connection: Connection) -> None:
        self._gate = connection.daemon.gate
        self._connection = connection
        self._requests: dict[int, Request] = {}
        self._methods = {"call": self._call, "tools": self._tools, "watch": self._watch, "started": self._started}

    async def run(self) -> None:
        """Serve until the front closes; then requests in progress are cancelled, but commands continue."""
        try:
            async for line in lines(self._connection.reader):
                try:
                    self._take(line)
                except AiSessionError as error:
                    await self._refuse(None, error)
        except ConnectionError:
            pass  # treated as the end
        finally:
            tasks = [request.task for request in self._requests.values() if request.task]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=ENDED_SECONDS)

    def _take(self, line: bytes) -> None:
        try:
            message = table({"request": json.loads(line)}, "request")
        except (ValueError, RecursionError):
            raise InvalidArguments("a request must be one JSON object on a line") from None
        if "cancel" in message:
            cancelled = self._requests.get(message["cancel"])
            if cancelled and cancelled.task:
                cancelled.task.cancel()
            return
        if "answer" in message:
            asking = self._requests.get(message["answer"])
            if asking and asking.answer and not asking.answer.done():
                asking.answer.set_result(answer_of(message["word"]) if message.get("word") else None)
            return
        number = message.get("id")
        if not isinstance(number, int) or number in self._requests:
            raise InvalidArguments("a request must have a unique id")
        request = self._requests[number] = Request(number, text(message, "method"), message)
        request.task = asyncio.create_task(self._answer(request))
        request.task.add_done_callback(lambda _: self._requests.pop(number))

    async def _answer(self, request: Request) -> None:
        try:
            method = self._methods.get(request.method)
            if method is None:
                unknown = f"no method {request.method[:40]!r}"
                raise InvalidArguments(unknown, suggestion="the HTTP server and the daemon may differ in version")
            await method(request)
        except AiSessionError as error:
            await self._refuse(request.id, error)
        except ConnectionError:
            pass  # the connection has ended, which the reader notices too
        except Exception as error:
            log.error("%s failed", request.method, exc_info=error)
            failure = AiSessionError(f"{request.method} failed: {type(error).__name__}", suggestion="see daemon.log")
            await self._refuse(request.id, failure)

    async def _call(self, request: Request) -> None:
        call = call_of(table(request.params, "call"), self._principal(request))
        asks = request.params.get("asks")
        asker = FrontAsker(request, self._send) if asks == "form" else DeferredAsker() if asks == "return" else None
        result = await call_gate(self._gate, call, asker)
        await self._send({"id": request.id, "result": result_facts(result)})

    async def _tools(self, request: Request) -> None:
        also: Any = request.params.get("also") or ()
        gate = await self._gate()
        tools = [tool_facts(tool) for tool in await gate.list_tools(self._principal(request), also)]
        await self._send({"id": request.id, "result": {"tools": tools}})

    async def _watch(self, request: Request) -> None:
        agent, run = text(request.params, "agent"), text(request.params, "run")
        kinds: Any = request.params.get("kinds")
        gate = await self._gate()
        changes = await gate.watch_changes(self._principal(request), agent, run, kinds)
        try:
            await self._send({"id": request.id, "result": {}})
            while batch := await changes.next():
                await self._send({"id": request.id, "changes": [change.facts() for change in batch]})
        finally:
            changes.close()

    async def _started(self, request: Request) -> None:
        await self._gate()
        await self._send({"id": request.id, "result": {}})

    def _principal(self, request: Request) -> Principal:
        who = table(request.params, "who")
        subject, scopes = text(who, "subject"), who.get("scopes")
        client = text(who, "client")
        if not subject:
            if self._connection.hello.get("authentication") != "none":
                raise Denied(
                    "the request has no subject", suggestion="each request of the HTTP server must name its subject"
                )
            return replace(self._connection.principal, client=client)
        if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):  # pyright: ignore[reportUnknownVariableType]
            raise InvalidArguments("scopes must be a list of strings")
        return replace(
            self._connection.principal,
            client=client,
            subject=subject,
            scopes=frozenset[str](scopes),  # pyright: ignore[reportUnknownArgumentType]
        )

    async def _refuse(self, number: int | None, error: AiSessionError) -> None:
        facts = {"code": error.code, "message": error.message, "suggestion": error.suggestion}
        if isinstance(error, InsufficientScope):
            facts["required_scope"] = error.required_scope
        with contextlib.suppress(ConnectionError):
            await self._send({"id": number, "error": facts})

    async def _send(self, message: Mapping[str, Any]) -> None:
        writer = self._connection.writer
        if not writer.is_closing():
            writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await writer.drain()


async def lines(reader: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    """Yield the lines of a stream to its end. Raises InvalidArguments for one that is too long."""
    held, searched = bytearray(), 0
    while chunk := await reader.read(READ_BYTES):
        held += chunk
        start = 0
        while (end := held.find(b"\n", max(start, searched))) >= 0:
            yield bytes(held[start:end])
            start = end + 1
        del held[:start]
        searched = len(held)
        if searched > MAX_LINE_BYTES:
            raise InvalidArguments(f"a request is longer than {MAX_LINE_BYTES} bytes")


class FrontServer:
    """Role ``front`` of the daemon's socket."""

    name = "front"

    async def serve(self, connection: Connection) -> None:
        """Serve one front, until it closes the connection."""
        await GatewayConnection(connection).run()


PLUGIN = FrontServer()
