"""Directories that end with their process. What a killed process left of them, a later one removes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "ai-session-"
LONGEST_PARENT = 60
"""Bytes; with more the path of a socket in such a directory would be too long."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def trial_directory(kind: str) -> Generator[Path]:
    """A new private one, in which something is tried for a moment. Raises OSError."""
    for _ in abandoned(kind):
        pass
    path, lock = new_directory(kind)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def new_directory(kind: str, parent: str = "") -> tuple[Path, int]:
    """A new private one, and the descriptor that holds it until it is closed, or this process ends. Raises OSError."""
    from tempfile import mkdtemp  # takes 5 ms, and most processes get the result from others

    while True:
        path = mkdtemp(prefix=f"{PREFIX}{kind}-", dir=parent or _parent())
        lock = _locked(path, wait=True)
        if lock >= 0:
            return Path(path), lock
        # Another process took it for abandoned before it was locked.


def abandoned(kind: str, parent: str = "") -> Iterator[Path]:
    """Those that processes of this user's left when they were killed; each is removed once the next is asked for. None
    where the files of others cannot be listed."""
    where, names = parent or _parent(), list[str]()
    with suppress(PermissionError):
        names = os.listdir(where)
    for name in names:
        path = os.path.join(where, name)
        if not name.startswith(f"{PREFIX}{kind}-") or (lock := _locked(path, wait=False)) < 0:
            continue
        try:
            yield Path(path)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _parent() -> str:
    from tempfile import gettempdir

    found = gettempdir()
    return found if len(os.fsencode(found)) <= LONGEST_PARENT else "/tmp"


def _locked(path: str, *, wait: bool) -> int:
    """A descriptor that holds the lock which says that a directory is in use, until this process ends; -1 where
    somebody else holds it, it is not this user's, or has gone."""
    try:
        lock = os.open(path, _DIRECTORY)
    except OSError:
        return -1
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        found, ours = os.stat(path, follow_symlinks=False), os.fstat(lock)
        if os.path.samestat(found, ours) and ours.st_uid == os.geteuid():
            return lock
    except OSError:
        pass
    os.close(lock)
    return -1
