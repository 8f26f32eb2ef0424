"""The tools offered to a model: those granted to its agent, under names that providers accept, and the brain's own."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccswarm.brains.llm.terminal import BASH, DEFAULT_SECONDS, EDIT, EXECUTE, OPEN, READ, READ_LINES
from ccswarm.models import ToolInfo

FINISH = "finish"
RECALL = "recall"
TODO = "todo"
FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")
MOST_NAME_CHARS = 64
MOST_DESCRIPTION_CHARS = 4000
ALTERNATIVES = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "const")
"""Keywords that providers reject at the top of a schema, with the whole request; the toolbox checks them."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """One tool as a model sees it."""

    name: str
    tool: str
    description: str
    schema: Mapping[str, Any]


OWN = (
    OfferedTool(
        FINISH,
        FINISH,
        "End the task and report how it went. Call it alone, when nothing is left to do.",
        {
            "type": "object",
            "properties": {
                "status": {
                    "enum": ["succeeded", "failed", "blocked"],
                    "description": "succeeded: done, and you saw that it works; failed: it cannot be done; blocked: "
                    "a person has to do something first.",
                },
                "summary": {"type": "string", "description": "What was done with which result, or why not."},
                "result": {"description": "Facts for tasks that build on this one, as JSON.", "type": "object"},
            },
            "required": ["status", "summary"],
        },
    ),
    OfferedTool(
        RECALL,
        RECALL,
        "Show an earlier output again, or parts that were left out. Calls no other tool.",
        {
            "type": "object",
            "properties": {
                "id": {"type": "integer", "description": "The number in brackets before the output."},
                "offset": {"type": "integer", "description": "First character to show; default: 0."},
            },
            "required": ["id"],
        },
    ),
)

IN_TERMINAL = (
    OfferedTool(
        BASH,
        BASH,
        "Run a command in your shell; returns its output, and its exit code unless that is 0. Directory, variables and "
        f"background jobs (&) persist. After timeout_seconds ({DEFAULT_SECONDS:g}) it is interrupted. No terminal "
        "input: give stdin.",
        {
            "type": "object",
            "properties": {
                "command": {"type": "string"},
                "stdin": {"type": "string"},
                "timeout_seconds": {"type": "number"},
            },
            "required": ["command"],
        },
    ),
    OfferedTool(
        READ,
        READ,
        f"Show a text file with line numbers ({READ_LINES} lines by default), or list a directory.",
        {
            "type": "object",
            "properties": {"path": {"type": "string"}, "from": {"type": "integer"}, "to": {"type": "integer"}},
            "required": ["path"],
        },
    ),
    OfferedTool(
        EDIT,
        EDIT,
        "Replace the text old, which must occur exactly once in the file (without line numbers), with new. An empty"
        " old creates a file.",
        {
            "type": "object",
            "properties": {"path": {"type": "string"}, "old": {"type": "string"}, "new": {"type": "string"}},
            "required": ["path", "old", "new"],
        },
    ),
    OfferedTool(
        TODO,
        TODO,
        "Replace the list of your steps. Calls no other tool.",
        {
            "type": "object",
            "properties": {
                "items": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"text": {"type": "string"}, "status": {"enum": ["open", "doing", "done"]}},
                        "required": ["text", "status"],
                    },
                },
            },
            "required": ["items"],
        },
    ),
)
"""The tools of ``terminal``, and the list that people see: for agents that have a terminal."""


def size_problem(tools: Sequence[OfferedTool], most: int) -> str:
    """Return why so many tools are not sent with each request, or ``""``."""
    chars = Counter[str]()
    for one in tools:
        chars[one.tool.partition(".")[0]] += len(json.dumps([one.name, one.description, one.schema]))
    if chars.total() <= most:
        return ""
    server, largest = chars.most_common(1)[0]
    what = f"the {len(tools)} tools it is granted take {chars.total():,} characters, which every request would contain"
    return f"{what} (those of {server}: {largest:,}); tools_chars allows {most:,}"


def safe_name(name: str) -> str:
    """Return a name that providers accept. A model may have called one that they would reject in its history."""
    return FORBIDDEN.sub("_", name)[:MOST_NAME_CHARS] or "_"


def other_tools(tools: Sequence[ToolInfo], server: str, grants: Collection[str]) -> list[ToolInfo]:
    """Return the tools to offer besides ``bash``, ``read`` and ``edit``. Of the terminal server these are only the ones
    that ``grants`` name in full."""
    return [
        tool
        for tool in tools
        if tool.server != server or (tool.full_name in grants and tool.name not in (OPEN, EXECUTE))
    ]


def offer_tools(tools: Sequence[ToolInfo], own: Sequence[OfferedTool] = OWN) -> tuple[OfferedTool, ...]:
    """Return the brain's own tools, then the agent's. Names are unique, and depend only on the set of tools."""
    plain = {tool.full_name: FORBIDDEN.sub("_", f"{tool.server}__{tool.name}") for tool in tools}
    counts = Counter(plain.values())
    found = list(own)
    for tool in tools:
        name = plain[tool.full_name]
        if counts[name] > 1 or len(name) > MOST_NAME_CHARS:
            mark = hashlib.sha256(tool.full_name.encode()).hexdigest()[:8]
            name = f"{name[: MOST_NAME_CHARS - 9]}-{mark}"
        found.append(OfferedTool(name, tool.full_name, _description(tool), _schema(tool)))
    return tuple(found)


def _description(tool: ToolInfo) -> str:
    return (tool.description or tool.title or tool.full_name)[:MOST_DESCRIPTION_CHARS]


def _schema(tool: ToolInfo) -> dict[str, Any]:
    """Return the schema in the form providers accept. It omits ``call_key``, which the toolbox sets: a model that
    repeats one would get old results."""
    schema = {name: value for name, value in tool.input_schema.items() if name not in ALTERNATIVES}
    properties = {name: one for name, one in dict(schema.get("properties") or {}).items() if name != "call_key"}
    required = [name for name in schema.get("required") or () if name in properties]
    schema |= {"type": "object", "properties": properties}
    schema.pop("required", None)
    return schema | ({"required": required} if required else {})
