"""Files that are there whole or not at all, also where several processes write them at once, or are killed meanwhile.

A link at the path is not followed but replaced. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path


def create(path: Path, data: bytes, mode: int = 0o600) -> None:
    """A new file. Raises FileExistsError where there is something at ``path``, and OSError."""
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    with _written(path, data, mode) as written:
        os.link(written, path)


def replace(path: Path, data: bytes, mode: int = 0o600) -> None:
    """A new file in place of whatever is at ``path``. Raises OSError."""
    with _written(path, data, mode) as written:
        written.replace(path)


def exchange(path: Path, data: bytes, is_same: Callable[[], bool]) -> bool:
    """As ``replace``, with the mode that the file has, where it ``is_same``; and whether it was. No other process that
    calls this comes in between. Raises OSError, and what ``is_same`` raises."""
    with _written(path, data, 0o600) as written:
        turn = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if same := is_same():
                written.chmod(stat.S_IMODE(path.stat().st_mode))
                written.replace(path)
        finally:
            os.close(turn)
    return same


@contextmanager
def _written(path: Path, data: bytes, mode: int) -> Generator[Path]:
    """A file beside it with ``data``, which is removed if it is still there afterwards."""
    written = path.with_name(f".{path.name[:100]}.{os.urandom(8).hex()}")
    fd = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        yield written
    finally:
        with suppress(FileNotFoundError):
            written.unlink()
