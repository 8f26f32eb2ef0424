"""The SDK's Streamable HTTP transport with our handlers, for the requests of many users in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_loop
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import Scope

from ai_session.errors import InsufficientScope
from ai_session.gate.api import Asker, GateApi, Watched
from ai_session.http.endpoints.base import Front, ServedPath
from ai_session.http.endpoints.mcp_sessions import Shares
from ai_session.http.endpoints.tokens import principal_of, subject_of
from ai_session.http.guard import Exchange, MissingScope
from ai_session.models import ChangeKind, ToolCall, ToolResult
from ai_session.servers.mcp.caller import Caller, Stream
from ai_session.servers.mcp.conversation import LISTEN
from ai_session.servers.mcp.dispatch import make_server
from ai_session.system.shares import share

MCP_PATH = "/mcp"
STREAM_PATH = "/sse"
MESSAGES_PATH = "/messages/"
IDLE_SECONDS = 1800.0
HEARTBEAT_SECONDS = 10.0


class Callers:
    """Finds the caller of a request by its token."""

    def __init__(self, gate: GateApi) -> None:
        self._gate = gate
        self.streams: set[Stream] = set()

    def of(self, ctx: ServerRequestContext[Any, Any]) -> Caller:
        """Return the caller for whom the request's token was issued; without sign-in the user of this machine."""
        request: Any = ctx.request
        scope: Scope = request.scope
        has_handshake = ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS
        known = ctx.session.client_params
        return RequestCaller(
            self._ready,
            principal_of(scope, known.client_info.name if known else ""),
            self.streams,
            exchange=Exchange.of(scope),
            request_id=ctx.request_id,
            has_handshake=has_handshake,
        )

    async def _ready(self) -> GateApi:
        return self._gate


@dataclass(frozen=True)
class RequestCaller(Caller):
    """The caller of one request. A missing scope determines the status of its response; in the handshake era its calls
    are cancelled when no client is left to be answered."""

    exchange: Exchange = field(kw_only=True, compare=False)
    request_id: Any = field(kw_only=True)
    has_handshake: bool = field(kw_only=True)

    async def call(self, call: ToolCall, asker: Asker | None = None) -> ToolResult:
        calling = Caller.call(self, call, asker)
        result = await (self._cancelled_with_request(calling) if self.has_handshake else calling)
        error = result.structured.get("error") if result.is_error else None
        if error and error.get("code") == InsufficientScope.code:
            self._record_missing_scope(error["required_scope"], error["message"])
        return result

    async def watch_changes(self, agent: str, run: str, kinds: Collection[ChangeKind]) -> Watched:
        try:
            return await Caller.watch_changes(self, agent, run, kinds)
        except InsufficientScope as error:
            self._record_missing_scope(error.required_scope, error.message)
            raise

    async def _cancelled_with_request(self, calling: Coroutine[Any, Any, ToolResult]) -> ToolResult:
        wait = asyncio.ensure_future(calling)
        self.exchange.waits.add(wait)
        try:
            return await wait
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if wait.cancelled() and task and not task.cancelling():
                return ToolResult("the client went away", {"error": {"code": "cancelled"}}, is_error=True)
            raise
        finally:
            self.exchange.waits.discard(wait)

    def _record_missing_scope(self, scope: str, message: str) -> None:
        self.exchange.missing = MissingScope(scope, self.request_id, message)


class McpEndpoint:
    """MCP over HTTP. Implements ``Endpoint``. A ``registry`` is served instead of the gate's tools."""

    advice = "sign in first"
    middleware = ()

    def __init__(
        self, front: Front, *, heartbeat_seconds: float = HEARTBEAT_SECONDS, registry: Server[Any] | None = None
    ) -> None:
        settings = front.settings
        self._callers = Callers(front.gate)
        self._server: Server[Any] = registry or make_server(self._lifespan)
        self._server.middleware.append(partial(heartbeat, heartbeat_seconds))
        if registry is None:
            # None of our tools uses Mcp-Param headers; without this each call would list all tools to find that out.
            self._server.get_tool_input_schema = no_schema
        self._sessions = StreamableHTTPSessionManager(
            self._server,
            max_request_body_size=settings.max_body_bytes,
            max_sessions=None,
            session_idle_timeout=IDLE_SECONDS,
        )
        sessions_of_one = share(settings.max_connections, settings.max_user_sessions)
        self._shares = Shares(self._sessions.handle_request, subject_of, settings.max_connections, sessions_of_one)
        self._old_streams: set[Any] = set()
        self._sse = SseServerTransport(MESSAGES_PATH, max_request_body_size=settings.max_body_bytes)
        old = (
            ServedPath(STREAM_PATH, self._stream, ("GET",)),
            ServedPath(MESSAGES_PATH, self._sse.handle_post_message, ("POST",)),
        )
        self.paths = (ServedPath(MCP_PATH, self._shares), *(old if settings.legacy_sse else ()))

    @asynccontextmanager
    async def _lifespan(self, server: Server[Any]) -> AsyncGenerator[Callers]:
        yield self._callers

    def run(self) -> AbstractAsyncContextManager[None]:
        """Return a context to be entered once; leaving it ends every session."""
        return self._sessions.run()

    def leave(self) -> None:
        """End clients' streams, so that they are notified in time."""
        for stream in [*self._callers.streams, *self._old_streams]:
            stream.close()

    async def _stream(self, scope: Scope, receive: Any, send: Any) -> None:
        """Serve the stream of a client of 2024-11-05."""
        async with self._sse.connect_sse(scope, receive, send) as (reading, writing):
            self._old_streams.add(writing)
            try:
                await serve_loop(self._server, reading, writing, lifespan_state=self._callers)
            finally:
                self._old_streams.discard(writing)


def no_schema(name: str) -> None:
    """Return no schema, whatever the tool."""


async def heartbeat(seconds: float, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Send increasing progress while a request runs, if its client gave a token: idle connections get closed."""
    if ctx.request_id is None or ctx.method == LISTEN or progress_token_from_params(ctx.params) is None:
        return await call_next(ctx)
    beating = asyncio.create_task(_beat(seconds, ctx))
    try:
        return await call_next(ctx)
    finally:
        beating.cancel()


async def _beat(seconds: float, ctx: ServerRequestContext[Any, Any]) -> None:
    loop = asyncio.get_running_loop()
    began, never = loop.time(), asyncio.Event()
    while True:
        try:
            await asyncio.wait_for(never.wait(), seconds)
        except TimeoutError:
            waited = loop.time() - began
            await ctx.session.report_progress(round(waited, 3), None, f"still running after {waited:.0f} s")
