"""What is protected in a directory tree: repositories, settings and secrets, found in one walk.

The walk is limited, and cached. What it left out is known too.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Literal

from agentwire.system.path_patterns import Patterns, fold, parents, patterns
from agentwire.system.protected_names import GIT
from ai_session.sandbox.workspace.directory_cache import DirectoryTree, Inner
from ai_session.sandbox.workspace.git_index import gitlinks
from ai_session.system.directory_events import APPEARED, LISTED, WRITTEN
from ai_session.system.paths_without_links import read_file

DEPTH = 32
"""Java sources are 8 and more directories deep."""
MOST_DIRECTORIES = 20_000
MOST_ENTRIES = 100_000
"""The entries of one directory that are read."""
MOST_NAMES = 512
"""The protected names of one directory that are remembered."""
MOST_PLAIN_NAMES = 20_000
SKIPPED = frozenset({"node_modules", ".venv", "target", "__pycache__"})
"""Directories that programs fill; they are searched last, two levels deep, and only for repositories."""
SKIPPED_FURTHER = ("@", "src", ".pnpm")
"""The directories inside those that are searched further: packages of a scope, and what pip checked out."""
BARE = frozenset({"HEAD", "objects", "refs"})
SPLIT = frozenset({"HEAD", "commondir", "config", "config.worktree"})
"""The files of a repository whose objects and refs are elsewhere: the first, and at least one of the others."""
DECIDING = ("config", "config.worktree", "hooks", "info", "modules", "commondir")
"""What names programs that git runs, or leads git to another repository's config."""
DECIDING_FOR_WORKTREE = ("commondir", "gitdir", "config.worktree")
DATA = ("objects", "refs", "logs", "lfs")
"""What names no program."""
INDEX_BYTES = 16 << 20
"""Enough for more than 100,000 files. An index is read at once, whatever time is left."""
SHARED_INDEX = "sharedindex."

REBASE, TODO, TODO_BYTES = "rebase-merge", "git-rebase-todo", 1 << 20
"""Where git stores a rebase in progress: continuing it runs the programs on its list."""
EXECUTES = re.compile(rb"^[ \t]*(?:x|exec)[ \t]", re.MULTILINE)
Kind = Literal["repository", "gitlink", "settings", "link", "secret", "rebase", "crowded"]
Shape = Literal["file", "directory", "link", "other"]


class State(Enum):
    """The kind of a directory, which determines what is searched for in it."""

    ORDINARY = "ordinary"
    SKIPPED = "skipped"
    SKIPPED_FURTHER = "skipped, and one level more"
    SKIPPED_LAST = "the last level of what is skipped"
    REPOSITORY = "what git keeps"
    REBASE = "what git keeps of a rebase"
    WORKTREES = "what git keeps of linked worktrees"
    SETTINGS = "all of it is protected"
    OPEN_SETTINGS = "all of it should be protected, and is not"


@dataclass(frozen=True, slots=True)
class Name:
    """Something protected in a directory. ``stamp`` begins with its identity; if a box can change its content, more
    follows, which changes with the content. ``names`` is the number of a file's hard links. A gitlink's ``name`` is a
    path in its repository; ``.`` is a bare repository, or a directory with too many names (``crowded``). A ``link`` is
    in a directory that is protected as a whole; only what it leads to matters."""

    name: str
    kind: Kind
    shape: Shape = "directory"
    stamp: tuple[int, ...] = ()
    names: int = 1


CROWDED = Name(".", "crowded")


@dataclass(frozen=True, slots=True)
class Led:
    """Where configs and links lead programs to, relative to the root. ``named`` paths are protected, existing or not.
    Of ``aliases`` the first is a directory, the second another name of it, which also decides about what is inside."""

    named: frozenset[str] = frozenset()
    aliases: frozenset[tuple[str, str]] = frozenset()


Facts = tuple[Name, ...]
WorkspaceTree = DirectoryTree[State, Facts]


class WorkspaceReader:
    """Reads the directories of one workspace; all paths are relative to its root.

    ``open_to_writing`` are those that should be read-only in a box and are not, so that their content is read too; None
    means everything. After changing it, or ``led``, let the tree read the directories around again.
    """

    def __init__(self, settings: Patterns, secrets: Patterns) -> None:
        self._settings = settings
        self._secrets = secrets
        self.open_to_writing: frozenset[str] | None = frozenset()
        self._led = Led()
        self._last_names: frozenset[str] = frozenset()
        self._ways: frozenset[str] = frozenset()
        self._either = patterns(*(pattern.text for pattern in (*settings.all, *secrets.all)))
        self._plain_names: set[str] = set()
        self._indexes: dict[tuple[int, ...], tuple[str, ...] | None] = {}

    @property
    def led(self) -> Led:
        """Where configs and links lead to."""
        return self._led

    @led.setter
    def led(self, led: Led) -> None:
        self._led = led
        self._ways = frozenset(outer for path in led.named for outer in parents(path))
        self._last_names = frozenset(path.rpartition("/")[2] for path in led.named | self._ways)
        self._plain_names.clear()

    def read(self, fd: int, path: str, state: State) -> tuple[list[Inner[State]], Facts | None]:
        if state is State.REPOSITORY:
            return self._repository(fd, path)
        if state is State.WORKTREES:
            with os.scandir(fd) as entries:
                found = [entry for entry in islice(entries, MOST_ENTRIES) if _is_directory(entry)]
            return [Inner(entry.name, State.REPOSITORY, part=True) for entry in found], None
        if state is State.REBASE:
            return [], _todo(fd)
        if state in (State.SETTINGS, State.OPEN_SETTINGS):
            return _everything(fd, path, state)
        return self._ordinary(fd, path, state)

    def matters(self, name: str, state: State, *, directory: bool) -> bool:
        if state is State.REPOSITORY:
            return name in ("index", "worktrees", REBASE, *DECIDING) or name.startswith(SHARED_INDEX)
        if state is State.REBASE:
            return name == TODO
        if state in (State.SETTINGS, State.OPEN_SETTINGS, State.WORKTREES):
            return True
        if self.open_to_writing is None and name in DECIDING:
            return True
        return directory or not (name in self._plain_names or self._is_plain(name))

    def _may_fit(self, name: str) -> bool:
        return self._either.may_fit(name) or self._settings.may_lead(name) or name in self._last_names

    def mask(self, state: State, fact: Facts | None) -> int:
        """Return what the kernel is to report. What is read-only in every box needs no report of its content."""
        if state in (State.REPOSITORY, State.REBASE, State.OPEN_SETTINGS):
            return WRITTEN
        if any(len(name.stamp) > 1 for name in fact or ()):
            return WRITTEN
        return LISTED if fact else APPEARED

    def lasts(self, state: State, fact: Facts | None) -> bool:
        return self.mask(state, fact) != WRITTEN

    def shared(self, fact: Facts | None) -> list[str]:
        return [name.name for name in fact or () if name.names > 1 and len(name.stamp) > 1]

    def _open(self, path: str) -> bool:
        return self.open_to_writing is None or path in self.open_to_writing

    def _ordinary(self, fd: int, path: str, state: State) -> tuple[list[Inner[State]], Facts | None]:
        inner: list[Inner[State]] = []
        found: list[Name] = []
        bare: set[str] = set()
        split: dict[str, Name] = {}
        ordinary = state is State.ORDINARY
        plain = self._plain_names
        with os.scandir(fd) as entries:
            for number, entry in enumerate(entries):
                if number == MOST_ENTRIES:
                    found += [CROWDED] if CROWDED not in found else []
                    break
                name = entry.name
                if name not in plain and not self._is_plain(name):
                    if name == GIT:
                        found.append(Name(GIT, "repository", _shape(entry), (entry.inode(),)))
                        inner += [Inner(GIT, State.REPOSITORY, part=True)] if _is_directory(entry) else []
                        continue
                    if name in SPLIT and not _is_directory(entry):
                        split[name] = self._name(entry, f"{path}/{name}" if path else name, "settings")
                    if name in BARE:
                        bare.add(name)
                    elif ordinary:
                        below = f"{path}/{name}" if path else name
                        kind = self.kind(below, directory=_is_directory(entry))
                        if kind is None and entry.is_symlink() and self.leads(below):
                            kind = "settings"
                        if kind is not None:
                            if len(found) < MOST_NAMES:
                                found.append(self._name(entry, below, kind))
                            elif len(found) == MOST_NAMES:
                                found.append(CROWDED)
                            if kind == "settings" and _is_directory(entry):
                                inner.append(Inner(name, self._settings_state(below), part=True))
                            continue
                if entry.is_dir(follow_symlinks=False):
                    inner += _further(name, state)
        if len(bare) == len(BARE) and not any(name.name == GIT for name in found):
            inner, kept = self._repository(fd, path)
            return inner, (Name(".", "repository"), *(kept or ()))
        if "HEAD" in split and len(split) > 1:
            found += (one for name, one in split.items() if all(known.name != name for known in found))
        return inner, tuple(found) or None

    def _is_plain(self, name: str) -> bool:
        """Report whether a name has no meaning anywhere, and cache that: most names of a tree occur many times."""
        if name in BARE or name in SPLIT or fold(name) == GIT or self._may_fit(name):
            return False
        if len(self._plain_names) >= MOST_PLAIN_NAMES:
            self._plain_names.clear()
        self._plain_names.add(name)
        return True

    def kind(self, path: str, *, directory: bool) -> Kind | None:
        """Return as what a path relative to the root is protected, by its own names and by configs and links."""
        if self._secrets.fits(path, directory=directory):
            return "secret"
        if path in self.led.named or self.is_by_name(path, directory=directory):
            return "settings"
        return "settings" if self.is_by_another_name(path, directory=directory) else None

    def is_by_name(self, path: str, *, directory: bool = True) -> bool:
        """Report whether a path is settings by its own names alone."""
        return fold(path.rpartition("/")[2]) == GIT or self._settings.fits(path, directory=directory)

    def is_by_another_name(self, path: str, *, directory: bool = True) -> bool:
        """Report whether a link gives a path another name by which it is settings."""
        others = self._others(path)
        return any(other in self.led.named or self._settings.fits(other, directory=directory) for other in others)

    def is_excepted(self, path: str, *, directory: bool) -> bool:
        """Report whether a person's own pattern says that a path is not protected."""
        deciding = self._settings.deciding(path, directory=directory)
        return deciding is not None and deciding.excepts

    def leads(self, path: str) -> bool:
        """Report whether something below a path is protected if it exists: a link there decides what that is."""
        return path in self._ways or any(self._settings.leads_to(one) for one in (path, *self._others(path)))

    def _others(self, path: str) -> Iterator[str]:
        """Yield the other names of what is at a path."""
        for target, link in self.led.aliases:
            if not target:
                yield f"{link}/{path}"
            elif path.startswith(f"{target}/"):
                yield link + path[len(target) :]

    def _name(self, entry: os.DirEntry[str], path: str, kind: Kind) -> Name:
        shape, links = _shape(entry), 1
        stamp: tuple[int, ...] = ()
        with suppress(OSError):
            info = entry.stat(follow_symlinks=False)
            links = info.st_nlink if shape == "file" else 1
            content = kind == "settings" and shape != "directory" and (self._open(path) or links > 1)
            stamp = _stamp(info) if content else identity(info)
        return Name(entry.name, kind, shape, stamp, links)

    def _settings_state(self, path: str) -> State:
        return State.OPEN_SETTINGS if self._open(path) else State.SETTINGS

    def _repository(self, fd: int, path: str) -> tuple[list[Inner[State]], Facts | None]:
        inner: list[Inner[State]] = []
        found: list[Name] = []
        linked: dict[str, None] = {}
        state = self._settings_state(path)
        deciding = DECIDING
        if "/worktrees/" in path:
            # The .git file of a worktree leads to its directory; a box that adds another one adds a .git file as well.
            deciding = DECIDING_FOR_WORKTREE if state is State.OPEN_SETTINGS else DECIDING_FOR_WORKTREE[-1:]
        with os.scandir(fd) as entries:
            for entry in islice(entries, MOST_ENTRIES):
                name = entry.name
                if name == "worktrees" and _is_directory(entry):
                    inner.append(Inner(name, State.WORKTREES, part=True))
                elif name == REBASE:
                    if _is_directory(entry):
                        inner.append(Inner(name, State.REBASE, part=True))
                    else:
                        found.append(Name(name, "rebase", _shape(entry)))
                elif name == "index" or name.startswith(SHARED_INDEX):
                    links = self._links(fd, name)
                    found += [CROWDED] if links is None and CROWDED not in found else []
                    linked |= dict.fromkeys(links or ())
                elif name in deciding:
                    content = [one for one in _content(entry, state) if one.kind != "link"]
                    content = [] if _is_directory(entry) else content
                    with suppress(OSError):
                        info = entry.stat(follow_symlinks=False)
                        found += content or [Name(name, "settings", _shape(entry), identity(info))]
                    if _is_directory(entry) and (name != "modules" or state is State.OPEN_SETTINGS):
                        inner.append(Inner(name, state, late=True, part=True))
        found += [Name(name, "gitlink") for name in linked]
        return inner, tuple(found) or None

    def _links(self, folder: int, name: str) -> tuple[str, ...] | None:
        """Return the gitlinks in an index, or None if it is too large. An unchanged file is read once."""
        with suppress(OSError):
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with open(fd, "rb") as file:
                info = os.fstat(fd)
                if not stat.S_ISREG(info.st_mode):
                    return ()
                if info.st_size > INDEX_BYTES:
                    return None
                known = (info.st_dev, *_stamp(info))
                if known not in self._indexes:
                    while len(self._indexes) > 64:
                        del self._indexes[next(iter(self._indexes))]
                    self._indexes[known] = gitlinks(file.read(INDEX_BYTES))
                return self._indexes[known]
        return ()


def _everything(fd: int, path: str, state: State) -> tuple[list[Inner[State]], Facts | None]:
    """Read a directory that is protected as a whole."""
    inner: list[Inner[State]] = []
    found: list[Name] = []
    kept_by_git = f"/{GIT}/modules/" in f"/{path}/"
    depth = path.count("/") + 1
    with os.scandir(fd) as entries:
        for number, entry in enumerate(entries):
            if number == MOST_ENTRIES or len(found) == MOST_NAMES:
                found.append(CROWDED)
                break
            if not _is_directory(entry):
                found += _content(entry, state)
            elif not (kept_by_git and entry.name in DATA):
                inner.append(Inner(entry.name, state, late=True, part=depth < DEPTH))
    return inner, tuple(found) or None


def _todo(fd: int) -> Facts | None:
    """Return the list of a rebase if continuing it runs programs. Git rewrites the list with each step."""
    with suppress(OSError):
        if EXECUTES.search(read_file(fd, TODO, TODO_BYTES)):
            return (Name(TODO, "rebase", "file"),)
    return None


def _content(entry: os.DirEntry[str], state: State) -> Iterator[Name]:
    """Yield a file that is protected along with its directory, if it could be changed somewhere. A link cannot be, but
    what it leads to can."""
    with suppress(OSError):
        info = entry.stat(follow_symlinks=False)
        links = info.st_nlink if stat.S_ISREG(info.st_mode) else 1
        if state is State.OPEN_SETTINGS or links > 1:
            yield Name(entry.name, "settings", _shape(entry), _stamp(info), links)
        elif stat.S_ISLNK(info.st_mode):
            yield Name(entry.name, "link", "link", identity(info))


def _further(name: str, state: State) -> tuple[Inner[State], ...]:
    """Return how a directory inside one in this state is searched, or nothing if it is not."""
    if state is State.ORDINARY:
        return (Inner(name, State.SKIPPED, late=True) if name in SKIPPED else Inner(name, State.ORDINARY),)
    if state is State.SKIPPED:
        further = name.startswith(SKIPPED_FURTHER[0]) or name in SKIPPED_FURTHER
        return (Inner(name, State.SKIPPED_FURTHER if further else State.SKIPPED_LAST, late=True),)
    return (Inner(name, State.SKIPPED_LAST, late=True),) if state is State.SKIPPED_FURTHER else ()


def _is_directory(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _shape(entry: os.DirEntry[str]) -> Shape:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def identity(info: os.stat_result) -> tuple[int]:
    """Return the identity among files of the same name. Inode numbers are reused at once, so it includes the ctime."""
    return (info.st_ino ^ info.st_ctime_ns << 32,)


def _stamp(info: os.stat_result) -> tuple[int, ...]:
    """Return a value that changes with the content and the mode; a file's owner cannot set its ctime."""
    return (*identity(info), info.st_ctime_ns, info.st_size)


def workspace_tree(root: str, settings: Patterns, secrets: Patterns) -> tuple[WorkspaceTree, WorkspaceReader]:
    """Return the tree and its reader; nothing has been read yet."""
    reader = WorkspaceReader(settings, secrets)
    return DirectoryTree(root, reader, State.ORDINARY, depth=DEPTH, most=MOST_DIRECTORIES), reader
