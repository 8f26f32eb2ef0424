"""A viewer's position in a session's log, which never delays the shell or other viewers.

At most ``window_bytes`` are sent without being acknowledged. A viewer that is too far behind, or names no offset,
receives the present screen and continues after it; one that wants every byte receives all that the log still has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ai_session.errors import AiSessionError, InvalidArguments, OutputExpired
from ai_session.models import ExitStatus
from ai_session.sessions.session import Session
from ai_session.terminal.display import Drawn
from ai_session.terminal.marks import strip_marks, unfinished_mark

CHUNK_BYTES = 32 << 10
BEHIND_BYTES = 1 << 20
"""A viewer further behind than this receives the screen instead of every byte in between."""

REDRAW_SECONDS = 0.1
"""The interval of screens for a viewer that reads more slowly than the session prints; it decides nothing else."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One message to a viewer: facts, and the ``data`` that belongs to them. No other follows a ``last`` one."""

    facts: Mapping[str, Any]
    data: bytes = b""
    last: bool = False


class Cursor:
    """A viewer's position. ``wake`` is called when ``next``, which had nothing, may have a piece. Must be closed."""

    def __init__(
        self,
        session: Session,
        offset: int | None,
        *,
        exact: bool,
        window_bytes: int,
        wake: Callable[[], None],
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin at ``offset``, or with None at the present screen. Raises InvalidArguments beyond the end."""
        if offset is not None and offset > session.log.end:
            raise InvalidArguments(
                f"offset {offset} is beyond the end, {session.log.end}", suggestion="omit the offset"
            )
        self._session = session
        self._exact = exact
        self._window_bytes = window_bytes
        self._wake = wake
        self._on_closed = closed
        self._stale = offset is None
        self._sent = self._acknowledged = session.log.end if offset is None else offset
        self._drawn_at = 0.0
        self._drawing: asyncio.Task[Drawn] | None = None
        self._drawn: Drawn | None = None
        self._size = (session.spec.rows, session.spec.cols)
        self._ended: ExitStatus | None = None
        self._resting = self._closed = False
        session.viewers += 1
        session.listeners.add(self._on_change)
        session.wake()

    def facts(self) -> dict[str, Any]:
        """Return where it begins, and the facts of the session that a viewer needs to draw it."""
        session, (rows, cols) = self._session, self._size
        return {
            "session_id": session.spec.session_id,
            "name": session.spec.name,
            "offset": self._sent,
            "first": session.log.first,
            "end": session.log.end,
            "rows": rows,
            "cols": cols,
            "typing_by": session.typist.who if session.typist else "",
        }

    @property
    def lag(self) -> int:
        """The number of bytes that were not sent yet."""
        return self._session.log.end - self._sent

    def acknowledge(self, offset: int) -> None:
        """Record that all before ``offset`` was received; ignored if that was known or ``offset`` was never sent."""
        if self._acknowledged < offset <= self._sent:
            self._acknowledged = offset
            self._resting = False
            self._wake()

    def next(self) -> Piece | float | None:
        """Return the next piece, None if there is none until ``wake`` is called, or the seconds until the next try."""
        self._resting = False
        session, log = self._session, self._session.log
        try:
            return Piece(self._event("closed"), last=True) if log.closed else self._next()
        except (OSError, OutputExpired):
            if session.log.closed:
                return Piece(self._event("closed"), last=True)
            self._stale = self._stale or not self._exact  # the log removed these bytes meanwhile
            return REDRAW_SECONDS

    def close(self) -> None:
        """Stop viewing. Idempotent."""
        if not self._closed:
            self._closed = True
            if self._drawing is not None:
                self._drawing.cancel()
            self._session.listeners.discard(self._on_change)
            self._session.viewers -= 1
            self._session.touch()
            self._on_closed()
            self._session.wake()

    def _next(self) -> Piece | float | None:
        session, log = self._session, self._session.log
        if (size := (session.spec.rows, session.spec.cols)) != self._size:
            self._size = size
            if not self._exact or self._stale:
                # Output printed for the earlier size would be wrapped differently at this one.
                self._stale = True
                self._drawn = None
                if self._drawing is not None:
                    self._drawing.cancel()
            return Piece(self._event("size", rows=size[0], cols=size[1]))
        if self._drawn is not None or self._drawing is not None:
            return self._screen()
        if self._exact and not self._stale:
            if self._sent < log.first:
                gap = Piece(self._event("gap", next=log.first))
                self._acknowledged += log.first - self._sent
                self._sent = log.first
                return gap
        elif self._stale or self.lag > BEHIND_BYTES or self._sent < log.first or (self._drawn_at and self.lag):
            left = self._drawn_at + REDRAW_SECONDS - time.monotonic() if self._drawn_at else 0.0
            if left > 0:
                self._resting = True
                return left
            if self._stale or self.lag > self._window_bytes or self._sent < log.first:
                return self._draw()
            self._drawn_at = 0.0
        if not self.lag:
            return self._end()
        return self._output()

    def _output(self) -> Piece | None:
        room = self._window_bytes - (self._sent - self._acknowledged)
        if room <= 0:
            self._resting = True
            return None
        session, log = self._session, self._session.log
        chunk = log.read(self._sent, min(log.end, self._sent + min(room, CHUNK_BYTES)))
        held = len(unfinished_mark(chunk, session.spec.nonce)) if session.exit is None else 0
        if held == len(chunk):
            # Only the beginning of a mark, whose end is not printed yet or does not fit into the window.
            self._resting = self._sent + held < log.end
            return None
        data = strip_marks(chunk[: len(chunk) - held], session.spec.nonce)
        piece = Piece(self._event("output", next=self._sent + len(chunk) - held), data)
        self._sent += len(chunk) - held
        return piece

    def _draw(self) -> Piece | None:
        if self._acknowledged < self._sent:
            self._resting = True  # a viewer that has not acknowledged what was sent could not receive a screen either
            return None
        if not self._stale:
            self._drawn_at = time.monotonic()
        self._drawing = asyncio.ensure_future(self._session.redraw())
        self._drawing.add_done_callback(self._take_drawn)
        return None

    def _take_drawn(self, drawing: asyncio.Task[Drawn]) -> None:
        self._drawing = None
        if drawing.cancelled():
            self._wake()
        elif (problem := drawing.exception()) is None:
            self._drawn = drawing.result()
        elif isinstance(problem, AiSessionError | OSError):
            # Without an emulator on this machine, or without the log, only new bytes can be sent.
            self._drawn = Drawn(b"", self._session.log.end)
        else:
            self._drawn = Drawn(b"", self._session.log.end)
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a screen could not be drawn", "exception": problem}
            )
        self._wake()

    def _screen(self) -> Piece | None:
        if self._drawn is None:
            return None
        drawn = self._drawn
        self._drawn = None
        self._stale = False
        rows, cols = self._size
        self._sent = drawn.offset
        # Until it is acknowledged, a screen counts as that many sent bytes.
        self._acknowledged = drawn.offset - max(1, len(drawn.data))
        return Piece(self._event("screen", next=drawn.offset, rows=rows, cols=cols), drawn.data)

    def _end(self) -> Piece | None:
        ended = self._session.exit
        if ended is self._ended:
            return None
        self._ended = ended
        if ended is None:
            return Piece(self._event("restarted"))
        return Piece(self._event("ended", **asdict(ended), text=str(ended)))

    def _event(self, event: str, **facts: Any) -> dict[str, Any]:
        return {"event": event, "offset": self._sent, **facts}

    def _on_change(self) -> None:
        if not self._resting:
            self._wake()
