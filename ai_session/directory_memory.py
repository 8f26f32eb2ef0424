"""Walks directory trees and remembers them: a directory whose time of change is the same is not read again."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Fact = TypeVar("Fact")

MOST_TREES = 16
SETTLED_NS = 2_000_000_000
"""A directory read this soon after its last change may change again without a new time."""

Reader = Callable[[Iterable[os.DirEntry[str]], str], tuple[Iterable[str], Fact]]
"""From a directory's entries and its path: names of the directories to walk on into, and what is worth to know."""


@dataclass(frozen=True, slots=True)
class _Directory(Generic[Fact]):
    stamp: tuple[int, int, int]
    settled: bool
    inner: tuple[str, ...]
    fact: Fact


class DirectoryMemory(Generic[Fact]):
    """Facts about directories, as ``read`` gathers them. May be used by several threads.

    A fact about an entry's mode or content is as old as the last change of the directory's list of names.
    """

    def __init__(self, read: Reader[Fact], *, depth: int, most: int) -> None:
        self._read = read
        self._depth = depth
        self._most = most
        self._trees: OrderedDict[str, dict[str, _Directory[Fact]]] = OrderedDict()
        self._lock = threading.Lock()

    def walk(self, root: str) -> tuple[list[Fact], bool]:
        """Facts of all directories at and below ``root``, nearest first; whether the bounds left none out.

        Links are not followed; what cannot be read is left out. ``read`` may raise through this.
        """
        with self._lock:
            known = self._trees.pop(root, {})
        seen: dict[str, _Directory[Fact]] = {}
        queue = deque([(root, 0)])
        deeper = False
        while queue and len(seen) < self._most:
            path, depth = queue.popleft()
            directory = self._look(path, known.get(path))
            if directory is None:
                continue
            seen[path] = directory
            if depth < self._depth:
                queue.extend((f"{path.rstrip('/')}/{name}", depth + 1) for name in directory.inner)
            else:
                deeper = deeper or bool(directory.inner)
        with self._lock:
            self._trees[root] = seen
            while len(self._trees) > MOST_TREES:
                self._trees.popitem(last=False)
        return [directory.fact for directory in seen.values()], not queue and not deeper

    def _look(self, path: str, known: _Directory[Fact] | None) -> _Directory[Fact] | None:
        try:
            info = os.stat(path, follow_symlinks=False)
            stamp = (info.st_ino, info.st_mtime_ns, info.st_dev)
            if not stat.S_ISDIR(info.st_mode):
                return None
            if known is not None and known.settled and known.stamp == stamp:
                return known
            settled = time.time_ns() - info.st_mtime_ns > SETTLED_NS
            with os.scandir(path) as entries:
                inner, fact = self._read(entries, path)
        except OSError:
            # Gone meanwhile, or closed to this user and so to a box as well.
            return None
        return _Directory(stamp, settled, tuple(inner), fact)
