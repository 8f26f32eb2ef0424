"""The lease of a session that a person has taken over: until its release, only that person can type."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Self

from ai_session.sessions import commands
from ai_session.sessions.session import Session

TERMINAL_REPLY = re.compile(
    rb"\x1b\[[?>=]?[\d;]*[cnR]|\x1b\[\?[\d;]*\$y|\x1bP[^\x1b]*\x1b\\|\x1b\]\d+;[^\x07\x1b]*(?:\x07|\x1b\\)"
)
"""Replies of a person's own terminal to queries in the output, which the session has already answered."""


class Lease:
    """The exclusive right to type, created by ``take``. While it is held, input of others raises SessionTakenOver."""

    def __init__(self, session: Session, who: str, lost: Callable[[str], None], released: Callable[[], None]) -> None:
        self._session = session
        self._lost = lost
        self._released = released
        self.who = who
        self._held = True

    @property
    def session_id(self) -> str:
        """The id of the session that was taken over."""
        return self._session.spec.session_id

    @classmethod
    def take(
        cls,
        session: Session,
        who: str,
        *,
        force: bool,
        lost: Callable[[str], None],
        released: Callable[[], None] = lambda: None,
    ) -> Self:
        """Take ``session`` over for ``who``; with ``force`` also from another person, whose ``lost`` receives ``who``.

        The size that the other person gave the session remains until this lease is released. ``released`` is called
        once, when the lease ends. Raises SessionTakenOver, SessionExited.
        """
        if not force:
            session.check_typist()
        if session.exit is not None:
            raise commands.ended(session.spec.name, session.exit)
        before, lease = session.typist, cls(session, who, lost, released)
        session.typist = lease
        if before is not None:
            if before in session.sized_by:
                session.sized_by ^= {before, lease}
            before.overtaken(who)
        session.wake()
        return lease

    def type(self, data: bytes) -> None:
        """Type ``data``. Raises SessionTakenOver, SessionExited; LimitReached if earlier input is not read."""
        if typed := TERMINAL_REPLY.sub(b"", data):
            self._session.send(typed, by=self)
            self._session.turns.await_echo()

    async def resize(self, rows: int, cols: int) -> None:
        """Give the session this size until the lease is released. Raises SessionTakenOver, SessionExited."""
        await self._session.lend_size(self, rows, cols, by=self)
        self._session.wake()

    async def release(self) -> None:
        """Let others type again and restore the session's own size. Idempotent."""
        if self._session.typist is self:
            self._session.typist = None
        self._end()
        await self._session.take_size_back(self)
        self._session.wake()

    def overtaken(self, by: str) -> None:
        """End the lease because another person has taken the session over."""
        self._end()
        self._lost(by)

    def _end(self) -> None:
        if self._held:
            self._held = False
            self._released()
