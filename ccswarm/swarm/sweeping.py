"""Terminals that runs left open which are over: ended by whoever executes next, on the servers it can reach."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from ccswarm.config.settings import AgentSettings, ServerSettings
from ccswarm.engines.base import Store
from ccswarm.errors import RunNotFound, SwarmError
from ccswarm.models import RunStatus
from ccswarm.swarm.task import TaskWorker
from ccswarm.swarm.terminals import CLEANER, Terminals, tools_for_ending

Tell = Callable[[int], None]
"""Given how many terminals were ended, where there were any."""

log = logging.getLogger(__name__)


class Over:
    """Whether an attempt is one of a run that is over, as the store has it: of runs that it does not know, none is."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._over: dict[str, bool] = {}
        self._keeping: dict[str, set[str]] = {}
        """Agents whose terminals a person wanted to see, by run."""

    async def __call__(self, attempt: str, agent: str) -> bool:
        run_id = attempt.partition(".")[0]
        if run_id not in self._over:
            self._over[run_id] = await self._look(run_id)
        return self._over[run_id] and agent not in self._keeping.get(run_id, ())

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


async def sweep(
    store: Store, task_worker: TaskWorker, servers: Sequence[ServerSettings], place: Path, tell: Tell
) -> None:
    """End the terminals of runs that are over. ``place`` is a directory of ours that nobody works in. A server that
    cannot be reached is left alone."""
    over, ended = Over(store), 0
    for server in servers:
        try:
            cleaner = AgentSettings(name=CLEANER, grants=tools_for_ending(server.name))
            call = await task_worker.call({CLEANER: cleaner}, str(place))
            found, problem = await Terminals(call, server.name, everybodys=True).end_those_of(over)
            ended += found if not problem else 0
            if problem:
                log.info("%s: %s", server.name, problem)
        except SwarmError as error:
            log.info("%s: what old runs left was not ended: %s", server.name, error)
    await task_worker.release(str(place))
    if ended:
        tell(ended)
