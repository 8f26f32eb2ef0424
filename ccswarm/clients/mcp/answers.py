"""What a server answered to a call, as it stands on the wire → ServerAnswer. Whatever can be used of it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ccswarm.models import ServerAnswer

OWN_META = "ccswarm/problem"
"""In ``meta``: what is wrong with an answer, said by this client and not by the server."""


def to_answer(result: Mapping[str, Any]) -> ServerAnswer:
    """The result of ``tools/call``."""
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
    """A call the server answered with an error of the protocol instead of a result."""
    problem = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return ServerAnswer(text=message, is_error=True, meta={OWN_META: problem})


def _blocks(content: Any) -> list[Any]:
    """A text or a block where a list of blocks belongs is the only one of it."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast("list[Any]", content) if isinstance(content, list) else [content]


def _unfinished(result: Mapping[str, Any], meta: Mapping[str, Any]) -> ServerAnswer:
    """Nobody is here whom the server could ask, and no capability said so."""
    kind = result.get("resultType")
    asked = [str(_mapping(request).get("method", "?")) for request in _mapping(result.get("inputRequests")).values()]
    wants = f" ({', '.join(asked)})" if asked else ""
    text = f"the tool did not finish: it answered {kind!r}{wants}, which cannot be supplied here"
    return ServerAnswer(text=text, is_error=True, meta={**meta, OWN_META: {"resultType": kind, "inputRequests": asked}})


def _is_text(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
