"""A server's definitions of its tools: which are usable, and which annotations count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import Tool
from mcp_types.methods import validate_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from agentwire.validation import requirement
from ccswarm.config.settings import ServerSettings
from ccswarm.models import ToolInfo

PAGE_DEFAULTS: Mapping[str, Any] = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
"""Fields that a page must have in the later revisions and that are not used here."""

METASCHEMAS = ("http://json-schema.org/", "https://json-schema.org/")
VALUES = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are not schemas."""

MAX_SCHEMA_NODES = 100_000


def usable_page(result: Mapping[str, Any], version: str, left_out: list[str]) -> dict[str, Any]:
    """Return a page of ``tools/list`` without unusable tools, whose problems are added to ``left_out``."""
    tools = result.get("tools")
    page: dict[str, Any] = dict(PAGE_DEFAULTS)
    if isinstance(cursor := result.get("nextCursor"), str):
        page["nextCursor"] = cursor
    usable: list[Any] = []
    for tool in cast("list[Any]", tools) if isinstance(tools, list) else []:
        name = str(cast("dict[str, Any]", tool).get("name", "?")) if isinstance(tool, dict) else "?"
        if problem := _problem(tool, version):
            left_out.append(f"tool {name} is left out: {problem}")
        else:
            usable.append(tool)
    page["tools"] = usable
    return page


def _problem(tool: Any, version: str) -> str:
    try:
        validate_server_result("tools/list", version, {**PAGE_DEFAULTS, "tools": [tool]})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'][2:])}: {requirement(first)}"
    except RecursionError:
        return "its description is nested too deep"
    schema = tool["inputSchema"]
    if not tool["name"]:
        return "its name is empty"
    if not isinstance(schema.get("properties", {}), dict):
        return "inputSchema.properties: not an object"
    if version in MODERN_PROTOCOL_VERSIONS and (reason := find_invalid_x_mcp_header(schema)):
        return f"its x-mcp-header is not valid: {reason}"
    return foreign_reference(schema)


def foreign_reference(schema: Mapping[str, Any]) -> str:
    """Return a message about a schema's reference outside itself, or ``""``."""
    identities: set[str] = set()
    references: set[str] = set()
    for count, node in enumerate(_schemas(schema)):
        if count > MAX_SCHEMA_NODES:
            return "its schema is too large"
        identities.update(value for key in ("$id", "id") if isinstance(value := node.get(key), str))
        references.update(value for key in ("$ref", "$dynamicRef") if isinstance(value := node.get(key), str))
    for reference in sorted(references):
        target = reference.partition("#")[0]
        if target and target not in identities and not target.startswith(METASCHEMAS):
            return f"its schema refers to {reference}, which is not part of it"
    return ""


def _schemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield every mapping that may be a schema."""
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            mapping = cast("dict[str, Any]", node)
            yield mapping
            waiting += [value for key, value in mapping.items() if key not in VALUES]
        elif isinstance(node, list):
            waiting += cast("list[Any]", node)


def to_infos(tools: Sequence[Tool], settings: ServerSettings, notes: list[str]) -> tuple[ToolInfo, ...]:
    """Return the tools that the swarm sees, in the server's order. Of two with one name the first counts."""
    infos: dict[str, ToolInfo] = {}
    for tool in tools:
        if tool.name in infos:
            notes.append(f"tool {tool.name} is listed twice: the first counts")
        elif settings.tools.sees(tool.name):
            infos[tool.name] = _to_info(tool, settings)
    return tuple(infos.values())


def _to_info(tool: Tool, settings: ServerSettings) -> ToolInfo:
    hints = tool.annotations
    believed: dict[str, bool] = {}
    if hints is not None and settings.trusted:
        annotations = {
            "read_only": hints.read_only_hint,
            "destructive": hints.destructive_hint,
            "idempotent": hints.idempotent_hint,
            "open_world": hints.open_world_hint,
        }
        believed = {name: value for name, value in annotations.items() if value is not None}
        if believed.get("read_only"):
            believed.setdefault("destructive", False)
    return ToolInfo(
        server=settings.name,
        name=tool.name,
        description=tool.description or "",
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        title=tool.title or (hints.title if hints else None) or "",
        **believed,
    )
