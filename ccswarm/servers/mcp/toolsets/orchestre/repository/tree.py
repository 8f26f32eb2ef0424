"""A directory read within limits: no links are followed, nothing outside is opened, and what is left out is listed."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ccswarm.system.confined_files import open_directory

MOST_FILES = 20_000
MOST_ENTRIES = 20_000
"""Of one directory."""

MOST_DEPTH = 24
MOST_FILE_BYTES = 1_000_000
MOST_BYTES = 64_000_000
"""Of all files that are read."""

NAMED_AT_MOST = 10
BINARY_BYTES = 8192
"""A zero byte within so many first bytes makes a file binary."""

VERSIONED = {".git", ".hg", ".svn", ".jj"}
INSTALLED = {
    "node_modules",
    "bower_components",
    "vendor",
    "third_party",
    "Pods",
    "site-packages",
    ".venv",
    "venv",
    ".tox",
    ".nox",
    ".bundle",
    "deps",
}
MADE = {
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    ".cache",
    ".gradle",
    ".next",
    ".nuxt",
    ".terraform",
    ".idea",
    "target",
    "dist",
    "build",
    "out",
    "coverage",
    "htmlcov",
    "_build",
}
LEFT_OUT = {
    **dict.fromkeys(VERSIONED, "versions"),
    **dict.fromkeys(INSTALLED, "installed"),
    **dict.fromkeys(MADE, "made by tools"),
}
"""Directories that are not entered, by name, with the reason."""

SECRET_SUFFIXES = (".pem", ".key", ".p12", ".pfx", ".jks", ".keystore")
SECRET_NAMES = {"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".pgpass", ".npmrc", ".pypirc", "credentials"}


def secret(name: str) -> bool:
    """Report whether a file with that name usually contains secrets: it is listed, but never opened."""
    example = name.endswith((".example", ".sample", ".template", ".dist"))
    env = name == ".env" or name.startswith(".env.")
    return not example and (env or name in SECRET_NAMES or name.endswith(SECRET_SUFFIXES))


@dataclass(frozen=True, slots=True)
class File:
    """A file. ``path`` is relative to the directory; ``data`` is None if it was not read, and ``why`` says why."""

    path: str
    size: int
    data: bytes | None
    why: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def text(self) -> str:
        return (self.data or b"").decode(errors="replace")


@dataclass(slots=True)
class Tree:
    """A single reading of a directory. Files left out of ``files`` are counted by reason, with a few names."""

    root: Path
    most_files: int = MOST_FILES
    most_bytes: int = MOST_BYTES
    most_file_bytes: int = MOST_FILE_BYTES
    seen: int = 0
    read: int = 0
    """The number of bytes read."""
    directories: int = 0
    _counts: Counter[str] = field(default_factory=Counter[str])
    _names: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def files(self) -> Iterator[File]:
        """Yield every file, those of a directory before those below it, by name. Blocks."""
        try:
            top = open_directory(self.root)
        except OSError as error:
            self._omit("unreadable", f". ({error.strerror})")
            return
        with ExitStack() as stack:
            stack.callback(os.close, top)
            yield from self._within(top, "", 0)

    def left_out(self) -> list[dict[str, Any]]:
        """Return the reasons, the number of files, and some of their names."""
        return [{"why": why, "count": count, "some": self._names[why]} for why, count in sorted(self._counts.items())]

    def _within(self, directory: int, prefix: str, depth: int) -> Iterator[File]:
        self.directories += 1
        below: list[str] = []
        for name, kind in self._entries(directory, prefix):
            path = prefix + name
            if kind == "link":
                self._omit("links", path)
            elif kind == "directory" and name in LEFT_OUT:
                self._omit(LEFT_OUT[name], path)
            elif kind == "directory":
                below.append(name)
            elif kind != "file":
                self._omit("no files", path)
            elif self.seen >= self.most_files:
                self._omit(f"beyond {self.most_files} files", path)
            elif found := self._file(directory, name, path):
                yield found
        for name in below:
            if depth >= MOST_DEPTH or self.seen >= self.most_files:
                self._omit("too deep" if depth >= MOST_DEPTH else f"beyond {self.most_files} files", prefix + name)
                continue
            try:
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            except OSError:
                self._omit("unreadable", prefix + name)
                continue
            try:
                yield from self._within(inner, f"{prefix}{name}/", depth + 1)
            finally:
                os.close(inner)

    def _entries(self, directory: int, prefix: str) -> list[tuple[str, str]]:
        try:
            with os.scandir(directory) as entries:
                found = [(_printable(entry.name), _kind(entry)) for entry in islice(entries, MOST_ENTRIES)]
                if next(entries, None) is not None:
                    self._omit(f"beyond {MOST_ENTRIES} entries of one directory", prefix or ".")
        except OSError:
            self._omit("unreadable", prefix or ".")
            return []
        return sorted(found)

    def _file(self, directory: int, name: str, path: str) -> File | None:
        """Return the file; None if it cannot be opened. Its type is checked after opening, so that it stays true."""
        try:
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        except OSError:
            self._omit("unreadable", path)
            return None
        try:
            info = os.fstat(opened)
            if not stat.S_ISREG(info.st_mode):
                self._omit("no files", path)
                return None
            self.seen += 1
            if why := self._unread(name, info.st_size):
                self._omit(why, path)
                return File(path, info.st_size, None, why)
            data = os.read(opened, self.most_file_bytes + 1)
        except OSError:
            self._omit("unreadable", path)
            return None
        finally:
            os.close(opened)
        self.read += len(data)
        if b"\0" in data[:BINARY_BYTES]:
            self._omit("binary", path)
            return File(path, info.st_size, None, "binary")
        return File(path, info.st_size, data)

    def _unread(self, name: str, size: int) -> str:
        if secret(name):
            return "names of secrets"
        if size > self.most_file_bytes:
            return f"larger than {self.most_file_bytes} bytes"
        return f"beyond {self.most_bytes} bytes" if self.read + size > self.most_bytes else ""

    def _omit(self, why: str, path: str) -> None:
        self._counts[why] += 1
        names = self._names.setdefault(why, [])
        if len(names) < NAMED_AT_MOST:
            names.append(path)


def _kind(entry: os.DirEntry[str]) -> str:
    try:
        if entry.is_symlink():
            return "link"
        return "directory" if entry.is_dir(follow_symlinks=False) else "file" if entry.is_file() else "other"
    except OSError:
        return "other"


def _printable(name: str) -> str:
    """Return a printable name. For a name that is not valid text no such file exists: it counts as unreadable."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
