"""What the routes of both A2A profiles share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from starlette.requests import Request

from ccswarm.servers.a2a.task_store import Tasks
from ccswarm.servers.base import ServeContext

CLOSE_SECONDS = 5.0
"""The time for work in progress when the server ends."""

PRIVATE = {"Cache-Control": "private", "Vary": "Authorization, X-Api-Key"}
"""The headers of a card, which says less to unauthenticated clients."""

log = logging.getLogger(__name__)


def caller_of(request: Request) -> str:
    """Return the caller that the request's token identifies, empty for this user."""
    caller: str | None = request.scope["caller"]
    assert caller is not None, "requests without a known user do not get here"
    return caller


def is_known(request: Request) -> bool:
    """Report whether the caller is known."""
    return request.scope["caller"] is not None


def needs_token(request: Request) -> bool:
    """Report whether the caller needs a token."""
    return not request.scope["free"]


class DialectContext:
    """The tasks and the work of all routes. Apart from the cards, only known callers reach a route. ``closing`` is set
    when the server ends: nothing is started after that."""

    def __init__(self, serve_context: ServeContext, tasks: Tasks) -> None:
        self.serve_context = serve_context
        self.tasks = tasks
        self.closing = asyncio.Event()
        self._work: dict[str, asyncio.Task[None]] = {}

    def url(self, request: Request, path: str = "") -> str:
        """Return the address of ``path`` under which the client reaches this server."""
        return f"{request.url.scheme}://{request.headers['host']}{path}"

    def carry(self, task_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Do the work of a task in the background; a task has one work at a time. It is cancelled by ``drop``, or if it
        takes too long when the server ends."""
        assert task_id not in self._work
        one = self._work[task_id] = asyncio.create_task(work)
        one.add_done_callback(lambda done: self._done(task_id, done))

    def is_carried(self, task_id: str) -> bool:
        """Report whether work of this task is in progress."""
        return task_id in self._work

    async def drop(self, task_id: str) -> None:
        """Cancel the work of a task, and return when it has ended."""
        if one := self._work.get(task_id):
            one.cancel()
            await asyncio.wait([one])

    async def close(self) -> None:
        """Wait for the work in progress, cancel what takes too long, and end all streams."""
        self.closing.set()
        if self._work:
            await asyncio.wait(list(self._work.values()), timeout=CLOSE_SECONDS)
        left = list(self._work.values())
        for one in left:
            one.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self.tasks.close()

    def _done(self, task_id: str, done: asyncio.Task[None]) -> None:
        if self._work.get(task_id) is done:
            del self._work[task_id]
        if not done.cancelled() and (error := done.exception()):
            log.error("task %s: %s: %s", task_id, type(error).__name__, error)
