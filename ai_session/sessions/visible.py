"""The sessions that one caller sees: its own and those shared with it, by id or name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ai_session.errors import SessionNotFound
from ai_session.sandbox.boxes import Boxes
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.names import normalized
from ai_session.sessions.ownership import Visibility
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession
from ai_session.system.turns import Result, Steps


class VisibleSessions:
    """The sessions as tools see them: of other callers' sessions, not even the existence is revealed."""

    def __init__(self, manager: SessionManager, visibility: Visibility) -> None:
        self._manager = manager
        self._visibility = visibility

    @property
    def boxes(self) -> Boxes:
        """The boxes of all sessions."""
        return self._manager.boxes

    @property
    def audit_directory(self) -> Path:
        """The directory of the audit log."""
        return self._manager.runtime_directory / "audit"

    def all(self) -> list[Session]:
        """Return the sessions this caller sees, oldest first."""
        return [session for session in self._manager.all() if self._visibility.covers(session.spec)]

    def find(self, reference: str) -> Session | None:
        """Return the session of this id or name, first the caller's own; None unless one matches. Counts as its use."""
        found = self._manager.find(reference) or self._manager.named(self._visibility.owner, reference)
        if found is None:
            named = self._named(reference)
            found = named[0] if len(named) == 1 else None
        if found is None or not self._visibility.covers(found.spec):
            return None
        if not self._visibility.everything:
            found.touch()  # a person who views all sessions does not use them
        return found

    def own(self, name: str) -> Session | None:
        """Return the session that this caller opened under this name, or None."""
        return self._manager.named(self._visibility.owner, name)

    def get(self, reference: str) -> Session:
        """Return what ``find`` returns. Raises SessionNotFound, which names the existing sessions."""
        session = self.find(reference)
        if session is not None:
            return session
        named = self._named(reference)
        if named:
            matches = ", ".join(f"{s.spec.session_id} of {s.spec.owner or 'the user'}" for s in named[:10])
            raise SessionNotFound(f"{len(named)} sessions are named {reference!r}: {matches}", suggestion="use the id")
        if why := self._manager.why_closed(reference, self._visibility):
            raise SessionNotFound(
                f"session {reference[:80]!r} was closed: {why}", suggestion="create_session opens another"
            )
        known = ", ".join(repr(s.spec.name) for s in self.all()[:10])
        raise SessionNotFound(
            f"no session {reference[:80]!r}; open sessions: {known or 'none'}",
            suggestion="use one of these names, or call create_session" if known else "call create_session first",
        )

    async def work(self, steps: Steps[Result]) -> Result:
        """Do long work in steps, in turn with that of other callers, and return its result."""
        return await self._manager.turns.run(self._visibility.owner, steps)

    async def create(self, request: NewSession) -> Session:
        """Create a session that this caller owns. Raises what ``SessionManager.create`` raises."""
        return await self._manager.create(
            replace(request, owner=self._visibility.owner, person=self._visibility.person)
        )

    async def resize(self, session: Session, rows: int, cols: int) -> None:
        """Set the size in character cells. Raises SessionExited."""
        await self._manager.resize(session, rows, cols)

    async def close(self, session: Session) -> None:
        """End the session and everything that runs in it, and remove it."""
        await self._manager.close(session)

    def _named(self, name: str) -> list[Session]:
        return [session for session in self.all() if session.spec.name == normalized(name)]
