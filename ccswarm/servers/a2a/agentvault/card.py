"""AgentVault's card of the proxy."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from agentwire.system.peers import is_loopback
from ccswarm import __version__
from ccswarm.config.settings import Settings

SERVICE = "ccswarm"
"""The name under which clients store their key for this agent: ``AGENTVAULT_KEY_CCSWARM``."""

UNKNOWN = "unknown"
"""The version that unauthenticated clients see."""

INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "target_mcp_server_id": {"type": "string", "description": "The tool server."},
        "tool_name": {"type": "string", "description": "The tool, as that server calls it."},
        "arguments": {"type": "object", "description": "Arguments of the tool."},
    },
    "required": ["target_mcp_server_id", "tool_name", "arguments"],
}
OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "success": {"type": "boolean", "description": "Whether the tool succeeded."},
        "mcp_result": {"type": "object", "description": "Answer of the tool, if any."},
        "error": {
            "type": "object",
            "properties": {
                "source": {"type": "string", "enum": ["A2A_PROXY", "MCP_PROTOCOL", "MCP_TOOL"]},
                "code": {"type": "string"},
                "message": {"type": "string"},
                "details": {"type": "object"},
            },
            "required": ["source", "code", "message"],
        },
    },
    "required": ["success"],
}


def card_of(settings: Settings | None, url: str, *, secured: bool) -> dict[str, Any]:
    """Return the card of the proxy at ``url``; ``secured``: by tokens. Without settings, it reveals nothing else."""
    return {
        "schemaVersion": "1.0",
        "humanReadableId": f"ccswarm/{settings.swarm.name if settings else 'swarm'}",
        "agentVersion": __version__ if settings else UNKNOWN,
        "name": "ccswarm tool proxy",
        "description": "Calls tools of configured servers: one call per task, within the grants of its agent.",
        "url": _with_localhost(url),
        "provider": {"name": "ccswarm"},
        "capabilities": {"a2aVersion": "1.0", "supportedMessageParts": ["data"], "supportsPushNotifications": False},
        "authSchemes": _schemes(secured),
        "skills": [
            {
                "id": "mcp.execute_tool",
                "name": "Execute MCP Tool",
                "description": "Calls one tool of one server and answers with its result.",
                "input_schema": INPUT,
                "output_schema": OUTPUT,
            }
        ],
        "tags": ["mcp", "proxy", "tools"],
    }


def _with_localhost(url: str) -> str:
    """Return the URL with localhost for loopback addresses: with these clients, plain http works only there."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not is_loopback(parts.hostname or ""):
        return url
    return parts._replace(netloc="localhost" + (f":{parts.port}" if parts.port else "")).geturl()


def _schemes(secured: bool) -> list[dict[str, Any]]:
    if not secured:
        return [{"scheme": "none", "description": "Open to anyone who can reach this address."}]
    key = {"scheme": "apiKey", "description": "The token of this server, as X-Api-Key.", "service_identifier": SERVICE}
    return [key, {"scheme": "bearer", "description": "The same token, as Authorization: Bearer."}]
