"""What changes in the sessions of a daemon, heard in another process and beyond that daemon's end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from ai_session.models import Change

Message = dict[str, Any]

MOST_SEEN = 1000
"""Most changes, the newest, that are reported again after a daemon's end."""


class Link(Protocol):
    """The connection to a daemon."""

    async def begin(self, waiting: RemoteChanges, method: str, **params: Any) -> int:
        """Make a request; its number."""
        ...

    def end(self, number: int, *, given_up: bool) -> None:
        """Hear no more of it."""
        ...


class RemoteChanges:
    """Implements ``Changes``: merged while its reader is busy. After the daemon was replaced, everything reported so
    far is reported again, since its changes in between are unknown."""

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
        self._seen: dict[tuple[str, str], Change] = {}
        self._news = asyncio.Event()
        self._begun: asyncio.Future[None] | None = None
        self._lost = False
        self._closed = False

    async def begin(self) -> None:
        """Returns once the daemon reports changes. Raises the error that prevents it."""
        self._lost = False
        self._begun = asyncio.get_running_loop().create_future()
        self._link = await self._link_now()
        self._number = await self._link.begin(self, "watch", **self._wanted)
        try:
            await self._begun
        except BaseException:
            self._link.end(self._number, given_up=True)
            raise

    def put(self, message: Message | None) -> None:
        """What the daemon says; None: it says no more."""
        if self._begun and not self._begun.done():
            try:
                self._check(message)
            except Exception as problem:
                self._begun.set_exception(problem)
            else:
                self._begun.set_result(None)
        elif message is None or "error" in message:
            self._lost = True
            self._news.set()
        else:
            for change in map(Change.of_facts, message["changes"]):
                key = change.kind, change.session_id
                earlier = self._pending.get(key)
                self._pending[key] = earlier.merged(change) if earlier else change
            self._news.set()

    async def next(self) -> frozenset[Change]:
        """All that changed since the last answer, as soon as there is something; nothing once closed.

        Raises DaemonUnavailable when there is no daemon any more and none can be started.
        """
        await self._news.wait()
        if self._lost and not self._closed:
            try:
                await self.begin()
            except BaseException:
                self._lost = True
                raise
            self._pending |= self._seen | {("list", ""): Change("list"), ("tools", ""): Change("tools")}
        batch = frozenset(() if self._closed else self._pending.values())
        for key, change in self._pending.items():
            self._seen.pop(key, None)
            self._seen[key] = replace(change, commands=frozenset())
        while len(self._seen) > MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        self._pending.clear()
        if not self._closed:
            self._news.clear()
        return batch

    def close(self) -> None:
        """Hear no more; a waiting ``next`` returns nothing. Idempotent."""
        if not self._closed:
            self._closed = True
            self._news.set()
            if self._link:
                self._link.end(self._number, given_up=True)
