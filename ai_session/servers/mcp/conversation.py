"""One client's requests on a pipe, in any order and concurrently.

A call is answered here if the SDK's models would only copy its parameters and its result, as in nearly every call: that
takes a quarter less time, and the first call of a daemon need not wait until the SDK is imported. All else goes to
``Lanes``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol

from agentwire.json_lines import Message
from agentwire.mcp.first_answers import ENVELOPE_VERSION
from agentwire.mcp.heartbeat import Heartbeat, progress_notification
from ai_session.errors import AiSessionError
from ai_session.servers.mcp.caller import Caller
from ai_session.servers.mcp.calls import (
    CALL,
    FORM_VERSIONS,
    HANDSHAKE_VERSION,
    INTERNAL_ERROR,
    STAMP,
    PipeRequest,
    ReturnedForm,
    Unanswerable,
    Who,
    call_with,
    envelope_of,
    is_plain_envelope,
    is_plain_meta,
    meta_in,
    meta_of,
    name_in,
    needs_no_model,
    result_message,
)
from ai_session.servers.mcp.listening import LISTEN, listen, needs_no_sdk
from ai_session.servers.mcp.listing import LIST_TOOLS, list_tools, needs_no_page
from ai_session.sessions.changes import LISTS

if TYPE_CHECKING:
    from ai_session.gate.api import Asker
    from ai_session.models import Answer, Question, ToolResult

INITIALIZED = "notifications/initialized"

QUICK_SECONDS = 0.05
SETTLE_SECONDS = 5.0

log = logging.getLogger(__name__)


class Lanes(Protocol):
    """The SDK's part of a conversation."""

    async def result(self, exchange: Exchange, method: str, params: Message | None) -> Message:
        """Return the result of a request of either era. Raises the exceptions that ``error`` accepts."""
        ...

    async def handle(self, message: Message) -> None:
        """Process a notification of the handshake era."""
        ...

    def receive_response(self, message: Message) -> None:
        """Process the client's response to a question of ours."""
        ...

    async def ask(self, exchange: Exchange, question: Question) -> Answer | None:
        """Ask the client's person with a form, while a call of the handshake era waits."""
        ...

    def input_required(self, version: str, result: ToolResult, meta: Message) -> Message:
        """Return the result that makes a client of 2026-07-28 ask its person and repeat the call."""
        ...

    def error(self, problem: Exception) -> Message | None:
        """Return an error of the protocol; None for a defect."""
        ...

    async def close(self) -> None:
        """Release what belongs to this client after it has disconnected."""
        ...


class Sdk(Protocol):
    """The module of this package that imports the SDK."""

    def Lanes(self, caller: Caller, send: Callable[[Message], None], server: Any) -> Lanes:  # noqa: N802
        """Return the lanes of one client."""
        ...


class Conversation:
    """One client's requests; every answer goes through ``send``. ``sdk`` returns the SDK once it is imported."""

    def __init__(
        self,
        caller: Caller,
        send: Callable[[Message], None],
        heartbeat_seconds: float,
        sdk: Callable[[], Awaitable[Sdk]],
        registry: Any = None,
    ) -> None:
        """``registry`` is the SDK's server of something other than the gate's tools."""
        self._caller = caller
        self._send = send
        self._heartbeat_seconds = heartbeat_seconds
        self._sdk = sdk
        self._registry = registry
        self._requests: dict[asyncio.Task[None], Message] = {}
        self._notices: set[asyncio.Task[None]] = set()
        self._handshake_client: Who | None = Who(HANDSHAKE_VERSION, {}, caller.named(""))
        self._enveloped: tuple[str, Who] | None = None
        self._lanes: Lanes | None = None
        self._opening: asyncio.Task[Lanes] | None = None
        self._pending: list[Message] = []
        self.begun = asyncio.Event()
        """Set once a first call was answered, or there are changes that only the lanes can report."""

    def receive(self, message: Message, answer: Message | None = None) -> None:
        """Begin a request, or process a notification or a response to a question. ``answer`` is what has already been
        sent to the client; then only the effect of the request is needed."""
        if "method" not in message:
            if self._lanes:
                self._lanes.receive_response(message)
        elif answer is not None:
            if message["method"] == "initialize":
                self._pending = [message]
                self._record_handshake(message["params"], answer["result"])
        elif "id" in message:
            if message["method"] == "initialize":
                self._handshake_client = None  # known once the SDK has answered
            task = asyncio.create_task(self._serve(message))
            self._requests[task] = message
        elif message["method"] == "notifications/cancelled":
            wanted = str(message.get("params", {}).get("requestId"))
            for task, request in self._requests.items():
                if str(request["id"]) == wanted and request["method"] != "initialize":
                    self._cancel(task)
        elif message["method"] == INITIALIZED:
            self._start(self._handle(message))

    def shows_views(self, params: Message | None) -> bool:
        """Report whether the client with these params shows views of calls."""
        meta = meta_in(params)
        who = Who.in_envelope(meta, self._caller) if ENVELOPE_VERSION in meta else self._handshake_client
        return bool(who and who.shows_views)

    async def quiet(self) -> None:
        """Return when only streams are in progress."""
        while tasks := [task for task, request in self._requests.items() if request["method"] != LISTEN]:
            await asyncio.wait(tasks)

    async def settle(self) -> None:
        """End after the client's last message: streams and short requests are still answered, calls are cancelled."""
        for stream in list(self._caller.streams):
            stream.close()
        quick = [task for task, request in self._requests.items() if request["method"] != CALL]
        if quick:
            await asyncio.wait(quick, timeout=QUICK_SECONDS)
        for task in self._requests:
            self._cancel(task)

    def _cancel(self, task: asyncio.Task[None]) -> None:
        if task.cancel():
            task.add_done_callback(lambda task: self._requests.pop(task, None))  # it may not have begun yet

    async def ended(self) -> None:
        """Return when every request has ended."""
        for notice in self._notices:
            notice.cancel()
        if self._opening:
            self._opening.cancel()
        if running := [*self._requests, *self._notices, *([self._opening] if self._opening else [])]:
            await asyncio.wait(running, timeout=SETTLE_SECONDS)
        if self._lanes:
            await self._lanes.close()
        for watched in self._caller.lists:
            watched.close()

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)

    async def _handle(self, message: Message) -> None:
        """Watch for changes of lists from now on; they are reported once there are lanes."""
        who = self._handshake_client
        if who and self._lanes is None and self._pending and not who.caller.lists:
            with suppress(AiSessionError):
                who.caller.lists.append(await who.caller.watch_changes("", "", LISTS))
        if self._lanes:
            await self._lanes.handle(message)
        elif self._pending or self._opening:
            self._pending.append(message)
        self.begun.set()

    async def _serve(self, message: Message) -> None:
        request_id = message["id"]
        method = message["method"]
        params = message.get("params")
        exchange = Exchange(self._send, request_id, token_of(params))
        task = asyncio.current_task()
        try:
            wants_progress = exchange.token is not None and method != LISTEN
            beating = Heartbeat(exchange, self._heartbeat_seconds, "still running") if wants_progress else nullcontext()
            with beating:
                result = await self._result(exchange, method, params)
            if task and not task.cancelling():
                self._send({"jsonrpc": "2.0", "id": request_id, "result": result})
        except Exception as problem:
            error = self._error(problem)
            if error is None:
                log.exception("%s failed", method)
                error = {"code": INTERNAL_ERROR, "message": "Internal server error"}
            if task and not task.cancelling():
                self._send({"jsonrpc": "2.0", "id": request_id, "error": error})
        finally:
            # A done callback would take an extra pass of the loop.
            if task:
                self._requests.pop(task, None)
            if method == CALL:
                self.begun.set()

    async def _result(self, exchange: Exchange, method: str, params: Message | None) -> Message:
        if method not in (CALL, LISTEN, LIST_TOOLS) or self._registry is not None:
            who, envelope = None, ""
        elif ENVELOPE_VERSION in (meta := meta_in(params)):
            envelope = envelope_of(meta)
            who = self._client_in(meta, envelope)
        else:
            who, envelope = self._handshake_client, ""
        if who and method == CALL and not (envelope and who.knows_tasks) and needs_no_model(who.version, params):
            return await self._call(who, exchange, params or {})
        if who and method == LIST_TOOLS and needs_no_page(who.version, params):
            return await list_tools(who)
        if who and method == LISTEN and envelope and needs_no_sdk(params) and is_plain_meta(meta_in(params)):
            return await self._listen(who, exchange, params or {})
        result = await (await self.opened()).result(exchange, method, params)
        if method == "initialize":
            self._record_handshake(params or {}, result)
        elif envelope:
            self._enveloped = envelope, Who.in_envelope(meta_in(params), self._caller)
        return result

    def _client_in(self, meta: Message, envelope: str) -> Who | None:
        """Return the caller that a request identifies, if it is certainly valid or was found to be."""
        if self._enveloped is None or self._enveloped[0] != envelope:
            if not is_plain_envelope(meta):
                return None
            self._enveloped = envelope, Who.in_envelope(meta, self._caller)
        return self._enveloped[1]

    async def _call(self, who: Who, exchange: Exchange, params: Message) -> Message:
        asker: Asker | None = None
        if who.shows_forms and who.modern:
            asker = ReturnedForm()
        elif who.shows_forms and who.version in FORM_VERSIONS:
            asker = Form(self, exchange)
        call, result = await call_with(who, exchange.request_id, params, asker)
        if who.modern and result.question:
            given = (await self.opened()).input_required(who.version, result, meta_of(call, result))
        else:
            given = result_message(call, result)
        if who.modern:
            given["_meta"] |= STAMP
        else:
            del given["resultType"]
        return given

    async def _listen(self, who: Who, exchange: Exchange, params: Message) -> Message:
        request = PipeRequest(who.version, exchange.request_id, params, LISTEN)

        async def notify(method: str, content: Message) -> None:
            exchange.send({"jsonrpc": "2.0", "method": method, "params": content})

        try:
            result = await listen(who.caller, request, params["notifications"], notify)
        except AiSessionError:
            return await (await self.opened()).result(exchange, LISTEN, params)  # which reports it in the SDK's words
        return {"_meta": result["_meta"] | STAMP, "resultType": "complete"}

    def _record_handshake(self, params: Message, result: Message) -> None:
        caller = self._caller.named(name_in(params.get("clientInfo")))
        self._handshake_client = Who(result["protocolVersion"], params["capabilities"], caller)

    async def opened(self) -> Lanes:
        """Return the lanes of this client, which have processed its earlier messages. Raises Unanswerable."""
        if self._lanes:
            return self._lanes
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Lanes:
        lanes = (await self._sdk()).Lanes(self._caller, self._send, self._registry)
        for message in self._pending:  # the list may grow meanwhile
            if "id" in message:
                with suppress(Exception):  # it has been answered already
                    await lanes.result(Exchange(self._send), message["method"], message.get("params"))
            else:
                self._start(lanes.handle(message))
        self._lanes = lanes
        return lanes

    def _error(self, problem: Exception) -> Message | None:
        if isinstance(problem, Unanswerable):
            return {"code": problem.code, "message": str(problem)}
        return self._lanes.error(problem) if self._lanes else None


class Form:
    """Asks a person while the call waits."""

    deferred = False

    def __init__(self, conversation: Conversation, exchange: Exchange) -> None:
        self._conversation = conversation
        self._exchange = exchange

    async def ask(self, question: Question) -> Answer | None:
        """Return the answer, or None if the client refuses to ask or its response is invalid."""
        with suppress(Unanswerable):
            return await (await self._conversation.opened()).ask(self._exchange, question)
        return None


class Exchange:
    """One request in progress: messages to its client in the meantime go through ``send``."""

    def __init__(
        self,
        send: Callable[[Message], None],
        request_id: int | str | None = None,
        token: int | str | None = None,
    ) -> None:
        self.send = send
        self.request_id = request_id
        self.token = token

    def report(self, progress: float, message: str) -> None:
        """Send one progress notification, if the client gave a token."""
        if self.token is not None:
            self.send(progress_notification(self.token, progress, message))


def token_of(params: Message | None) -> int | str | None:
    """Return the progress token of a request, if any."""
    match params:
        case {"_meta": {"progressToken": str() | int() as token}} if not isinstance(token, bool):
            return token
        case _:
            return None
