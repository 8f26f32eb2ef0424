"""The agents of swarms that are active in this process: a loop for each keeps its tools ready until it is ended."""

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
    """The loop of one agent. While it runs, the tool servers for ``directory`` stay up; they end with the last loop
    there. ``check`` raises SwarmError for an agent that could do nothing."""

    def __init__(self, app: App, directory: str, check: Callable[[], Awaitable[None]]) -> None:
        self._app = app
        self._directory = directory
        self._check = check
        self._ending = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.create_task(self._run())

    @property
    def alive(self) -> bool:
        """Whether it can be given work."""
        return self._ready.done() and not self._ready.exception() and not self._loop.done()

    @property
    def problem(self) -> str:
        """Why it cannot be given work; empty if it can, or if that is not yet known."""
        error = self._ready.exception() if self._ready.done() else None
        return str(error) if error else ""

    async def ready(self) -> None:
        """Wait until it can be given work. Raises SwarmError."""
        await asyncio.shield(self._ready)

    async def end(self) -> None:
        """End the loop, and, if it is the last one in its directory, the servers there."""
        self._ending.set()
        if not self._ready.done():
            self._loop.cancel()  # a server that never answers would block the end
        await asyncio.gather(self._loop, return_exceptions=True)

    async def _run(self) -> None:
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
            self._ready.exception()  # consumed here, because there may be no waiting caller
        finally:
            if not self._ready.done():
                self._ready.cancel()


async def close_sessions(
    app: App, shell: str, directory: str, files: Sequence[str], handle: str, run_ids: Sequence[str]
) -> None:
    """End the terminals that an agent has left open in these runs, with everything that runs in them."""
    assert app.task_worker
    try:
        send = await app.task_worker.call(scope_for_ending(shell, directory, files))
    except SwarmError as error:
        log.warning("terminals left open by %s could not be looked for: %s", handle, error.message)
        return
    for run in run_ids:
        if problem := await Terminals(send, shell, run, run_id=run, agent=handle).end():
            log.warning("%s of %s: %s", handle, run, problem)
