"""Changes in the sessions of a daemon, observed from another process and beyond that daemon's end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from ai_session.models import Change

Message = dict[str, Any]

MOST_REPEATED = 1000
"""The number of changes, the newest, that are reported again after a daemon's end."""


class Link(Protocol):
    """The connection to a daemon."""

    async def begin(self, waiting: RemoteChanges, method: str, **params: Any) -> int:
        """Make a request and return its number."""
        ...

    def end(self, number: int, *, cancelled: bool) -> None:
        """Stop receiving its messages."""
        ...


class RemoteChanges:
    """Implements ``Changes``; merged while the reader is busy. After the daemon was replaced, everything reported so
    far is reported again, since changes in between are unknown."""

    def __init__(
        self,
        link: Callable[[], Awaitable[Link]],
        wanted: Mapping[str, Any],
        check: Callable[[Message | None], Message],
    ) -> None:
        self._link_now = link
        self._wanted = wanted
        self._check = check
        self._link: Link | None = None
        self._number = 0
        self._pending: dict[tuple[str, str], Change] = {}
        self._reported: dict[tuple[str, str], Change] = {}
        self._new = asyncio.Event()
        self._started: asyncio.Future[None] | None = None
        self._lost = False
        self._closed = False

    async def begin(self) -> None:
        """Return once the daemon reports changes. Raises the error that prevents it."""
        self._lost = False
        self._started = asyncio.get_running_loop().create_future()
        self._link = await self._link_now()
        self._number = await self._link.begin(self, "watch", **self._wanted)
        try:
            await self._started
        except BaseException:
            self._link.end(self._number, cancelled=True)
            raise

    def put(self, message: Message | None) -> None:
        """Process a message of the daemon, or None at the end."""
        if self._started and not self._started.done():
            try:
                self._check(message)
            except Exception as problem:
                self._started.set_exception(problem)
            else:
                self._started.set_result(None)
        elif message is None or "error" in message:
            self._lost = True
            self._new.set()
        else:
            for change in map(Change.from_facts, message["changes"]):
                key = change.kind, change.session_id
                earlier = self._pending.get(key)
                self._pending[key] = earlier.merged(change) if earlier else change
            self._new.set()

    async def next(self) -> frozenset[Change]:
        """Return everything changed since the last call, as soon as something has; nothing once closed.

        Raises DaemonUnavailable if the daemon has ended and none can be started.
        """
        await self._new.wait()
        if self._lost and not self._closed:
            try:
                await self.begin()
            except BaseException:
                self._lost = True
                raise
            self._pending |= self._reported | {("list", ""): Change("list"), ("tools", ""): Change("tools")}
        batch = frozenset(() if self._closed else self._pending.values())
        for key, change in self._pending.items():
            self._reported.pop(key, None)
            self._reported[key] = replace(change, commands=frozenset())
        while len(self._reported) > MOST_REPEATED:
            del self._reported[next(iter(self._reported))]
        self._pending.clear()
        if not self._closed:
            self._new.clear()
        return batch

    def close(self) -> None:
        """Stop watching; a waiting ``next`` returns nothing. May be called twice."""
        if not self._closed:
            self._closed = True
            self._new.set()
            if self._link:
                self._link.end(self._number, cancelled=True)
