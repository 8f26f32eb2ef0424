"""Finds the git repositories below a directory, and what in each decides which programs git runs.

The walk is bounded and remembered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from ai_session.directory_memory import DirectoryMemory
from ai_session.errors import SandboxRefused

DEPTH = 16
"""Sources of Java lie 8 and more deep."""
MOST_DIRECTORIES = 20_000

SKIPPED = frozenset({"node_modules", ".venv", "target", "__pycache__"})
BARE = {"HEAD", "objects", "refs"}
DECIDING = ("config", "config.worktree", "hooks", "info", "modules", "commondir")
"""Of a repository: what names programs that git runs, or leads git to another repository's config."""
DECIDING_FOR_WORKTREE = ("commondir", "gitdir", "config.worktree")
CONFIG_BYTES = 1 << 16

_SECTION = re.compile(r"\s*\[\s*([\w.-]+)")
_KEY = re.compile(r"\s*(hookspath|path)\s*=\s*\"?([^\"#;]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """``git`` are directories and files called ``.git``, and bare repositories; ``complete`` unless the walk hit its
    bound."""

    git: tuple[str, ...]
    complete: bool


class Repositories:
    """Remembers trees between looks. May be used by several threads."""

    def __init__(self) -> None:
        self._memory = DirectoryMemory(_read, depth=DEPTH, most=MOST_DIRECTORIES)

    def below(self, root: str) -> Found:
        """Every repository at or below ``root``, nearest first. Raises SandboxRefused for a ``.git`` that is a link."""
        facts, complete = self._memory.walk(root)
        return Found(tuple(git for git in facts if git), complete)


def _read(entries: Iterable[os.DirEntry[str]], path: str) -> tuple[list[str], str]:
    names: set[str] = set()
    inner: list[str] = []
    git = ""
    for entry in entries:
        names.add(entry.name)
        if entry.name == ".git":
            if entry.is_symlink():
                raise SandboxRefused(
                    f"{entry.path!r} is a symbolic link and cannot be protected",
                    suggestion="put the repository itself there, or choose another workspace",
                )
            git = entry.path
        elif entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED:
            inner.append(entry.name)
    if not git and names >= BARE:
        return [], path
    return inner, git


def is_repository(git: str) -> bool:
    """Whether git would take the directory for a repository's."""
    return os.path.isfile(f"{git}/HEAD")


def deciding(git: str) -> Iterator[str]:
    """What exists of a repository that decides about programs; all of it where it is a file or no whole repository."""
    if not os.path.isdir(git) or not is_repository(git):
        yield git
        return
    for name in DECIDING:
        if os.path.lexists(f"{git}/{name}"):
            yield f"{git}/{name}"
    for tree in _worktrees(git):
        for name in DECIDING_FOR_WORKTREE:
            if os.path.lexists(path := f"{tree}/{name}"):
                yield path


def absent(git: str) -> Iterator[tuple[str, bytes | None]]:
    """What a repository lacks and must not get from inside: path, and a file's harmless content (None: a directory).

    A ``commondir`` of one line makes git take config and hooks from anywhere; ``../.git`` leads back to the repository.
    """
    if not os.path.isdir(git) or not is_repository(git):
        return
    if not os.path.lexists(f"{git}/commondir"):
        yield f"{git}/commondir", f"../{os.path.basename(git)}\n".encode()
    for name in ("hooks", "info"):
        if not os.path.lexists(f"{git}/{name}"):
            yield f"{git}/{name}", None
    if "worktreeconfig" in _config(git).lower():
        for tree in (git, *_worktrees(git)):
            if not os.path.lexists(f"{tree}/config.worktree"):
                yield f"{tree}/config.worktree", b""


def _worktrees(git: str) -> list[str]:
    """Directories of what git keeps of each linked worktree."""
    with suppress(OSError):
        return [f"{git}/worktrees/{name}" for name in sorted(os.listdir(f"{git}/worktrees"))]
    return []


def named_by_config(git: str, home: str) -> Iterator[str]:
    """Paths that the repository's config leads git to: included files and the directory of hooks."""
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
                yield os.path.normpath(os.path.join(top, value))
            elif key == "path" and section in ("include", "includeif"):
                yield os.path.normpath(os.path.join(git, value))


def _config(git: str) -> str:
    try:
        with open(f"{git}/config", "rb") as file:
            return file.read(CONFIG_BYTES).decode(errors="replace")
    except OSError:
        return ""
