"""What a server asks in the middle of a call, and what the call continues with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

Ask = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Whom a server's questions go to: the message and the schema of a form → what is filled in, None where that is
refused. What is not filled in has the schema's default."""

MOST_ROUNDS = 10
"""Of one call."""

AGAIN_SECONDS = 0.25
"""Before a call is made again that the server wants made again, and asks nothing."""


async def answered(params: Mapping[str, Any], ask: Ask) -> dict[str, Any]:
    """The result of ``elicitation/create``."""
    schema = params.get("requestedSchema")
    if not isinstance(schema, dict):  # an address to go to, which nobody here does
        return {"action": "decline"}
    form = cast("dict[str, Any]", schema)
    filled = await ask(str(params.get("message", "")), form)
    if filled is None:
        return {"action": "decline"}
    properties = {name: _mapping(one) for name, one in _mapping(form.get("properties")).items()}
    defaults = {name: one["default"] for name, one in properties.items() if "default" in one}
    return {"action": "accept", "content": {**defaults, **filled}}


async def going_on(result: Mapping[str, Any], ask: Ask | None) -> dict[str, Any] | None:
    """What the call is made again with, for a server that has not finished it; None where it has, or wants what cannot
    be given."""
    if result.get("resultType") != "input_required":
        return None
    state = result.get("requestState")
    more: dict[str, Any] = {"requestState": state} if isinstance(state, str) else {}
    requests = result.get("inputRequests")
    if not requests:
        if more:
            over = asyncio.Event()
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, over.set)
            await over.wait()
        return more or None
    if not isinstance(requests, dict) or ask is None:
        return None
    responses: dict[str, Any] = {}
    for name, request in _mapping(requests).items():
        if _mapping(request).get("method") != "elicitation/create":
            return None
        responses[name] = await answered(_mapping(_mapping(request).get("params")), ask)
    return {**more, "inputResponses": responses}


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
