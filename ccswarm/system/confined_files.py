"""Files in a directory that a program in a box may be changing: written, read and removed without leaving it.

Every step goes from an open directory to a name in it, and no link is followed: a link in the position of a file is
replaced. All functions block.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ccswarm.errors import WorkspaceUnusable

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
SHOWN_CHARS = 1000


def write_files(directory: Path, files: Mapping[str, str], mode: int = 0o644) -> None:
    """Write files atomically. Replaces links instead of following them and removes anything else that is in the way.
    Raises WorkspaceUnusable or OSError."""
    for name, content in files.items():
        *folders, last = Path(name).parts
        at = os.open(directory, FOLDER)
        try:
            for folder in folders:
                outer, at = at, _open_or_create(at, folder)
                os.close(outer)
            temporary = f".{secrets.token_hex(8)}.new"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, mode, dir_fd=at), "w", encoding="utf-8") as file:
                file.write(content)
            try:
                os.rename(temporary, last, src_dir_fd=at, dst_dir_fd=at)
            except IsADirectoryError:
                _remove(at, last)
                os.rename(temporary, last, src_dir_fd=at, dst_dir_fd=at)
        finally:
            os.close(at)


def open_directory(directory: Path) -> int:
    """Open an absolute directory without following any link on the way. Raises OSError. The caller that resolved the
    path gets exactly that directory or an error."""
    at = os.open("/", FOLDER)
    try:
        for name in directory.parts[1:]:
            outer, at = at, os.open(name, FOLDER, dir_fd=at)
            os.close(outer)
    except OSError:
        os.close(at)
        raise
    return at


@contextmanager
def pinned_path(directory: Path) -> Generator[str]:
    """Yield a path of exactly this absolute directory for a child process to start in. Raises OSError. On Linux the
    path stays valid whatever replaces the directory, and a link on the way is an error. Elsewhere it is ``directory``
    itself."""
    at = open_directory(directory)
    try:
        name = f"/proc/self/fd/{at}"
        yield name if os.path.isdir(name) else str(directory)
    finally:
        os.close(at)


def read_beginning(file: Path, most: int) -> tuple[bytes, int] | None:
    """Return a regular file's first ``most`` bytes and its size; None if unreadable or reached through a link."""
    try:
        at = open_directory(file.parent)
        try:
            opened = os.open(file.name, FILE, dir_fd=at)
        finally:
            os.close(at)
        with open(opened, "rb") as source:
            info = os.fstat(opened)
            return (source.read(most), info.st_size) if stat.S_ISREG(info.st_mode) else None
    except (OSError, ValueError):
        return None


def remove_tree(path: str | Path) -> None:
    """Remove a directory with its contents, however deep and whatever permissions an agent removed. No program may be
    working in it. Raises WorkspaceUnusable."""
    try:
        shutil.rmtree(path)
    except (OSError, RecursionError):
        env = {"PATH": os.defpath}
        subprocess.run(("chmod", "-R", "u+rwX", "--", path), capture_output=True, env=env)
        done = subprocess.run(("rm", "-rf", "--", path), capture_output=True, env=env)
        if done.returncode:
            errors = done.stderr.decode(errors="replace")[-SHOWN_CHARS:].strip()
            raise WorkspaceUnusable(f"{path} cannot be removed: {errors}", suggestion="remove it by hand") from None


def _open_or_create(at: int, name: str) -> int:
    """Open a directory below ``at``. Creates it, replacing anything else of that name."""
    try:
        return os.open(name, FOLDER, dir_fd=at)
    except OSError:
        _remove(at, name)
        os.mkdir(name, 0o700, dir_fd=at)
        return os.open(name, FOLDER, dir_fd=at)


def _remove(at: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        shutil.rmtree(name, dir_fd=at)
