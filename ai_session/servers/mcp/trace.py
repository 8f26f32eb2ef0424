"""A request's position in its client's trace, and facts about its transport, for telemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from agentwire.json_lines import Message

TRACE_FIELDS = {"traceparent": 200, "tracestate": 2048, "baggage": 8192}
"""W3C's names, and the most characters of each; longer values are left out."""

AMBIENT = "ambient.traceparent"
SESSION_HEADER = "mcp-session-id"
ID_CHARS = 200


class RequestContext(Protocol):
    """A request, as far as it is needed; the SDK's context of one has more."""

    @property
    def params(self) -> Mapping[str, Any] | None: ...
    @property
    def method(self) -> str: ...
    @property
    def protocol_version(self) -> str: ...
    @property
    def request_id(self) -> int | str | None: ...
    @property
    def request(self) -> Any:
        """The HTTP request, if it arrived that way."""
        ...


def trace_of(ctx: RequestContext) -> dict[str, str]:
    """Return ``ToolCall.trace`` of a request: the trace in its ``_meta``, or else in its HTTP headers."""
    given: Any = (ctx.params or {}).get("_meta")
    meta: Message = given if isinstance(given, dict) else {}  # pyright: ignore[reportUnknownVariableType]
    headers: Mapping[str, str] | None = ctx.request.headers if ctx.request is not None else None
    in_meta = _trace_fields(meta) if "traceparent" in meta else {}
    found = {
        "mcp.method.name": ctx.method,
        "mcp.protocol.version": ctx.protocol_version,
        "network.transport": "pipe" if headers is None else "tcp",
    }
    if ctx.request_id is not None:
        found["jsonrpc.request.id"] = str(ctx.request_id)[:ID_CHARS]
    if isinstance(uri := (ctx.params or {}).get("uri"), str):
        found["mcp.resource.uri"] = uri[:ID_CHARS]
    if headers is None:
        return found | in_meta
    found["network.protocol.name"] = "http"
    if session := headers.get(SESSION_HEADER):
        found["mcp.session.id"] = session[:ID_CHARS]
    in_headers = _trace_fields(headers)
    if in_meta and "traceparent" in in_headers:
        found[AMBIENT] = in_headers["traceparent"]
    return found | (in_meta or in_headers)


def _trace_fields(source: Mapping[str, Any]) -> dict[str, str]:
    given = {name: source.get(name) for name in TRACE_FIELDS}
    return {
        name: value
        for name, value in given.items()
        if isinstance(value, str) and value.isascii() and 0 < len(value) <= TRACE_FIELDS[name]
    }
