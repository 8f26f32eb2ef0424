"""The tools of the gate as clients list them, without the SDK."""

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
    """Whether a client asks for the whole list, as all but those do that have their own idea of pages."""
    given = params or {}
    return version in WHOLE_RESULTS and given.keys() <= {"_meta"} and is_plain_meta(given.get("_meta", {}))


async def listed(who: Who) -> Message:
    """All tools on one page: four clients never ask for a second one. Raises Unanswerable where there is no gate."""
    try:
        tools = await (await who.caller.gate()).list_tools(who.caller.principal)
    except AiSessionError as problem:
        raise Unanswerable(INTERNAL_ERROR, f"{problem.message}; {problem.suggestion}") from None
    shown: Message = {"tools": [described(tool, who.shows_views) for tool in tools]}
    if who.modern:
        shown |= {"_meta": STAMP, "cacheScope": "private", "resultType": "complete", "ttlMs": CACHE_MS}
    return shown


def described(tool: ListedTool, views: bool = False) -> Message:
    """One tool, for a client that shows ``views`` of calls or not. Titles twice: clients read the one or the other."""
    hints = {
        "title": tool.title,
        "readOnlyHint": tool.read_only,
        "destructiveHint": tool.destructive,
        "idempotentHint": tool.idempotent,
        "openWorldHint": tool.open_world,
    }
    shown: Message = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": dict(tool.input_schema),
        "outputSchema": dict(tool.output_schema),
        "annotations": hints,
    }
    meta = ({"anthropic/alwaysLoad": True} if tool.always_load else {}) | (apps.link(tool.name) if views else {})
    return shown | ({"_meta": meta} if meta else {})
