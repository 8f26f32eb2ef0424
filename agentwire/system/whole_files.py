"""Files that exist completely or not at all, also if several processes write them at once or are killed while writing.

A link at the path is replaced, not followed. Standard library only.
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
    """Create a file. Raises FileExistsError if there is anything at ``path``, and OSError."""
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    with _temporary(path, data, mode) as written:
        os.link(written, path)


def replace(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file in place of whatever is at ``path``. Raises OSError."""
    with _temporary(path, data, mode) as written:
        written.replace(path)


def exchange(path: Path, data: bytes, is_same: Callable[[], bool]) -> bool:
    """Replace a file like ``replace``, preserving its mode, if ``is_same`` returns true; report whether it did. Calls
    of this function by other processes do not interleave. Raises OSError, and what ``is_same`` raises."""
    with _temporary(path, data, 0o600) as written:
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
def _temporary(path: Path, data: bytes, mode: int) -> Generator[Path]:
    """Yield a temporary file with ``data`` in the same directory, which is removed afterwards if it still exists."""
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
