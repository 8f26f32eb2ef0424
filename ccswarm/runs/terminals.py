"""Terminals that runs left open: ended by who cancels a run, begins one or cleans up, interrupted by who pauses one."""

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
    """End what a ``run`` that is over, or else all that are, left open on servers that can be reached from here, or
    ``only_interrupt`` what runs there, of a run that is not: how many terminals there were, and what kept others from
    being found."""
    state = opened.state_directory
    servers = opened.settings.mcp.servers
    plan = opened.settings
    files = ()
    try:
        if run:
            files = tuple(run.payload.get("files", ()))
            shown = {name: facts for name, facts in run.payload["plan"].items() if name in ("swarm", "agents")}
            plan = Settings.model_validate({**shown, "mcp": {"servers": config.servers_of(files) or servers}})
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
    """As ``end_terminals``, of all runs, by who is about to execute ``settings`` in ``directory``: with the servers
    that are started there anyway."""
    assert opened.task_worker
    return (await sweep(Over(opened.engine), opened.task_worker.call, where_opened(settings), directory))[0]
