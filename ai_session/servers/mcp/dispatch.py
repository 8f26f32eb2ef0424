"""The official SDK's low-level server, driven message by message: the only file that imports it.

The SDK's own loop serves one protocol era per connection; real clients mix them on one pipe. Here every request finds
its lane: one with the 2026-07-28 envelope stands for itself, every `initialize` opens a new handshake lane, and a
request that comes before any handshake gets a lane as if the newest had been made. Dispatching here instead of in the
SDK's loop also takes 0.04 ms a call instead of 0.10.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any

import anyio
from mcp.server.caching import CacheHint
from mcp.server.connection import Connection as ClientState
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, PROTOCOL_VERSION_META_KEY, SERVER_INFO_META_KEY, ErrorData
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from agentwire.json_lines import Message
from ai_session import __version__
from ai_session.servers.mcp import completion, prompts, resources, subscriptions
from ai_session.servers.mcp import tasks as mcp_tasks
from ai_session.servers.mcp import tools as mcp_tools
from ai_session.servers.mcp.caller import Caller, Callers
from ai_session.servers.mcp.elicitation import FORM_VERSIONS, Questioning, Questions, answerable

INSTRUCTIONS = """\
ai-session runs commands in real, persistent terminals. A session is one shell that stays alive between calls: cd, \
exports, functions, virtual environments, background jobs and running programs persist; it outlives this connection.

1. create_session once per line of work (a name, a working_directory), then execute_command in it; session_id takes \
the id or the name. list_sessions shows what is there already: reuse it.
2. execute_command returns when the command has really ended, with its exact exit code; a code other than 0 is a \
result, not a tool error. If it takes longer than timeout_seconds the result says running and the command runs on: \
read_output with wait_for='finish' (or 'pattern', 'output', 'input') waits on. Do not run it again. No call waits \
over 50 s.
3. A program that asks something is running with an input_mode (line, password, raw): answer with send_input, which \
takes text and keys (['Enter'], ['C-c'], ['Up']). For programs that fill the screen (vim, less, a REPL): send_input, \
then read_screen.
4. Long output is cut in the middle; the first line says so and where to read on. Use read_output to page, tail or \
search it instead of running the command again.
5. interrupt_command stops a command; the session stays usable. A session runs one command at a time: use several \
sessions for things that run side by side, such as a server and its tests. close_session when done.
6. A tool error names its code and the next step.
7. A call that may have to be repeated after a lost connection: give it a unique call_key, and it never runs twice.
"""

CALL = "tools/call"
LISTEN = "subscriptions/listen"
"""Answered when it ends; until then it tells of nothing that was not asked for."""

QUICK_SECONDS = 0.05
SETTLE_SECONDS = 5.0

log = logging.getLogger(__name__)


class Conversation:
    """One client's requests, side by side; every answer goes through ``send``."""

    def __init__(
        self,
        caller: Caller,
        send: Callable[[Message], None],
        heartbeat_seconds: float,
        server: Server[Any] | None = None,
    ) -> None:
        self._server = server or SERVER
        self._caller = caller
        self._send = send
        self._heartbeat_seconds = heartbeat_seconds
        self._requests: dict[asyncio.Task[None], Message] = {}
        self._notices: set[asyncio.Task[None]] = set()
        self._handshake: ServerRunner[Caller] | None = None
        self._caller_of_envelope: tuple[str, ServerRunner[Caller]] | None = None
        self._questions = Questions(send)

    def receive(self, message: Message, *, answered: bool = False) -> None:
        """Begin one request, heed a notification, or take an answer to what was asked. ``answered``: only what it
        changes is wanted, not its answer."""
        if "method" not in message:
            self._questions.answered(message)
        elif "id" in message:
            task = asyncio.create_task(self._serve(message, answered))
            self._requests[task] = message
        elif message["method"] == "notifications/cancelled":
            wanted = str(message.get("params", {}).get("requestId"))
            for task, request in self._requests.items():
                if str(request["id"]) == wanted and request["method"] != "initialize":
                    self._give_up(task)
        elif message["method"] == "notifications/initialized":
            task = asyncio.create_task(self._heed(message))
            self._notices.add(task)
            task.add_done_callback(self._notices.discard)

    async def settle(self) -> None:
        """The client will send no more: questions are still answered, calls are given up."""
        for stream in list(self._caller.streams):
            stream.close()
        quick = [task for task, request in self._requests.items() if request["method"] != CALL]
        if quick:
            await asyncio.wait(quick, timeout=QUICK_SECONDS)
        for task in self._requests:
            self._give_up(task)

    def _give_up(self, task: asyncio.Task[None]) -> None:
        if task.cancel():
            task.add_done_callback(lambda task: self._requests.pop(task, None))  # it may not even have begun

    async def ended(self) -> None:
        """Returns when every request has ended."""
        for notice in self._notices:
            notice.cancel()
        if running := [*self._requests, *self._notices]:
            await asyncio.wait(running, timeout=SETTLE_SECONDS)
        if self._handshake:
            await aclose_shielded(self._handshake.connection)

    async def _heed(self, message: Message) -> None:
        if self._handshake:
            await self._handshake.on_notify(Exchange(self._send), message["method"], message.get("params"))

    async def _serve(self, message: Message, answered: bool) -> None:
        request_id, method, params = message["id"], message["method"], message.get("params")
        exchange = Exchange(self._send, request_id, progress_token_from_params(params))
        task = asyncio.current_task()
        try:
            told = exchange.token is not None and method != LISTEN
            with Heartbeat(exchange, self._heartbeat_seconds) if told else nullcontext():
                result = await self._result(exchange, method, params)
            if not answered and task and not task.cancelling():
                self._send({"jsonrpc": "2.0", "id": request_id, "result": result})
        except Exception as problem:
            found = handler_exception_to_error_data(problem)
            if found is None:
                log.exception("%s failed", method)
                found = ErrorData(code=INTERNAL_ERROR, message="Internal server error")
            if not answered and task and not task.cancelling():
                facts = found.model_dump(exclude_none=True)
                self._send({"jsonrpc": "2.0", "id": request_id, "error": facts})
        finally:
            # A callback at its end would take a pass of the loop of its own.
            if task:
                self._requests.pop(task, None)

    async def _result(self, exchange: Exchange, method: str, params: Message | None) -> Message:
        if method == "initialize":
            runner = self._runner(ClientState.for_loop(exchange), (params or {}).get("clientInfo"))
            result = await runner.on_request(exchange, method, params)
            earlier, self._handshake = self._handshake, runner
            if earlier:
                await aclose_shielded(earlier.connection)
            return result
        meta = (params or {}).get("_meta")
        if method == "server/discover" or (isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta):
            return await self._modern_result(exchange, method, params or {})
        if self._handshake is None:
            runner = self._runner(ClientState.for_loop(exchange), None)
            await runner.on_request(exchange, "initialize", ASSUMED_HANDSHAKE)
            self._handshake = runner
        state = self._handshake.connection
        if state.protocol_version in FORM_VERSIONS and answerable(state.client_capabilities):
            exchange.questions = self._questions.to(state.client_capabilities)
        if quick := self._without_models(self._handshake, exchange, method, params):
            return await quick
        return await self._handshake.on_request(exchange, method, params)

    async def _modern_result(self, exchange: Exchange, method: str, params: Message) -> Message:
        """A request that says itself who asks. Who asks again as in a call that was answered is known."""
        meta: Any = params.get("_meta")
        envelope = mcp_tools.envelope_of(meta) if method == CALL and isinstance(meta, dict) else ""  # pyright: ignore[reportUnknownArgumentType]
        known = self._caller_of_envelope
        if known and known[0] == envelope and (quick := self._without_models(known[1], exchange, method, params)):
            return await quick
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(route.code, route.message, route.data)
        state = ClientState.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
        runner = self._runner(state, route.client_info)
        result = await runner.on_request(exchange, method, params)
        if envelope and not mcp_tasks.known_to(state.client_capabilities):
            self._caller_of_envelope = envelope, runner
        return result

    def _without_models(
        self, runner: ServerRunner[Caller], exchange: Exchange, method: str, params: Message | None
    ) -> Coroutine[Any, Any, Message] | None:
        """What answers a call for which the SDK's models do nothing."""
        version = runner.connection.protocol_version
        if method != CALL or self._server is not SERVER or not mcp_tools.needs_no_model(version, params):
            return None
        ctx = ServerRequestContext[Caller, Any](
            session=ServerSession(exchange, runner.connection), lifespan_context=runner.lifespan_state,
            protocol_version=version, method=method, params=params, request_id=exchange.request_id,
        )  # fmt: skip
        return mcp_tools.call_without_models(ctx, params or {}, STAMP)

    def _runner(self, state: ClientState, client_info: Any) -> ServerRunner[Caller]:
        name = client_info.get("name") if isinstance(client_info, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        principal = replace(self._caller.principal, client=name if isinstance(name, str) else "")
        return ServerRunner(self._server, state, replace(self._caller, principal=principal))


class Exchange:
    """The way back from one request to its client: the SDK's DispatchContext, for notifications and questions."""

    transport = TransportContext(kind="stdio", can_send_request=False)
    message_metadata = None

    def __init__(
        self, send: Callable[[Message], None], request_id: int | str | None = None, token: int | str | None = None
    ) -> None:
        self.request_id = request_id
        self.token = token
        self.questions: Questioning | None = None
        self._send = send

    @property
    def can_send_request(self) -> bool:
        """Whether this client answers questions."""
        return self.questions is not None

    @property
    def cancel_requested(self) -> anyio.Event:
        """Never set: the task of a cancelled request is cancelled."""
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """A form for the person, where the client shows them. Refused otherwise: several clients hang or end when a
        server asks them something."""
        if self.questions is None:
            raise NoBackChannelError(method)
        return await self.questions.ask(method, params)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """One notification."""
        self._send({"jsonrpc": "2.0", "method": method, "params": dict(params or {})})

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """One progress notification, where the client gave a token."""
        self.report(progress, message or "")

    def report(self, progress: float, message: str) -> None:
        """As ``progress``, from a timer."""
        if self.token is not None:
            params = {"progressToken": self.token, "progress": progress, "message": message}
            self._send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


class Heartbeat:
    """Rising progress, every so often as long as the block runs, for a client that gave a token."""

    def __init__(self, exchange: Exchange, seconds: float) -> None:
        self._exchange = exchange
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._beat)

    def __exit__(self, *_: object) -> None:
        if self._timer:
            self._timer.cancel()

    def _beat(self) -> None:
        waited = self._loop.time() - self._began
        self._exchange.report(round(waited, 3), f"still running after {waited:.0f} s")
        self._timer = self._loop.call_later(self._seconds, self._beat)


@asynccontextmanager
async def no_lifespan(server: Server[Any]) -> AsyncGenerator[None]:
    """For lanes, each of which is given its caller."""
    yield None


class AnnouncingServer(Server[Any]):
    """Says in a handshake which lists it tells of."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **extensions: Any
    ) -> InitializationOptions:
        """As the SDK's, where that knows tools and resources as lists that change."""
        told = notification_options or NotificationOptions(tools_changed=True, resources_changed=True)
        return super().create_initialization_options(told, *args, **extensions)


def make_server(
    lifespan: Callable[[Server[Any]], AbstractAsyncContextManager[Callers | None]] = no_lifespan,
) -> Server[Any]:
    """All that is served of MCP. What ``lifespan`` gives is what ``caller_of`` asks who makes a request."""
    tasks = mcp_tasks.CommandTasks()
    server: Server[Any] = AnnouncingServer(
        "ai-session",
        version=__version__,
        title="AI Session",
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        cache_hints={"tools/list": CacheHint(ttl_ms=CACHE_MS), "server/discover": CacheHint(ttl_ms=CACHE_MS)},
        on_list_tools=mcp_tools.list_tools,
        on_call_tool=tasks.call_tool,
    )
    mcp_tasks.register(server, tasks)
    for part in (resources, subscriptions, prompts, completion):
        part.register(server)
    server.middleware.clear()  # tracing without an exporter takes 5 % of every call
    return server


CACHE_MS = 60_000
SERVER = make_server()
STAMP: Message = {SERVER_INFO_META_KEY: SERVER.server_info_stamp}
ASSUMED_HANDSHAKE = {
    "protocolVersion": LATEST_HANDSHAKE_VERSION,
    "capabilities": {},
    "clientInfo": {"name": "", "version": ""},
}
