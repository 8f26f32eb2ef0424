"""What the routes of both A2A profiles share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from starlette.requests import Request

from ccswarm.servers.a2a.core.task_store import Tasks
from ccswarm.servers.base import ServeContext

CLOSE_SECONDS = 5.0
"""For what is under way when the server ends."""

PRIVATE = {"Cache-Control": "private", "Vary": "Authorization, X-Api-Key"}
"""Of a card, which says less to strangers."""

log = logging.getLogger(__name__)


def caller_of(request: Request) -> str:
    """Who asks: whose token was shown, empty for this user."""
    caller: str | None = request.scope["caller"]
    assert caller is not None, "requests without a known user do not get here"
    return caller


def is_known(request: Request) -> bool:
    """Whether it is clear who asks."""
    return request.scope["caller"] is not None


def needs_token(request: Request) -> bool:
    """Whether the one who asks has, or would have, to show a token."""
    return not request.scope["free"]


class DialectContext:
    """Whoever reaches a route but for the cards may use it. ``closing`` is set when the server ends: nothing new is
    begun then."""

    def __init__(self, serve_context: ServeContext, tasks: Tasks) -> None:
        self.serve_context = serve_context
        self.tasks = tasks
        self.closing = asyncio.Event()
        self._work: dict[str, asyncio.Task[None]] = {}

    def url(self, request: Request, path: str = "") -> str:
        """The address of ``path``, as the client reaches this server."""
        return f"{request.url.scheme}://{request.headers['host']}{path}"

    def carry(self, task_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Does the work for a task beside everything else, one after the other is over. It is cancelled when the
        server ends, where it takes too long, or by ``drop``."""
        assert task_id not in self._work
        one = self._work[task_id] = asyncio.create_task(work)
        one.add_done_callback(lambda done: self._done(task_id, done))

    def carried(self, task_id: str) -> bool:
        """Whether there is some."""
        return task_id in self._work

    async def drop(self, task_id: str) -> None:
        """Cancels the work for a task, and returns when it has ended."""
        if one := self._work.get(task_id):
            one.cancel()
            await asyncio.wait([one])

    async def close(self) -> None:
        """What is under way has its time to end; then it is cancelled, and nobody follows anything any more."""
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
