"""Sessions as resources: each is another name for a call at the gate, and read by making it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    Annotations,
    InputRequiredResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from agentwire.json_lines import scrub
from ai_session.models import ToolResult
from ai_session.servers.mcp import apps
from ai_session.servers.mcp.caller import caller_of
from ai_session.servers.mcp.calls import CALL_ID
from ai_session.servers.mcp.elicitation import asker_of, returned, to_be_answered
from ai_session.servers.mcp.gate_calls import Context, call_tool, missing
from ai_session.servers.mcp.tools import no_cursor, shows_views
from ai_session.servers.mcp.uris import LIST, TEMPLATES, Part, ResourceAddress, address_of
from ai_session.servers.mcp.view import view

PAGE_SESSIONS = 50
"""The number of sessions on one page of resources, with four or five resources each."""

OUTPUT_CHARS = 200_000
"""The most that ``read_output`` returns at once."""

ENDED_MS = 60_000
STATIC_MS = 3_600_000
LISTED_MS = 1000
"""How long a resource may be cached: the output of an ended command, what never changes, a list. Changes of sessions
are reported to subscribers."""

DETAIL = "ai-session/resource"
"""The key in a resource's ``_meta`` for the facts next to its text."""

TITLES: dict[Part, tuple[str, str, str]] = {
    "list": ("Sessions", "application/json", "All terminal sessions with their state."),
    "info": ("Session", "application/json", "State, directory, running and last command, exit status, size."),
    "screen": ("Screen", "text/plain", "The rendered screen, as a person sees it."),
    "output": ("Output", "text/plain", "What a command printed; command_id 'all' is everything the terminal printed."),
    "recording": ("Recording", "application/x-asciicast", "What the terminal showed and when, as asciicast v3."),
}
"""Title, MIME type and description."""


async def list_resources(ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
    """List the session list, and each visible session's parts and newest command's output, oldest first."""
    after = _after(params.cursor) if params and params.cursor is not None else None
    result = await call_tool(ctx, "describe_sessions")
    rows: Sequence[dict[str, Any]] = scrub(list(result.structured["sessions"]))
    rest = [row for row in rows if after is None or _key(row) > after]
    page = rest[:PAGE_SESSIONS]
    found = [_resource(ResourceAddress("list"), {})] if after is None else []
    for row in page:
        found += [_resource(ResourceAddress(part, row["session_id"]), row) for part in ("info", "screen", "recording")]
        if newest := row.get("newest"):
            found.append(
                _resource(ResourceAddress("output", row["session_id"], newest["command_id"]), row, newest["command"])
            )
    cursor = _cursor(page[-1]) if len(rest) > len(page) else None
    return ListResourcesResult(resources=found, next_cursor=cursor, ttl_ms=LISTED_MS, cache_scope="private")


def _resource(address: ResourceAddress, row: dict[str, Any], command: str = "") -> Resource:
    title, mime_type, description = TITLES[address.part]
    name = str(row.get("name", ""))
    words = [title, *([f"of {name}"] if name else []), *([f": {command.splitlines()[0][:80]}"] if command else [])]
    changed = row.get("changed_at")
    changed_at = datetime.fromtimestamp(changed, UTC).isoformat(timespec="milliseconds") if changed else None
    return Resource(
        uri=address.uri,
        name=f"{name}/{address.part}" if name else address.part,
        title=" ".join(words).replace(" :", ":"),
        description=description,
        mime_type=mime_type,
        annotations=Annotations(last_modified=changed_at.replace("+00:00", "Z")) if changed_at else None,
    )


def _key(row: dict[str, Any]) -> tuple[float, str]:
    return row["created_at"], row["session_id"]


def _cursor(row: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(_key(row)).encode()).decode()


def _after(cursor: str) -> tuple[float, str]:
    """Return the session after which a page begins; it may no longer exist. Raises MCPError for an invalid cursor."""
    try:
        created_at, session_id = json.loads(base64.b64decode(cursor, b"-_", validate=True))
        key = float(created_at), str(session_id)
        if _cursor({"created_at": key[0], "session_id": key[1]}) != cursor:
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise MCPError(INVALID_PARAMS, "not a cursor of this list; begin without one") from None
    return key


async def list_templates(ctx: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    """List all templates; there is no second page."""
    no_cursor(params)
    templates = [
        ResourceTemplate(
            uri_template=template,
            name=part,
            title=TITLES[part][0],
            description=f"{TITLES[part][2]} id: a session's id or name.",
            mime_type=TITLES[part][1],
        )
        for part, template in TEMPLATES.items()
    ]
    return ListResourceTemplatesResult(resource_templates=templates, ttl_ms=STATIC_MS, cache_scope="public")


async def read_resource(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult | InputRequiredResult:
    """Make the call that the URI stands for, or return the view of calls. Raises MCPError, with ``uri`` if missing."""
    if params.uri == apps.URI and shows_views(ctx.session.client_capabilities):
        shown = TextResourceContents(uri=apps.URI, mime_type=apps.MIME_TYPE, text=view(), _meta=apps.ABOUT)
        return ReadResourceResult(contents=[shown], ttl_ms=STATIC_MS, cache_scope="public")
    address = address_of(params.uri)
    if address is None:
        raise missing(ctx, params.uri)
    client = caller_of(ctx).principal.client
    state, answers = returned(ctx, params, client)
    result = await read(ctx, address, uri=params.uri, asker=asker_of(ctx, client), state=state, answers=answers)
    meta: dict[str, Any] = {**scrub(dict(result.meta)), CALL_ID: result.call_id}
    if result.question:
        return to_be_answered(result.question, result.state, meta)
    ended = address.part == "output" and result.structured.get("status") not in ("running", None)
    return ReadResourceResult(
        contents=[contents(address, params.uri, result)],
        ttl_ms=ENDED_MS if ended else 0,
        cache_scope="private",
        _meta=meta,
    )


async def read(ctx: Context, address: ResourceAddress, **options: Any) -> ToolResult:
    """Return the result of the call that reads ``address``. Raises MCPError."""
    on_session = {"session_id": address.session}
    match address.part:
        case "list":
            return await call_tool(ctx, "list_sessions", **options)
        case "info":
            return await call_tool(ctx, "get_session_info", **on_session, **options)
        case "screen":
            return await call_tool(ctx, "read_screen", **on_session, **options)
        case "recording":
            return await call_tool(ctx, "get_recording", **on_session, **options)
        case "output":
            limits = {"command_id": address.command_id, "max_output_chars": OUTPUT_CHARS}
            return await call_tool(ctx, "read_output", **on_session, **limits, **options)


def contents(address: ResourceAddress, uri: str, result: ToolResult) -> TextResourceContents:
    """Return what was read as its text; further facts are in ``_meta``."""
    facts: dict[str, Any] = scrub(dict(result.structured))
    match address.part:
        case "list" | "info":
            text, facts = json.dumps(facts, ensure_ascii=False), {}
        case "screen":
            text = facts.pop("screen")
        case "recording":
            text = scrub(result.text)
        case "output":
            text = facts.pop("output")
            if "stderr" in facts:
                text += ("" if text.endswith("\n") or not text else "\n") + "[stderr]\n" + facts.pop("stderr")
            if note := facts.get("note"):
                text = f"[{note}]\n{text}"
    return TextResourceContents(
        uri=uri, mime_type=TITLES[address.part][1], text=text, _meta={DETAIL: facts} if facts else None
    )


def register(server: Server[Any]) -> None:
    """Add the handlers."""
    server.add_request_handler("resources/list", PaginatedRequestParams, list_resources)
    server.add_request_handler("resources/templates/list", PaginatedRequestParams, list_templates)
    server.add_request_handler("resources/read", ReadResourceRequestParams, read_resource)


__all__ = ["LIST", "contents", "list_resources", "list_templates", "read", "read_resource", "register"]
