"""A client's stream of what changes, since 2026-07-28: what is heeded is said first, then each change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from agentwire.json_lines import Message
from ai_session.models import Change, ChangeKind
from ai_session.servers.mcp.caller import AGENT, RUN, Caller, claim
from ai_session.servers.mcp.calls import object_in
from ai_session.servers.mcp.trace import Asking
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
"""Which change a client hears of that asks for it, and by which notification. Prompts are always the same."""

RESOURCES = "resourceSubscriptions"

TOUCHED: dict[Part, frozenset[ChangeKind]] = {
    "list": frozenset({"list", "state"}),
    "info": frozenset({"state"}),
    "screen": frozenset({"state", "output"}),
    "output": frozenset({"output"}),
    "recording": frozenset({"output"}),
}
"""Which changes make which resource another one."""


def touches(change: Change, address: ResourceAddress) -> bool:
    """Whether what is at ``address`` may be another after this change."""
    if change.kind not in TOUCHED[address.part]:
        return False
    if address.part == "list":
        return True
    if change.name and address.session not in (change.session_id, change.name):
        return False
    return address.part != "output" or not change.commands or address.command_id in change.commands


def updated(changes: Collection[Change], addresses: Iterable[tuple[str, ResourceAddress]]) -> Iterator[str]:
    """Those of the URIs that changed."""
    return (uri for uri, address in addresses if any(touches(change, address) for change in changes))


def needs_no_sdk(params: Message | None) -> bool:
    """Whether a client asks for nothing but lists, so that the SDK's models would only copy what it asks."""
    wanted = object_in((params or {}).get("notifications"))
    if params is None or wanted is None or not params.keys() <= {"notifications", "_meta"}:
        return False
    return wanted.keys() <= LIST_CHANGES.keys() and all(type(value) is bool for value in wanted.values())


async def listen(
    caller: Caller, asking: Asking, wanted: Mapping[str, Any], tell: Callable[[str, Message], Awaitable[None]]
) -> Message:
    """The result of a stream that ended, which the client gives up or this process, as it leaves. ``wanted`` may name
    resources that are none of ours: they are not heeded. Raises what ``Caller.watch_changes`` does."""
    addresses = {uri: address for uri in wanted.get(RESOURCES) or () if (address := address_of(uri))}
    heeded: Message = {name: True for name in LIST_CHANGES if wanted.get(name)}
    changes = await caller.watch_changes(claim(asking, AGENT), claim(asking, RUN), KINDS if addresses else LISTS)
    meta: Message = {SUBSCRIPTION_ID: asking.request_id}
    caller.streams.add(changes)
    try:
        shown = heeded | ({RESOURCES: list(addresses)} if addresses else {})
        await tell("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": shown})
        while batch := await changes.next():
            kinds = {change.kind for change in batch}
            for kind, method in (LIST_CHANGES[name] for name in heeded):
                if kind in kinds:
                    await tell(method, {"_meta": meta})
            for uri in updated(batch, addresses.items()):
                await tell("notifications/resources/updated", {"_meta": meta, "uri": uri})
    finally:
        caller.streams.discard(changes)
        changes.close()
    return {"_meta": meta}
