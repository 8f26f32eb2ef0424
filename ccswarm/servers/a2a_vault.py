"""AgentVault's profile of A2A: single calls of tools, for an agent of the configuration."""

from __future__ import annotations

from starlette.routing import Route

from ccswarm.servers.a2a_desk import Desk

PATHS = ("/a2a", "/a2a/")
CARD = "/agent-card.json"
OPEN = (CARD,)


def routes(desk: Desk) -> list[Route]:
    """What it answers; tasks that were not over when the server ended are looked after from here on."""
    return []
