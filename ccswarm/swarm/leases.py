"""Which runs have tasks in this process: what was started for a directory ends with the last run there."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from ccswarm.engines.base import Engine
from ccswarm.errors import EngineUnavailable, RunNotFound
from ccswarm.models import RunStatus

Release = Callable[[str], Awaitable[None]]

STAYING = "staying"
"""The id that stands for a caller that keeps a directory over several runs."""


class DirectoryLeases:
    """The use of directories by runs. ``release`` ends what was started for a directory; None if this process does not
    execute. Whether a run that another process carries out continues is only checked when something ends here."""

    def __init__(self, engine: Engine, release: Release | None) -> None:
        self._engine = engine
        self._release = release
        self._tasks: dict[str, Counter[str]] = {}
        """By directory and run, the number of its tasks in progress; 0 once they have ended."""
        self._ended_runs: set[str] = set()
        """Those of these runs that ended in this process."""

    @asynccontextmanager
    async def run(self, run_id: str, *, whole: bool) -> AsyncGenerator[None]:
        """The time in which a run continues here; unless ``whole``, it is one of delegated work."""
        self._ended_runs.discard(run_id)
        try:
            yield
        finally:
            if whole and any(run_id in runs for runs in self._tasks.values()):
                self._ended_runs.add(run_id)
                await self._release_unused("")

    @asynccontextmanager
    async def task(self, directory: str, run_id: str) -> AsyncGenerator[None]:
        """The time in which a task of a run works in ``directory``."""
        runs = self._tasks.setdefault(directory, Counter())
        runs[run_id] += 1
        try:
            yield
        finally:
            runs[run_id] -= 1
            await self._release_unused(run_id)

    async def _release_unused(self, active: str) -> None:
        """Release the directories in which all runs have ended. ``active`` has just had a task here, so it is only
        checked when something ends next."""
        for directory, runs in list(self._tasks.items()):
            ended = [not any(runs.values()) and await self._is_over(run, active) for run in list(runs)]
            # During the checks, another task may have begun there or released it.
            if all(ended) and len(ended) == len(runs) and not any(runs.values()) and directory in self._tasks:
                del self._tasks[directory]
                self._ended_runs = {
                    run for run in self._ended_runs if any(run in others for others in self._tasks.values())
                }
                if self._release:
                    await self._release(directory)

    async def _is_over(self, run_id: str, active: str) -> bool:
        if run_id in self._ended_runs or run_id == STAYING:
            return True
        if run_id == active:
            return False
        try:
            status = (await self._engine.status(run_id)).status
        except RunNotFound:
            return True
        except EngineUnavailable:
            return False
        return status.over or status is RunStatus.PAUSED
