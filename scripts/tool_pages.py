"""The reference pages of the servers' tools, resources and prompts, from the recorded first answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
Facts = dict[str, Any]
SERVERS = {
    "tools.md": ("ai_session", "Tools of ai-session", "`ai-session mcp-server`", "../howto/clients.md"),
    "swarm-tools.md": ("ccswarm", "Tools of the swarm", "`ccswarm mcp-server`", "ccswarm-mcp-server.md"),
}
HINTS = {
    "readOnlyHint": "It only reads.",
    "destructiveHint": "It may end or destroy something.",
    "idempotentHint": "A second call with the same arguments changes nothing more.",
    "openWorldHint": "It may reach the network.",
}


def tools() -> dict[str, str]:
    """Return one page for each server."""
    return {name: _page(*facts) for name, facts in SERVERS.items()}


def _page(package: str, title: str, command: str, more: str) -> str:
    answers: Facts = json.loads((ROOT / package / "servers/mcp/first_answers.json").read_text())
    offered: Facts = answers["handshake"]
    lines = [f"# {title}", "", f"What {command} offers, in every protocol version ([how clients use it]({more})).", ""]
    for tool in offered["tools/list"]["tools"]:
        lines += _tool(tool)
    lines += _named("Resources", offered.get("resources/templates/list", {}).get("resourceTemplates", []))
    lines += _named("Prompts", offered.get("prompts/list", {}).get("prompts", []))
    lines += ["## Instructions", "", "What a client gives its model in addition to the tools:", "", "```text"]
    lines += [answers["initialize"]["instructions"].strip(), "```"]
    return "\n".join(lines)


def _tool(tool: Facts) -> list[str]:
    annotations = tool.get("annotations", {})
    reads = bool(annotations.get("readOnlyHint"))
    hints = [text for name, text in HINTS.items() if annotations.get(name) and not (reads and name == "idempotentHint")]
    lines = [f"## `{tool['name']}`", "", _text(tool["description"]), ""]
    lines += [" ".join(hints) or "It changes something.", ""]
    lines += _schema("Argument", tool["inputSchema"])
    lines += _schema("Result", tool.get("outputSchema", {}))
    return lines


def _schema(heading: str, schema: Facts) -> list[str]:
    properties: Facts = schema.get("properties", {})
    if not properties:
        return []
    required = schema.get("required", [])
    rows = [f"| {heading} | Type | |", "|---|---|---|"]
    for name, value in properties.items():
        always = "" if name in required else ("optional" if heading == "Argument" else "where it applies")
        description = ". ".join(part for part in (_text(value.get("description", "")).rstrip("."), always) if part)
        rows.append(f"| `{name}` | {_kind(value)} | {description.replace('|', chr(92) + '|')} |")
    return [*rows, ""]


def _kind(value: Facts) -> str:
    if "enum" in value:
        return " · ".join(f"`{choice}`" for choice in value["enum"] if choice)
    kind = value.get("type", "any")
    if kind == "array":
        return f"list of {_kind(value.get('items', {}))}"
    return " or ".join(cast("list[str]", kind)) if isinstance(kind, list) else kind


def _named(heading: str, entries: list[Facts]) -> list[str]:
    if not entries:
        return []
    rows = [f"## {heading}", "", "| | |", "|---|---|"]
    for entry in entries:
        arguments = ", ".join(f"`{one['name']}`" for one in entry.get("arguments", ()))
        name = entry.get("uriTemplate") or entry["name"]
        rows.append(f"| `{name}` | {_text(entry.get('description', ''))}{f' ({arguments})' if arguments else ''} |")
    return [*rows, ""]


def _text(text: str) -> str:
    return " ".join(text.split()).replace("<", "\\<").replace("*", "\\*")
