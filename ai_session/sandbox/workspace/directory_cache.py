"""Walks directory trees and caches them: an unchanged directory is not read again.

Every directory is opened without following links, so that what is read is inside the tree, whatever another process
that may write to it does meanwhile.
"""

from __future__ import annotations

import errno
import heapq
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Generic, NamedTuple, Protocol, TypeVar

from ai_session.system.directory_events import APPEARED, ATTRIB, CONTENT, DirectoryEvents, TooManyWatches
from ai_session.system.paths_without_links import DIRECTORY, open_beneath

State = TypeVar("State")
Fact = TypeVar("Fact")

SETTLED_NS = 2_000_000_000
"""A directory read this soon after its last change may change again without a new timestamp."""
MOST_NAMED = 20
"""The number of unreadable or too deep directories that are named."""

_FILE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ESTALE, errno.EXDEV)


class Reader(Protocol[State, Fact]):
    """What is to be known of directories. ``path`` is relative to the tree's root, which is ``""``; ``state`` is what
    the reader of the directory above said about it."""

    def read(self, fd: int, path: str, state: State) -> tuple[Iterable[Inner[State]], Fact | None]:
        """Read an open directory: return the directories to walk into, and what to know of it. May raise OSError."""
        ...

    def matters(self, name: str, state: State, *, directory: bool) -> bool:
        """Report whether a directory in this state must be read again after this name appeared or changed."""
        ...

    def mask(self, state: State, fact: Fact | None) -> int:
        """Return which changes the kernel is to report of a directory of which ``fact``, or nothing yet, is known."""
        ...

    def lasts(self, state: State, fact: Fact | None) -> bool:
        """Report whether what is known is valid as long as the directory's list of names is unchanged."""
        ...

    def shared(self, fact: Fact | None) -> Iterable[str]:
        """Return the names of files that must be watched themselves, because they can change under another name."""
        ...


class Inner(NamedTuple, Generic[State]):
    """A directory to walk into; a ``late`` one after all others, and one that is ``part`` of what was found at any
    depth."""

    name: str
    state: State
    late: bool = False
    part: bool = False


@dataclass(frozen=True, slots=True)
class Gaps:
    """What was not scanned: ``many`` directories beyond the limit, some of those too deep, and some of those closed to
    their owner."""

    many: bool = False
    deep: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.many or bool(self.deep) or bool(self.closed)


class _Directory(NamedTuple, Generic[State]):
    identity: tuple[int, int]
    changed_ns: int
    settled: bool
    state: State
    inner: tuple[Inner[State], ...]
    watch: int


class _Due(NamedTuple, Generic[State]):
    """A directory to be scanned, and if ``deep``, what is below it as well. The least is next."""

    late: bool
    depth: int
    turn: int
    path: str
    state: State
    deep: bool


class DirectoryTree(Generic[State, Fact]):
    """One tree. ``facts`` has, by path, those of directories that have one.

    May be used by several threads, one at a time: take ``lock``. Changes are detected by the ctime, which, unlike the
    mtime, the owner of a directory cannot set.
    """

    def __init__(
        self,
        root: str,
        reader: Reader[State, Fact],
        start: State,
        *,
        depth: int,
        most: int,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.root = root
        self.lock = threading.RLock()
        self.facts: dict[str, Fact] = {}
        self.events: DirectoryEvents | None = None
        self._reader = reader
        self._start = start
        self._depth = depth
        self._most = most
        self._clock = clock
        self._directories: dict[str, _Directory[State]] = {}
        self._watched: dict[int, str] = {}
        self._queue: list[_Due[State]] = []
        self._turns = count()
        self._beyond = False
        self._deep: dict[str, None] = {}
        self._closed: dict[str, None] = {}
        self._fd = -1

    @property
    def gaps(self) -> Gaps:
        """What the last scan left out."""
        deep, closed = (tuple(list(paths)[:MOST_NAMED]) for paths in (self._deep, self._closed))
        return Gaps(self._beyond, deep, closed)

    def __len__(self) -> int:
        """Return the number of known directories."""
        return len(self._directories)

    def watch(self) -> bool:
        """Let the kernel report changes from the next scan on, while it has watches; return whether it does."""
        if self.events is None:
            with suppress(OSError):
                self.events = DirectoryEvents()
                self._scan_all()
        return self.events is not None

    def unwatch(self) -> None:
        """Stop the kernel's reports. What is known stays and is compared at the next scan."""
        if self.events is not None:
            self.events.close()
            self.events = None
        self._watched.clear()

    def update(self, until: float = float("inf")) -> bool:
        """Bring what is known up to date. Returns False if ``until``, in monotonic seconds, was reached before.

        Raises what the reader raises.
        """
        try:
            self._fd = os.open(self.root, os.O_PATH | DIRECTORY if sys.platform == "linux" else DIRECTORY)
        except OSError as problem:
            if problem.errno not in _GONE:
                raise
            self._drop("")
            self._queue.clear()
            return True
        try:
            if self.events is None:
                self._scan_all()
            else:
                self._read_events()
            while self._queue:
                if time.monotonic() >= until:
                    return False
                self._scan(heapq.heappop(self._queue))
            return True
        finally:
            os.close(self._fd)

    def reread(self, paths: Iterable[str]) -> None:
        """Let the next scan read these directories again, because the reader has changed."""
        for path in paths:
            if path in self._directories:
                known = self._directories[path]
                self._directories[path] = known._replace(settled=False)
                self._enqueue(path, known.state)

    def reread_below(self, path: str) -> None:
        """Do the same for all known directories at and below a path."""
        top = f"{path}/" if path else ""
        self.reread([known for known in self._directories if known == path or known.startswith(top)])

    def _scan_all(self) -> None:
        if not any(due.path == "" and due.deep for due in self._queue):
            self._beyond = False
            self._enqueue("", self._start, deep=True)

    def _enqueue(self, path: str, state: State, *, late: bool = False, deep: bool = False) -> None:
        depth = path.count("/") + 1 if path else 0
        heapq.heappush(self._queue, _Due(late, depth, next(self._turns), path, state, deep))

    def _read_events(self) -> None:
        assert self.events is not None
        events, whole = self.events.read()
        again: dict[str, State] = {}
        for event in events:
            path = self._watched.get(event.watch)
            if path is None:
                continue
            if event.gone:
                del self._watched[event.watch]
                if path in self._directories and self._directories[path].watch == event.watch:
                    self._drop(path)
                continue
            known = self._directories.get(path)
            if known is None:
                continue
            inner = f"{path}/{event.name}" if path else event.name
            if not event.name or (event.mask & ATTRIB and inner in self._closed):
                again[path] = known.state
            elif self._reader.matters(event.name, known.state, directory=event.directory):
                again[path] = known.state
                if event.directory and inner in self._directories:
                    again[inner] = self._directories[inner].state
        for path, state in again.items():
            if path in self._directories:
                self._directories[path] = self._directories[path]._replace(settled=False)
            self._enqueue(path, state)
        if not whole or (self._beyond and len(self._directories) < self._most):
            self._scan_all()

    def _scan(self, due: _Due[State]) -> None:
        path = due.path
        known = self._directories.get(path)
        if known is None and len(self._directories) >= self._most:
            self._beyond = True
            return
        found = self._read(path, due.state, known)
        if found is None:
            self._drop(path)
            return
        names = {inner.name: inner.state for inner in found.inner}
        for inner in known.inner if known is not None else ():
            if known is not None and (known.identity != found.identity or names.get(inner.name) != inner.state):
                self._drop(f"{path}/{inner.name}" if path else inner.name)
        self._directories[path] = found
        self._deep.pop(path, None)
        for closed in [one for one in self._closed if one.rpartition("/")[0] == path]:
            if closed.rpartition("/")[2] not in names:
                del self._closed[closed]
        for inner in found.inner:
            if due.depth >= self._depth and not inner.part:
                self._deep[path] = None
                continue
            below = f"{path}/{inner.name}" if path else inner.name
            if due.deep or below not in self._directories:
                self._enqueue(below, inner.state, late=inner.late, deep=due.deep)

    def _read(self, path: str, state: State, known: _Directory[State] | None) -> _Directory[State] | None:
        if self.events is None and known is not None and known.settled and known.state == state:
            with suppress(OSError):
                info = os.stat(f"{self.root}/{path}", follow_symlinks=False)
                if (info.st_ino, info.st_dev) == known.identity and info.st_ctime_ns == known.changed_ns:
                    return known
        try:
            fd = self._open(path)
        except OSError as problem:
            if problem.errno not in _GONE:
                # Such as out of descriptors, which says nothing about the directory.
                raise
            if problem.errno == errno.EACCES and self._own(path):
                # It is closed to a box as well, which may open it again.
                self._add_closed(path)
            return None
        try:
            mask = self._reader.mask(state, self.facts.get(path))
            watch = self._watch(fd, path, mask)
            info = os.fstat(fd)
            identity = (info.st_ino, info.st_dev)
            if (
                known is not None
                and known.settled
                and (known.identity, known.changed_ns, known.state) == (identity, info.st_ctime_ns, state)
            ):
                return _Directory(identity, info.st_ctime_ns, True, state, known.inner, watch)
            inner, fact = self._reader.read(fd, path, state)
            if self.events is not None and (wanted := self._reader.mask(state, fact)) & ~mask:
                # Read once more, because it may have changed before that was reported.
                watch = self._watch(fd, path, wanted)
                inner, fact = self._reader.read(fd, path, state)
            self._watch_files(fd, path, self._reader.shared(fact))
            settled = self._reader.lasts(state, fact) and self._clock() - info.st_ctime_ns > SETTLED_NS
        finally:
            os.close(fd)
        self._closed.pop(path, None)
        if fact is not None:
            self.facts[path] = fact
        else:
            self.facts.pop(path, None)
        return _Directory(identity, info.st_ctime_ns, settled, state, tuple(inner), watch)

    def _watch(self, fd: int, path: str, mask: int) -> int:
        if self.events is None:
            return -1
        try:
            watch = self.events.add(fd, mask)
        except TooManyWatches:
            # Other programs need watches too. From now on everything is scanned each time.
            self.unwatch()
            self._scan_all()
            return -1
        before = self._watched.get(watch)
        self._watched[watch] = path
        known = self._directories.get(before) if before is not None and before != path else None
        if before is not None and known is not None and known.watch == watch:
            # It was moved and was known under another name.
            self._drop(before)
        return watch

    def _watch_files(self, folder: int, path: str, names: Iterable[str]) -> None:
        if self.events is None:
            return
        for name in names:
            with suppress(OSError):
                fd = os.open(name, _FILE, dir_fd=folder)
                try:
                    self._watched.setdefault(self.events.add(fd, CONTENT), path)
                finally:
                    os.close(fd)

    def _own(self, path: str) -> bool:
        outer, _, name = path.rpartition("/")
        with suppress(OSError):
            fd = self._open(outer)
            try:
                return os.stat(name, dir_fd=fd, follow_symlinks=False).st_uid == os.geteuid()
            finally:
                os.close(fd)
        return False

    def _add_closed(self, path: str) -> None:
        """Watch the directory around a closed one, so that it is read again once it is opened."""
        self._closed[path] = None
        if self.events is not None:
            with suppress(OSError):
                fd = self._open(path.rpartition("/")[0])
                try:
                    self.events.add(fd, APPEARED | ATTRIB)
                finally:
                    os.close(fd)

    def _drop(self, path: str) -> None:
        waiting = [path]
        while waiting:
            path = waiting.pop()
            self.facts.pop(path, None)
            self._deep.pop(path, None)
            known = self._directories.pop(path, None)
            if known is None:
                continue
            if self._watched.get(known.watch) == path:
                del self._watched[known.watch]
                if self.events is not None:
                    self.events.remove(known.watch)
            waiting += [f"{path}/{inner.name}" if path else inner.name for inner in known.inner]

    def _open(self, path: str) -> int:
        """Open a directory in the tree without following links. Raises OSError."""
        return open_beneath(self._fd, os.fsencode(path))
