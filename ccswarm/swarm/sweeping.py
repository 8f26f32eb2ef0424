"""Terminals that runs left open, on the servers that can be reached. Those of ended runs are ended by the next process
that executes, cancels a run or cleans up; those of a paused run are interrupted by the one that pauses it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ccswarm.config.settings import Settings
from ccswarm.engines.base import Store
from ccswarm.errors import RunNotFound, SwarmError
from ccswarm.models import RunStatus
from ccswarm.toolbox.grants import Grants
from ccswarm.toolbox.scope import ToolScope
from ccswarm.toolbox.terminals import OPENING, Send, Terminals, scope_for_ending

ToolAccess = Callable[[ToolScope], Awaitable[Send]]
"""Opens the tools of a scope."""

Tell = Callable[[int], None]
"""Receives the number of ended terminals, if there were any."""

log = logging.getLogger(__name__)


class Over:
    """Reports whether an attempt belongs to a run that the store has as over (with ``run_id``, to that run). For runs
    that the store does not know, it reports False."""

    def __init__(self, store: Store, run_id: str = "") -> None:
        self._store = store
        self._only = run_id
        self._over: dict[str, bool] = {}
        self._kept_agents: dict[str, set[str]] = {}
        """By run, the agents whose terminals a person wants to inspect."""

    async def __call__(self, attempt: str, agent: str) -> bool:
        run_id = attempt.partition(".")[0]
        if self._only and run_id != self._only:
            return False
        if run_id not in self._over:
            self._over[run_id] = await self._load(run_id)
        return self._over[run_id] and agent not in self._kept_agents.get(run_id, ())

    async def is_possible(self) -> bool:
        """Report whether there was any run; if not, there is nothing to find, and no server need be started."""
        return bool(await self._store.list(top=True, limit=1))

    async def _load(self, run_id: str) -> bool:
        try:
            run = await self._store.status(run_id)
        except RunNotFound:
            return False
        if not run.status.over or not run.payload:
            return False
        if not run.result or run.result["status"] != RunStatus.SUCCEEDED:
            agents = run.payload["plan"].get("agents", ())
            self._kept_agents[run_id] = {str(one["name"]) for one in agents if one.get("keep") == "failed"}
        return True


def where_opened(plan: Settings) -> list[str]:
    """Return the servers at which agents of a plan may have opened terminals."""
    shells = {plan.swarm.shell, *(str(agent.settings.get("shell", "")) for agent in plan.agents)}
    granted = [Grants(agent.grants) for agent in plan.agents]
    names = [server.name for server in plan.mcp.servers]
    return [name for name in names if name in shells or any(one.allows(f"{name}.{OPENING}") for one in granted)]


async def interrupt(
    run_id: str, access: ToolAccess, servers: Iterable[str], directory: Path | str, files: Sequence[str] = ()
) -> tuple[int, list[str]]:
    """Interrupt what runs in the terminals of a run, and leave them open. Return what ``sweep`` returns."""

    def interrupt_own(terminals: Terminals) -> Awaitable[tuple[int, str]]:
        return replace(terminals, principal=run_id, any_owner=False).interrupt()

    return await _for_each_server(interrupt_own, access, servers, directory, files)


async def sweep(
    over: Over,
    access: ToolAccess,
    servers: Iterable[str],
    directory: Path | str,
    files: Sequence[str] = (),
) -> tuple[int, list[str]]:
    """End the terminals of runs that are over. Return how many there were, and what kept others from being found or
    ended. ``directory`` is where the servers, ours and those of ``files``, are started."""
    if not await over.is_possible():
        return 0, []
    return await _for_each_server(lambda terminals: terminals.end_those_of(over), access, servers, directory, files)


async def _for_each_server(
    action: Callable[[Terminals], Awaitable[tuple[int, str]]],
    access: ToolAccess,
    servers: Iterable[str],
    directory: Path | str,
    files: Sequence[str],
) -> tuple[int, list[str]]:
    """Return on how many terminals ``action`` worked, and why not on others."""
    count, problems = 0, list[str]()
    for server in servers:
        try:
            send = await access(scope_for_ending(server, str(directory), files))
            found, problem = await action(Terminals(send, server, any_owner=True))
            count += found if not problem else 0
        except SwarmError as error:
            problem = error.message
        if problem:
            problems.append(f"{server}: {problem}")
            log.info("%s: leftovers of old runs were not removed: %s", server, problem)
    return count, problems
