"""An agent's tools for whoever starts ``ccswarm mcp-server --agent NAME --stdio``: a person's client, or the program
of a task. Every call is a step of a run: granted, approved, counted and journalled as any agent's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ccswarm import guest_relay, guests
from ccswarm.errors import ServerUnavailable, UsageInvalid

if TYPE_CHECKING:
    from ccswarm.app import App
    from ccswarm.config import Loaded
    from ccswarm.guests import Desk
    from ccswarm.settings import Settings

TASK = "guest"
LONGEST_SECONDS = 365 * 86400.0
OPENED = "desk.opened"


class GuestServer:
    """Role ``guest``."""

    name = "guest"

    async def converse(self, desk: Desk, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve MCP to one connection at a desk, until it ends. ``name`` is the connection's own."""
        from ccswarm.servers import guest_mcp

        await guest_mcp.converse(desk, name, reader, writer)

    async def serve_stdio(self, agent: str, loaded: Loaded, directory: str, *, source: int = 0, target: int = 1) -> str:
        """Be ``agent`` of the configuration ``loaded``, with ``directory`` as its workspace, for the client at the
        descriptors ``source`` and ``target``: in a run of its own, which is executed in this process and over when the
        client has gone. Returns the run's id. To be awaited by the loop's main task; nothing is printed.

        For a process that was started without CCSWARM_GUEST; with it ``ccswarm.__main__`` has relayed already.
        Raises UsageInvalid where there is no such agent, and what ``app.working`` raises.
        """
        from ccswarm import app, config

        plan = _plan(agent, loaded.settings)
        files = [str(loaded.path)] if loaded.path else []
        async with app.working(loaded.settings, config.state_directory(), config.server_environment()) as opened:
            run_id = app.new_run_id()
            await opened.swarm.submit(plan, run_id, directory, files)
            try:
                guest = await _opened(opened, f"{run_id}.{TASK}", run_id)
                await asyncio.to_thread(_relayed, guest, source, target)
                await asyncio.wait_for(opened.engine.wait(run_id), 20)
            finally:
                if not (await opened.engine.status(run_id)).status.over:
                    await opened.engine.cancel(run_id)
            return run_id


def _plan(agent: str, settings: Settings) -> Settings:
    """One task, of that agent with the brain ``guest``; all others are there to be written to."""
    from ccswarm.settings import Settings, TaskSettings

    names = [one.name for one in settings.agents]
    if agent not in names:
        raise UsageInvalid(f"there is no agent {agent!r}", suggestion=f"known: {', '.join(names) or 'none'}")
    doer = next(one for one in settings.agents if one.name == agent)
    others = [one for one in settings.agents if one.name != agent]
    doer = doer.model_copy(update={"brain": "guest", "settings": {}})
    task = TaskSettings(id=TASK, text=f"Calls of a client as {agent}", agent=agent, timeout_seconds=LONGEST_SECONDS)
    return Settings(swarm=settings.swarm, engine=settings.engine, agents=(doer, *others), tasks=(task,))


async def _opened(opened: App, execution: str, run_id: str) -> str:
    """What CCSWARM_GUEST would say, once somebody is at the desk of the task."""
    async for event in opened.engine.events(run_id):
        if event.get("event") == "task.started":
            break
    async for event in opened.engine.events(execution):
        if event.get("event") == OPENED:
            return guests.place(opened.state_directory, execution).guest("")
    ended = await opened.engine.wait(run_id)
    raise ServerUnavailable(f"the run {run_id} ended before it began: {ended.error}", suggestion="ccswarm doctor")


def _relayed(guest: str, source: int, target: int) -> None:
    try:
        guest_relay.Relay(guest, source, target).run()
    except guest_relay.Over as error:
        raise ServerUnavailable(f"{error}", suggestion="start it again") from None


PLUGIN = GuestServer()
