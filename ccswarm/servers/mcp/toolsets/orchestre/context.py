"""set_context and get_context: values that a client stores for its later calls."""

from __future__ import annotations

import json
from typing import Any

from ccswarm.servers.mcp.toolsets.base import Given
from ccswarm.servers.mcp.toolsets.orchestre.base import OrchestreTool, Refusal, takes
from ccswarm.servers.mcp.workbench import Workbench

MOST_KEYS = 100
MOST_KEY_CHARS = 200
MOST_CHARS = 65_536
"""The maximal length of a value as JSON."""

KEY = {"type": "string", "minLength": 1, "maxLength": MOST_KEY_CHARS}


class Context(dict[str, Any]):
    """The stored values of one connection. They are only in memory, and end with the connection."""


async def set_context(workbench: Workbench, given: Given) -> Given:
    context, key, value = workbench.own(Context), given["key"], given["value"]
    if value is None:
        existed = context.pop(key, None) is not None
        return {"key": key, "removed": existed, "keys": sorted(context)}
    size = len(json.dumps(value, ensure_ascii=False))
    if size > MOST_CHARS:
        raise Refusal(
            f"The value has {size} characters as JSON, and may have {MOST_CHARS}",
            "CONTEXT_TOO_LARGE",
            "Keep what is large in a file of the workspace, and its path here",
            {"limit": MOST_CHARS},
        )
    if key not in context and len(context) >= MOST_KEYS:
        raise Refusal(
            f"There are {MOST_KEYS} keys already",
            "CONTEXT_FULL",
            "Remove one: set_context with its key, and null as value",
            {"limit": MOST_KEYS},
        )
    context[key] = value
    return {"key": key, "keys": sorted(context)}


async def get_context(workbench: Workbench, given: Given) -> Given:
    context = workbench.own(Context)
    if "key" not in given:
        return {"context": dict(context)}
    if given["key"] not in context:
        raise Refusal(
            f"Nothing is kept under {given['key']!r}",
            "CONTEXT_NOT_FOUND",
            "Use one of the keys there are, or set_context",
            {"keys": sorted(context)},
        )
    return {"key": given["key"], "value": context[given["key"]]}


TOOLS = (
    OrchestreTool(
        "set_context",
        "Keep something for later calls",
        "Keep a value under a key, for get_context, as long as this connection lasts.",
        takes(
            {"key": KEY, "value": {"maxLength": MOST_CHARS, "description": "Any JSON; null removes the key."}},
            ("key", "value"),
        ),
        set_context,
        idempotent=True,
    ),
    OrchestreTool(
        "get_context",
        "Read what was kept",
        "The value that set_context kept under a key; without a key, all of them.",
        takes({"key": KEY}),
        get_context,
        read_only=True,
        idempotent=True,
    ),
)
