"""The tools of the configured servers, listed concurrently."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentwire import plugins
from ccswarm.config import config
from ccswarm.config.settings import PLAYBOOK, ServerSettings, Settings
from ccswarm.errors import ServerUnavailable, SwarmError
from ccswarm.models import ToolInfo
from ccswarm.plan.check import OWN_SERVER
from ccswarm.toolbox.grants import Grants
from ccswarm.toolbox.mail import TOOLS


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of one server, or the ``problem`` with it and a ``suggestion``. ``seconds`` is the time from its start
    to its list; ``about`` describes the server; ``notes`` say what is wrong with the list."""

    server: str
    seconds: float
    tools: Sequence[ToolInfo] = ()
    problem: str = ""
    suggestion: str = ""
    about: str = ""
    notes: Sequence[str] = field(default_factory=list[str])


def own_listing() -> Listing:
    """Return the tools of the swarm's own server, which is not a process."""
    return Listing(OWN_SERVER, 0.0, TOOLS)


async def listings(servers: Iterable[ServerSettings], directory: str) -> list[Listing]:
    """Start each server in ``directory`` as for agents, list its tools and end it. Return the listings in the order of
    ``servers``. Never raises for a server: its listing has the ``problem``."""
    state, environ = config.state_directory(), config.server_environment()

    async def listing(server: ServerSettings) -> Listing:
        placed = server if server.cwd or server.url else server.placed_in(directory)
        began = time.monotonic()
        client: Any = None
        try:
            client = plugins.load("ccswarm.clients", placed.protocol).open(placed, env=environ, state_directory=state)
            tools = await client.list_tools()
            return Listing(server.name, time.monotonic() - began, tools, about=client.about, notes=client.notes)
        except SwarmError as error:
            return Listing(server.name, time.monotonic() - began, (), error.message, error.suggestion)
        except Exception as error:  # a failure of one server must not cost the tools of the others
            problem = f"server {server.name} cannot be used: {type(error).__name__}: {error}"
            return Listing(server.name, time.monotonic() - began, (), problem, "report this")
        finally:
            if client is not None:
                await client.close()

    return await asyncio.gather(*map(listing, servers))


async def called_tools(settings: Settings, directory: str) -> dict[str, ToolInfo]:
    """Return, by full name, the tools of the servers that tasks, gates, reviews, or agents with a brain other than a
    playbook may call. Raises ServerUnavailable."""
    tools = [step.tool for task in settings.tasks for step in (*task.steps, *task.review.steps)]
    tools += [gate.tool for task in settings.tasks for gate in task.gates]
    names = {tool.partition(".")[0] for tool in tools}
    reviewers = {name for task in settings.tasks for name in task.review.by}
    thinking = [agent for task in settings.tasks for agent in settings.agents_for(task)]
    thinking += [agent for agent in settings.agents if agent.name in reviewers]
    grants = [Grants(agent.grants) for agent in thinking if agent.brain != PLAYBOOK]
    names |= {one.name for one in settings.mcp.servers for grant in grants if grant.covers_server(one.name)}
    found = await listings([one for one in settings.mcp.servers if one.name in names], directory)
    if broken := [one for one in found if one.problem]:
        advice = f"{broken[0].suggestion or 'fix it'}; or check without servers: --offline"
        raise ServerUnavailable("; ".join(one.problem for one in broken), suggestion=advice)
    return {tool.full_name: tool for one in [*found, own_listing()] for tool in one.tools}
