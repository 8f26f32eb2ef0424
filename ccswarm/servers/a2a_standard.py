"""A2A 0.3 and 1.0: tasks in words, each a run of the swarm."""

from __future__ import annotations

from starlette.routing import Route

from ccswarm.servers.a2a_desk import Desk

OPEN: tuple[str, ...] = ()
"""Paths that need no token: the cards."""


def routes(desk: Desk) -> list[Route]:
    """What it answers; tasks that were not over when the server ended are looked after from here on."""
    return []
