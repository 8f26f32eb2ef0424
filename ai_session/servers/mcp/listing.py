"""The gate's tools in the form for clients, without the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentwire.json_lines import Message
from ai_session.errors import AiSessionError
from ai_session.servers.mcp import apps
from ai_session.servers.mcp.calls import INTERNAL_ERROR, STAMP, WHOLE_RESULTS, Unanswerable, Who, is_plain_meta

if TYPE_CHECKING:
    from ai_session.gate.api import ListedTool

LIST_TOOLS = "tools/list"
CACHE_MS = 60_000


def needs_no_page(version: str, params: Message | None) -> bool:
    """Report whether a client requests the whole list, as all but those with their own idea of pages do."""
    given = params or {}
    return version in WHOLE_RESULTS and given.keys() <= {"_meta"} and is_plain_meta(given.get("_meta", {}))


async def list_tools(who: Who) -> Message:
    """Return all tools on one page: four clients never request a second one. Raises Unanswerable without a gate."""
    try:
        tools = await (await who.caller.gate()).list_tools(who.caller.principal)
    except AiSessionError as problem:
        raise Unanswerable(INTERNAL_ERROR, f"{problem.message}; {problem.suggestion}") from None
    entry: Message = {"tools": [described(tool, who.shows_views) for tool in tools]}
    if who.modern:
        entry |= {"_meta": STAMP, "cacheScope": "private", "resultType": "complete", "ttlMs": CACHE_MS}
    return entry


def described(tool: ListedTool, views: bool = False) -> Message:
    """Return one tool, with a link to its view if ``views``. The title is there twice, as clients read either."""
    hints = {
        "title": tool.title,
        "readOnlyHint": tool.read_only,
        "destructiveHint": tool.destructive,
        "idempotentHint": tool.idempotent,
        "openWorldHint": tool.open_world,
    }
    entry: Message = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": dict(tool.input_schema),
        "outputSchema": dict(tool.output_schema),
        "annotations": hints,
    }
    meta = ({"anthropic/alwaysLoad": True} if tool.always_load else {}) | (apps.link(tool.name) if views else {})
    return entry | ({"_meta": meta} if meta else {})
