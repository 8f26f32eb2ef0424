"""Files of the system that are closed to other users but that a box of root's would leave readable."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from agentwire.system.path_patterns import parents
from ai_session.sandbox.workspace.directory_cache import DirectoryTree, Inner
from ai_session.sandbox.workspace.paths import absolute, join
from ai_session.system.directory_events import ATTRIB, LISTED

SYSTEM_DEPTH, SYSTEM_DIRECTORIES = 20, 10_000


class ClosedFiles:
    """Files below system directories that are closed to other users but that this user could read.

    They belong to root, so no permission would stop root inside a box. May be used by several threads.
    """

    def __init__(self, tops: Sequence[str] = ("/etc", "/opt")) -> None:
        self._trees = [
            DirectoryTree(top, _ClosedReader(), None, depth=SYSTEM_DEPTH, most=SYSTEM_DIRECTORIES) for top in tops
        ]
        self._lock = threading.Lock()

    def find(self) -> tuple[list[str], list[str]]:
        """Return the files and directories found, and those of the tops that are too large to be searched."""
        found: list[str] = []
        unknown: list[str] = []
        with self._lock:
            for tree in self._trees:
                tree.update()
                if tree.gaps.many or tree.gaps.deep:
                    unknown.append(tree.root)
                else:
                    found += [absolute(tree.root, path) for paths in tree.facts.values() for path in paths]
        # What is in a directory that has been closed meanwhile may still be known.
        whole = set(found)
        return [path for path in found if whole.isdisjoint(parents(path))], unknown

    def watch(self) -> None:
        """Let the kernel report changes from now on, as far as it can, also those of only a mode."""
        with self._lock:
            for tree in self._trees:
                tree.watch()
                tree.update()

    def close(self) -> None:
        """Stop the kernel's reports."""
        with self._lock:
            for tree in self._trees:
                tree.unwatch()


class _ClosedReader:
    """Finds what is closed to other users."""

    def read(self, fd: int, path: str, state: None) -> tuple[list[Inner[None]], tuple[str, ...] | None]:
        del state
        own = {os.getegid(), *os.getgroups()}
        inner: list[Inner[None]] = []
        found: list[str] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.is_symlink():
                    continue
                folder = entry.is_dir(follow_symlinks=False)
                try:
                    info = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                needed = 0o005 if folder else 0o004
                if info.st_mode & needed == needed:
                    if folder:
                        inner.append(Inner(entry.name, None))
                elif os.geteuid() in (0, info.st_uid) or info.st_gid in own:
                    found.append(join(path, entry.name))
        return inner, tuple(found) or None

    def matters(self, name: str, state: None, *, directory: bool) -> bool:
        del name, state, directory
        return True

    def mask(self, state: None, fact: tuple[str, ...] | None) -> int:
        del state, fact
        return LISTED | ATTRIB

    def lasts(self, state: None, fact: tuple[str, ...] | None) -> bool:
        del state, fact
        return True

    def shared(self, fact: tuple[str, ...] | None) -> tuple[str, ...]:
        del fact
        return ()
