"""Watches the workspaces of boxed sessions while these live, and gives notice of what appears there.

The kernel says when something changed; what it is, is looked at in a thread, for a bounded time (and to the end of the
file that is being read then, which has a bounded size). Looks take a bounded
share of the time as well, so that a box that makes directories in a loop keeps nobody else waiting. What was known and
what was noticed outlive this process, for the next one to compare with.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ai_session.sandbox.workspace.notices import Found, Key, Notice, differences, found_in
from ai_session.sandbox.workspace.paths import shown
from ai_session.sandbox.workspace.words import Kind
from ai_session.sandbox.workspace.workspace import Workspace

LOOK_SECONDS = 0.2
"""Of one look; what it did not come to is left for the next one."""
GAP_SECONDS = 0.1
"""Least time between looks that nobody waits for. A rate."""
SHARE = 4
"""So many times the work of a look passes before the next one."""
BEHIND_SECONDS = 1.0
"""A look that is not done after this time is a notice itself."""
MOST_NOTICES = 200
"""Of one workspace; the last one says that there are more."""
EVENT = "workspace.notice"
SETTLED = frozenset[Kind](("repository", "settings", "changed", "exposed"))
"""What says enough of a path and of all below it; a gitlink leads elsewhere, and what is unseen may be seen later."""
BEHIND: tuple[Kind, str] = ("unseen", "")
MORE: tuple[Kind, str] = ("unseen", "further notices")

log = logging.getLogger(__name__)

Record = Callable[..., None]


@dataclass(slots=True)
class _Session:
    """How many notices there were before it began, and how many it has heard of."""

    since: int
    heard: int


class WorkspaceWatch:
    """One workspace. All methods belong to the event loop.

    ``known`` is what it held before the first box began; with ``restore`` what an earlier process kept in ``file`` is
    taken up instead, where there is something. ``command_of`` says which command a session runs, or has just run.
    ``renew`` protects again what lost its protection in a box, and returns its paths, relative to the root. ``record``
    is called once for each notice.
    """

    def __init__(
        self,
        workspace: Workspace,
        known: Found,
        file: Path,
        command_of: Callable[[str], str],
        renew: Callable[[], Awaitable[Iterable[str]]],
        record: Record,
        *,
        restore: bool = False,
    ) -> None:
        self.workspace = workspace
        self._file = file
        self._command_of = command_of
        self._renew = renew
        self._record = record
        self._known: Found = dict(known)
        self._now: Found = dict(known)
        self._notices: list[Notice] = []
        self._noticed: dict[str, Kind] = {}
        self._sessions: dict[str, _Session] = {}
        self._earlier: dict[str, _Session] = {}
        self._ended: dict[str, str] = {}
        if restore:
            self._restore()
        with workspace.counting:
            workspace.watchers += 1
        self._loop = asyncio.get_running_loop()
        self._look: asyncio.Task[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._reader = -1
        self._wanted = True
        self._changed = False
        """Since all that was exposed is protected again."""
        self._undone_since: float | None = None
        self._resume()

    def __len__(self) -> int:
        """How many sessions are in it."""
        return len(self._sessions)

    def add(self, session_id: str) -> None:
        """A session's box begins, or is taken up from an earlier process."""
        count = len(self._notices)
        self._sessions[session_id] = self._earlier.pop(session_id, None) or _Session(count, count)
        self._store()

    def remove(self, session_id: str) -> None:
        """Its box has ended."""
        self._sessions.pop(session_id, None)
        self._store()

    def notices(self, session_id: str) -> list[Notice]:
        """What appeared since that session began and is still there."""
        session = self._sessions.get(session_id)
        return self._latest(session.since) if session else []

    def news(self, session_id: str) -> list[Notice]:
        """What appeared since this was last asked."""
        session = self._sessions.get(session_id)
        if session is None or session.heard == len(self._notices):
            return []
        news = self._latest(session.heard)
        session.heard = len(self._notices)
        self._store()
        return news

    def _latest(self, since: int) -> list[Notice]:
        """What was noticed from that one on and is still there; of several of one kind for a path the last."""
        found = [one for one in self._notices[since:] if self._is_there(one)]
        return list({(one.kind, one.path): one for one in found}.values())

    async def settle(self, seconds: float, session_id: str = "", command_id: str = "") -> None:
        """Take in what has happened until now, for at most this long. ``command_id`` is of one that has just ended."""
        if self.workspace.tree.events is None:
            self._wanted = True
        # One that looks now may have taken what happened, and not said it yet.
        if self._look is None and not self._behind():
            return
        if command_id:
            self._ended[session_id] = command_id
        deadline = self._loop.time() + seconds
        try:
            # A look that continues may have begun before what is to be seen.
            for _ in range(2):
                if self._look is None and (not self._behind() or self._resting):
                    break
                await asyncio.wait((self._look or self._begin(),), timeout=max(0.0, deadline - self._loop.time()))
        finally:
            self._ended.pop(session_id, None)

    async def aclose(self, *, keep: bool = False) -> None:
        """Give the watches back; with ``keep`` what is known stays for the next process."""
        if self._look is not None:
            await asyncio.wait((self._look,))
        self._mute()
        if self._pause is not None:
            self._pause.cancel()
        await asyncio.to_thread(self.workspace.release)
        if not keep:
            self._file.unlink(missing_ok=True)

    def _behind(self) -> bool:
        """Whether there is something to look at. Without the kernel's help that is whenever somebody wants to know."""
        events = self.workspace.tree.events
        return self._wanted or (events is not None and events.pending())

    @property
    def _resting(self) -> bool:
        """After a look that took long, the next one has to wait."""
        return self._pause is not None and self._pause.when() - self._loop.time() > GAP_SECONDS

    def _resume(self) -> None:
        self._pause = None
        if self._look is not None:
            return
        if self._behind():
            self._begin()
        elif (events := self.workspace.tree.events) is not None and self._reader < 0:
            with suppress(OSError):  # closed meanwhile, for there are no more watches; or no more descriptors
                self._reader = events.reader()
                self._loop.add_reader(self._reader, self._begin)
                return
            self._wanted = True
            self._pause = self._loop.call_later(BEHIND_SECONDS, self._resume)

    def _mute(self) -> None:
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1

    def _begin(self) -> asyncio.Task[None]:
        self._mute()
        self._look = look = self._loop.create_task(self._look_once())
        return look

    async def _look_once(self) -> None:
        began, done, work = self._loop.time(), False, BEHIND_SECONDS / SHARE
        try:
            found = self._now
            try:
                done, found, work = await asyncio.to_thread(self._see)
            finally:
                self._undone_since = None if done else self._undone_since or began
                if self._undone_since is not None and self._loop.time() - self._undone_since > BEHIND_SECONDS:
                    found = {**found, BEHIND: ()}
                self._take(found, done=done)
            await self._protect_again()
        except (OSError, RuntimeError) as problem:
            # Such as no more descriptors, threads or processes: there is another look, as after any other one.
            done = False
            log.warning("workspace %s: %s", self.workspace.root, problem)
        finally:
            self._wanted = not done
            # Only now, for whoever waits for it reads the notices then.
            self._look = None
            if self._pause is not None:
                self._pause.cancel()
            self._pause = self._loop.call_later(max(GAP_SECONDS, work * SHARE), self._resume)

    def _see(self) -> tuple[bool, Found, float]:
        """Whether all was looked at, what there is, and the processor's time it took."""
        tree, before = self.workspace.tree, time.thread_time()
        with tree.lock:
            done = tree.look(until=time.monotonic() + LOOK_SECONDS)
            return done, found_in(self.workspace), time.thread_time() - before

    def _take(self, found: Found, *, done: bool) -> None:
        """Notices what is new."""
        before = len(self._notices)
        for kind, path in differences(self._known, found, self._noticed):
            # What is new is noticed once, whatever becomes of it; what a person made may be changed again and again.
            if path not in self._noticed or kind not in SETTLED or self._noticed[path] == kind == "changed":
                self._notice(kind, path)
        if found != self._now:
            self._changed = True
            # Not where a part was not looked at yet: what is gone and comes again is new.
            gone = self._now.keys() - found.keys() if done else ()
            self._known = {key: stamp for key, stamp in self._known.items() if key not in gone} | found
            self._now = found
        if len(self._notices) > before:
            self._store()

    async def _protect_again(self) -> None:
        """What was protected and is another one now."""
        if not self._changed:
            return
        before = len(self._notices)
        for path in await self._renew():
            if path not in self._noticed:
                self._notice("exposed", path)
        self._changed = False
        if len(self._notices) > before:
            self._store()

    def _notice(self, kind: Kind, path: str) -> None:
        if kind in SETTLED:
            self._noticed[path] = kind
        if len(self._notices) >= MOST_NOTICES:
            return
        if len(self._notices) == MOST_NOTICES - 1:
            # What comes after it is in no list, and in no record.
            kind, path = MORE
            self._now[MORE] = ()
        makers = self._ended | {one: command for one in self._sessions if (command := self._command_of(one))}
        makers = makers or dict.fromkeys(self._sessions, "")
        session, command = next(iter(makers.items())) if len(makers) == 1 else ("", "")
        notice = Notice(kind, path, time.time(), session, command)
        self._notices.append(notice)
        self._record(
            EVENT,
            kind=kind,
            path=shown(path),
            workspace=self.workspace.root,
            session=session or None,
            sessions=None if session else sorted(makers),
            command_id=command or None,
        )

    def _is_there(self, notice: Notice) -> bool:
        key: Key = (notice.kind, notice.path)
        return key in self._now or notice.kind in ("changed", "exposed") or key == MORE

    def _restore(self) -> None:
        """Takes up what an earlier process knew of this workspace."""
        try:
            kept: dict[str, Any] = json.loads(self._file.read_text())
            known: Found = {(kind, path): tuple(stamp) for kind, path, stamp in kept["known"]}
            notices = [Notice(**row) for row in kept["notices"]]
            sessions = {name: _Session(since, heard) for name, (since, heard) in kept["sessions"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return
        self._known = known
        self._notices = notices
        self._earlier = sessions
        self._noticed = {notice.path: notice.kind for notice in notices if notice.kind in SETTLED}

    def _store(self) -> None:
        facts = {
            "root": self.workspace.root,
            "known": [(kind, path, stamp) for (kind, path), stamp in self._known.items()],
            "notices": [asdict(notice) for notice in self._notices],
            "sessions": {name: (one.since, one.heard) for name, one in self._sessions.items()},
        }
        temporary = self._file.with_suffix(".new")
        with suppress(OSError):
            temporary.write_text(json.dumps(facts))
            temporary.rename(self._file)


def kept_in(runtime_directory: Path, root: str) -> Path:
    """Where what is known of a workspace outlives a daemon."""
    folder = runtime_directory / "workspaces"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:24]}.json"
