"""Reads a directory that another program may be changing, and never anything outside of it.

Every step goes from an open directory to a name in it, and no step follows a link, so whatever is moved or exchanged
meanwhile, what is read lies in the tree. Only regular files and the text of links are read; pipes, sockets and devices
count as absent, as they do for git. Methods block.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ccswarm.errors import WorkRefused
from ccswarm.system.bounded_process import checkpoint

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MOST_ENTRIES = 1_000_000
MOST_DEPTH = 512
MOST_PATH_BYTES = 4000
MOST_FILE_BYTES = 2 << 30
MOST_COPIED_BYTES = 4 << 30

NO_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)
NO_FILE = (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.ENOTDIR)
"""The errors by which the kernel reports that a name is missing, a link, or a socket."""
IGNORABLE = dict.fromkeys((*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))
"""Characters that some file systems ignore in names."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or link. ``path`` is relative to the top; ``link`` is the text of a symbolic link, None for a file."""

    path: str
    executable: bool = False
    link: bytes | None = None

    @property
    def mode(self) -> str:
        """The mode in git's notation, such as ``100644``."""
        return "120000" if self.link is not None else "100755" if self.executable else "100644"


def is_git(name: str) -> bool:
    """Report whether some file system reads the name as that of a git repository."""
    return name.translate(IGNORABLE).casefold().rstrip(". ") in (".git", "git~1")


@dataclass(frozen=True, slots=True)
class Listing:
    """The contents of one directory. ``git`` are names under which git keeps a repository, however they are spelled."""

    directories: list[str]
    entries: list[Entry]
    git: list[str]


class UntrustedTree:
    """The tree at ``top``, a path that no other user can change. Use it in a ``with`` block. Methods raise WorkRefused
    for content that cannot be accepted and whatever ``checkpoint`` raises. The constructor raises OSError if the top
    cannot be opened."""

    def __init__(self, top: Path) -> None:
        self._fd = os.open(top, DIRECTORY)
        self._last: tuple[str, int] = ("", os.dup(self._fd))
        """The directory opened last, since the next file is mostly in the same one."""
        self._device = os.fstat(self._fd).st_dev
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._last[1])
        os.close(self._fd)

    def list(self, directory: str) -> Listing:
        """Return a directory's contents, sorted by name; empty if it has been removed or replaced."""
        checkpoint()
        found = Listing([], [], [])
        with suppress(FileNotFoundError, NotADirectoryError):
            fd = self._open_directory(directory)
            for name in sorted(os.listdir(fd)):
                self._seen += 1
                path = f"{directory}/{name}" if directory else name
                self._check_bounds(path)
                with suppress(FileNotFoundError):
                    self._add_entry(fd, name, path, found)
        return found

    def _add_entry(self, fd: int, name: str, path: str, found: Listing) -> None:
        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if is_git(name):
            found.git.append(path)
        elif info.st_dev != self._device:
            raise WorkRefused(f"{path!r} is on another file system", suggestion="unmount it")
        elif stat.S_ISDIR(info.st_mode):
            found.directories.append(path)
        elif stat.S_ISLNK(info.st_mode):
            try:
                found.entries.append(Entry(path, link=os.readlink(os.fsencode(name), dir_fd=fd)))
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                raise WorkRefused(
                    f"{path!r} was replaced while it was read", suggestion="end the programs that work there"
                ) from None
        elif stat.S_ISREG(info.st_mode):
            found.entries.append(Entry(path, bool(info.st_mode & stat.S_IXUSR)))

    def size(self, path: str) -> int | None:
        """Return the size of a regular file in bytes, or None if it does not exist."""
        with self._file(path) as fd:
            return os.fstat(fd).st_size if fd is not None else None

    def digest(self, path: str, object_format: str, size: int | None = None) -> str | None:
        """Return the id that git gives to the file's exact bytes, or None if the file does not exist. With ``size``, a
        file of another size is not read, and the result is empty."""
        with self._file(path) as fd:
            if fd is None:
                return None
            if size not in (None, os.fstat(fd).st_size):
                return ""
            size = os.fstat(fd).st_size
            digest = hashlib.new(object_format, b"blob %d\0" % size)
            left = size
            while left and (part := os.read(fd, min(left, 1 << 20))):
                checkpoint()
                digest.update(part)
                left -= len(part)
            # A file that was truncated meanwhile matches nothing in git, so the copy checks it again.
            return digest.hexdigest() if not left else ""

    def copy(self, path: str, target: Path, most: int = MOST_FILE_BYTES) -> int:
        """Copy a regular file to a new file ``target`` and return its size, or -1 if it does not exist."""
        with self._file(path) as source:
            if source is None:
                return -1
            copied, most = 0, min(most, MOST_FILE_BYTES)
            with open(target, "xb") as file:
                while copied <= most >= os.fstat(source).st_size and (part := os.read(source, 1 << 20)):
                    checkpoint()
                    copied += len(part)
                    file.write(part)
            if max(copied, os.fstat(source).st_size) > most:
                raise WorkRefused(
                    f"{path!r} has more than {most} bytes", suggestion="remove it, or name it in .gitignore"
                )
            return copied

    def read(self, path: str, most: int) -> bytes | None:
        """Return the bytes of a small regular file, or None if it does not exist."""
        with self._file(path) as fd:
            if fd is None:
                return None
            with open(fd, "rb", closefd=False) as file:
                data = file.read(most + 1)
            if len(data) > most:
                raise WorkRefused(f"{path!r} has more than {most} bytes", suggestion="make it smaller")
            return data

    @contextmanager
    def _file(self, path: str) -> Generator[int | None]:
        checkpoint()
        folder, _, name = path.rpartition("/")
        fd = None
        with suppress(FileNotFoundError, NotADirectoryError):
            parent = self._open_directory(folder)
            try:
                fd = os.open(name, FILE, dir_fd=parent)
            except OSError as error:
                if error.errno not in NO_FILE:
                    raise WorkRefused(
                        f"{path!r} cannot be read: {error.strerror}", suggestion=f"chmod u+r {path!r}, or remove it"
                    ) from None
        try:
            info = os.fstat(fd) if fd is not None else None
            yield fd if info and stat.S_ISREG(info.st_mode) and info.st_dev == self._device else None
        finally:
            if fd is not None:
                os.close(fd)

    def _open_directory(self, directory: str) -> int:
        """Open a directory until the next one is opened. Raises FileNotFoundError, NotADirectoryError."""
        if self._last[0] != directory:
            fd = self._walk_to(directory)
            os.close(self._last[1])
            self._last = directory, fd
        return self._last[1]

    def _walk_to(self, directory: str) -> int:
        fd = os.dup(self._fd)
        try:
            for name in directory.split("/") if directory else ():
                outer = fd
                try:
                    fd = os.open(name, DIRECTORY, dir_fd=outer)
                finally:
                    if fd != outer:
                        os.close(outer)
        except OSError as error:
            os.close(fd)
            if error.errno in NO_DIRECTORY:
                raise NotADirectoryError(error.errno, error.strerror) from None
            if not isinstance(error, FileNotFoundError):
                raise WorkRefused(
                    f"the directory {directory!r} cannot be read: {error.strerror}",
                    suggestion=f"chmod -R u+rX {directory!r}, or remove it",
                ) from None
            raise
        return fd

    def _check_bounds(self, path: str) -> None:
        if self._seen > MOST_ENTRIES:
            raise WorkRefused(
                f"there are more than {MOST_ENTRIES} files and directories",
                suggestion="remove what is not needed, or name it in .gitignore",
            )
        if path.count("/") >= MOST_DEPTH or len(os.fsencode(path)) > MOST_PATH_BYTES:
            raise WorkRefused(f"{path[:200]!r}… is too deep for git", suggestion="remove it")
