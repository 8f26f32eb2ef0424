"""The targets of calls of AgentVault's clients: configured servers, and those that ``MCP_SERVER_MAP`` names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic import ValidationError

from ccswarm.config.settings import AgentSettings, ServerSettings, Settings
from ccswarm.errors import ConfigInvalid

MAP, TIMEOUT = "MCP_SERVER_MAP", "MCP_CALL_TIMEOUT"
CALL_SECONDS = 60.0
RPC = "/rpc"
PROXY = "proxy"
"""The agent that calls the tools of mapped servers, and of no others, if the configuration names no agent for it."""


def with_mapped(settings: Settings, variables: Mapping[str, str]) -> Settings:
    """Return the settings with the servers of ``MCP_SERVER_MAP``, ``{"id": "http://…"}``. Raises ConfigInvalid."""
    servers = mapped_servers(variables)
    known = {server.name for server in settings.mcp.servers}
    if twice := [server.name for server in servers if server.name in known]:
        raise ConfigInvalid(
            f"{MAP} names {', '.join(twice)}, which the configuration names as well",
            suggestion="rename it in one of them",
        )
    if not servers:
        return settings
    mcp = settings.mcp.model_copy(update={"servers": (*settings.mcp.servers, *servers)})
    agents = settings.agents
    if not settings.a2a.agent and len(agents) != 1 and PROXY not in [agent.name for agent in agents]:
        # Clients of such a proxy set nothing but this variable, so it has to be enough.
        mapped_tools = tuple(f"{server.name}.*" for server in servers)
        agents = (*agents, AgentSettings(name=PROXY, type=PROXY, grants=mapped_tools))
        a2a = settings.a2a.model_copy(update={"agent": PROXY})
        return settings.model_copy(update={"mcp": mcp, "agents": agents, "a2a": a2a})
    return settings.model_copy(update={"mcp": mcp})


def caller_of_tools(settings: Settings, named: str = "") -> str:
    """Return a sentence for people about which agent calls tools for AgentVault's clients, or what to configure."""
    agents = {agent.name: agent for agent in settings.agents}
    name = named or settings.a2a.agent or (next(iter(agents)) if len(agents) == 1 else "")
    if name not in agents:
        return (
            "missing: the agent whose tools AgentVault's clients call; set it: ccswarm serve --a2a --agent NAME,"
            " or a2a.agent"
        )
    return (
        f"AgentVault's clients at /a2a call tools as {name}, which may use {', '.join(agents[name].grants) or 'none'}"
    )


def mapped_servers(variables: Mapping[str, str]) -> list[ServerSettings]:
    """Return the servers that the variables name. Raises ConfigInvalid."""
    text = variables.get(MAP, "").strip()
    try:
        table: Any = json.loads(text or "{}")
    except ValueError as error:
        raise _wrong(f"is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise _wrong("is not an object")
    seconds = _seconds(variables.get(TIMEOUT, "").strip()) if table else CALL_SECONDS
    return [_server(name, url, seconds) for name, url in cast("dict[str, Any]", table).items()]


def _server(name: str, url: Any, seconds: float) -> ServerSettings:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise _wrong(f"has no address http://… for {name[:80]!r}")
    path = parts.path.rstrip("/")
    where = parts._replace(path=path if path.endswith(RPC) else path + RPC).geturl()
    try:
        # As for the one who set the variable: in a private network, where nothing is encrypted.
        return ServerSettings(name=name, url=where, protocol="rpc", insecure=True, timeout_seconds=seconds)
    except ValidationError:
        raise _wrong(f"names {name[:80]!r}: use letters, digits, - and _") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text or CALL_SECONDS)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigInvalid(f"{TIMEOUT} is {text[:20]!r}, which is not a duration", suggestion="set it to seconds")
    return seconds


def _wrong(what: str) -> ConfigInvalid:
    return ConfigInvalid(f"{MAP} {what}", suggestion=f"""{MAP}='{{"filesystem": "http://127.0.0.1:8001"}}'""")


def find_target(settings: Settings, target: str, tool: str) -> tuple[ServerSettings, str] | None:
    """Return the server with that id, or with the prefix of the tool's name, and the tool's name there; or None."""
    servers = {server.name: server for server in settings.mcp.servers}
    for name in (target, tool.partition(".")[0], target.partition(".")[0]):
        if server := servers.get(name):
            # Methods of an rpc server keep the prefix, which is part of their names.
            return server, tool if server.protocol == "rpc" else tool.removeprefix(f"{server.name}.")
    return None
