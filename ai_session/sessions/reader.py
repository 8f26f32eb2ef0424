"""Reading of what a terminal prints: into the log, in turns with other sessions, and mark by mark."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from ai_session.models import (
    ExitStatus,
)
from ai_session.sessions.facts import (
    SessionFacts,
)
from ai_session.terminal.log import FOLLOW_BYTES
from ai_session.terminal.marks import Mark, MarkScanner
from ai_session.terminal.timing import Timing

CATCH_UP_BYTES = 1 << 18
"""The size of the pieces in which the log is searched for marks."""

READ_SECONDS = 0.0002
"""How long one turn of reading lasts. A key typed in another session and its echo wait for three or four such turns."""

SHORT_BYTES = 2048
"""A read from a pseudo-terminal that returns less has emptied it."""


class OutputListener(Protocol):
    """The session whose output is read. Its methods are called in the order of the output."""

    def on_mark(self, mark: Mark) -> None:
        """Handle a mark."""
        ...

    def on_gap(self) -> None:
        """Handle a loss of output that may have contained marks."""
        ...

    def on_caught_up(self, offset: int) -> None:
        """Continue after everything that an earlier daemon left from ``offset`` on was read."""
        ...

    def on_exit(self, status: ExitStatus) -> None:
        """Handle the end of the shell, after all its output was read."""
        ...


class OutputReader:
    """Reads the terminal of a session into its log and reports the marks to ``listener``.

    ``queued``: output waits for the next turn of reading. ``turns_read`` counts the turns. ``exit_seen`` is the status
    of a terminal that has ended and whose output is not all read. ``resumed`` is the range of the log that an earlier
    daemon left and that is not read yet.
    """

    def __init__(self, session: SessionFacts, listener: OutputListener) -> None:
        self._session = session
        self._listener = listener
        self.timing = Timing(session.directory / "times")
        self.scanner = MarkScanner(session.spec.nonce, session.log.first)
        self.queued = False
        self.turns_read = 0
        self.exit_seen: ExitStatus | None = None
        self.resumed: tuple[int, int] | None = None
        self._thinning: asyncio.Task[None] | None = None

    def release(self) -> None:
        """Stop reading."""
        if self._thinning is not None:
            self._thinning.cancel()
        self.timing.close()

    async def up_to_date(self) -> None:
        """Wait until everything that an earlier daemon left is read, which takes moments if it is much."""
        while self.resumed is not None:
            await self._session.changed()

    def read_now(self) -> None:
        """Read what there is, now if it is this session's turn, otherwise in its next turn."""
        if not self.queued and not self._session.turns.at_once(self._session.spec.session_id, self.read):
            self._queue()

    def _queue(self) -> None:
        if not self.queued:
            self.queued = True
            self._session.turns.add(self._session.spec.session_id, self._take_turn)

    def _take_turn(self) -> None:
        self.queued = False
        if not self._session.log.closed:
            self.read()

    def read(self) -> None:
        """Read what there is for as long as one turn lasts, and queue the rest."""
        session = self._session
        terminal = session.terminal
        self.turns_read += 1
        lost = session.log.losing
        session.log.losing = terminal is not None and terminal.losing
        until, before = time.perf_counter() + READ_SECONDS, session.log.end
        more = self._read_log(until) or self._read_terminal(until)
        if session.log.end != before:
            self.timing.note(session.log.end)
            if self.timing.full and self._thinning is None:
                self._thinning = asyncio.ensure_future(self._thin())
        if terminal is not None:
            terminal.unread(session.log.size - session.log.end if more else 0)
        if self.resumed and (not more or self.scanner.offset >= self.resumed[1]):
            self._listener.on_caught_up(self.resumed[0])
        if lost and not session.log.losing:
            if session.running is not None:
                session.running.miss()
            self._listener.on_gap()
        if more:
            self._queue()
        elif self.exit_seen is not None:
            self._listener.on_exit(self.exit_seen)
        session.wake()

    async def _thin(self) -> None:
        try:
            await self._session.work(self.timing.thin(self._session.log.first))
        finally:
            self._thinning = None

    def _read_log(self, until: float) -> bool:
        """Read what is in the log already. Report whether it holds more."""
        session = self._session
        while (offset := self.scanner.offset) < session.log.end:
            self._note(session.log.read(offset, offset + CATCH_UP_BYTES))
            if time.perf_counter() >= until:
                return self.scanner.offset < session.log.end
        return False

    def _read_terminal(self, until: float) -> bool:
        """Read what the terminal has printed. Report whether it may have printed more."""
        session = self._session
        terminal = session.terminal
        source = terminal.read_into if terminal is not None else None
        while chunk := session.log.fill(source):
            if session.log.end - len(chunk) != self.scanner.offset:
                self._missed(session.log.end - len(chunk))
            self._note(chunk)
            if terminal is not None and not terminal.writes_log:
                session.display.answer(chunk, session.answer_query)
            if terminal is not None and len(chunk) < (FOLLOW_BYTES if terminal.writes_log else SHORT_BYTES):
                return False  # what is appended from now on to a log that somebody else writes is an event of its own
            if time.perf_counter() >= until:
                return True
        return False

    def _missed(self, offset: int) -> None:
        """Continue at ``offset``: what came before was released unread, and with it maybe marks."""
        self.scanner = MarkScanner(self._session.spec.nonce, offset)
        self._listener.on_gap()

    def _note(self, chunk: bytes) -> None:
        for mark in self.scanner.feed(chunk, self._session.running.record.seq if self._session.running else None):
            self._listener.on_mark(mark)

    def terminal_exited(self, status: ExitStatus) -> None:
        """Note that the terminal has ended, and read the rest of its output."""
        self.exit_seen = status
        self.read_now()
