"""Watches the workspaces of running boxed sessions and reports what appears there.

The kernel reports changes. A thread then scans for what has changed, for a limited time (and to the end of the file it
is reading, whose size is limited). Scans also take a limited share of the time, so that a box that makes directories in
a loop delays no other. What was known and reported is stored for the next process to compare with.
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
from ai_session.sandbox.workspace.paths import absolute, shown
from ai_session.sandbox.workspace.placeholders import Placeholders
from ai_session.sandbox.workspace.words import Kind
from ai_session.sandbox.workspace.workspace import Workspace

SCAN_SECONDS = 0.2
"""The time of one scan; what it did not reach is left for the next one."""
GAP_SECONDS = 0.1
"""The least time between scans for which no caller waits; it limits their rate."""
SHARE = 4
"""The next scan waits this many times as long as the last one took."""
BEHIND_SECONDS = 1.0
"""Scanning that is not complete after this time is a notice itself."""
MOST_NOTICES = 200
"""The maximum for one workspace; the last one says that there are more."""
EVENT = "workspace.notice"
SETTLED = frozenset[Kind](("repository", "settings", "changed", "exposed"))
"""The kinds of which one notice is enough for a path and all below it; a gitlink leads elsewhere, and what is unseen
may be seen later."""
BEHIND: tuple[Kind, str] = ("unseen", "")
MORE: tuple[Kind, str] = ("unseen", "further notices")

log = logging.getLogger(__name__)

Record = Callable[..., None]


@dataclass(slots=True)
class _Session:
    """The number of notices before the session began, and of those it has been given."""

    since: int
    given: int


class WorkspaceWatch:
    """The watch of one workspace. All methods must be called on the event loop.

    ``known`` is what the workspace contained before the first box began; with ``restore``, what an earlier process
    stored in ``file`` is used instead, if anything. Unchanged ``placeholders``, whichever box needs them, are no news.
    ``command_of`` returns the command a session runs or has just run.
    ``renew`` protects again what has lost its protection in a box and returns its paths, relative to the root.
    ``record`` is called once for each notice.
    """

    def __init__(
        self,
        workspace: Workspace,
        known: Found,
        file: Path,
        placeholders: Placeholders,
        command_of: Callable[[str], str],
        renew: Callable[[], Awaitable[Iterable[str]]],
        record: Record,
        *,
        restore: bool = False,
    ) -> None:
        self.workspace = workspace
        self._file = file
        self._placeholders = placeholders
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
        self._scan: asyncio.Task[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._reader = -1
        self._wanted = True
        self._changed = False
        """Whether something has changed since everything exposed was protected again."""
        self._incomplete_since: float | None = None
        self._unreported = False
        """Whether something can be put into a placeholder without a report of the kernel's."""
        self._resume()

    def __len__(self) -> int:
        """Return the number of sessions in the workspace."""
        return len(self._sessions)

    def add(self, session_id: str) -> None:
        """Add a session whose box begins, or continues from an earlier process."""
        count = len(self._notices)
        self._sessions[session_id] = self._earlier.pop(session_id, None) or _Session(count, count)
        self._store()

    def remove(self, session_id: str) -> None:
        """Remove a session whose box has ended."""
        self._sessions.pop(session_id, None)
        self._store()

    def notices(self, session_id: str) -> list[Notice]:
        """Return what has appeared since that session began and is still there."""
        session = self._sessions.get(session_id)
        return self._latest(session.since) if session else []

    def news(self, session_id: str) -> list[Notice]:
        """Return what has appeared since the session's last call and is still there."""
        session = self._sessions.get(session_id)
        if session is None or session.given == len(self._notices):
            return []
        news = self._latest(session.given)
        session.given = len(self._notices)
        self._store()
        return news

    def _latest(self, since: int) -> list[Notice]:
        """Return the notices from ``since`` on of what is still there; of several of one kind for a path, the last."""
        found = [one for one in self._notices[since:] if self._is_there(one)]
        return list({(one.kind, one.path): one for one in found}.values())

    async def settle(self, seconds: float, session_id: str = "", command_id: str = "") -> None:
        """Process what has happened until now, for at most this time. ``command_id`` is of a command that has just
        ended."""
        if self.workspace.tree.events is None or self._unreported:
            self._wanted = True
        # A running scan may have seen the change and not reported it yet.
        if self._scan is None and not self._behind():
            return
        if command_id:
            self._ended[session_id] = command_id
        deadline = self._loop.time() + seconds
        try:
            # The running scan may have started before the change.
            for _ in range(2):
                if self._scan is None and (not self._behind() or self._resting):
                    break
                await asyncio.wait((self._scan or self._begin(),), timeout=max(0.0, deadline - self._loop.time()))
        finally:
            self._ended.pop(session_id, None)

    async def aclose(self, *, keep: bool = False) -> None:
        """Stop watching; with ``keep``, what is known stays stored for the next process."""
        if self._scan is not None:
            await asyncio.wait((self._scan,))
        self._stop_listening()
        if self._pause is not None:
            self._pause.cancel()
        await asyncio.to_thread(self.workspace.release)
        if not keep:
            self._file.unlink(missing_ok=True)

    def _behind(self) -> bool:
        """Report whether a scan is due. Without the kernel's reports one always is when a caller wants to know."""
        events = self.workspace.tree.events
        return self._wanted or (events is not None and events.pending())

    @property
    def _resting(self) -> bool:
        """Whether the next scan must wait, because the last one took long."""
        return self._pause is not None and self._pause.when() - self._loop.time() > GAP_SECONDS

    def _resume(self) -> None:
        self._pause = None
        if self._scan is not None:
            return
        if self._behind():
            self._begin()
        elif (events := self.workspace.tree.events) is not None and self._reader < 0:
            with suppress(OSError):  # closed meanwhile for lack of watches, or out of descriptors
                self._reader = events.reader()
                self._loop.add_reader(self._reader, self._begin)
                return
            self._wanted = True
            self._pause = self._loop.call_later(BEHIND_SECONDS, self._resume)

    def _stop_listening(self) -> None:
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1

    def _begin(self) -> asyncio.Task[None]:
        self._stop_listening()
        self._scan = scan = self._loop.create_task(self._scan_once())
        return scan

    async def _scan_once(self) -> None:
        began, done, work = self._loop.time(), False, BEHIND_SECONDS / SHARE
        try:
            found = self._now
            try:
                done, found, work = await asyncio.to_thread(self._scan_tree)
            finally:
                self._incomplete_since = None if done else self._incomplete_since or began
                if self._incomplete_since is not None and self._loop.time() - self._incomplete_since > BEHIND_SECONDS:
                    found = {**found, BEHIND: ()}
                self._add_new(found, done=done)
            await self._protect_again()
        except (OSError, RuntimeError) as problem:
            # For example, out of descriptors, threads or processes: another scan follows, as after any other one.
            done = False
            log.warning("workspace %s: %s", self.workspace.root, problem)
        finally:
            self._wanted = not done
            # Only now, because callers that wait for the scan read the notices then.
            self._scan = None
            if self._pause is not None:
                self._pause.cancel()
            self._pause = self._loop.call_later(max(GAP_SECONDS, work * SHARE), self._resume)

    def _scan_tree(self) -> tuple[bool, Found, float]:
        """Scan and return whether it was complete, what there is, and the processor time it took in seconds."""
        tree, before = self.workspace.tree, time.thread_time()
        with tree.lock:
            done = tree.update(until=time.monotonic() + SCAN_SECONDS)
            found = found_in(self.workspace)
        found = self._without_placeholders(found)
        return done, found, time.thread_time() - before

    def _without_placeholders(self, found: Found) -> Found:
        """Leave out the placeholders that appeared, or that have disappeared since the scan because their box ended.

        They are never known, so that what a box puts into one that is not read-only there is noticed.
        """
        root = self.workspace.root
        new = {key: absolute(root, key[1]) for key in found if key[0] == "settings" and key not in self._known}
        if not new:
            self._unreported = False
            return found
        # In this order: the ledger's lock is held while placeholders are made or removed.
        ours = self._placeholders.unchanged(new.values())
        # Of directories beyond the limit, only the names are known.
        self._unreported = bool(ours) and self.workspace.tree.gaps.many
        gone = {key for key, path in new.items() if path in ours or not os.path.lexists(path)}
        return {key: stamp for key, stamp in found.items() if key not in gone}

    def _add_new(self, found: Found, *, done: bool) -> None:
        """Add a notice of everything new in ``found``."""
        before = len(self._notices)
        for kind, path in differences(self._known, found, self._noticed):
            # What is new is reported once, whatever happens to it; what a person made may be changed again and again.
            if path not in self._noticed or kind not in SETTLED or self._noticed[path] == kind == "changed":
                self._notice(kind, path)
        if found != self._now:
            self._changed = True
            # Not after an incomplete scan: something that disappears and comes back is new.
            gone = self._now.keys() - found.keys() if done else ()
            self._known = {key: stamp for key, stamp in self._known.items() if key not in gone} | found
            self._now = found
        if len(self._notices) > before:
            self._store()

    async def _protect_again(self) -> None:
        """Protect again whatever was replaced, and add notices of what had been exposed."""
        if not self._changed:
            return
        before = len(self._notices)
        if renewed := {absolute(self.workspace.root, path): path for path in await self._renew()}:
            # Another box made it again, and nothing has been put into it before it was protected here as well.
            ours = set[str]()
            with suppress(OSError):
                ours = await asyncio.to_thread(self._placeholders.unchanged, renewed)
            for path in (renewed[one] for one in renewed if one not in ours):
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
            # Further notices are neither listed nor recorded.
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
        """Load what an earlier process stored about this workspace."""
        try:
            stored: dict[str, Any] = json.loads(self._file.read_text())
            known: Found = {(kind, path): tuple(stamp) for kind, path, stamp in stored["known"]}
            notices = [Notice(**row) for row in stored["notices"]]
            sessions = {name: _Session(since, given) for name, (since, given) in stored["sessions"].items()}
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
            "sessions": {name: (one.since, one.given) for name, one in self._sessions.items()},
        }
        temporary = self._file.with_suffix(".new")
        with suppress(OSError):
            temporary.write_text(json.dumps(facts))
            temporary.rename(self._file)


def watch_file(runtime_directory: Path, root: str) -> Path:
    """Return the path of the file that keeps what is known of a workspace from one daemon to the next."""
    folder = runtime_directory / "workspaces"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:24]}.json"
