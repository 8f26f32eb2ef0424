"""The files of one directory, read within limits and without following links.

Every directory on a path is opened by itself and refused if it is a link, so that replacing one meanwhile leads nowhere
else. Blocks: use it in a thread.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Self

from agentwire.system.path_patterns import patterns
from agentwire.system.protected_names import protected as settings
from ai_session.errors import DirectoryUnusable, InvalidArguments

MAX_FILE_BYTES = 256 << 10
"""The limit for one file; larger ones are generated and take long to search."""

IGNORED = frozenset(
    (
        *(".git", ".hg", ".svn", "node_modules", "bower_components", "__pycache__", "site-packages", ".venv", "venv"),
        *(".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".eggs", ".idea", ".gradle"),
        *("dist", "build", "out", "target", "coverage", ".next", ".nuxt", ".turbo", ".cache", ".output", "vendor"),
        *(".terraform", ".yarn", ".pnpm-store"),
    )
)
"""Directories of generated or installed files."""

SECRET = (".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_ed25519*", ".netrc", ".npmrc", ".pypirc")
"""Files that are never opened, in addition to those that the configuration masks."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """One regular file: its path from the root, and its size in bytes."""

    path: str
    size: int


def checked_path(path: object) -> str:
    """Return a plain path of a file below the root. Raises InvalidArguments that says what is wrong with it."""
    if not isinstance(path, str) or not path:
        raise InvalidArguments("filepath is missing", suggestion="use a file path relative to root")
    parts = path.split("/")
    if "\0" in path or len(path) > 1000 or not path.isprintable():
        why = "is not a plain path"
    elif path.startswith(("/", "~")) or "\\" in path or ":" in parts[0]:
        why = "is not relative to root"
    elif ".." in parts:
        why = "leads out of root"
    elif "" in parts or "." in parts:
        why = "is not in its simplest form"
    elif ".git" in (part.lower() for part in parts):
        why = "belongs to git"
    else:
        return path
    raise InvalidArguments(f"{path[:80]!r} {why}", suggestion="use a file path below root: src/app.py")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one profile: files and directories, levels of directories, bytes read during the walk."""

    entries: int = 20_000
    depth: int = 24
    read_bytes: int = 32 << 20


@dataclass
class Tree:
    """An open directory, closed by ``with``.

    ``masked`` and ``protected`` are patterns as in .gitignore: of files that are not read, and of settings beyond those
    always protected. ``above`` are the directories between the top that patterns refer to and the root. ``bounds`` says
    which limits ``walk`` and ``read`` reached.
    """

    root: str
    masked: Sequence[str] = ()
    limits: Limits = Limits()
    bounds: list[str] = field(default_factory=list[str])
    protected: Sequence[str] = ()
    above: str = ""
    _fd: int = -1
    _read: int = 0

    def __enter__(self) -> Self:
        """Open the directory. Raises DirectoryUnusable if it does not exist or a link is on the path."""
        try:
            self._fd = os.open("/", _FOLDER)
            self._fd, outer = self._inner(self.root.strip("/"), _FOLDER), self._fd
            os.close(outer)
        except (OSError, ValueError) as error:
            self.__exit__()
            why = getattr(error, "strerror", None) or str(error)
            raise DirectoryUnusable(
                f"root {self.root!r} cannot be read: {why}", suggestion="pass an existing directory"
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _inner(self, path: str, flags: int) -> int:
        """Open the file at ``path`` step by step and return its descriptor. Raises OSError."""
        fd = os.dup(self._fd)
        try:
            parts = [part for part in path.split("/") if part]
            for number, part in enumerate(parts, 1):
                outer, fd = fd, os.open(part, flags if number == len(parts) else _FOLDER, dir_fd=fd)
                os.close(outer)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def hidden(self, path: str) -> bool:
        """Report whether its name is that of a file with secrets."""
        name = path.rpartition("/")[2].lower()
        if any(fnmatchcase(name, pattern) for pattern in SECRET):
            return True
        return bool(self.masked and patterns(*self.masked).around(self._from_top(path)))

    def is_protected(self, path: str) -> bool:
        """Report whether programs outside of a box read settings from it, so that it must not be written."""
        return bool(settings(self.protected).around(self._from_top(path)))

    def _from_top(self, path: str) -> str:
        return f"{self.above}/{path}" if self.above else path

    def walk(self) -> Iterator[Entry]:
        """Yield regular files in the order of their paths, shallow ones first; links are skipped."""
        waiting, seen = [""], 0
        for folder in waiting:  # grows meanwhile
            try:
                fd = self._inner(folder, _FOLDER)
            except OSError:
                continue  # removed, replaced or not permitted
            try:
                names = sorted(os.listdir(fd))
                for name in names:
                    if seen >= self.limits.entries:
                        self._add_bound(f"looked at {seen} files and directories")
                        return
                    if not name.isprintable():
                        continue
                    seen += 1
                    path = f"{folder}/{name}" if folder else name
                    if (found := _facts(name, fd)) is None:
                        continue
                    if not stat.S_ISDIR(found.st_mode):
                        yield Entry(path, found.st_size)
                    elif name not in IGNORED and not name.endswith(".egg-info"):
                        if path.count("/") < self.limits.depth:
                            waiting.append(path)
                        else:
                            self._add_bound(f"looked {self.limits.depth} directories deep")
            finally:
                os.close(fd)

    def read(self, path: str, *, counted: bool = False) -> str | None:
        """Return the text of a file; None if it is missing, not text, too large or has secrets. If ``counted``, it
        counts towards the limit of bytes read."""
        data = self._bytes(path, counted)
        if data is None or b"\0" in data:
            return None
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return None

    def _bytes(self, path: str, counted: bool) -> bytes | None:
        if self.hidden(path):
            return None
        if counted and self._read >= self.limits.read_bytes:
            self._add_bound(f"read {self._read} bytes")
            return None
        try:
            fd = self._inner(path, _FILE)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG((found := os.fstat(fd)).st_mode) or found.st_size > MAX_FILE_BYTES:
            os.close(fd)
            return None
        with open(fd, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        self._read += len(data) if counted else 0
        return data if len(data) <= MAX_FILE_BYTES else None

    def kind(self, path: str) -> str:
        """Return ``file``, ``folder``, ``link`` (also for a path through one), ``other``, or empty if missing."""
        parts = path.split("/")
        for number in range(1, len(parts) + 1):
            folder, _, name = "/".join(parts[:number]).rpartition("/")
            try:
                fd = self._inner(folder, _FOLDER)
            except (OSError, ValueError):
                return "other"
            try:
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                return ""
            except (OSError, ValueError):
                return "other"
            finally:
                os.close(fd)
            if stat.S_ISLNK(found.st_mode):
                return "link"
            if number < len(parts) and not stat.S_ISDIR(found.st_mode):
                return "other"
            if number == len(parts):
                return {stat.S_IFREG: "file", stat.S_IFDIR: "folder"}.get(stat.S_IFMT(found.st_mode), "other")
        return ""

    def _add_bound(self, what: str) -> None:
        if what not in self.bounds:
            self.bounds.append(what)


def _facts(name: str, fd: int) -> os.stat_result | None:
    """Return the status of a regular file or a directory; None for anything else."""
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) else None
