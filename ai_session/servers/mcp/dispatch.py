"""The official SDK's low-level server, driven message by message.

The SDK's own loop serves one protocol era per connection; real clients mix them on one pipe. Here every request gets
its lane: one with the 2026-07-28 envelope is independent, every `initialize` opens a new handshake lane, and a request
before any handshake gets a lane as if the newest one had been made. Dispatching here instead of in the SDK's loop also
takes 0.04 ms a call instead of 0.10.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data
from mcp.shared.transport_context import TransportContext
from mcp_types import PROTOCOL_VERSION_META_KEY
from mcp_types.methods import serialize_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from agentwire.json_lines import Message
from ai_session import __version__
from ai_session.models import Answer, Question, ToolResult
from ai_session.servers.mcp import completion, prompts, resources, subscriptions
from ai_session.servers.mcp import tasks as mcp_tasks
from ai_session.servers.mcp import tools as mcp_tools
from ai_session.servers.mcp.caller import Caller, Callers
from ai_session.servers.mcp.calls import CALL, FORM_VERSIONS, NAME, TITLE, name_in
from ai_session.servers.mcp.conversation import Exchange
from ai_session.servers.mcp.elicitation import HandshakeForm, Questioning, Questions, answerable, to_be_answered
from ai_session.servers.mcp.listing import CACHE_MS

INSTRUCTIONS = """\
ai-session runs commands in real, persistent terminals. A session is one shell that stays alive between calls: cd, \
exports, functions, virtual environments, background jobs and running programs persist; it outlives this connection.

1. create_session once per line of work (a name, a working_directory), then execute_command in it; session_id takes \
the id or the name. list_sessions shows what is there already: reuse it.
2. execute_command returns when the command has really ended, with its exact exit code; a code other than 0 is a \
result, not a tool error. If it takes longer than timeout_seconds the result says running and the command runs on: \
read_output with wait_for='finish' (or 'pattern', 'output', 'input') continues to wait. Do not run it again. No call \
waits over 50 s.
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


class Lanes:
    """The SDK's part of one client's conversation, in lanes of either era."""

    def __init__(self, caller: Caller, send: Callable[[Message], None], server: Server[Any] | None = None) -> None:
        """``server`` serves something other than the gate's tools."""
        self._server = server or SERVER
        self._caller = caller
        self._send = send
        self._handshake: ServerRunner[Caller] | None = None
        self._questions = Questions(send)

    async def handle(self, message: Message) -> None:
        """Process a notification of the handshake era."""
        if self._handshake:
            await self._handshake.on_notify(Way(self._send), message["method"], message.get("params"))

    async def close(self) -> None:
        """Release what belongs to this client after it has disconnected."""
        if self._handshake:
            await aclose_shielded(self._handshake.connection)

    def receive_response(self, message: Message) -> None:
        """Process the client's response to a question of ours."""
        self._questions.receive_response(message)

    def error(self, problem: Exception) -> Message | None:
        """Return an error of the protocol; None for a defect."""
        found = handler_exception_to_error_data(problem)
        return found.model_dump(exclude_none=True) if found else None

    async def result(self, exchange: Exchange, method: str, params: Message | None) -> Message:
        """Return the result of a request of either era. Raises the exceptions that ``error`` accepts."""
        way = Way(exchange.send, exchange.request_id, exchange.token)
        if method == "initialize":
            runner = self._runner(ClientState.for_loop(way), (params or {}).get("clientInfo"))
            result = await runner.on_request(way, method, params)
            earlier = self._handshake
            self._handshake = runner
            if earlier:
                await aclose_shielded(earlier.connection)
            return result
        meta = (params or {}).get("_meta")
        if method == "server/discover" or (isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta):
            return await self._modern_result(way, method, params or {})
        runner = await self._handshake_lane(way)
        return await runner.on_request(way, method, params)

    async def ask(self, exchange: Exchange, question: Question) -> Answer | None:
        """Ask the client's person with a form, while a call of the handshake era waits."""
        way = Way(exchange.send, exchange.request_id)
        runner = await self._handshake_lane(way)
        state = runner.connection
        ctx = ServerRequestContext[Caller, Any](
            session=ServerSession(way, state),
            lifespan_context=runner.lifespan_state,
            protocol_version=state.protocol_version,
            method=CALL,
            request_id=exchange.request_id,
        )
        return await HandshakeForm(ctx, runner.lifespan_state.principal.client).ask(question)

    def input_required(self, version: str, result: ToolResult, meta: Message) -> Message:
        """Return the result that makes a client of 2026-07-28 ask its person and repeat the call."""
        assert result.question
        input_required = to_be_answered(result.question, result.state, meta)
        plain = input_required.model_dump(by_alias=True, mode="json", exclude_none=True)
        return serialize_server_result(CALL, version, plain)

    async def _handshake_lane(self, way: Way) -> ServerRunner[Caller]:
        """Return the lane of the last handshake, with the way to its client's person if it shows forms."""
        if self._handshake is None:
            runner = self._runner(ClientState.for_loop(way), None)
            await runner.on_request(way, "initialize", ASSUMED_HANDSHAKE)
            self._handshake = runner
        state = self._handshake.connection
        if state.protocol_version in FORM_VERSIONS and answerable(state.client_capabilities):
            way.questions = self._questions.to(state.client_capabilities)
        return self._handshake

    async def _modern_result(self, way: Way, method: str, params: Message) -> Message:
        """Return the result of a request that identifies its client itself."""
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(route.code, route.message, route.data)
        state = ClientState.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
        return await self._runner(state, route.client_info).on_request(way, method, params)

    def _runner(self, state: ClientState, client_info: Any) -> ServerRunner[Caller]:
        return ServerRunner(self._server, state, self._caller.named(name_in(client_info)))


class Way(Exchange):
    """The way from one request back to its client: the SDK's DispatchContext, for notifications and questions."""

    transport = TransportContext(kind="stdio", can_send_request=False)
    message_metadata = None
    questions: Questioning | None = None

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
        """Show the person a form, if the client does that. Refused otherwise: several clients hang or exit when a
        server asks them something."""
        if self.questions is None:
            raise NoBackChannelError(method)
        return await self.questions.ask(method, params)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send one notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": dict(params or {})})

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send one progress notification, if the client gave a token."""
        self.report(progress, message or "")


@asynccontextmanager
async def no_lifespan(server: Server[Any]) -> AsyncGenerator[None]:
    """Yield nothing: each lane gets its caller directly."""
    yield None


class AnnouncingServer(Server[Any]):
    """Declares in a handshake which changes of lists it announces."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **extensions: Any
    ) -> InitializationOptions:
        """Return the SDK's options with tools and resources as lists that change."""
        announced = notification_options or NotificationOptions(tools_changed=True, resources_changed=True)
        return super().create_initialization_options(announced, *args, **extensions)


def make_server(
    lifespan: Callable[[Server[Any]], AbstractAsyncContextManager[Callers | None]] = no_lifespan,
) -> Server[Any]:
    """Return the server of everything MCP. ``caller_of`` asks what ``lifespan`` yields who makes a request."""
    tasks = mcp_tasks.CommandTasks()
    server: Server[Any] = AnnouncingServer(
        NAME,
        version=__version__,
        title=TITLE,
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


SERVER = make_server()
ASSUMED_HANDSHAKE = {
    "protocolVersion": LATEST_HANDSHAKE_VERSION,
    "capabilities": {},
    "clientInfo": {"name": "", "version": ""},
}
