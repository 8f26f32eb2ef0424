"""The official SDK's low-level server, driven message by message.

The SDK's own loop serves one protocol era per connection, silently drops invalid lines, and does not end on a signal;
real clients mix eras on one pipe. Here each request finds its lane: one with the 2026-07-28 envelope has a lane of its
own, every `initialize` opens a new handshake lane, and a request before any handshake gets a lane as if the newest had
been made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import anyio
from mcp.server.connection import Connection as ClientState
from mcp.server.lowlevel import NotificationOptions
from mcp.server.runner import ServerRunner
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, PROTOCOL_VERSION_META_KEY, ErrorData
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from agentwire.json_lines import Message
from agentwire.mcp.heartbeat import Heartbeat, progress_notification
from ccswarm.servers.base import ServerOptions
from ccswarm.servers.mcp.handlers import BUS, LISTEN, SERVER, Client
from ccswarm.servers.mcp.resources import Watchers
from ccswarm.servers.mcp.toolsets.base import PARTIAL
from ccswarm.servers.mcp.workbench import Workbench

HEARTBEAT_SECONDS = 10.0
"""The interval of progress notifications for a waiting call; no known client gives up within 30 s without one."""

QUICK_SECONDS = 0.2
"""The time to answer what was requested right before the client's end."""

OPTIONS = SERVER.create_initialization_options(NotificationOptions(resources_changed=True))
ASSUMED_HANDSHAKE = {
    "protocolVersion": LATEST_HANDSHAKE_VERSION,
    "capabilities": {},
    "clientInfo": {"name": "", "version": ""},
}

log = logging.getLogger(__name__)


class Conversation:
    """The client's requests, served concurrently; every response goes through ``send``."""

    def __init__(
        self, options: ServerOptions, send: Callable[[Message], None], heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        self._send = send
        self._heartbeat_seconds = heartbeat_seconds
        self._requests: dict[asyncio.Task[None], Message] = {}
        self._handshake: ServerRunner[Client] | None = None
        self._workbench = Workbench(options)
        self._watchers = Watchers(self._workbench, self._notify_updated)
        self._subscribed: set[str] = set()
        self._client = Client(self._workbench, self._watchers, self._subscribed, self._notify_list_changed)

    def receive(self, message: Message, *, answered: bool = False) -> None:
        """Start a request, or handle a notification. ``answered``: it was answered before; only its effect is
        wanted."""
        if "id" in message:
            task = asyncio.create_task(self._serve(message, answered))
            self._requests[task] = message
            task.add_done_callback(self._requests.pop)
        elif message["method"] == "notifications/cancelled":
            wanted = str(message.get("params", {}).get("requestId"))
            for task, request in self._requests.items():
                if str(request["id"]) == wanted and request["method"] != "initialize":
                    task.cancel()

    async def settle(self) -> None:
        """Answer what can be answered quickly, after the client's last message."""
        if self._requests:
            await asyncio.wait(self._requests, timeout=QUICK_SECONDS)

    async def close(self) -> None:
        """Cancel all calls, and hand back the runs in progress."""
        LISTEN.close()
        for task in list(self._requests):
            task.cancel()
        self._watchers.close()
        await self._workbench.close()

    async def _notify_updated(self, uri: str) -> None:
        await BUS.publish(ResourceUpdated(uri))
        if uri in self._subscribed:
            self._send({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})

    async def _notify_list_changed(self, uri: str) -> None:
        await BUS.publish(ResourcesListChanged())
        if self._handshake:
            self._send({"jsonrpc": "2.0", "method": "notifications/resources/list_changed"})
        if uri in self._watchers.wanted:
            await self._notify_updated(uri)

    async def _serve(self, message: Message, answered: bool) -> None:
        request_id, method, params = message["id"], message["method"], message.get("params")
        exchange = Exchange(self._send, request_id, progress_token_from_params(params))
        task = asyncio.current_task()
        try:
            with Heartbeat(exchange, self._heartbeat_seconds, "still waiting") as heartbeat:
                PARTIAL.set(heartbeat.report)
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

    async def _result(self, exchange: Exchange, method: str, params: Message | None) -> Message:
        if method == "initialize":
            runner = self._runner(ClientState.for_loop(exchange))
            result = await runner.on_request(exchange, method, params)
            self._handshake = runner
            return result
        meta = (params or {}).get("_meta")
        if method == "server/discover" or (isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta):
            route = classify_inbound_request({"method": method, "params": params})
            if isinstance(route, InboundLadderRejection):
                raise MCPError(route.code, route.message, route.data)
            state = ClientState.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
            return await self._runner(state).on_request(exchange, method, params)
        if self._handshake is None:
            runner = self._runner(ClientState.for_loop(exchange))
            await runner.on_request(exchange, "initialize", ASSUMED_HANDSHAKE)
            self._handshake = runner
        return await self._handshake.on_request(exchange, method, params)

    def _runner(self, state: ClientState) -> ServerRunner[Client]:
        return ServerRunner(SERVER, state, self._client, init_options=OPTIONS)


class Exchange:
    """The return path from one request to the client: the SDK's DispatchContext. It never sends requests."""

    transport = TransportContext(kind="stdio", can_send_request=False)
    message_metadata = None
    can_send_request = False

    def __init__(self, send: Callable[[Message], None], request_id: int | str, token: int | str | None) -> None:
        self.request_id = request_id
        self.token = token
        self._send = send

    @property
    def cancel_requested(self) -> anyio.Event:
        """An event that is never set: the task of a cancelled request is cancelled instead."""
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Raise NoBackChannelError: several clients hang or end when a server sends them a request."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification."""
        self._send({"jsonrpc": "2.0", "method": method, "params": dict(params or {})})

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send a progress notification, if the client gave a token."""
        self.report(progress, message or "")

    def report(self, progress: float, message: str) -> None:
        """Send a progress notification from a timer."""
        if self.token is not None:
            self._send(progress_notification(self.token, progress, message))
