"""Notices of changes in sessions, for watchers; without watchers, sessions are not inspected.

A change says that something is worth reading again, not what. The pending changes of a watcher are merged, so that a
slow one delays nothing and has at most one of each kind for each session.
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
"""The kinds that are not about events in a session."""

GAP_SECONDS = 0.25
"""The least time between two batches for one watcher, because a session that prints flat out wakes 10,000 times a
second. The first change after a quiet time is reported immediately."""


class Changes:
    """The changes that one watcher has not received yet. ``close`` it when the watcher has gone."""

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
        """Wait for changes, return all since the last batch, and none once closed. A cancelled wait loses none."""
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
    def watches_sessions(self) -> bool:
        """Whether it wants events in sessions. Most want changes of lists only."""
        return not self._kinds <= LISTS

    def close(self) -> None:
        """Stop receiving changes; a waiting ``next`` returns none. Idempotent."""
        if not self._closed.is_set():
            self._closed.set()
            self._news.set()
            self._ended(self)

    def add(self, change: Change, *specs: SessionSpec) -> None:
        """Store a change if this watcher wants its kind and sees a session with one of ``specs``."""
        if change.kind in self._kinds and any(self._sees(spec) for spec in specs):
            key = change.kind, change.session_id
            earlier = self._pending.get(key)
            self._pending[key] = earlier.merged(change) if earlier else change
            self._news.set()

    def check_tools(self) -> None:
        """Report a change of the tools that this watcher may use, if there is one."""
        if "tools" in self._kinds and (now := frozenset(self._tools())) != self._known:
            self._known = now
            self._pending["tools", ""] = Change("tools")
            self._news.set()


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The last inspected facts of a session, cheap to collect and compare because that happens at every wake-up."""

    end: int
    running: str
    last: str
    state: tuple[Any, ...]


class ChangeFeed:
    """The distribution of changes to watchers; a daemon has one for all its sessions."""

    def __init__(self, sessions: Callable[[], Iterable[Session]], gap_seconds: float = GAP_SECONDS) -> None:
        self._sessions = sessions
        self._gap_seconds = gap_seconds
        self._watchers: set[Changes] = set()
        self._inspecting = False
        self._seen: dict[str, _Evidence] = {}

    def __len__(self) -> int:
        """Return the number of watchers."""
        return len(self._watchers)

    def watch(
        self,
        sees: Callable[[SessionSpec], bool],
        kinds: Collection[ChangeKind] = KINDS,
        tools: Callable[[], Collection[str]] = tuple,
    ) -> Changes:
        """Return the changes from now on in sessions that the watcher ``sees``; ``tools`` names those it may use."""
        changes = Changes(sees, kinds, tools, self._leave, self._gap_seconds)
        if not self._inspecting and changes.watches_sessions:
            self._seen = {session.spec.session_id: _evidence(session) for session in self._sessions()}
            self._inspecting = True
        self._watchers.add(changes)
        return changes

    def look(self, session: Session) -> None:
        """Compare a session with its last facts and report what changed; called at each of its wake-ups."""
        if not self._inspecting:
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
            self._publish("output", spec, commands=frozenset(commands - {""}))
        if before is None or before.state != now.state or before.running != now.running or before.last != now.last:
            self._publish("state", spec)

    def follow(self, session: Session) -> None:
        """Report the changes of a session from now on."""
        session.watched = self.look

    def listed(self, spec: SessionSpec, *, before: SessionSpec | None = None) -> None:
        """Report a new session, or one whose spec was ``before``."""
        self._publish("list", spec, before or spec)
        self._publish("state", spec, before or spec)
        if before and before.name != spec.name:
            for kind in ("list", "state", "output"):
                self._publish(kind, before)

    def closed(self, session: Session) -> None:
        """Report that a session was closed, and stop inspecting it."""
        spec = session.spec
        session.watched = _ignore
        self._seen.pop(spec.session_id, None)
        for kind in ("list", "state", "output"):
            self._publish(kind, spec)

    def tools_changed(self) -> None:
        """Let each watcher check which tools it may use now."""
        for watcher in self._watchers:
            watcher.check_tools()

    def _publish(self, kind: ChangeKind, *specs: SessionSpec, commands: frozenset[str] = frozenset()) -> None:
        change = Change(kind, specs[0].session_id, specs[0].name, commands)
        for watcher in self._watchers:
            watcher.add(change, *specs)

    def _leave(self, changes: Changes) -> None:
        self._watchers.discard(changes)
        self._inspecting = any(watcher.watches_sessions for watcher in self._watchers)


def _ignore(_: Session) -> None:
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
