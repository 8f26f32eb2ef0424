"""Files in a directory that a program in a box may be changing: written, read and removed without leaving it.

Every step is taken from an open directory to a name in it, and no link is followed: one that stands where a file
belongs is replaced. Functions block.
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


def put(directory: Path, files: Mapping[str, str], mode: int = 0o644) -> None:
    """Write files, whole or not at all, whatever is there: links are replaced and never followed, what else is in the
    way is removed. Raises WorkspaceUnusable, OSError."""
    for name, content in files.items():
        *folders, last = Path(name).parts
        at = os.open(directory, FOLDER)
        try:
            for folder in folders:
                outer, at = at, _folder(at, folder)
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


def walked(directory: Path) -> int:
    """An absolute directory, opened without following a link anywhere on the way: whoever found where it leads gets
    that or nothing. Raises OSError."""
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
def entered(directory: Path) -> Generator[str]:
    """A name of an absolute directory for a child to start in: of that very directory, whatever comes to stand at its
    path meanwhile, and none where a link stands on the way. Only Linux has such a name; elsewhere it is the path, as
    it was found. Raises OSError."""
    at = walked(directory)
    try:
        name = f"/proc/self/fd/{at}"
        yield name if os.path.isdir(name) else str(directory)
    finally:
        os.close(at)


def begin(file: Path, most: int) -> tuple[bytes, int] | None:
    """The first ``most`` bytes of a regular file, and its whole size; None where it cannot be read, or a link has come
    to stand somewhere on the way."""
    try:
        at = walked(file.parent)
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
    """A directory with all that is in it, however deep it is and whatever an agent closed; nobody is at work in it any
    more. Raises WorkspaceUnusable."""
    try:
        shutil.rmtree(path)
    except (OSError, RecursionError):
        env = {"PATH": os.defpath}
        subprocess.run(("chmod", "-R", "u+rwX", "--", path), capture_output=True, env=env)
        done = subprocess.run(("rm", "-rf", "--", path), capture_output=True, env=env)
        if done.returncode:
            said = done.stderr.decode(errors="replace")[-SHOWN_CHARS:].strip()
            raise WorkspaceUnusable(f"{path} cannot be removed: {said}", suggestion="remove it by hand") from None


def _folder(at: int, name: str) -> int:
    """Opened, below the directory ``at``; made where it is not there or is something else."""
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
