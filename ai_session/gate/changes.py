"""What callers may use, and the gate's door for whoever wants to hear when something is worth reading again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ai_session.gate.feed import Feed, Reader
from ai_session.gate.person import Doors
from ai_session.gate.policy.policy import Action
from ai_session.models import Effect, Principal
from ai_session.sessions.changes import KINDS, LISTS, Changes, Kind
from ai_session.sessions.ownership import reach_of, require_scope
from ai_session.tools.base import Tool

WATCH = "watch_changes"


class ChangeDoor(Doors):
    """Lets callers list and watch, each what it sees. ``_tools`` are all there are, by name."""

    _tools: Mapping[str, Tool]
    feed: Feed

    async def follow_changes(self, principal: Principal, cursor: str = "") -> Reader:
        """All that changes, for a person, from now on or since ``cursor``. Raises CursorExpired, InvalidArguments,
        Denied."""
        async with self._recorded(principal, WATCH, Effect.READ, {}):
            return self.feed.reader(cursor)

    async def list_tools(self, principal: Principal, also: Collection[str] = ()) -> Sequence[Tool]:
        """The tools that are listed, or named by ``also``, and that this principal may ever use, sorted by name."""
        return self._listed(principal, also)

    def _listed(self, principal: Principal, also: Collection[str] = ()) -> list[Tool]:
        listed = (tool for tool in self._tools.values() if tool.listed or tool.name in also)
        return [t for t in listed if not self._policy.rules_out(Action(principal, t.name, t.effect))]

    async def watch_changes(
        self, principal: Principal, agent: str = "", run: str = "", kinds: Collection[Kind] | None = None
    ) -> Changes:
        """What changes from now on in the sessions this caller sees. Recorded, unless it is only about what is listed.

        Raises InsufficientScope, Denied, RateLimited, StorageFull.
        """
        require_scope(principal, WATCH, Effect.READ)
        kinds = KINDS if kinds is None else kinds
        if LISTS.issuperset(kinds):
            return self._changes(principal, agent, run, kinds)
        async with self._recorded(principal, WATCH, Effect.READ, {}, anyone=True, agent=agent):
            return self._changes(principal, agent, run, kinds)

    def _changes(self, principal: Principal, agent: str, run: str, kinds: Collection[Kind]) -> Changes:
        def tools() -> list[str]:
            return [tool.name for tool in self._listed(principal)]

        return self._sessions.changes.watch(reach_of(principal, run, agent).covers, kinds, tools)
