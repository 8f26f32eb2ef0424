"""Puts a merge into a person's work tree, which others may be changing meanwhile, without leaving it and without losing
what the person has there.

Every file is written by its name in an open directory that was reached without following a link. A file is replaced
only while it is what it was before the merge, or already what it becomes: so a merge that was cut off is carried out by
making it again. Methods block.
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
"""What ``changes`` reads."""


@dataclass(frozen=True, slots=True)
class Change:
    """Of one path from one commit to another; mode and object are of the later one, ``000000`` where it is gone."""

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


def changes(raw: bytes) -> list[Change]:
    """What git says with ``--raw``."""
    fields = raw.decode(errors="surrogateescape").split("\0")
    found: list[Change] = []
    for facts, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, mode, old_oid, oid, _ = facts.removeprefix(":").split(" ")
        found.append(Change(path, old_mode, mode, oid, old_oid))
    return found


def before(wanted: Sequence[Change]) -> list[Blob]:
    """What is there before them."""
    return [Blob(one.path, one.old_mode, one.old_oid) for one in wanted if not one.added]


def after(wanted: Sequence[Change]) -> list[Blob]:
    """What is there after them."""
    return [Blob(one.path, one.mode, one.oid) for one in wanted if not one.removed]


class Blocked(Exception):
    """Where a directory should be is something else: with ``link`` a symbolic link."""

    def __init__(self, name: str, *, link: bool) -> None:
        super().__init__(name)
        self.link = link


class WorkTree:
    """The directory ``top``, absolute and without links. Closed by ``with``. Raises OSError where it cannot be opened
    or written."""

    def __init__(self, top: Path) -> None:
        self._fd = open_directory(top)
        self._last: tuple[str, int] = ("", os.dup(self._fd))
        """The directory that was opened last, since the next file mostly lies there, too."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._last[1])
        os.close(self._fd)

    def in_the_way(self, wanted: Sequence[Change], old: Contents, new: Contents) -> list[str]:
        """Paths that hold neither what they held before nor what they are to hold: the person's, or links on the way to
        them. ``old`` and ``new`` are the files of before and after."""
        gone = {change.path for change in wanted if change.removed}
        return [change.path for change in wanted if not self._is_free(change, old, new, gone)]

    def write(self, wanted: Sequence[Change], new: Contents) -> None:
        """Take away what is gone, put what is new; whole files or none."""
        for change in wanted:
            if change.removed:
                self._remove(change.path)
        self._keep("", os.dup(self._fd))  # what was opened before may be gone
        for change in wanted:
            if not change.removed:
                self._put(change, new)

    def _is_free(self, change: Change, old: Contents, new: Contents, gone: set[str]) -> bool:
        folder, _, name = change.path.rpartition("/")
        try:
            fd = self._in(folder)
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                return self._holds_only(change.path, gone)
            candidates = [new] if not change.removed else []
            candidates += [old] if not change.added else []
            return any(_same(fd, name, info, candidate, change.path) for candidate in candidates)
        except FileNotFoundError:
            return True
        except Blocked as blocked:
            # A file on the way is fine where it makes room, a link never is.
            parents = (change.path[:end] for end, letter in enumerate(change.path) if letter == "/")
            return not blocked.link and any(parent in gone for parent in parents)

    def _holds_only(self, directory: str, gone: set[str]) -> bool:
        with self._opened(directory) as fd:
            for name in os.listdir(fd):
                path = f"{directory}/{name}"
                if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                    if not self._holds_only(path, gone):
                        return False
                elif path not in gone:
                    return False
        return True

    def _remove(self, path: str) -> None:
        """The file, and the directories that are empty without it."""
        with suppress(FileNotFoundError, Blocked):
            folder, _, name = path.rpartition("/")
            with self._opened(folder) as fd:
                os.unlink(name, dir_fd=fd)
            while folder:
                outer, _, name = folder.rpartition("/")
                with self._opened(outer) as fd:
                    try:
                        os.rmdir(name, dir_fd=fd)
                    except OSError:
                        return
                folder = outer

    def _put(self, change: Change, new: Contents) -> None:
        folder, _, name = change.path.rpartition("/")
        fd = self._in(folder, make=True)
        # The same when the merge is made again, so what a process that was killed left of it goes away.
        temporary = f".ccswarm-{hashlib.sha256(os.fsencode(f'{change.path} {change.oid}')).hexdigest()[:16]}"
        try:
            try:
                _make(change.path, new, temporary, fd)
            except FileExistsError:
                os.unlink(temporary, dir_fd=fd)
                _make(change.path, new, temporary, fd)
            try:
                os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
            except IsADirectoryError:
                os.rmdir(name, dir_fd=fd)
                os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=fd)
            raise

    def _in(self, directory: str, *, make: bool = False) -> int:
        """It, open until another one is asked for. Raises as ``_opened``."""
        if self._last[0] != directory:
            with self._opened(directory, make=make) as fd:
                self._keep(directory, os.dup(fd))
        return self._last[1]

    def _keep(self, directory: str, fd: int) -> None:
        os.close(self._last[1])
        self._last = directory, fd

    @contextmanager
    def _opened(self, directory: str, *, make: bool = False) -> Generator[int]:
        """Raises FileNotFoundError, Blocked."""
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


def _same(folder: int, name: str, info: os.stat_result, candidate: Contents, path: str) -> bool:
    """Whether a file is another one, byte by byte, kind and right to execute included."""
    if stat.S_ISLNK(info.st_mode) or candidate.is_link(path):
        both = stat.S_ISLNK(info.st_mode) and candidate.is_link(path)
        return both and os.readlink(os.fsencode(name), dir_fd=folder) == b"".join(candidate.read(path))
    if not stat.S_ISREG(info.st_mode) or info.st_size != candidate.size(path):
        return False
    if bool(info.st_mode & stat.S_IXUSR) != candidate.is_executable(path):
        return False
    with open(os.open(name, FILE, dir_fd=folder), "rb") as file:
        return all(file.read(len(piece)) == piece for piece in candidate.read(path)) and not file.read(1)


def _make(path: str, source: Contents, name: str, folder: int) -> None:
    """A new file, or link, ``name`` in an open directory. Raises FileExistsError."""
    if source.is_link(path):
        os.symlink(b"".join(source.read(path)), os.fsencode(name), dir_fd=folder)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o777 if source.is_executable(path) else 0o666, dir_fd=folder)
    with open(fd, "wb") as target:
        target.writelines(source.read(path))


OURS = b"ccswarm merges\n"
"""What is in the lock of an index while we hold it; git writes the index itself there."""


class IndexLock:
    """The index of a work tree, as git itself locks it: while it is held no other git changes it. What a process of
    ours that was killed left locked is taken over.

    ``git_dir`` is absolute and without links. Raises FileExistsError where another git is at work.
    """

    def __init__(self, git_dir: Path, index: str = "index") -> None:
        self._fd = open_directory(git_dir)
        self._name = index
        self._lock = f"{index}.lock"
        try:
            self._held = self._made()
        except BaseException:
            os.close(self._fd)
            raise

    def _made(self) -> int:
        """The lock's file, which is locked itself, too, by a lock that goes with its process."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            held = os.open(self._lock, flags, 0o666, dir_fd=self._fd)
        except FileExistsError:
            return self._left()
        fcntl.flock(held, fcntl.LOCK_EX)
        os.write(held, OURS)
        return held

    def _left(self) -> int:
        """That of a process of ours which is gone. Raises FileExistsError where there is none."""
        try:
            held = os.open(self._lock, FILE, dir_fd=self._fd)
        except OSError:
            raise FileExistsError(self._lock) from None
        try:
            if os.read(held, len(OURS) + 1) != OURS:
                raise FileExistsError(self._lock)
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(held), os.stat(self._lock, dir_fd=self._fd, follow_symlinks=False)):
                raise FileExistsError(self._lock)
        except OSError:
            os.close(held)
            raise FileExistsError(self._lock) from None
        return held

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._lock, dir_fd=self._fd)
        os.close(self._held)
        os.close(self._fd)

    def copy_to(self, directory: Path) -> None:
        """The index, and what it may be split into, as files of ours; nothing where there is none."""
        for name in os.listdir(self._fd):
            if name == self._name or name.startswith("sharedindex."):
                with open(os.open(name, FILE, dir_fd=self._fd), "rb") as file:
                    (directory / name).write_bytes(file.read())

    def replace(self, made: Path) -> None:
        """Put ``made`` in its place, whole or not at all."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        new = f"{self._name}.ccswarm"
        with open(os.open(new, flags, 0o666, dir_fd=self._fd), "wb") as file:
            file.write(made.read_bytes())
        os.rename(new, self._name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
