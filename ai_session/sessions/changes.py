"""What changed in which session, for whoever watches; nothing is looked at while nobody does.

A change says that something is worth reading again, not what it is. While a watcher is busy elsewhere its changes are
merged, so that a slow one holds back nobody and keeps no more than one of each kind for each session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from ai_session.models import Change, ChangeKind, SessionSpec

if TYPE_CHECKING:
    from ai_session.sessions.session import Session

KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)
LISTS: frozenset[ChangeKind] = frozenset(("list", "tools"))
"""Those that say nothing of what happens in a session."""

GAP_SECONDS = 0.25
"""Least time between two answers to one watcher. A rate: a session that prints flat out wakes 10,000 times a second.
The first change after a quiet time is reported immediately."""


class Changes:
    """What one watcher has not heard of yet. ``close`` it when it hears no more."""

    def __init__(
        self,
        sees: Callable[[SessionSpec], bool],
        kinds: Collection[ChangeKind],
        tools: Callable[[], Collection[str]],
        ended: Callable[[Changes], None],
        gap_seconds: float,
    ) -> None:
        self._sees = sees
        self._kinds = frozenset(kinds)
        self._tools = tools
        self._ended = ended
        self._gap_seconds = gap_seconds
        self._due = 0.0
        self._known = frozenset[str](tools() if "tools" in kinds else ())
        self._pending: dict[tuple[ChangeKind, str], Change] = {}
        self._news = asyncio.Event()
        self._closed = asyncio.Event()

    async def next(self) -> frozenset[Change]:
        """All that changed since the last answer, as soon as there is something and a quarter of a second has passed
        since then; nothing once closed. A wait that is cancelled loses nothing."""
        loop = asyncio.get_running_loop()
        if not self._closed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._due):
                    await self._closed.wait()
            await self._news.wait()
        self._due = loop.time() + self._gap_seconds
        batch = frozenset(() if self._closed.is_set() else self._pending.values())
        self._pending.clear()
        if not self._closed.is_set():
            self._news.clear()
        return batch

    @property
    def near(self) -> bool:
        """Whether it hears of what happens in sessions, and not of lists only, as most do."""
        return not self._kinds <= LISTS

    def close(self) -> None:
        """Hear no more; a waiting ``next`` returns nothing. Idempotent."""
        if not self._closed.is_set():
            self._closed.set()
            self._news.set()
            self._ended(self)

    def add(self, change: Change, *specs: SessionSpec) -> None:
        """Keep a change of a session that is, or was, as one of ``specs``, where this watcher wants and sees it."""
        if change.kind in self._kinds and any(self._sees(spec) for spec in specs):
            key = change.kind, change.session_id
            earlier = self._pending.get(key)
            self._pending[key] = earlier.merged(change) if earlier else change
            self._news.set()

    def look_at_tools(self) -> None:
        """Other tools may be usable now."""
        if "tools" in self._kinds and (now := frozenset(self._tools())) != self._known:
            self._known = now
            self._pending["tools", ""] = Change("tools")
            self._news.set()


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What was last seen of a session: cheap to take and to compare, since it is taken at every wake-up."""

    end: int
    running: str
    last: str
    state: tuple[Any, ...]


class ChangeFeed:
    """Events of sessions and their watchers. One for all sessions of a daemon."""

    def __init__(self, sessions: Callable[[], Iterable[Session]], gap_seconds: float = GAP_SECONDS) -> None:
        self._sessions = sessions
        self._gap_seconds = gap_seconds
        self._watchers: set[Changes] = set()
        self._near = False
        self._seen: dict[str, _Evidence] = {}

    def __len__(self) -> int:
        """How many watch."""
        return len(self._watchers)

    def watch(
        self,
        sees: Callable[[SessionSpec], bool],
        kinds: Collection[ChangeKind] = KINDS,
        tools: Callable[[], Collection[str]] = tuple,
    ) -> Changes:
        """Changes from now on of the sessions that the watcher ``sees``; ``tools`` names those it may use."""
        changes = Changes(sees, kinds, tools, self._leave, self._gap_seconds)
        if not self._near and changes.near:
            self._seen = {session.spec.session_id: _evidence(session) for session in self._sessions()}
            self._near = True
        self._watchers.add(changes)
        return changes

    def look(self, session: Session) -> None:
        """Something happened in this session; called at each of its wake-ups."""
        if not self._near:
            return
        spec = session.spec
        before, now = self._seen.get(spec.session_id), _evidence(session)
        if now == before:
            return
        self._seen[spec.session_id] = now
        commands = {"all", now.running}
        if before:
            commands |= {before.running} | ({now.last} if now.last != before.last else set())
        if before is None or before.end != now.end or before.running != now.running or before.last != now.last:
            self._tell("output", spec, commands=frozenset(commands - {""}))
        if before is None or before.state != now.state or before.running != now.running or before.last != now.last:
            self._tell("state", spec)

    def follow(self, session: Session) -> None:
        """Listen to a session."""
        session.watched = self.look

    def listed(self, spec: SessionSpec, *, before: SessionSpec | None = None) -> None:
        """A session came, or is another one than ``before``."""
        self._tell("list", spec, before or spec)
        self._tell("state", spec, before or spec)
        if before and before.name != spec.name:
            for kind in ("list", "state", "output"):
                self._tell(kind, before)

    def gone(self, session: Session) -> None:
        """A session went; it is listened to no more."""
        spec = session.spec
        session.watched = _nobody
        self._seen.pop(spec.session_id, None)
        for kind in ("list", "state", "output"):
            self._tell(kind, spec)

    def tools_changed(self) -> None:
        """Others may be usable now."""
        for watcher in self._watchers:
            watcher.look_at_tools()

    def _tell(self, kind: ChangeKind, *specs: SessionSpec, commands: frozenset[str] = frozenset()) -> None:
        change = Change(kind, specs[0].session_id, specs[0].name, commands)
        for watcher in self._watchers:
            watcher.add(change, *specs)

    def _leave(self, changes: Changes) -> None:
        self._watchers.discard(changes)
        self._near = any(watcher.near for watcher in self._watchers)


def _nobody(_: Session) -> None:
    pass


def _evidence(session: Session) -> _Evidence:
    spec = session.spec
    at = session.at
    running = session.running
    last = session.history.last
    state = (session.exit, at.up, at.ready, at.cwd, at.human_line, session.viewers, session.typist)
    size = (spec.rows, spec.cols)
    return _Evidence(
        session.log.end, running.record.command_id if running else "", last.command_id if last else "", state + size
    )
