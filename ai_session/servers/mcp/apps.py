"""MCP Apps (2026-01-26): a client with views in its chats gets one of a call, which shows its terminal and what waits
for a person. Other clients do not see it.

The view cannot answer questions: the client sends its requests like the model's, and they cannot be distinguished.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentwire.json_lines import Message

EXTENSION = "io.modelcontextprotocol/ui"
MIME_TYPE = "text/html;profile=mcp-app"
URI = "ui://ai-session/call"
WITH_VIEW = frozenset({"execute_command", "read_screen", "send_input"})
"""Tools whose calls have a view."""

ABOUT: Message = {"ui": {"prefersBorder": False}}
"""The view's ``_meta``. Without domains in it, clients let the view connect to nothing."""


def shows_views(extensions: object) -> bool:
    """Report whether a client with these extensions shows such views."""
    declared: Any = extensions.get(EXTENSION) if isinstance(extensions, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    types: Any = declared.get("mimeTypes") if isinstance(declared, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return isinstance(types, list) and MIME_TYPE in types


def link(tool: str) -> Message:
    """Return the link to its view for the tool's ``_meta``."""
    return {"ui": {"resourceUri": URI}} if tool in WITH_VIEW else {}


def linked(answer: Message) -> Message:
    """Return the answer to a ``tools/list`` with the views of its tools."""
    tools = [
        {**tool, "_meta": {**tool.get("_meta", {}), **link(tool["name"])}} if tool["name"] in WITH_VIEW else tool
        for tool in answer["result"]["tools"]
    ]
    return {**answer, "result": {**answer["result"], "tools": tools}}
