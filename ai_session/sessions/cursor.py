"""One who looks at a session, at a place of its own in the log: never holds back the shell, nor anybody else who looks.

What was sent and not acknowledged is bounded by ``window_bytes``. Who is too far behind, or asks for no certain offset,
gets the screen as it is now, and continues after that; who wants every byte gets them for as long as the log keeps
them.
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
WINDOW_BYTES = 256 << 10
BEHIND_BYTES = 1 << 20
"""Who is further behind than this is shown the screen instead of every byte in between."""

REDRAW_SECONDS = 0.1
"""A session that prints faster than somebody reads is drawn for them so often; a rate, which decides nothing."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What comes next: its facts, and ``data`` that belongs to them. ``last``: nothing comes after it."""

    facts: Mapping[str, Any]
    data: bytes = b""
    last: bool = False


class Cursor:
    """``wake`` is called whenever ``next`` may have something, which it had not; ``close`` it in the end."""

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
        """From ``offset`` on, or with None from the present screen on. Raises InvalidArguments beyond the end."""
        if offset is not None and offset > session.log.end:
            raise InvalidArguments(
                f"offset {offset} lies beyond the end, {session.log.end}", suggestion="look without an offset"
            )
        self._session = session
        self._exact = exact
        self._window_bytes = window_bytes
        self._wake = wake
        self._tell_closed = closed
        self._stale = offset is None
        self._sent = self._acknowledged = session.log.end if offset is None else offset
        self._drawn_at = 0.0
        self._drawing: asyncio.Task[Drawn] | None = None
        self._drawn: Drawn | None = None
        self._size = (session.spec.rows, session.spec.cols)
        self._ended: ExitStatus | None = None
        self._resting = self._closed = False
        session.viewers += 1
        session.listeners.add(self._heard)
        session.wake()

    def facts(self) -> dict[str, Any]:
        """Where it begins, and what of the session one needs to draw it."""
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
        """How many bytes there are that were not sent."""
        return self._session.log.end - self._sent

    def acknowledge(self, offset: int) -> None:
        """All before ``offset`` was taken in; of no effect where that was known, or was never sent."""
        if self._acknowledged < offset <= self._sent:
            self._acknowledged = offset
            self._resting = False
            self._wake()

    def next(self) -> Piece | float | None:
        """What comes next; None: nothing before ``wake`` is called; a number: nothing for so many seconds."""
        self._resting = False
        session, log = self._session, self._session.log
        try:
            return Piece(self._event("closed"), last=True) if log.closed else self._next()
        except (OSError, OutputExpired):
            if session.log.closed:
                return Piece(self._event("closed"), last=True)
            self._stale = self._stale or not self._exact  # let go of meanwhile
            return REDRAW_SECONDS

    def close(self) -> None:
        """Look no more. Idempotent."""
        if not self._closed:
            self._closed = True
            if self._drawing is not None:
                self._drawing.cancel()
            self._session.listeners.discard(self._heard)
            self._session.viewers -= 1
            self._session.touch()
            self._tell_closed()
            self._session.wake()

    def _next(self) -> Piece | float | None:
        session, log = self._session, self._session.log
        if (size := (session.spec.rows, session.spec.cols)) != self._size:
            self._size = size
            if not self._exact or self._stale:
                # What was printed for the size before would be wrapped differently at this one.
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
            # Nothing but the beginning of a mark, whose end is still to be printed or lies beyond the room there is.
            self._resting = self._sent + held < log.end
            return None
        data = strip_marks(chunk[: len(chunk) - held], session.spec.nonce)
        piece = Piece(self._event("output", next=self._sent + len(chunk) - held), data)
        self._sent += len(chunk) - held
        return piece

    def _draw(self) -> Piece | None:
        if self._acknowledged < self._sent:
            self._resting = True  # who has not taken in what was sent would not take in a screen either
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
            # No emulator for this machine, or no log any more: bytes are all there is.
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
        # Until it is acknowledged, a screen counts as so many bytes that were sent.
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

    def _heard(self) -> None:
        if not self._resting:
            self._wake()
