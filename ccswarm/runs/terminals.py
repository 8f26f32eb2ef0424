"""Terminals that runs left open. Those of runs that are over are ended by the process that cancels a run, starts one or
cleans up; those of a paused run are interrupted by the process that pauses it."""

from __future__ import annotations

from ccswarm.config import config
from ccswarm.config.settings import Settings
from ccswarm.errors import SwarmError
from ccswarm.models import Execution
from ccswarm.runs.app import App
from ccswarm.swarm.sweeping import Over, interrupt, sweep, where_opened
from ccswarm.toolbox.toolboxes import Toolboxes


async def end_terminals(
    opened: App, run: Execution | None = None, *, only_interrupt: bool = False
) -> tuple[int, list[str]]:
    """End what a ``run`` that is over left open, or else all runs that are over, on servers that can be reached from
    here; with ``only_interrupt``, interrupt what runs in the terminals of ``run``. Return the number of terminals, and
    what kept others from being found."""
    state = opened.state_directory
    servers = opened.settings.mcp.servers
    plan = opened.settings
    files = ()
    try:
        if run:
            files = tuple(run.payload.get("files", ()))
            members = {name: facts for name, facts in run.payload["plan"].items() if name in ("swarm", "agents")}
            plan = Settings.model_validate({**members, "mcp": {"servers": config.servers_of(files) or servers}})
        toolboxes = Toolboxes(servers, state, config.server_environment(), servers_of=config.servers_of)
    except SwarmError as error:
        return 0, [error.message]
    try:
        if run and only_interrupt:
            return await interrupt(run.id, toolboxes.call, where_opened(plan), state, files)
        return await sweep(Over(opened.engine, run.id if run else ""), toolboxes.call, where_opened(plan), state, files)
    finally:
        await toolboxes.close()


async def end_old_terminals(opened: App, settings: Settings, directory: str) -> int:
    """End the terminals of all runs that are over, on the servers that a worker for ``settings`` in ``directory``
    starts anyway. Return their number."""
    assert opened.task_worker
    return (await sweep(Over(opened.engine), opened.task_worker.call, where_opened(settings), directory))[0]
