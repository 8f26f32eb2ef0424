"""Which parts of a git repository decide what programs git runs.

Repositories may be an agent's own work: no link in one is followed, and reading one never blocks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice

from ai_session.sandbox.workspace.tree import DECIDING, DECIDING_FOR_WORKTREE
from ai_session.system.paths_without_links import open_directory, read_file

CONFIG_BYTES = 1 << 16
MOST_WORKTREES = 1000
"""The maximum for one repository."""

_SECTION = re.compile(r"\s*\[\s*([\w.-]+)")
_KEY = re.compile(r"\s*(hookspath|path)\s*=\s*\"?([^\"#;]*)", re.IGNORECASE)


def is_repository(git: str) -> bool:
    """Report whether git would accept the directory as a repository."""
    return bool(_existing(git, ("HEAD",)))


def deciding(git: str) -> Iterator[str]:
    """Yield what exists of a repository and decides about programs; ``git`` itself if it is not a whole repository."""
    if not is_repository(git):
        yield git
        return
    for name in _existing(git, DECIDING):
        yield f"{git}/{name}"
    for tree in worktrees(git):
        for name in _existing(tree, DECIDING_FOR_WORKTREE):
            yield f"{tree}/{name}"


def absent(git: str) -> Iterator[tuple[str, bytes | None]]:
    """Yield what a repository lacks and a box must not add: its path, and a harmless content (None for a directory).

    A ``commondir`` of one line makes git read config and hooks from anywhere; ``../.git`` refers to the repository
    itself.
    """
    if not is_repository(git):
        return
    existing = _existing(git, ("commondir", "hooks", "info"))
    if "commondir" not in existing:
        yield f"{git}/commondir", f"../{os.path.basename(git)}\n".encode()
    for name in ("hooks", "info"):
        if name not in existing:
            yield f"{git}/{name}", None
    if "worktreeconfig" in _config(git).lower():
        for tree in (git, *worktrees(git)):
            if not _existing(tree, ("config.worktree",)):
                yield f"{tree}/config.worktree", b""


def worktrees(git: str) -> list[str]:
    """Return the directories in which git stores its linked worktrees, at most ``MOST_WORKTREES`` + 1 of them."""
    with suppress(OSError), _opened(f"{git}/worktrees") as folder, os.scandir(folder) as entries:
        return sorted(f"{git}/worktrees/{entry.name}" for entry in islice(entries, MOST_WORKTREES + 1))
    return []


def _existing(directory: str, names: Iterable[str]) -> list[str]:
    """Return the names that exist in the directory; none if a link leads to it."""
    found: list[str] = []
    with suppress(OSError), _opened(directory) as folder:
        for name in names:
            with suppress(FileNotFoundError):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
                found.append(name)
    return found


@contextmanager
def _opened(directory: str) -> Generator[int]:
    """Yield a descriptor of the directory. Raises OSError."""
    folder = open_directory(directory)
    try:
        yield folder
    finally:
        os.close(folder)


@dataclass(frozen=True, slots=True)
class Named:
    """A path to which a repository's config leads git: a ``directory`` of hooks or an included file. If it is not
    ``required``, it is a word of a command that git runs and may have another meaning; ``on_the_way`` it is a link to
    it from outside of the workspace."""

    path: str
    directory: bool
    required: bool = True
    on_the_way: bool = False


def named_by_config(git: str, home: str) -> Iterator[Named]:
    """Yield every path that the repository's config names, existing or not."""
    section = ""
    top = os.path.dirname(git) if os.path.basename(git) == ".git" else git
    for line in _config(git).splitlines():
        if match := _SECTION.match(line):
            section = match[1].lower()
            line = line.partition("]")[2]
        if match := _KEY.match(line):
            key, value = match[1].lower(), match[2].strip()
            if value.startswith("~/"):
                value = os.path.join(home, value[2:])
            if key == "hookspath" and section == "core":
                yield Named(os.path.normpath(os.path.join(top, value)), True)
            elif key == "path" and section in ("include", "includeif"):
                yield Named(os.path.normpath(os.path.join(git, value)), False)


def _config(git: str) -> str:
    with suppress(OSError), _opened(git) as folder:
        return read_file(folder, "config", CONFIG_BYTES).decode(errors="replace")
    return ""
