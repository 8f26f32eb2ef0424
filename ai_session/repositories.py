"""Finds the git repositories below a directory, and what in each decides which programs git runs.

The walk is bounded and remembered: a directory whose time of change is still the same is not read again.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from ai_session.errors import SandboxRefused

DEPTH = 8
MOST_DIRECTORIES = 20_000
MOST_TREES = 16
"""Directories walked into, per tree; trees remembered."""

SKIPPED = frozenset({"node_modules", ".venv", "target", "__pycache__"})
BARE = {"HEAD", "objects", "refs"}
DECIDING = ("config", "config.worktree", "hooks", "info", "modules", "commondir")
"""Of a repository: what names programs that git runs, or leads git to another repository's config."""
DECIDING_FOR_WORKTREE = ("commondir", "gitdir", "config.worktree")

SETTLED_NS = 2_000_000_000
"""A directory read this soon after its last change may change again without a new time."""
CONFIG_BYTES = 1 << 16

_SECTION = re.compile(r"\s*\[\s*([\w.-]+)")
_KEY = re.compile(r"\s*(hookspath|path)\s*=\s*\"?([^\"#;]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """``git`` are directories and files called ``.git``, and bare repositories; ``complete`` unless the walk hit its
    bound."""

    git: tuple[str, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class _Directory:
    stamp: tuple[int, int, int]
    inner: tuple[str, ...]
    git: str
    settled: bool


class Repositories:
    """Remembers trees between looks. May be used by several threads."""

    def __init__(self) -> None:
        self._trees: OrderedDict[str, dict[str, _Directory]] = OrderedDict()
        self._lock = threading.Lock()

    def below(self, root: str) -> Found:
        """Every repository at or below ``root``, nearest first. Raises SandboxRefused for a ``.git`` that is a link."""
        with self._lock:
            known = self._trees.pop(root, {})
        seen: dict[str, _Directory] = {}
        found: list[str] = []
        queue = deque([(root, 0)])
        while queue and len(seen) < MOST_DIRECTORIES:
            path, depth = queue.popleft()
            directory = _look(path, known.get(path))
            if directory is None:
                continue
            seen[path] = directory
            if directory.git:
                found.append(directory.git)
            if depth < DEPTH:
                queue.extend((f"{path.rstrip('/')}/{name}", depth + 1) for name in directory.inner)
        with self._lock:
            self._trees[root] = seen
            while len(self._trees) > MOST_TREES:
                self._trees.popitem(last=False)
        return Found(tuple(found), not queue)


def _look(path: str, known: _Directory | None) -> _Directory | None:
    try:
        info = os.stat(path, follow_symlinks=False)
        stamp = (info.st_ino, info.st_mtime_ns, info.st_dev)
        if not stat.S_ISDIR(info.st_mode):
            return None
        if known is not None and known.settled and known.stamp == stamp:
            return known
        return _read(path, stamp)
    except OSError:
        # Gone meanwhile, or closed to this user and so to the box as well.
        return None


def _read(path: str, stamp: tuple[int, int, int]) -> _Directory:
    settled = time.time_ns() - stamp[1] > SETTLED_NS
    names: set[str] = set()
    inner: list[str] = []
    git = ""
    with os.scandir(path) as entries:
        for entry in entries:
            names.add(entry.name)
            if entry.name == ".git":
                if entry.is_symlink():
                    raise SandboxRefused(
                        f"{entry.path!r} is a symbolic link and cannot be protected",
                        suggestion="put the repository itself there, or choose another workspace",
                    )
                git = entry.path
            elif entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED:
                inner.append(entry.name)
    if not git and names >= BARE:
        return _Directory(stamp, (), path, settled)
    return _Directory(stamp, tuple(inner), git, settled)


def is_repository(git: str) -> bool:
    """Whether git would take the directory for a repository's."""
    return os.path.isfile(f"{git}/HEAD")


def deciding(git: str) -> Iterator[str]:
    """What exists of a repository that decides about programs; all of it where it is a file or no whole repository."""
    if not os.path.isdir(git) or not is_repository(git):
        yield git
        return
    for name in DECIDING:
        if os.path.lexists(f"{git}/{name}"):
            yield f"{git}/{name}"
    with suppress(OSError):
        for tree in sorted(os.listdir(f"{git}/worktrees")):
            for name in DECIDING_FOR_WORKTREE:
                if os.path.lexists(path := f"{git}/worktrees/{tree}/{name}"):
                    yield path


def absent(git: str) -> Iterator[tuple[str, bytes | None]]:
    """What a repository lacks and must not get from inside: path, and a file's harmless content (None: a directory).

    A ``commondir`` of one line makes git take config and hooks from anywhere; ``../.git`` leads back to the repository.
    """
    if not os.path.isdir(git) or not is_repository(git):
        return
    if not os.path.lexists(f"{git}/commondir"):
        yield f"{git}/commondir", f"../{os.path.basename(git)}\n".encode()
    for name in ("hooks", "info"):
        if not os.path.lexists(f"{git}/{name}"):
            yield f"{git}/{name}", None
    if not os.path.lexists(f"{git}/config.worktree") and "worktreeconfig" in _config(git).lower():
        yield f"{git}/config.worktree", b""


def named_by_config(git: str, home: str) -> Iterator[str]:
    """Paths that the repository's config leads git to: included files and the directory of hooks."""
    section = ""
    top = os.path.dirname(git) if os.path.basename(git) == ".git" else git
    for line in _config(git).splitlines():
        if match := _SECTION.match(line):
            section = match[1].lower()
            line = line.partition("]")[2]
        if match := _KEY.match(line):
            key, value = match[1].lower(), match[2].strip()
            if value.startswith("~/"):
                value = os.path.join(home, value[2:])
            if key == "hookspath" and section == "core":
                yield os.path.normpath(os.path.join(top, value))
            elif key == "path" and section in ("include", "includeif"):
                yield os.path.normpath(os.path.join(git, value))


def _config(git: str) -> str:
    try:
        with open(f"{git}/config", "rb") as file:
            return file.read(CONFIG_BYTES).decode(errors="replace")
    except OSError:
        return ""
