"""A person (or recorder) watching a session live, each with a place of its own in the log."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from ai_session.errors import LimitReached
from ai_session.models import ExitStatus
from ai_session.sessions.session import Session
from ai_session.terminal.marks import strip_marks

CHUNK = 1 << 16
BEHIND = 1 << 20
"""A viewer further behind than this gets the screen drawn anew instead of every byte in between."""

TERMINAL_REPLY = re.compile(
    rb"\x1b\[[?>=]?[\d;]*[cnR]|\x1b\[\?[\d;]*\$y|\x1bP[^\x1b]*\x1b\\|\x1b\]\d+;[^\x07\x1b]*(?:\x07|\x1b\\)"
)
"""Answers the viewer's own terminal gives to queries in the output; the session already answered them."""


class Viewer:
    """Made by ``attach``; ``close`` it when the watcher has gone, which ``closed`` is told."""

    def __init__(self, session: Session, *, read_only: bool, closed: Callable[[], None] = lambda: None) -> None:
        self._session = session
        self._tell_closed = closed
        self._read_only = read_only
        self._closed = False
        self._held = False
        self._stale = False
        session.viewers += 1

    @property
    def ended(self) -> ExitStatus | None:
        """How the shell ended, once it has."""
        return self._session.exit

    @property
    def session_id(self) -> str:
        """The watched session's id."""
        return self._session.spec.session_id

    async def output(self) -> AsyncIterator[bytes]:
        """The present screen, then everything as it comes; ends with the shell or with ``close``."""
        session = self._session
        offset = session.log.end
        self._stale = True
        while not self._closed:
            end = session.log.end
            if self._held and session.exit is None:
                await session.changed()
            elif self._stale or end - offset > BEHIND or offset < session.log.first:
                offset, self._stale = end, False
                drawn = await session.redraw()
                if self._held and session.exit is None:
                    self._stale = True
                else:
                    yield drawn
            elif offset < end:
                chunk = session.log.read(offset, min(end, offset + CHUNK))
                offset += max(len(chunk), 1)
                yield strip_marks(chunk, session.spec.nonce)
            elif session.exit is not None:
                return
            else:
                await session.changed()

    def write(self, data: bytes) -> None:
        """Type ``data``; ignored for a read-only viewer and after the shell's end."""
        typed = TERMINAL_REPLY.sub(b"", data)
        if typed and not self._read_only and self._session.exit is None:
            with suppress(LimitReached):  # nobody reads it
                self._session.send(typed)

    def hold(self) -> None:
        """Something else is shown instead: output stands still, beginning with this call."""
        self._held = True

    def release(self) -> None:
        """Draw the screen anew and go on."""
        self._held, self._stale = False, True
        self._session.wake()

    async def resize(self, rows: int, cols: int) -> None:
        """Give the session the viewer's size; the old one comes back with ``close``. Ignored when read-only."""
        if not self._read_only and self._session.exit is None and rows > 0 and cols > 0:
            session = self._session
            session.own_size = session.own_size or (session.spec.rows, session.spec.cols)
            await self._session.resize(rows, cols)

    async def close(self) -> None:
        """Stop watching; the last viewer to leave restores the session's size."""
        if self._closed:
            return
        self._closed = True
        self._tell_closed()
        session = self._session
        session.viewers -= 1
        session.wake()
        if session.viewers == 0 and session.own_size and session.exit is None:
            rows, cols = session.own_size
            session.own_size = None
            await session.resize(rows, cols)
