"""Converts a server's answer on the wire to a ServerAnswer. Everything usable in it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ccswarm.models import ServerAnswer

OWN_META = "ccswarm/problem"
"""The key in ``meta`` for problems of an answer, found by this client, not reported by the server."""


def to_answer(result: Mapping[str, Any]) -> ServerAnswer:
    """Convert the result of ``tools/call``."""
    meta = dict(_mapping(result.get("_meta")))
    if result.get("resultType", "complete") != "complete":
        return _unfinished(result, meta)
    blocks = [_mapping(block) for block in _blocks(result.get("content"))]
    texts = [block["text"] for block in blocks if _is_text(block)]
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, Mapping):
        # Later revisions allow any value; callers look fields up.
        structured = {"result": structured}
    return ServerAnswer(
        text="\n".join(texts),
        structured=cast("Mapping[str, Any] | None", structured),
        is_error=result.get("isError") is True,
        meta=meta,
        other_content=[block for block in blocks if block and not _is_text(block)],
    )


def refusal(message: str, code: int, data: Any = None) -> ServerAnswer:
    """Return the answer for a call that the server answered with a protocol error."""
    problem = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return ServerAnswer(text=message, is_error=True, meta={OWN_META: problem})


def _blocks(content: Any) -> list[Any]:
    """Return the content blocks. A single text or block counts as a list of one."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast("list[Any]", content) if isinstance(content, list) else [content]


def _unfinished(result: Mapping[str, Any], meta: Mapping[str, Any]) -> ServerAnswer:
    """Return the error for an unfinished call, which asks for input that cannot be given here."""
    kind = result.get("resultType")
    methods = [str(_mapping(request).get("method", "?")) for request in _mapping(result.get("inputRequests")).values()]
    wants = f" ({', '.join(methods)})" if methods else ""
    text = f"the tool did not finish: it answered {kind!r}{wants}, which cannot be supplied here"
    return ServerAnswer(
        text=text, is_error=True, meta={**meta, OWN_META: {"resultType": kind, "inputRequests": methods}}
    )


def _is_text(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
