"""The servers of the configuration, asked side by side what tools they have; and where they are started."""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccswarm.errors import SwarmError, UsageInvalid
from ccswarm.models import ToolInfo

if TYPE_CHECKING:
    from ccswarm.config import Loaded
    from ccswarm.settings import ServerSettings, Settings


@dataclass(frozen=True, slots=True)
class Listing:
    """What one server answered: its tools, or ``problem`` and what to do about it. ``seconds`` are from its start to
    its list; ``about`` is what it said of itself, ``notes`` what is wrong with the list."""

    server: str
    seconds: float
    tools: Sequence[ToolInfo] = ()
    problem: str = ""
    suggestion: str = ""
    about: str = ""
    notes: Sequence[str] = field(default_factory=list[str])


def workspace_of(loaded: Loaded) -> str:
    """The directory of the work: relative ones count from the configuration's."""
    named = loaded.settings.swarm.workspace
    return str((loaded.directory / Path(named).expanduser()).resolve()) if named else str(Path.cwd())


OWN = "swarm"
"""The server that every swarm has for its agents' messages."""


async def own_listing() -> Listing:
    """Of the swarm's own server, which is no process: it is only listed, for nobody."""
    from ccswarm import config, plugins
    from ccswarm.crew import Crew
    from ccswarm.settings import AgentSettings, SwarmSettings

    crew = Crew(SwarmSettings(), [AgentSettings(name="nobody")])
    client = plugins.load("clients", "mail")(config.state_directory() / "mail", crew)
    return Listing(OWN, 0.0, await client.list_tools())


async def listings(servers: Iterable[ServerSettings], directory: str) -> list[Listing]:
    """Each server's, in the same order. They are started in ``directory`` as for agents, and ended."""
    from ccswarm import config, plugins

    state, environ = config.state_directory(), config.server_environment()

    async def listing(server: ServerSettings) -> Listing:
        placed = server if server.cwd or server.url else server.model_copy(update={"cwd": directory})
        began = time.monotonic()
        client: Any = None
        try:
            client = plugins.load("clients", "mcp").open(placed, env=environ, state_directory=state)
            tools = await client.list_tools()
            seconds, about = time.monotonic() - began, getattr(client, "about", "")
            return Listing(server.name, seconds, tools, about=about, notes=getattr(client, "notes", ()))
        except SwarmError as error:
            return Listing(server.name, time.monotonic() - began, (), error.message, error.suggestion)
        except Exception as error:  # whatever one server does must not cost the tools of the others
            problem = f"server {server.name} cannot be used: {type(error).__name__}: {error}"
            return Listing(server.name, time.monotonic() - began, (), problem, "report this")
        finally:
            if client is not None:
                await client.close()

    return await asyncio.gather(*map(listing, servers))


def servers_of(settings: Settings, wanted: Collection[str]) -> list[ServerSettings]:
    """Those with these names, all without any. Raises UsageInvalid for a name that no server has."""
    names = [server.name for server in settings.mcp.servers]
    for name in wanted:
        if name not in names:
            raise unknown("server", name, names)
    return [server for server in settings.mcp.servers if not wanted or server.name in wanted]


def unknown(what: str, name: str, names: Sequence[str]) -> UsageInvalid:
    """The error about a name that nothing has."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there is: {', '.join(names)}" if names else "ccswarm init"
    return UsageInvalid(f"there is no {what} {name!r}", suggestion=hint)
