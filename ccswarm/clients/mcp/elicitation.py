"""Answers a server's questions during a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

Ask = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""A function that answers a server's question: message and form schema → the filled-in values, or None if refused.
Values that are missing get the schema's default."""

MOST_ROUNDS = 10
"""The most rounds of one call."""

AGAIN_SECONDS = 0.25
"""The pause before a call is repeated that the server did not finish, without a question."""


async def answer_elicitation(params: Mapping[str, Any], ask: Ask) -> dict[str, Any]:
    """Return the result of ``elicitation/create``."""
    schema = params.get("requestedSchema")
    if not isinstance(schema, dict):  # a URL to open, which is not supported
        return {"action": "decline"}
    form = cast("dict[str, Any]", schema)
    filled = await ask(str(params.get("message", "")), form)
    if filled is None:
        return {"action": "decline"}
    properties = {name: _mapping(one) for name, one in _mapping(form.get("properties")).items()}
    defaults = {name: one["default"] for name, one in properties.items() if "default" in one}
    return {"action": "accept", "content": {**defaults, **filled}}


async def continue_call(result: Mapping[str, Any], ask: Ask | None) -> dict[str, Any] | None:
    """Return the parameters to repeat an unfinished call with, or None if it is finished or cannot continue."""
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
        responses[name] = await answer_elicitation(_mapping(_mapping(request).get("params")), ask)
    return {**more, "inputResponses": responses}


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
