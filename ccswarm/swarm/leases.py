"""Where runs have tasks in this process: what was started for a directory ends with the last run there."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from ccswarm.engines.base import Engine
from ccswarm.errors import EngineUnavailable, RunNotFound
from ccswarm.models import RunStatus

Release = Callable[[str], Awaitable[None]]

STAYING = "staying"
"""What stands for a run of somebody who has more to do in a directory than one."""


class DirectoryLeases:
    """``release`` ends what was started for a directory; None where this process does not execute.

    Whether a run that another process carries out continues is asked when something ends here, and at no other time.
    """

    def __init__(self, engine: Engine, release: Release | None) -> None:
        self._engine = engine
        self._release = release
        self._there: dict[str, Counter[str]] = {}
        """By directory and run, how many tasks go on; 0 of a run whose tasks did."""
        self._over: set[str] = set()
        """Runs that were over here, of those."""

    @asynccontextmanager
    async def run(self, run_id: str, *, whole: bool) -> AsyncGenerator[None]:
        """While a run continues here, or, unless it is the ``whole`` of it, what was handed on in it."""
        self._over.discard(run_id)
        try:
            yield
        finally:
            if whole and any(run_id in runs for runs in self._there.values()):
                self._over.add(run_id)
                await self._tidy("")

    @asynccontextmanager
    async def task(self, directory: str, run_id: str) -> AsyncGenerator[None]:
        """While a task of a run works in ``directory``."""
        runs = self._there.setdefault(directory, Counter())
        runs[run_id] += 1
        try:
            yield
        finally:
            runs[run_id] -= 1
            await self._tidy(run_id)

    async def _tidy(self, going: str) -> None:
        """``going`` is a run that is asked about when the next thing ends: it has just had a task here."""
        for directory, runs in list(self._there.items()):
            over = [not any(runs.values()) and await self._is_over(run, going) for run in list(runs)]
            # Others may have tidied, or begun to work there, while it was asked.
            if all(over) and len(over) == len(runs) and not any(runs.values()) and directory in self._there:
                del self._there[directory]
                self._over = {run for run in self._over if any(run in others for others in self._there.values())}
                if self._release:
                    await self._release(directory)

    async def _is_over(self, run_id: str, going: str) -> bool:
        if run_id in self._over or run_id == STAYING:
            return True
        if run_id == going:
            return False
        try:
            status = (await self._engine.status(run_id)).status
        except RunNotFound:
            return True
        except EngineUnavailable:
            return False
        return status.over or status is RunStatus.PAUSED
