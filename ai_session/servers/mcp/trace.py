"""Where a request stands in its client's trace, and what is known of how it came, for telemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from agentwire.json_lines import Message

CARRIED = {"traceparent": 200, "tracestate": 2048, "baggage": 8192}
"""W3C's names, and how many characters of each are taken; what is longer is left out."""

AMBIENT = "ambient.traceparent"
SESSION_HEADER = "mcp-session-id"
ID_CHARS = 200


class Asking(Protocol):
    """What is known of a request; the SDK's context of one has more."""

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
        """Of HTTP, where it came that way."""
        ...


def trace_of(ctx: Asking) -> dict[str, str]:
    """``ToolCall.trace`` of a request: what its ``_meta`` says of the trace, else what its HTTP headers do."""
    given: Any = (ctx.params or {}).get("_meta")
    meta: Message = given if isinstance(given, dict) else {}  # pyright: ignore[reportUnknownVariableType]
    headers: Mapping[str, str] | None = ctx.request.headers if ctx.request is not None else None
    said = _carried(meta) if "traceparent" in meta else {}
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
        return found | said
    found["network.protocol.name"] = "http"
    if session := headers.get(SESSION_HEADER):
        found["mcp.session.id"] = session[:ID_CHARS]
    around = _carried(headers)
    if said and "traceparent" in around:
        found[AMBIENT] = around["traceparent"]
    return found | (said or around)


def _carried(source: Mapping[str, Any]) -> dict[str, str]:
    given = {name: source.get(name) for name in CARRIED}
    return {
        name: value
        for name, value in given.items()
        if isinstance(value, str) and value.isascii() and 0 < len(value) <= CARRIED[name]
    }
