"""The agents of swarms while they live here: a loop for each, which has its tools ready until it is ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ccswarm.errors import SwarmError
from ccswarm.toolbox.terminals import Terminals, scope_for_ending

if TYPE_CHECKING:
    from ccswarm.runs.app import App

log = logging.getLogger(__name__)


class AgentLoop:
    """One agent's loop. From its beginning to its end the tool servers of ``directory`` that were started for it, and
    for whoever else works there, go on; with the last one there they end. ``check`` raises SwarmError for an agent that
    could not do anything."""

    def __init__(self, app: App, directory: str, check: Callable[[], Awaitable[None]]) -> None:
        self._app = app
        self._directory = directory
        self._check = check
        self._ending = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.create_task(self._live())

    @property
    def alive(self) -> bool:
        """Whether it can be given work."""
        return self._ready.done() and not self._ready.exception() and not self._loop.done()

    @property
    def problem(self) -> str:
        """Why it cannot; empty where it can, and where that is still being found out."""
        error = self._ready.exception() if self._ready.done() else None
        return str(error) if error else ""

    async def ready(self) -> None:
        """Returns when it can be given work. Raises SwarmError."""
        await asyncio.shield(self._ready)

    async def end(self) -> None:
        """It lives no more when this returns, and where it was the last one there, its servers are gone."""
        self._ending.set()
        if not self._ready.done():
            self._loop.cancel()  # a server that never answers would hold everybody up
        await asyncio.gather(self._loop, return_exceptions=True)

    async def _live(self) -> None:
        try:
            async with self._app.swarm.keep_servers(self._directory):
                await self._check()
                self._ready.set_result(None)
                await self._ending.wait()
        except Exception as error:
            if self._ready.done():
                log.exception("the loop of an agent ended")
                return
            self._ready.set_exception(error)
            self._ready.exception()  # those who wait get the error; there may be none
        finally:
            if not self._ready.done():
                self._ready.cancel()


async def close_sessions(
    app: App, shell: str, directory: str, files: Sequence[str], handle: str, run_ids: Sequence[str]
) -> None:
    """Ends the terminals that an agent has opened in these runs and left open, with all that runs in them."""
    assert app.task_worker
    try:
        send = await app.task_worker.call(scope_for_ending(shell, directory, files))
    except SwarmError as error:
        log.warning("terminals left open by %s could not be looked for: %s", handle, error.message)
        return
    for run in run_ids:
        if problem := await Terminals(send, shell, run, run_id=run, agent=handle).end():
            log.warning("%s of %s: %s", handle, run, problem)
