"""What is left of attempts whose work was not merged: their clones, and refs in the repositories. Functions block."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ccswarm.confined_files import remove_tree
from ccswarm.errors import WorkspaceUnusable
from ccswarm.workspaces_collect import REFS
from ccswarm.workspaces_git import Git

FOLDER = "workspaces"
"""In the state directory."""

MOST_COUNTED = 1_000_000
"""Files that are looked at for how large a clone is."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The clones of one run. ``refs`` are where their work lies, each with its repository."""

    run: str
    path: Path
    days: float
    refs: tuple[tuple[Path, str], ...]

    @property
    def bytes(self) -> int:
        """What its files take; no link is followed."""
        found = 0
        for number, (_, _, files, fd) in enumerate(os.fwalk(self.path, follow_symlinks=False)):
            for name in files if number < MOST_COUNTED else ():
                with suppress(OSError):
                    info = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    found += info.st_blocks * 512 if stat.S_ISREG(info.st_mode) else 0
        return found


def kept(root: Path, unfinished: Collection[str] = ()) -> list[Kept]:
    """What lies in ``root`` of runs that are not among the ``unfinished``, the oldest first."""
    found: list[Kept] = []
    for path in sorted(root.glob("*")) if root.is_dir() else ():
        # What was handed on in a run has clones beside its own, by the run's name and a dash.
        needed = any(path.name == run or path.name.startswith(f"{run}-") for run in unfinished)
        if path.name.startswith(".") or needed or not path.is_dir():
            continue
        days = max(0.0, time.time() - path.stat().st_mtime) / 86400
        found.append(Kept(path.name, path, days, tuple(_refs(path))))
    return sorted(found, key=lambda one: -one.days)


def remove(one: Kept, environ: Mapping[str, str]) -> None:
    """Remove the clones and refs of a run; a repository that is gone has none. Raises WorkspaceUnusable."""
    git = Git(environ)
    for repository, ref in one.refs:
        if repository.is_dir():
            with suppress(WorkspaceUnusable):  # it is no repository any more
                for ending in REFS:
                    git.person(repository, "update-ref", "-d", ref + ending)
    remove_tree(one.path)


def _refs(path: Path) -> Iterator[tuple[Path, str]]:
    for file in path.glob(".*.json"):
        with suppress(OSError, ValueError, KeyError):
            facts = json.loads(file.read_text())
            if str(facts["ref"]).startswith("refs/ccswarm/"):
                yield Path(facts["repository"]), str(facts["ref"])
