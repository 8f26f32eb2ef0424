"""The control protocol: how the command line's lines become calls, and an attached terminal becomes frames.

After the hello the client sends one JSON object a line, ``{"id", "method", "params"}``, and gets ``{"id", "result"}``
or ``{"id", "error": {code, message, suggestion}}``, with ``fields`` if arguments are wrong. Requests run concurrently
and are answered when they end. Methods::

    call       {name, arguments, profile}            → {text, structured, is_error, call_id, meta}
    rename     {session, name}                       → {}
    record     {session}                             → {path, began, commands}, a recording that the client removes
    approvals  {wait}                                → {questions, grants}; each question says how a yes is accepted
    approve    {question_id, scope, reason, signature} → {question_id, about}
    reject     {question_id, reason, signature}      → {question_id, about}
    policy     {mode, signature}                     → the policy in force, in that mode from now on if one is given
    explain    {command, client, agent}              → the policy, its rules with file and line, the box of new
               sessions, and if a command is given what would be decided about it
    person     {}                                    → the caller, the enrolled key, host and nonce for a signature
    enrol      {key, signature}                      → {key_id}, whose signatures count from now on
    unenrol    {signature}                           → {key_id}, whose signatures no longer count
    status     {}                                    → the daemon's status
    settings   {}                                    → {read_from}: the files its settings are from, as they were then
    stop       {sessions}                            → {} or {problem} with the audit log; the daemon ends
    attach     {session, rows, cols, read_only, asks} → {}, then frames both ways until either side closes
    sandbox    {argv, profile, workspace, domains}   → {box}: it may run, in a box made of that. A profile of "" and
               domains of null are the configured ones. The client starts it on its own terminal and reports, as
               requests, ``started`` {level}, ``reached`` {event, host, port …} and ``ended`` {exit_code} or, if it
               could not start, {code}; when the connection closes without that, it is recorded as lost

Version 2 of the socket's protocol adds what ``streams`` has and docs/reference/person-protocol.md describes: requests
without an ``id``, which have no result, bytes that follow a line as its ``bytes`` says, and events.

A frame of an attached terminal is one byte of type, a big-endian u32 length and the payload: ``i`` input, ``r`` resize
{rows, cols} and ``d`` detach from the client; ``o`` output and ``e`` end {code, signal, lost, text} from the daemon.
With ``asks`` the daemon also sends ``q``, a question for the person, and ``w`` {question_id, note} when it is closed;
in between there is no output, and afterwards the screen is drawn again. The client answers ``a`` {question_id, allowed,
scope}, or {question_id, later} not to be asked again.

A ``signature`` is {nonce, value}: the nonce of an answer to ``person``, which counts once, and the enrolled key's
signature (Ed25519, in base64) of the bytes that ``person_signature.statement`` makes of the act. Without one, a person
is recognized by the origin of the process's terminal, or the answer is ``signature_needed``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agentwire.json_lines import DECODER
from ai_session.errors import AiSessionError, InvalidArguments, LimitReached
from ai_session.gate.trace import extra_facts
from ai_session.servers.base import person_of
from ai_session.servers.control import sandbox as control_sandbox
from ai_session.servers.control import streams as control_streams
from ai_session.servers.control.fields import extent, table, text
from ai_session.servers.control.questions import TerminalQuestions
from ai_session.servers.control.requests import METHODS
from ai_session.servers.control.streams import Streams
from ai_session.servers.control.wire import HEADER, Incoming, OutOfSync, Request, following

if TYPE_CHECKING:
    from ai_session.servers.base import Connection
    from ai_session.sessions.viewer import Viewer

log = logging.getLogger(__name__)

MOST_REQUESTS = 1024
"""The concurrent requests of one connection."""

MOST_UNREAD_BYTES = 8 << 20
"""The unread answers at which no further request is read."""


class ControlConnection:
    """One connection of the command line."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._incoming = Incoming(connection.reader)
        self._requests: set[asyncio.Task[None]] = set()
        self._streams = Streams(connection) if connection.version >= 2 else None

    async def run(self) -> None:
        """Serve until the client closes; then requests in progress are cancelled, but commands continue."""
        try:
            while (line := await self._incoming.line()) is not None:
                if self._connection.writer.is_closing():
                    return  # it has disconnected, so the rest is ignored
                if self._connection.writer.transport.get_write_buffer_size() > MOST_UNREAD_BYTES:
                    await self._connection.writer.drain()
                request = self._parse(line)
                if request is None:
                    continue
                data = await self._incoming.exactly(request.bytes)
                if data is None:
                    return
                if self._streams and request.method in control_streams.INLINE:
                    self._answer_inline(self._streams, request, data)
                    continue
                if request.method in HOLDING:
                    if await self._take_over(request):
                        return
                    continue
                if len(self._requests) >= MOST_REQUESTS:
                    most = LimitReached(f"{MOST_REQUESTS} requests are waiting, the limit for one connection")
                    self._refuse(request.id, most)
                    continue
                task = asyncio.create_task(self._answer(request))
                self._requests.add(task)
                task.add_done_callback(self._requests.discard)
        except InvalidArguments as error:
            self._refuse(None, error)
        except ConnectionError:
            return
        finally:
            for task in self._requests:
                task.cancel()
            await asyncio.gather(*self._requests, return_exceptions=True)
            if self._streams:
                await self._streams.close()

    def _parse(self, line: bytes) -> Request | None:
        request_id: Any = None
        try:
            message = table(DECODER.decode(line.decode()))
            request_id = message.get("id")
            method, params = text(message, "method"), table(message.get("params"))
            if self._streams is None:
                return Request(request_id, method, params)
            return Request(request_id, method, params, following(message), notification="id" not in message)
        except OutOfSync:
            raise
        except (ValueError, RecursionError) as error:
            reason = (
                error.message if isinstance(error, InvalidArguments) else "a request must be one JSON object on a line"
            )
            self._refuse(request_id, InvalidArguments(reason))
            return None

    def _answer_inline(self, streams: Streams, request: Request, data: bytes) -> None:
        try:
            control_streams.INLINE[request.method](streams, request.params, data)
        except AiSessionError as error:
            self._refuse(request.id, error)
        except Exception as error:
            self._refuse(request.id, _unexpected(request.method, error))
        else:
            if not request.notification:
                self._send({"id": request.id, "result": {}})

    async def _result(self, request: Request) -> Mapping[str, Any]:
        if self._streams and (stream_method := control_streams.METHODS.get(request.method)):
            return await stream_method(self._streams, request.params)
        if method := METHODS.get(request.method):
            return await method(self._connection, request.params)
        unknown = f"no method {request.method[:40]!r}"
        raise InvalidArguments(unknown, suggestion="client and daemon may differ in version")

    async def _answer(self, request: Request) -> None:
        try:
            result = await self._result(request)
        except AiSessionError as error:
            self._refuse(request.id, error)
        except Exception as error:
            self._refuse(request.id, _unexpected(request.method, error))
        else:
            if not request.notification:
                self._send({"id": request.id, "result": result})
        with contextlib.suppress(ConnectionError):
            await self._connection.writer.drain()

    async def _take_over(self, request: Request) -> bool:
        """Let a request take the connection over, and return whether the connection is then closed."""
        try:
            if self._requests:
                name = request.method
                raise InvalidArguments(
                    f"{name} cannot run while other requests are pending",
                    suggestion=f"{name} on a connection of its own",
                )
            return await HOLDING[request.method](self, request)
        except AiSessionError as error:
            self._refuse(request.id, error)
        except Exception as error:
            self._refuse(request.id, _unexpected(request.method, error))
        return False

    async def attach(self, request: Request) -> bool:
        """Turn the connection into frames, until the end."""
        params = request.params
        viewer = await (await person_of(self._connection)).attach(
            self._connection.principal,
            text(params, "session"),
            rows=extent(params, "rows"),
            cols=extent(params, "cols"),
            read_only=params.get("read_only") is True,
        )
        try:
            self._send({"id": request.id, "result": {}})
            asks = params.get("asks") is True and params.get("read_only") is not True
            await self._exchange(viewer, asks)
        except Exception:
            log.exception("attach failed")  # a client that reads frames cannot be sent it
        finally:
            await viewer.close()
        return True

    async def sandbox(self, request: Request) -> bool:
        """Accept only reports about the program, until it has ended."""
        asked, report = control_sandbox.program(request.params), request
        running = (await person_of(self._connection)).sandboxed(
            self._connection.principal,
            asked.argv,
            profile=asked.profile,
            workspace=asked.workspace,
            domains=asked.domains,
        )
        try:
            async with running as program:
                ended, result = False, {"box": program.box}
                while not ended:
                    self._send({"id": report.id, "result": result})
                    result = {}
                    line = await self._incoming.line()
                    if line is None:
                        return True
                    report = self._parse(line) or report
                    ended = control_sandbox.note(program, report.method, report.params)
        except AiSessionError as error:
            self._refuse(report.id, error)
        else:
            self._send({"id": report.id, "result": {}})
        return False

    async def _exchange(self, viewer: Viewer, asks: bool) -> None:
        """Exchange frames until the shell ends or the client disconnects. A slow client delays only its own output."""
        questions = None
        if asks:
            person = await person_of(self._connection)
            questions = TerminalQuestions(person, self._connection.principal, viewer, self._frame)
        asking, tasks = asyncio.Event(), list[asyncio.Task[None]]()
        try:
            if questions:
                tasks.append(asyncio.create_task(questions.run(asking.set)))
                await asking.wait()
            ends = [asyncio.create_task(self._show(viewer)), asyncio.create_task(self._take(viewer, questions))]
            tasks += ends
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionError):
                raise outcome

    async def _show(self, viewer: Viewer) -> None:
        async for chunk in viewer.output():
            await self._frame(b"o", chunk)
        ended = viewer.ended
        if ended is not None:
            await self._frame(b"e", json.dumps({**asdict(ended), "text": str(ended)}).encode())

    async def _take(self, viewer: Viewer, questions: TerminalQuestions | None) -> None:
        while (frame := await self._incoming.frame()) is not None:
            kind, payload = frame
            if kind == b"i":
                viewer.write(payload)
            elif kind == b"r":
                with contextlib.suppress(ValueError):
                    size = table(json.loads(payload))
                    await viewer.resize(extent(size, "rows"), extent(size, "cols"))
            elif kind == b"a" and questions:
                await questions.take(payload)
            elif kind == b"d":
                return

    async def _frame(self, kind: bytes, payload: bytes) -> None:
        writer = self._connection.writer
        writer.write(HEADER.pack(kind, len(payload)) + payload)
        await writer.drain()

    def _refuse(self, request_id: Any, error: AiSessionError) -> None:
        facts = {"code": error.code, "message": error.message, "suggestion": error.suggestion, **extra_facts(error)}
        self._send({"id": request_id, "error": facts})

    def _send(self, message: Mapping[str, Any]) -> None:
        self._connection.writer.write(json.dumps(message).encode() + b"\n")


def _unexpected(method: str, error: Exception) -> AiSessionError:
    """Return the error for a defect, which is fully logged; a request must never stay unanswered."""
    log.error("%s failed", method, exc_info=error)
    return AiSessionError(f"{method} failed: {type(error).__name__}: {error}", suggestion="see daemon.log")


HOLDING = {"attach": ControlConnection.attach, "sandbox": ControlConnection.sandbox}
"""Requests that take over the connection; each returns whether it is then closed."""


class ControlServer:
    """Role ``control`` of the daemon's socket."""

    name = "control"

    async def serve(self, connection: Connection) -> None:
        """Serve one connection, until the client closes it or an attached shell ends."""
        await ControlConnection(connection).run()


PLUGIN = ControlServer()
