"""Terminals that runs left open, on the servers that can be reached: of runs that are over, ended by whoever executes
next, cancels a run or cleans up; of one that is paused, interrupted by who pauses it."""

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
"""The way to the tools of a scope."""

Tell = Callable[[int], None]
"""Given how many terminals were ended, where there were any."""

log = logging.getLogger(__name__)


class Over:
    """Whether an attempt is one of a run that is over (of ``run_id``, where one is named), as the store has it: of runs
    that it does not know, none is."""

    def __init__(self, store: Store, run_id: str = "") -> None:
        self._store = store
        self._only = run_id
        self._over: dict[str, bool] = {}
        self._keeping: dict[str, set[str]] = {}
        """Agents whose terminals a person wanted to see, by run."""

    async def __call__(self, attempt: str, agent: str) -> bool:
        run_id = attempt.partition(".")[0]
        if self._only and run_id != self._only:
            return False
        if run_id not in self._over:
            self._over[run_id] = await self._look(run_id)
        return self._over[run_id] and agent not in self._keeping.get(run_id, ())

    async def is_possible(self) -> bool:
        """Whether there was any run: else there is nothing to look for, and no server to be started for it."""
        return bool(await self._store.list(top=True, limit=1))

    async def _look(self, run_id: str) -> bool:
        try:
            run = await self._store.status(run_id)
        except RunNotFound:
            return False
        if not run.status.over or not run.payload:
            return False
        if not run.result or run.result["status"] != RunStatus.SUCCEEDED:
            agents = run.payload["plan"].get("agents", ())
            self._keeping[run_id] = {str(one["name"]) for one in agents if one.get("keep") == "failed"}
        return True


def where_opened(plan: Settings) -> list[str]:
    """The servers at which agents of a plan may have opened terminals."""
    shells = {plan.swarm.shell, *(str(agent.settings.get("shell", "")) for agent in plan.agents)}
    granted = [Grants(agent.grants) for agent in plan.agents]
    names = [server.name for server in plan.mcp.servers]
    return [name for name in names if name in shells or any(one.allows(f"{name}.{OPENING}") for one in granted)]


async def interrupt(
    run_id: str, access: ToolAccess, servers: Iterable[str], directory: Path | str, files: Sequence[str] = ()
) -> tuple[int, list[str]]:
    """Interrupt what runs in the terminals of a run, which stay open; as ``sweep``."""

    def interrupted(terminals: Terminals) -> Awaitable[tuple[int, str]]:
        return replace(terminals, principal=run_id, any_owner=False).interrupt()

    return await _at_each(interrupted, access, servers, directory, files)


async def sweep(
    over: Over,
    access: ToolAccess,
    servers: Iterable[str],
    directory: Path | str,
    files: Sequence[str] = (),
) -> tuple[int, list[str]]:
    """End the terminals of runs that are over; how many there were, and what kept others from being found or ended.
    ``directory`` is where these servers, ours and those of ``files``, are started."""
    if not await over.is_possible():
        return 0, []
    return await _at_each(lambda terminals: terminals.end_those_of(over), access, servers, directory, files)


async def _at_each(
    do: Callable[[Terminals], Awaitable[tuple[int, str]]],
    access: ToolAccess,
    servers: Iterable[str],
    directory: Path | str,
    files: Sequence[str],
) -> tuple[int, list[str]]:
    """How many terminals it was done to, and why not to others."""
    count, problems = 0, list[str]()
    for server in servers:
        try:
            send = await access(scope_for_ending(server, str(directory), files))
            found, problem = await do(Terminals(send, server, any_owner=True))
            count += found if not problem else 0
        except SwarmError as error:
            problem = error.message
        if problem:
            problems.append(f"{server}: {problem}")
            log.info("%s: leftovers of old runs were not removed: %s", server, problem)
    return count, problems
