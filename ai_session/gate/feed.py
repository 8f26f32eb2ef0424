"""All changes, for people's programs: sessions, commands, questions, the policy, the audit log's head.

A change says that something is worth reading again and what its state is now, not what happened in between: only the
number of each thing's latest change is stored. So a slow reader delays nothing, and a reader that returns with its
cursor is given each thing at most once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from ai_session.audit.log import AuditLog
from ai_session.errors import CursorExpired, InvalidArguments
from ai_session.gate.consent.consent import Consent
from ai_session.gate.policy.mode import PolicyInForce
from ai_session.gate.redaction.known_secrets import Masking
from ai_session.sessions.changes import GAP_SECONDS
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.session import Session

Kind = Literal["session", "command", "questions", "policy", "audit"]

MOST_KEPT = 2048
"""The number of things whose latest change is known; a cursor from before the oldest one has expired."""

MOST_AT_ONCE = 500
"""The most changes that are reported together."""


@dataclass(frozen=True, slots=True)
class News:
    """Some changes, oldest first, and the cursor after them."""

    cursor: str
    changes: list[dict[str, Any]]


class ChangeFeed:
    """The feed of one daemon. Nothing is observed before the first reader; then until ``close``."""

    def __init__(
        self,
        sessions: SessionManager,
        consent: Consent,
        policy: PolicyInForce,
        masking: Masking,
        audit: AuditLog,
        gap_seconds: float = GAP_SECONDS,
    ) -> None:
        self._sessions = sessions
        self._consent = consent
        self._policy = policy
        self._masking = masking
        self._audit = audit
        self._gap_seconds = gap_seconds
        self._begun = secrets.token_hex(4)
        self._number = self._forgotten = 0
        self._latest = OrderedDict[tuple[Kind, str], int]()
        self._news: set[asyncio.Event] = set()
        self._asked = asyncio.Event()
        self._listening: list[asyncio.Task[None]] = []
        self._stop: Callable[[], None] = lambda: None

    def reader(self, cursor: str = "") -> Reader:
        """Return a reader of changes from now on, or since ``cursor``. Raises CursorExpired, InvalidArguments."""
        if not self._listening:
            self._listen()
        return Reader(self, self._number_of(cursor) if cursor else self._number, self._news, self._gap_seconds)

    def record(self, kind: Kind, name: str = "") -> None:
        """Record that something has changed."""
        if not self._listening:
            return
        self._number += 1
        self._latest[kind, name] = self._number
        self._latest.move_to_end((kind, name))
        if len(self._latest) > MOST_KEPT:
            _, self._forgotten = self._latest.popitem(last=False)
        for news in self._news:
            news.set()

    @property
    def number(self) -> int:
        """The number of the latest change."""
        return self._number

    def since(self, number: int) -> tuple[int, News]:
        """Return the changes after ``number`` and the number of the last of them. Raises CursorExpired."""
        if number < self._forgotten:
            raise _too_old()
        newer: list[tuple[tuple[Kind, str], int]] = []
        for key, at in reversed(self._latest.items()):
            if at <= number:
                break
            newer.append((key, at))
        page = newer[::-1][:MOST_AT_ONCE]
        last = page[-1][1] if page else number
        changes = [facts for (kind, name), _ in page if (facts := self._facts(kind, name)) is not None]
        return last, News(self.cursor(last), changes)

    def cursor(self, number: int) -> str:
        """Return the cursor with which a reader can return."""
        return f"{self._begun}.{number}"

    async def close(self) -> None:
        """Stop observing."""
        self._stop()
        self._audit.appended = self._consent.changed = lambda: None
        for task in self._listening:
            task.cancel()
        if self._listening:
            await asyncio.wait(self._listening)

    def _number_of(self, cursor: str) -> int:
        begun, dot, number = cursor.partition(".")
        if not dot or not (number.isascii() and number.isdigit()) or len(number) > 18:
            raise InvalidArguments(
                "this is not a cursor of the change feed", fields={"cursor": "is not from the change feed"}
            )
        if begun != self._begun or not self._forgotten <= int(number) <= self._number:
            raise _too_old()
        return int(number)

    def _listen(self) -> None:
        changes = self._sessions.changes.watch(lambda spec: True, ("list", "state", "output"))
        self._stop = changes.close

        async def sessions() -> None:
            while changed := await changes.next():
                for change in changed:
                    self.record("session", change.session_id)
                    for command in change.commands - {"all"}:
                        self.record("command", f"{change.session_id} {command}")

        async def questions() -> None:
            while True:
                try:
                    async with asyncio.timeout(self._consent.next_expiry_seconds()):
                        await self._asked.wait()
                except TimeoutError:
                    pass  # one has expired
                self._asked.clear()
                self.record("questions")

        self._consent.changed = self._asked.set
        self._audit.appended = lambda: self.record("audit")
        self._listening = [asyncio.create_task(sessions()), asyncio.create_task(questions())]

    def _facts(self, kind: Kind, name: str) -> dict[str, Any] | None:
        """Return the thing's current state, or None if no reader needs it."""
        match kind:
            case "session":
                session = self._sessions.find(name)
                return {"kind": kind, "session_id": name, **(self._session(session) if session else {"gone": True})}
            case "command":
                session_id, _, command_id = name.partition(" ")
                return self._command(session_id, command_id)
            case "questions":
                return {"kind": kind, "open": [question.question_id for question in self._consent.pending()]}
            case "policy":
                return {"kind": kind, "mode": self._policy.mode, "policy_sha256": self._policy.digest}
            case "audit":
                seq, head = self._audit.head
                return {"kind": kind, "seq": seq, "head": head}

    def _session(self, session: Session) -> dict[str, Any]:
        spec, running = session.spec, session.running
        return {
            "name": self._masking.masked(spec.name),
            "state": str(session.state()),
            "rows": spec.rows,
            "cols": spec.cols,
            "end": session.log.end,
            "viewers": session.viewers,
            "typing_by": session.typist.who if session.typist else "",
            "running": running.record.command_id if running else "",
        }

    def _command(self, session_id: str, command_id: str) -> dict[str, Any] | None:
        session = self._sessions.find(session_id)
        running = session.running.record if session and session.running else None
        record = running if running and running.command_id == command_id else None
        if session and record is None:
            record = session.history.get(command_id)
        if record is None:
            return None
        facts = {"session_id": session_id, "command_id": command_id, "status": record.status}
        return {"kind": "command", **facts, "exit_code": record.exit_code}


class Reader:
    """A position in the feed from which changes are read. ``close`` it when done."""

    def __init__(self, feed: ChangeFeed, number: int, all_news: set[asyncio.Event], gap_seconds: float) -> None:
        self._feed = feed
        self._number = number
        self._gap_seconds = gap_seconds
        self._all_news = all_news
        self._news = asyncio.Event()
        self._due = 0.0
        self._closed = asyncio.Event()
        all_news.add(self._news)

    @property
    def cursor(self) -> str:
        """The cursor after what has been read."""
        return self._feed.cursor(self._number)

    async def next(self) -> News:
        """Return what has changed since, as soon as something has, but at most some times a second.

        Raises CursorExpired if the reader is too slow.
        """
        loop = asyncio.get_running_loop()
        with suppress(TimeoutError):  # a rate: sessions that print flat out change all the time
            async with asyncio.timeout_at(self._due):
                await self._closed.wait()
        while self._number == self._feed.number:
            self._news.clear()
            await self._news.wait()
        self._number, news = self._feed.since(self._number)
        self._due = loop.time() + self._gap_seconds
        return news

    def close(self) -> None:
        """Stop reading. May be called twice."""
        self._closed.set()
        self._all_news.discard(self._news)


def _too_old() -> CursorExpired:
    return CursorExpired(
        "the changes since this cursor are no longer stored",
        suggestion="request changes without a cursor and read everything again",
    )
