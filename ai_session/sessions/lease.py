"""Who types: a person who has taken a session over is the only one, until they release it or have gone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Self

from ai_session.sessions import commands
from ai_session.sessions.session import Session

TERMINAL_REPLY = re.compile(
    rb"\x1b\[[?>=]?[\d;]*[cnR]|\x1b\[\?[\d;]*\$y|\x1bP[^\x1b]*\x1b\\|\x1b\]\d+;[^\x07\x1b]*(?:\x07|\x1b\\)"
)
"""Answers a person's own terminal gives to queries in the output; the session already answered them."""


class Lease:
    """Made by ``take``. While it is held, what anybody else types is refused with ``SessionTakenOver``."""

    def __init__(self, session: Session, who: str, lost: Callable[[str], None], released: Callable[[], None]) -> None:
        self._session = session
        self._lost = lost
        self._released = released
        self.who = who
        self._held = True

    @property
    def session_id(self) -> str:
        """Of the session that was taken over."""
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
        """Take ``session`` over for ``who``. With ``force`` also from another person, whose ``lost`` is called with
        ``who``.

        The size that they gave the session stays until this lease is released. ``released`` is called once, when the
        lease ends. Raises SessionTakenOver, SessionExited.
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
        """Type ``data``. Raises SessionTakenOver, SessionExited, LimitReached where what was typed is not read."""
        if typed := TERMINAL_REPLY.sub(b"", data):
            self._session.send(typed, by=self)
            self._session.turns.await_echo()

    async def resize(self, rows: int, cols: int) -> None:
        """Give the session this size until the lease is released. Raises SessionTakenOver, SessionExited."""
        await self._session.lend_size(self, rows, cols, by=self)
        self._session.wake()

    async def release(self) -> None:
        """Let others type again; the session's own size comes back. Idempotent."""
        if self._session.typist is self:
            self._session.typist = None
        self._let_go()
        await self._session.take_size_back(self)
        self._session.wake()

    def overtaken(self, by: str) -> None:
        """Somebody else has taken the session over."""
        self._let_go()
        self._lost(by)

    def _let_go(self) -> None:
        if self._held:
            self._held = False
            self._released()
