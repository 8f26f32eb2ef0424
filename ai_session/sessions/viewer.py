"""A person or recorder that watches a session live, each with a position of its own in the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from agentwire.visible import visible
from ai_session.errors import LimitReached, SessionTakenOver
from ai_session.models import ExitStatus
from ai_session.sessions.lease import TERMINAL_REPLY
from ai_session.sessions.session import Session
from ai_session.terminal.marks import strip_marks

CHUNK = 1 << 16
BEHIND = 1 << 20
"""A viewer further behind than this receives the screen instead of every byte in between."""


class Viewer:
    """One watcher of a session. Its ``close``, to be called when the watcher disconnects, calls ``closed``."""

    def __init__(self, session: Session, *, read_only: bool, closed: Callable[[], None] = lambda: None) -> None:
        self._session = session
        self._on_closed = closed
        self._read_only = read_only
        self._closed = False
        self._held = False
        self._stale = False
        self._notice = b""
        session.viewers += 1

    @property
    def ended(self) -> ExitStatus | None:
        """The exit status of the shell, None while it runs."""
        return self._session.exit

    @property
    def session_id(self) -> str:
        """The id of the watched session."""
        return self._session.spec.session_id

    async def output(self) -> AsyncIterator[bytes]:
        """Yield the present screen, then all output as it arrives, until the shell ends or ``close`` is called."""
        session = self._session
        offset = session.log.end
        self._stale = True
        while not self._closed:
            end = session.log.end
            if self._notice:
                notice = self._notice
                self._notice = b""
                yield notice
            elif self._held and session.exit is None:
                await session.changed()
            elif self._stale or end - offset > BEHIND or offset < session.log.first:
                self._stale = False
                drawn, offset = await session.redraw()
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
        """Type ``data``. Ignored if the viewer is read-only, the shell has ended or its input is full.

        In a session that another person has taken over it is ignored as well, and the window's title says so.
        """
        typed = TERMINAL_REPLY.sub(b"", data)
        if typed and not self._read_only and self._session.exit is None:
            try:
                self._session.send(typed)
                self._session.turns.await_echo()
            except SessionTakenOver as error:
                self._notice = b"\x1b]2;ai-session: %s\x1b\\\x07" % visible(error.message).encode()
                self._session.wake()
            except LimitReached:
                pass  # no program reads its input

    def hold(self) -> None:
        """Pause the output at once, because something else is shown in its place."""
        self._held = True

    def release(self) -> None:
        """Draw the screen again and continue."""
        self._held = False
        self._stale = True
        self._session.wake()

    async def resize(self, rows: int, cols: int) -> None:
        """Give the session the viewer's size until ``close``, unless read-only or another person has taken it over."""
        if not self._read_only and self._session.exit is None and rows > 0 and cols > 0:
            with suppress(SessionTakenOver):
                await self._session.lend_size(self, rows, cols)

    async def close(self) -> None:
        """Stop watching, and end the effect of this viewer's size on the session. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._on_closed()
        self._session.viewers -= 1
        self._session.touch()
        self._session.wake()
        await self._session.take_size_back(self)
