"""The agent card: one document that clients of A2A 0.3 and of 1.0 both understand. The protocol makes it public.
Unauthenticated clients learn how to send requests and how to authenticate, and no more."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from ccswarm import __version__
from ccswarm.config.settings import AgentSettings, Settings

PLAN = "ccswarm.plan"
"""The skill of carrying out a plan; names of agents cannot have dots."""
TEXT = "text/plain"
JSON = "application/json"
TOML = "application/toml"
UNKNOWN = "unknown"
"""The version that unauthenticated clients see."""
INPUTS, OUTPUTS = (TEXT, JSON, TOML), (TEXT, JSON)
EXAMPLE = {"plan": {"tasks": [{"id": "one", "agent": "NAME", "steps": [{"id": "say", "tool": "SERVER.TOOL"}]}]}}
SCHEMES = {
    "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}, "type": "http", "scheme": "Bearer"},
    "key": {
        "apiKeySecurityScheme": {"location": "header", "name": "X-Api-Key"},
        "type": "apiKey",
        "in": "header",
        "name": "X-Api-Key",
    },
}
"""Each as 1.0 and as 0.3 write it; one of them is enough."""


def card_of(settings: Settings, address: str, *, secured: bool) -> dict[str, Any]:
    """Return the card of a swarm whose server is at ``address``; ``secured``: its reader needs a token."""
    named = "name" in settings.swarm.model_fields_set
    return {
        **_card(address, secured=secured),
        "name": settings.swarm.name if named else "ccswarm",
        "description": _description(settings.agents),
        "version": __version__,
        "skills": [*map(_skill, settings.agents), _plans()],
    }


def public_card(address: str) -> dict[str, Any]:
    """Return the card for unauthenticated clients, which says nothing about this swarm."""
    skill = {
        "id": "ccswarm",
        "name": "ccswarm",
        "description": "Shown to clients with a token.",
        "tags": ["swarm"],
    }
    card = {"name": "ccswarm", "description": "Needs a token.", "version": UNKNOWN, "skills": [skill]}
    return {**_card(address, secured=True), **card}


def _card(address: str, *, secured: bool) -> dict[str, Any]:
    url = f"{address}/"
    card: dict[str, Any] = {
        "name": "",
        "description": "",
        "version": "",
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": address, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ],
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
        "capabilities": {"streaming": True, "pushNotifications": False},
        "defaultInputModes": list(INPUTS),
        "defaultOutputModes": list(OUTPUTS),
        "skills": [],
    }
    if secured:
        card["capabilities"]["extendedAgentCard"] = card["supportsAuthenticatedExtendedCard"] = True
        card["securitySchemes"] = SCHEMES
        card["securityRequirements"] = [{"schemes": {name: {"list": []}}} for name in SCHEMES]
        card["security"] = [{name: []} for name in SCHEMES]
    return card


def tag_of(card: dict[str, Any]) -> str:
    """Return the card's entity tag."""
    return f'"{hashlib.sha256(json.dumps(card).encode()).hexdigest()[:32]}"'


def _description(agents: Sequence[AgentSettings]) -> str:
    names = ", ".join(f"{agent.name} ({agent.type})" for agent in agents) or "none yet"
    return f"A swarm of agents that work in real terminals and report actual results. Agents: {names}."


def _skill(agent: AgentSettings) -> dict[str, Any]:
    words = agent.takes_words
    able = f", capable of {', '.join(agent.capabilities)}" if agent.capabilities else ""
    how = "takes tasks in words" if words else "takes plans, but no tasks in words"
    asks = "" if agent.approval == "auto" else f"; a person is asked before {agent.approval} calls"
    return {
        "id": agent.name,
        "name": agent.name,
        "description": f"{agent.type}{able}: {how}{asks}",
        "tags": list(dict.fromkeys((agent.type, *agent.capabilities))),
        "inputModes": list(INPUTS if words else (JSON, TOML)),
        "outputModes": list(OUTPUTS),
    }


def _plans() -> dict[str, Any]:
    return {
        "id": PLAN,
        "name": "carry out a plan",
        "description": "Carries out the tasks of a plan in the order of their needs: a data part with the key plan,"
        " whose value is a plan as JSON or as TOML text, or a TOML file",
        "tags": ["plan"],
        "examples": [json.dumps(EXAMPLE)],
        "inputModes": [JSON, TOML],
        "outputModes": list(OUTPUTS),
    }
