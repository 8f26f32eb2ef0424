"""Files of a workspace for callers without a shell: read, written and listed below its directory and nowhere else.

All links in a path are resolved first, and the result is judged. Then it is opened from the workspace down, one name
after the other, without following links: what is opened is what was judged, whatever happens meanwhile. Files that a
box hides are refused, and those that it cannot change are not written.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from agentwire.system.path_patterns import fold, patterns
from agentwire.system.protected_names import GIT
from agentwire.system.protected_names import protected as settings
from ai_session.errors import Denied, FileUnusable
from ai_session.models import SandboxProfile
from ai_session.sandbox.workspace.protected_paths import find_protection
from ai_session.sandbox.workspace.protected_paths import secrets as hidden_in
from ai_session.sandbox.workspace.workspace import Workspaces

MAX_LINKS = 40
MAX_DEPTH = 128
"""Programs that recurse into a tree manage a few hundred levels."""

SEARCH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

MOST_HIDDEN = 1 << 20
"""Here the limit of what a box can protect does not apply."""

KINDS = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "link"}
REASONS = {
    errno.ENOENT: "file not found at specified path",
    errno.ELOOP: "the path leads through a link that is not followed here",
    errno.ENOTDIR: "a parent of the path is not a directory",
    errno.EISDIR: "the path is a directory",
    errno.ENAMETOOLONG: "a name in the path is too long",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
}
"""Errors that the caller can fix; any other error number is reported as the system's."""

_workspaces = Workspaces()


@dataclass(frozen=True, slots=True)
class Location:
    """A path at or below ``root``, as names without links; it need not exist. ``ways`` are the other paths to it,
    relative to the root: the given one, and each with one link less."""

    root: str
    names: tuple[str, ...]
    ways: tuple[str, ...] = field(default=(), compare=False)

    @property
    def path(self) -> str:
        """The absolute path."""
        return "/".join((self.root.rstrip("/"), *self.names))


def locate(root: str, given: str, alias: str = "") -> Location:
    """Return where ``given``, absolute or relative to ``root``, leads; ``alias`` is another name of the root.

    Raises FileUnusable for an invalid path and Denied for one that leads elsewhere.
    """
    try:
        given.encode()
    except UnicodeEncodeError:
        raise FileUnusable("the path contains an unpaired surrogate") from None
    if not given or "\0" in given:
        raise FileUnusable("the path is empty or contains a NUL character")
    todo = _below(root, given, alias)[::-1]
    ways = [os.path.normpath("/".join(todo[::-1]))]
    found: list[str] = []
    links = 0
    while todo:
        name = todo.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if not found:
                raise outside(root)
            found.pop()
            continue
        found.append(name)
        if len(found) > MAX_DEPTH:
            raise FileUnusable(f"the path is more than {MAX_DEPTH} directories deep")
        target = _link(Location(root, tuple(found)).path)
        if target is None:
            continue
        links += 1
        if links > MAX_LINKS:
            raise FileUnusable("the path leads through too many links")
        found = found[:-1] if not target.startswith("/") else []
        todo += _below(root, target)[::-1]
        ways.append(os.path.normpath("/".join((*found, *todo[::-1]))))
    return Location(root, tuple(found), tuple(way.lstrip("/") for way in ways))


def _below(root: str, path: str, alias: str = "") -> list[str]:
    """Return the names of ``path`` below the root, or those of a relative path. Raises Denied."""
    if not path.startswith("/"):
        return path.split("/")
    for top in (root.rstrip("/"), alias):
        if top and (path == top or path.startswith(top + "/")):
            return path[len(top) :].split("/")
    raise outside(root)


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def outside(root: str) -> Denied:
    """Return the error for a path outside of the workspace."""
    return Denied("the path leads out of the workspace", suggestion=f"use a path below {root}, or relative to it")


def check_visible(at: Location, masked: Sequence[str]) -> None:
    """Raise Denied for a path that a box hides, whether it exists or not, and for what such a link leads to."""
    by_name = patterns(*masked).around("/".join(at.names)) if at.names else ""
    if not by_name:
        hidden = hidden_in(_workspaces.of(at.root, (), masked), most=MOST_HIDDEN).masked
        by_name = next((path for path in hidden if _within(at.path, path)), "")
    if by_name:
        raise Denied(
            "the file is protected: it may contain secrets", suggestion="ask the person for what you need from it"
        )


def check_writable(at: Location, profile: SandboxProfile) -> None:
    """Raise Denied for a path from which programs outside of a box would read settings, whether it exists or not, by
    any of its names. Raises SandboxRefused as a box would."""
    paths = dict.fromkeys(("/".join(at.names), *at.ways))
    names = settings(profile.protected)
    protected = any(fold(name) == GIT for path in paths for name in path.split("/"))
    protected = protected or any(path not in ("", ".") and names.around(path) for path in paths)
    if not protected:
        workspace = _workspaces.of(at.root, profile.protected, profile.masked)
        found = find_protection(workspace, profile.home, most=MOST_HIDDEN)
        kept = (*found.read_only, *(one.path for one in (*found.placeholders, *found.unprotected)))
        protected = any(_within(at.path, path) for path in kept)
        with workspace.tree.lock:
            outer = ("/".join(at.names[:count]) for count in range(1, len(at.names) + 1))
            protected = protected or any(
                workspace.reader.kind(path, directory=count < len(at.names)) == "settings"
                for count, path in enumerate(outer, 1)
            )
    if protected:
        raise Denied(
            "the path is protected: programs outside the sandbox read settings from it",
            suggestion="ask the person to change it",
        )


def _within(path: str, top: str) -> bool:
    return path == top or path.startswith(top + "/")


def read(at: Location, most: int) -> bytes:
    """Return the whole file. Raises FileUnusable if it has more than ``most`` bytes or is not a regular file."""
    with _explained_errors(), _parent(at) as parent:
        info = _regular_file(parent, at)
        if info is None:
            raise FileNotFoundError(errno.ENOENT, "not found")
        _check_size(info.st_size, most)
        fd = os.open(at.names[-1], os.O_RDONLY | PLAIN, dir_fd=parent)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise FileUnusable("the path is no longer a regular file")
            data = file.read(most + 1)
    _check_size(len(data), most)
    return data


def write(at: Location, data: bytes) -> bool:
    """Create or replace the file atomically, with its directories, and return whether it is new.

    An existing file's mode and owner are kept. Raises FileUnusable.
    """
    with _explained_errors(), _parent(at, make=True) as parent:
        old = _regular_file(parent, at)
        name = at.names[-1]
        if old is not None:
            os.close(os.open(name, os.O_WRONLY | PLAIN, dir_fd=parent))  # raises if it may not be written
        temporary = f".{secrets.token_hex(8)}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN
        fd = os.open(temporary, flags, 0o666 if old is None else 0o600, dir_fd=parent)
        try:
            with open(fd, "wb") as file:
                file.write(data)
                if old is not None:
                    with suppress(PermissionError):
                        os.fchown(fd, old.st_uid, old.st_gid)
                    os.fchmod(fd, old.st_mode & 0o777)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise
    return old is None


def entries(at: Location, most: int) -> tuple[list[dict[str, Any]], bool]:
    """Return ``name``, ``type`` and file ``size`` of a directory's entries, and whether those are all. Raises
    FileUnusable."""
    with _explained_errors(), _parent(at) as parent:
        fd = os.open(at.names[-1] if at.names else ".", os.O_RDONLY | os.O_DIRECTORY | PLAIN, dir_fd=parent)
        found: list[dict[str, Any]] = []
        try:
            with os.scandir(fd) as listed:
                for entry in listed:
                    if len(found) == most:
                        return sorted(found, key=_name), False
                    found.append(_entry(entry))
        finally:
            os.close(fd)
    return sorted(found, key=_name), True


def _entry(entry: os.DirEntry[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": os.fsencode(entry.name).decode(errors="replace"), "type": "unknown"}
    with suppress(OSError):
        info = entry.stat(follow_symlinks=False)
        facts["type"] = KINDS.get(stat.S_IFMT(info.st_mode), "other")
        if stat.S_ISREG(info.st_mode):
            facts["size"] = info.st_size
    return facts


def _name(facts: dict[str, Any]) -> str:
    return facts["name"]


def _regular_file(parent: int, at: Location) -> os.stat_result | None:
    """Return the regular file's status, or None if nothing exists there. Raises FileUnusable for anything else."""
    if not at.names:
        raise IsADirectoryError(errno.EISDIR, "a directory")
    try:
        info = os.stat(at.names[-1], dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(info.st_mode):
        kind = KINDS.get(stat.S_IFMT(info.st_mode), "device, pipe or socket")
        raise FileUnusable(f"the path is not a file but a {kind}")
    return info


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise FileUnusable(
            f"the file is too large: it has more than {most} bytes", suggestion="read parts of it in a session: head -c"
        )


@contextmanager
def _parent(at: Location, *, make: bool = False) -> Generator[int]:
    """Yield the parent directory, opened without following links; with ``make``, missing ones are created."""
    fd = os.open(at.root, SEARCH)
    try:
        for name in at.names[:-1]:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=fd)
            inner = os.open(name, SEARCH, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _explained_errors() -> Generator[None]:
    try:
        yield
    except FileUnusable:
        raise
    except OSError as error:
        if (error.errno or 0) not in REASONS:
            raise
        raise FileUnusable(REASONS[error.errno or 0]) from None
