"""Subscribers to changes of resources and lists: by ``resources/subscribe`` in the handshake era, by
``subscriptions/listen`` since 2026-07-28. Both get the same changes, as often as ``sessions.changes`` allows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ToolsListChanged, event_to_notification
from mcp_types import (
    INVALID_PARAMS,
    EmptyResult,
    NotificationParams,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    SubscribeRequestParams,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    ToolListChangedNotification,
    UnsubscribeRequestParams,
)

from agentwire.json_lines import Message
from ai_session.errors import AiSessionError
from ai_session.gate.api import Watched
from ai_session.models import ChangeKind
from ai_session.servers.mcp import tasks
from ai_session.servers.mcp.caller import AGENT, RUN, caller_of, claim
from ai_session.servers.mcp.gate_calls import Context, call_tool, missing, refusal
from ai_session.servers.mcp.listening import LISTEN, RESOURCES, updated
from ai_session.servers.mcp.listening import listen as stream_changes
from ai_session.servers.mcp.uris import ResourceAddress, address_of
from ai_session.sessions.changes import KINDS, LISTS

MAX_URIS = 1000
"""The resources to which one client may subscribe at once."""

READING = frozenset({"sessions:read", "admin"})
"""A token with neither gets no notifications, and no error: its client requested nothing."""

STATE = "ai-session/subscriptions"
GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError)

NOTICES: Mapping[
    str,
    type[
        SubscriptionsAcknowledgedNotification
        | ToolListChangedNotification
        | ResourceListChangedNotification
        | ResourceUpdatedNotification
    ],
] = {
    "notifications/subscriptions/acknowledged": SubscriptionsAcknowledgedNotification,
    "notifications/tools/list_changed": ToolListChangedNotification,
    "notifications/resources/list_changed": ResourceListChangedNotification,
    "notifications/resources/updated": ResourceUpdatedNotification,
}

log = logging.getLogger(__name__)


async def watch(ctx: Context, kinds: Collection[ChangeKind]) -> Watched:
    """Return the changes that this caller may see. Raises MCPError."""
    try:
        return await caller_of(ctx).watch_changes(claim(ctx, AGENT), claim(ctx, RUN), kinds)
    except AiSessionError as problem:
        raise refusal(ctx, problem) from None


async def listen(ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
    """Serve one stream, until the client cancels it or this process shuts down."""
    if "taskIds" in (ctx.params or {}).get("notifications", {}):
        tasks.require(ctx)  # the acknowledgement shows clients with tasks that these are ignored
    wanted = params.notifications.model_dump(by_alias=True)
    if len(wanted.get(RESOURCES) or ()) > MAX_URIS:
        raise MCPError(INVALID_PARAMS, f"more than {MAX_URIS} resources")

    async def notify(method: str, content: Message) -> None:
        notice = NOTICES[method].model_validate({"method": method, "params": content})
        await ctx.session.send_notification(notice, related_request_id=ctx.request_id)

    try:
        return SubscriptionsListenResult.model_validate(await stream_changes(caller_of(ctx), ctx, wanted, notify))
    except AiSessionError as problem:
        raise refusal(ctx, problem) from None


class Subscriber:
    """A client of the handshake era, from its handshake to the end of its connection."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._watches: dict[tuple[str, str], Watched] = {}
        self._followed: dict[tuple[str, str], dict[str, ResourceAddress]] = {}
        self._opening = asyncio.Lock()
        self._lists: Watched | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False

    async def report_lists(self, ctx: Context) -> None:
        """Report changes of lists from now on; repeated calls have no effect."""
        async with self._opening:
            if self._lists is None and not self._ended:
                self._lists = await watch(ctx, LISTS)
                self._follow(self._lists, None)

    async def subscribe(self, ctx: Context, uri: str, address: ResourceAddress) -> None:
        """Report changes of ``address`` from now on. Raises MCPError."""
        who = claim(ctx, AGENT), claim(ctx, RUN)
        if uri not in self._followed.get(who, ()) and sum(map(len, self._followed.values())) >= MAX_URIS:
            raise MCPError(INVALID_PARAMS, f"more than {MAX_URIS} resources; unsubscribe from some")
        async with self._opening:
            if self._ended:
                return
            if who not in self._watches:
                self._watches[who] = changes = await watch(ctx, KINDS)
                self._follow(changes, self._followed.setdefault(who, {}))
            self._followed[who][uri] = address

    def unsubscribe(self, uri: str) -> None:
        """Stop reporting a resource; unknown ones are ignored."""
        for who, addresses in list(self._followed.items()):
            addresses.pop(uri, None)
            if not addresses and who in self._watches:
                self._watches.pop(who).close()
                del self._followed[who]

    async def end(self) -> None:
        """Stop all reports."""
        self._ended = True
        for changes in [*self._watches.values(), *([self._lists] if self._lists else [])]:
            changes.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _follow(self, changes: Watched, addresses: dict[str, ResourceAddress] | None) -> None:
        task = asyncio.create_task(self._report(changes, addresses))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _report(self, changes: Watched, addresses: dict[str, ResourceAddress] | None) -> None:
        try:
            while batch := await changes.next():
                kinds = {change.kind for change in batch}
                lists = addresses is None
                if lists and "tools" in kinds:
                    await self._session.send_notification(event_to_notification(ToolsListChanged(), {}))
                if lists and "list" in kinds:
                    await self._session.send_notification(event_to_notification(ResourcesListChanged(), {}))
                for uri in list(updated(batch, (addresses or {}).items())):
                    await self._session.send_resource_updated(uri)
        except (AiSessionError, *GONE) as problem:
            log.debug("a client is no longer notified of changes: %s", problem)
        finally:
            changes.close()


def _connection(ctx: Context) -> Connection:
    """Return the connection of a request. The SDK gives handlers no other access to state beyond one request."""
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage]


def _subscriber(ctx: Context) -> Subscriber:
    connection = _connection(ctx)
    if STATE not in connection.state:
        subscriber = connection.state[STATE] = Subscriber(ctx.session)
        connection.exit_stack.push_async_callback(subscriber.end)
    return connection.state[STATE]


async def initialized(ctx: Context, params: NotificationParams | None) -> None:
    """Begin to report changes of lists to a client that is ready, if it can receive them."""
    scopes = caller_of(ctx).principal.scopes
    may_read = scopes is None or not READING.isdisjoint(scopes)
    if may_read and _connection(ctx).has_standalone_channel:
        try:
            await _subscriber(ctx).report_lists(ctx)
        except MCPError as problem:
            log.debug("a client is not notified of changes: %s", problem)


async def subscribe(ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
    """Subscribe to a resource that exists and may be read. Raises MCPError as reading it does."""
    address = address_of(params.uri)
    if address is None:
        raise missing(ctx, params.uri)
    if address.part == "output":
        ids: dict[str, Any] = {"session_id": address.session, "command_id": address.command_id}
        await call_tool(ctx, "read_output", uri=params.uri, tail_lines=1, **ids)
    elif address.part != "list":
        await call_tool(ctx, "get_session_info", session_id=address.session, uri=params.uri)
    await _subscriber(ctx).subscribe(ctx, params.uri, address)
    return EmptyResult()


async def unsubscribe(ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
    """Unsubscribe, also from a resource that no longer exists."""
    _subscriber(ctx).unsubscribe(params.uri)
    return EmptyResult()


def register(server: Server[Any]) -> None:
    """Add the handlers, for both eras."""
    server.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
    server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)
    server.add_request_handler(LISTEN, SubscriptionsListenRequestParams, listen)
    server.add_notification_handler("notifications/initialized", NotificationParams, initialized)
