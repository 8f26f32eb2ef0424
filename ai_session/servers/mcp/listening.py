"""A client's stream of changes, since 2026-07-28: an acknowledgement of what is watched, then each change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from agentwire.json_lines import Message
from ai_session.models import Change, ChangeKind
from ai_session.servers.mcp.caller import AGENT, RUN, Caller, claim
from ai_session.servers.mcp.calls import object_in
from ai_session.servers.mcp.trace import RequestContext
from ai_session.servers.mcp.uris import Part, ResourceAddress, address_of
from ai_session.sessions.changes import KINDS, LISTS

LISTEN = "subscriptions/listen"
"""A subscription, answered when it ends; until then it reports only what was requested."""

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
LIST_CHANGES: Mapping[str, tuple[ChangeKind | None, str]] = {
    "toolsListChanged": ("tools", "notifications/tools/list_changed"),
    "promptsListChanged": (None, ""),
    "resourcesListChanged": ("list", "notifications/resources/list_changed"),
}
"""The kind of change and the notification for each request. The list of prompts never changes."""

RESOURCES = "resourceSubscriptions"

TOUCHED: dict[Part, frozenset[ChangeKind]] = {
    "list": frozenset({"list", "state"}),
    "info": frozenset({"state"}),
    "screen": frozenset({"state", "output"}),
    "output": frozenset({"output"}),
    "recording": frozenset({"output"}),
}
"""The kinds of changes that affect each part."""


def touches(change: Change, address: ResourceAddress) -> bool:
    """Report whether the content of ``address`` may have changed with this change."""
    if change.kind not in TOUCHED[address.part]:
        return False
    if address.part == "list":
        return True
    if change.name and address.session not in (change.session_id, change.name):
        return False
    return address.part != "output" or not change.commands or address.command_id in change.commands


def updated(changes: Collection[Change], addresses: Iterable[tuple[str, ResourceAddress]]) -> Iterator[str]:
    """Return those of the URIs that may have changed."""
    return (uri for uri, address in addresses if any(touches(change, address) for change in changes))


def needs_no_sdk(params: Message | None) -> bool:
    """Report whether a client requests only lists, so that the SDK's models would only copy its request."""
    wanted = object_in((params or {}).get("notifications"))
    if params is None or wanted is None or not params.keys() <= {"notifications", "_meta"}:
        return False
    return wanted.keys() <= LIST_CHANGES.keys() and all(type(value) is bool for value in wanted.values())


async def listen(
    caller: Caller,
    request: RequestContext,
    wanted: Mapping[str, Any],
    notify: Callable[[str, Message], Awaitable[None]],
) -> Message:
    """Report changes until the client cancels or this process shuts down, and return the final result. ``wanted`` may
    name resources that are not ours, which are ignored. Raises what ``Caller.watch_changes`` does."""
    addresses = {uri: address for uri in wanted.get(RESOURCES) or () if (address := address_of(uri))}
    accepted: Message = {name: True for name in LIST_CHANGES if wanted.get(name)}
    changes = await caller.watch_changes(claim(request, AGENT), claim(request, RUN), KINDS if addresses else LISTS)
    meta: Message = {SUBSCRIPTION_ID: request.request_id}
    caller.streams.add(changes)
    try:
        acknowledged = accepted | ({RESOURCES: list(addresses)} if addresses else {})
        await notify("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": acknowledged})
        while batch := await changes.next():
            kinds = {change.kind for change in batch}
            for kind, method in (LIST_CHANGES[name] for name in accepted):
                if kind in kinds:
                    await notify(method, {"_meta": meta})
            for uri in updated(batch, addresses.items()):
                await notify("notifications/resources/updated", {"_meta": meta, "uri": uri})
    finally:
        caller.streams.discard(changes)
        changes.close()
    return {"_meta": meta}
