"""Writes a merge into a person's work tree without leaving it and without losing the person's files.

Other programs may be changing the work tree. Every file is written by its name in an open directory that was reached
without following a link. A file is replaced only while it is as it was before the merge, or already as the merge makes
it, so an interrupted merge is completed by doing it again. Methods block.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ccswarm.clones.contents import Blob, Contents
from ccswarm.system.confined_files import open_directory
from ccswarm.system.untrusted_tree import DIRECTORY, FILE, NO_DIRECTORY

GITLINK = "160000"
CHANGES = ("diff-tree", "-r", "-z", "--raw", "--no-renames")
"""The git command whose output ``parse_changes`` parses."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one path between two commits. ``mode`` and ``oid`` are the later ones; mode ``000000``: removed."""

    path: str
    old_mode: str
    mode: str
    oid: str
    old_oid: str = ""

    @property
    def added(self) -> bool:
        return self.old_mode == "000000"

    @property
    def removed(self) -> bool:
        return self.mode == "000000"


def parse_changes(raw: bytes) -> list[Change]:
    """Parse git's ``--raw`` output."""
    fields = raw.decode(errors="surrogateescape").split("\0")
    found: list[Change] = []
    for facts, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, mode, old_oid, oid, _ = facts.removeprefix(":").split(" ")
        found.append(Change(path, old_mode, mode, oid, old_oid))
    return found


def blobs_before(wanted: Sequence[Change]) -> list[Blob]:
    """Return the files before the changes."""
    return [Blob(one.path, one.old_mode, one.old_oid) for one in wanted if not one.added]


def blobs_after(wanted: Sequence[Change]) -> list[Blob]:
    """Return the files after the changes."""
    return [Blob(one.path, one.mode, one.oid) for one in wanted if not one.removed]


class Blocked(Exception):
    """Something other than a directory is in the position of one: with ``link``, a symbolic link."""

    def __init__(self, name: str, *, link: bool) -> None:
        super().__init__(name)
        self.link = link


class WorkTree:
    """The work tree at ``top``, a path that is absolute and without links. Use it in a ``with`` block. Methods raise
    OSError if it cannot be opened or written."""

    def __init__(self, top: Path) -> None:
        self._fd = open_directory(top)
        self._last: tuple[str, int] = ("", os.dup(self._fd))
        """The directory opened last, since the next file is mostly in the same one."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._last[1])
        os.close(self._fd)

    def conflicting_paths(self, wanted: Sequence[Change], old: Contents, new: Contents) -> list[str]:
        """Return the paths that are neither as before nor as after the merge, or are reached through links. These are
        the person's changes. ``old`` and ``new`` are the files before and after."""
        removed = {change.path for change in wanted if change.removed}
        return [change.path for change in wanted if not self._is_free(change, old, new, removed)]

    def write(self, wanted: Sequence[Change], new: Contents) -> None:
        """Remove and write files, each of them atomically."""
        for change in wanted:
            if change.removed:
                self._remove(change.path)
        self._remember("", os.dup(self._fd))  # the open directory may have been removed
        for change in wanted:
            if not change.removed:
                self._write_file(change, new)

    def _is_free(self, change: Change, old: Contents, new: Contents, removed: set[str]) -> bool:
        folder, _, name = change.path.rpartition("/")
        try:
            fd = self._directory(folder)
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                return self._holds_only(change.path, removed)
            candidates = [new] if not change.removed else []
            candidates += [old] if not change.added else []
            return any(_is_same(fd, name, info, candidate, change.path) for candidate in candidates)
        except FileNotFoundError:
            return True
        except Blocked as blocked:
            # A file in the position of a directory is fine if the merge removes it; a link never is.
            parents = (change.path[:end] for end, letter in enumerate(change.path) if letter == "/")
            return not blocked.link and any(parent in removed for parent in parents)

    def _holds_only(self, directory: str, removed: set[str]) -> bool:
        with self._open(directory) as fd:
            for name in os.listdir(fd):
                path = f"{directory}/{name}"
                if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                    if not self._holds_only(path, removed):
                        return False
                elif path not in removed:
                    return False
        return True

    def _remove(self, path: str) -> None:
        """Remove the file, and the directories that are empty without it."""
        with suppress(FileNotFoundError, Blocked):
            folder, _, name = path.rpartition("/")
            with self._open(folder) as fd:
                os.unlink(name, dir_fd=fd)
            while folder:
                outer, _, name = folder.rpartition("/")
                with self._open(outer) as fd:
                    try:
                        os.rmdir(name, dir_fd=fd)
                    except OSError:
                        return
                folder = outer

    def _write_file(self, change: Change, new: Contents) -> None:
        folder, _, name = change.path.rpartition("/")
        fd = self._directory(folder, make=True)
        # The same name in every try, so the file left by a killed process is replaced.
        temporary = f".ccswarm-{hashlib.sha256(os.fsencode(f'{change.path} {change.oid}')).hexdigest()[:16]}"
        try:
            try:
                _create_file(change.path, new, temporary, fd)
            except FileExistsError:
                os.unlink(temporary, dir_fd=fd)
                _create_file(change.path, new, temporary, fd)
            try:
                os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
            except IsADirectoryError:
                os.rmdir(name, dir_fd=fd)
                os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=fd)
            raise

    def _directory(self, directory: str, *, make: bool = False) -> int:
        """Return the open directory; it stays open until another one is needed. Raises as ``_open`` does."""
        if self._last[0] != directory:
            with self._open(directory, make=make) as fd:
                self._remember(directory, os.dup(fd))
        return self._last[1]

    def _remember(self, directory: str, fd: int) -> None:
        os.close(self._last[1])
        self._last = directory, fd

    @contextmanager
    def _open(self, directory: str, *, make: bool = False) -> Generator[int]:
        """Open a directory without following links. Raises FileNotFoundError and Blocked."""
        fd = os.dup(self._fd)
        try:
            for name in directory.split("/") if directory else ():
                outer = fd
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=outer)
                try:
                    fd = os.open(name, DIRECTORY, dir_fd=outer)
                except OSError as error:
                    if error.errno not in NO_DIRECTORY:
                        raise
                    link = stat.S_ISLNK(os.stat(name, dir_fd=outer, follow_symlinks=False).st_mode)
                    raise Blocked(name, link=link) from None
                os.close(outer)
            yield fd
        finally:
            os.close(fd)


def _is_same(folder: int, name: str, info: os.stat_result, candidate: Contents, path: str) -> bool:
    """Report whether a file equals another in its bytes, type and executable bit."""
    if stat.S_ISLNK(info.st_mode) or candidate.is_link(path):
        both = stat.S_ISLNK(info.st_mode) and candidate.is_link(path)
        return both and os.readlink(os.fsencode(name), dir_fd=folder) == b"".join(candidate.read(path))
    if not stat.S_ISREG(info.st_mode) or info.st_size != candidate.size(path):
        return False
    if bool(info.st_mode & stat.S_IXUSR) != candidate.is_executable(path):
        return False
    with open(os.open(name, FILE, dir_fd=folder), "rb") as file:
        return all(file.read(len(piece)) == piece for piece in candidate.read(path)) and not file.read(1)


def _create_file(path: str, source: Contents, name: str, folder: int) -> None:
    """Create a file or link ``name`` in an open directory. Raises FileExistsError."""
    if source.is_link(path):
        os.symlink(b"".join(source.read(path)), os.fsencode(name), dir_fd=folder)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o777 if source.is_executable(path) else 0o666, dir_fd=folder)
    with open(fd, "wb") as target:
        target.writelines(source.read(path))


OURS = b"ccswarm merges\n"
"""The content of the index's lock file while ccswarm holds it; git writes the new index there."""


class IndexLock:
    """git's own lock of a work tree's index, which keeps every other git from changing it. A lock left by a killed
    ccswarm process is taken over. ``git_dir`` is absolute and without links. The constructor raises FileExistsError if
    another git holds the lock."""

    def __init__(self, git_dir: Path, index: str = "index") -> None:
        self._fd = open_directory(git_dir)
        self._name = index
        self._lock = f"{index}.lock"
        try:
            self._lock_fd = self._create()
        except BaseException:
            os.close(self._fd)
            raise

    def _create(self) -> int:
        """Create the lock file. It is also locked with flock, which ends with the process."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            lock_fd = os.open(self._lock, flags, 0o666, dir_fd=self._fd)
        except FileExistsError:
            return self._take_over()
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
        os.write(lock_fd, OURS)
        return lock_fd

    def _take_over(self) -> int:
        """Take over the lock file of a dead ccswarm process. Raises FileExistsError if it is not one."""
        try:
            lock_fd = os.open(self._lock, FILE, dir_fd=self._fd)
        except OSError:
            raise FileExistsError(self._lock) from None
        try:
            if os.read(lock_fd, len(OURS) + 1) != OURS:
                raise FileExistsError(self._lock)
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(lock_fd), os.stat(self._lock, dir_fd=self._fd, follow_symlinks=False)):
                raise FileExistsError(self._lock)
        except OSError:
            os.close(lock_fd)
            raise FileExistsError(self._lock) from None
        return lock_fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._lock, dir_fd=self._fd)
        os.close(self._lock_fd)
        os.close(self._fd)

    def copy_to(self, directory: Path) -> None:
        """Copy the index, and its parts if it is split. Does nothing if there is none."""
        for name in os.listdir(self._fd):
            if name == self._name or name.startswith("sharedindex."):
                with open(os.open(name, FILE, dir_fd=self._fd), "rb") as file:
                    (directory / name).write_bytes(file.read())

    def replace(self, made: Path) -> None:
        """Replace the index by the file ``made`` atomically."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        new = f"{self._name}.ccswarm"
        with open(os.open(new, flags, 0o666, dir_fd=self._fd), "wb") as file:
            file.write(made.read_bytes())
        os.rename(new, self._name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
