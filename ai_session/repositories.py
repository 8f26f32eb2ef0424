"""What in a git repository decides which programs git runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from ai_session.workspace_tree import DECIDING, DECIDING_FOR_WORKTREE

CONFIG_BYTES = 1 << 16

_SECTION = re.compile(r"\s*\[\s*([\w.-]+)")
_KEY = re.compile(r"\s*(hookspath|path)\s*=\s*\"?([^\"#;]*)", re.IGNORECASE)


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


@dataclass(frozen=True, slots=True)
class Named:
    """What a repository's config leads git to: the ``directory`` of hooks, or a file that is included."""

    path: str
    directory: bool


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
    try:
        with open(f"{git}/config", "rb") as file:
            return file.read(CONFIG_BYTES).decode(errors="replace")
    except OSError:
        return ""
