"""What in a git repository decides which programs git runs.

Repositories may be an agent's own work: no link in one is followed, and nothing in it is waited for.
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
"""Of one repository."""

_SECTION = re.compile(r"\s*\[\s*([\w.-]+)")
_KEY = re.compile(r"\s*(hookspath|path)\s*=\s*\"?([^\"#;]*)", re.IGNORECASE)


def is_repository(git: str) -> bool:
    """Whether git would take the directory for a repository's."""
    return bool(_there(git, ("HEAD",)))


def deciding(git: str) -> Iterator[str]:
    """What exists of a repository that decides about programs; all of it where it is a file or no whole repository."""
    if not is_repository(git):
        yield git
        return
    for name in _there(git, DECIDING):
        yield f"{git}/{name}"
    for tree in worktrees(git):
        for name in _there(tree, DECIDING_FOR_WORKTREE):
            yield f"{tree}/{name}"


def absent(git: str) -> Iterator[tuple[str, bytes | None]]:
    """What a repository lacks and must not get from inside: path, and a file's harmless content (None: a directory).

    A ``commondir`` of one line makes git take config and hooks from anywhere; ``../.git`` leads back to the repository.
    """
    if not is_repository(git):
        return
    there = _there(git, ("commondir", "hooks", "info"))
    if "commondir" not in there:
        yield f"{git}/commondir", f"../{os.path.basename(git)}\n".encode()
    for name in ("hooks", "info"):
        if name not in there:
            yield f"{git}/{name}", None
    if "worktreeconfig" in _config(git).lower():
        for tree in (git, *worktrees(git)):
            if not _there(tree, ("config.worktree",)):
                yield f"{tree}/config.worktree", b""


def worktrees(git: str) -> list[str]:
    """Directories of what git keeps of each linked worktree, at most ``MOST_WORKTREES`` and one."""
    with suppress(OSError), _opened(f"{git}/worktrees") as folder, os.scandir(folder) as entries:
        return sorted(f"{git}/worktrees/{entry.name}" for entry in islice(entries, MOST_WORKTREES + 1))
    return []


def _there(directory: str, names: Iterable[str]) -> list[str]:
    """Which of these names exist in it, whatever they are; none where a link leads to it."""
    found: list[str] = []
    with suppress(OSError), _opened(directory) as folder:
        for name in names:
            with suppress(FileNotFoundError):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
                found.append(name)
    return found


@contextmanager
def _opened(directory: str) -> Generator[int]:
    """Raises OSError."""
    folder = open_directory(directory)
    try:
        yield folder
    finally:
        os.close(folder)


@dataclass(frozen=True, slots=True)
class Named:
    """What a repository's config leads git to: the ``directory`` of hooks, or a file that is included; without
    ``required`` a word of a command that git runs, which may be meant as something else; a link ``on_the_way`` there
    from outside of the workspace."""

    path: str
    directory: bool
    required: bool = True
    on_the_way: bool = False


def named_by_config(git: str, home: str) -> Iterator[Named]:
    """All that the repository's config names, whether it is there or not."""
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
