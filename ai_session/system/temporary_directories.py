"""Directories that are removed with their process; those of a killed process are removed by a later one."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "ai-session-"
LONGEST_PARENT = 60
"""The longest parent in bytes; the path of a socket in a directory below a longer one would be too long."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def trial_directory(kind: str) -> Generator[Path]:
    """Yield a new private directory for a short experiment. Raises OSError."""
    for _ in abandoned(kind):
        pass
    path, lock = new_directory(kind)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def new_directory(kind: str, parent: str = "") -> tuple[Path, int]:
    """Return a new private directory, and a descriptor that reserves it while it is open. Raises OSError."""
    from tempfile import mkdtemp  # takes 5 ms, and most processes get the result from others

    while True:
        path = mkdtemp(prefix=f"{PREFIX}{kind}-", dir=parent or _parent())
        lock = _lock(path, wait=True)
        if lock >= 0:
            return Path(path), lock
        # Another process considered it abandoned before it was locked.


def abandoned(kind: str, parent: str = "") -> Iterator[Path]:
    """Yield the directories that killed processes of this user left; each is removed once the next is requested. Yields
    none if ``parent`` cannot be listed."""
    where, names = parent or _parent(), list[str]()
    with suppress(PermissionError):
        names = os.listdir(where)
    prefix = f"{PREFIX}{kind}-"
    for name in names:
        if not name.startswith(prefix) or (lock := _lock(path := os.path.join(where, name), wait=False)) < 0:
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


def _lock(path: str, *, wait: bool) -> int:
    """Return a descriptor with the lock that marks a directory as in use until this process ends; -1 if another process
    has the lock, or the directory is not this user's or was removed."""
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
