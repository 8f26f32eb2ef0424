"""The remaining clones and refs of attempts whose work was not merged. Functions block."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ccswarm.clones.collect import REFS
from ccswarm.clones.git import Git
from ccswarm.clones.looker import Looker
from ccswarm.errors import SwarmError, WorkspaceUnusable
from ccswarm.system.confined_files import remove_tree, write_files
from ccswarm.system.untrusted_tree import DIRECTORY, MOST_DEPTH

MOST_REMOVED = 20
"""The most runs whose clones are removed when one ends, so that it does not take long."""

MOST_COUNTED = 1_000_000
"""The most files counted for the size of a clone."""


@dataclass(frozen=True, slots=True)
class KeptClones:
    """The clones of one run. ``refs`` are the repositories and refs of their work."""

    run: str
    path: Path
    days: float
    refs: tuple[tuple[Path, str], ...]

    @property
    def bytes(self) -> int:
        """The disk space of its files. Links are not followed."""
        with suppress(OSError):
            fd = os.open(self.path, DIRECTORY)
            try:
                return sum(islice(_sizes(fd), MOST_COUNTED))
            finally:
                os.close(fd)
        return 0


def list_kept(root: Path, unfinished: Collection[str] = ()) -> list[KeptClones]:
    """Return the clones in ``root`` of runs that are not ``unfinished``, the oldest first."""
    found: list[KeptClones] = []
    for path in sorted(root.glob("*")) if root.is_dir() else ():
        # The clones of delegated tasks are next to the run's own, under its name and a dash.
        needed = any(path.name == run or path.name.startswith(f"{run}-") for run in unfinished)
        if path.name.startswith(".") or needed or not path.is_dir():
            continue
        days = max(0.0, time.time() - path.stat().st_mtime) / 86400
        found.append(KeptClones(path.name, path, days, tuple(_refs(path))))
    return sorted(found, key=lambda one: -one.days)


def note_end(root: Path, run: str) -> None:
    """Count the age of a run's clones from now on: it may have waited for a person for as long as they are kept."""
    for path in (root / run, *root.glob(f"{run}-*")):
        with suppress(OSError):
            os.utime(path)


def sizes(root: Path, found: Collection[KeptClones]) -> dict[str, int]:
    """Return the size of each run's clones. Cached until a clone is added or removed."""
    cache, known = root / ".sizes.json", dict[str, list[int]]()
    with suppress(OSError, ValueError):
        known = json.loads(cache.read_text())
    counted: dict[str, list[int]] = {}
    for one in found:
        with suppress(FileNotFoundError):
            changed = one.path.stat().st_mtime_ns
            before = known.get(one.run, [0, 0])
            counted[one.run] = before if before[0] == changed else [changed, one.bytes]
    if counted != known:
        with suppress(OSError):
            write_files(root, {cache.name: json.dumps(counted)}, 0o600)
    return {run: size for run, (_, size) in counted.items()}


def expire(
    root: Path, unfinished: Collection[str], days: float, most_bytes: int, environ: Mapping[str, str]
) -> list[str]:
    """Remove clones and refs older than ``days``, then the oldest clones while all exceed ``most_bytes`` (0: no limit).
    The latter are removed only if their work is at a ref, which stays. Removes part of a long list at a time, and
    returns the runs concerned."""
    removed: list[str] = []
    left: list[KeptClones] = []
    for one in list_kept(root, unfinished):
        with suppress(OSError):
            one.path.rmdir()  # it is empty
            continue
        if one.days >= days and len(removed) < MOST_REMOVED:
            with suppress(OSError, WorkspaceUnusable):  # another process removes it, or the next call does
                remove(one, environ)
                removed.append(one.run)
        else:
            left.append(one)
    taken = sizes(root, left) if most_bytes and left else {}
    over = sum(taken.values()) - most_bytes
    for one in left:
        if over > 0 and len(removed) < MOST_REMOVED and taken.get(one.run):
            with suppress(OSError, WorkspaceUnusable):
                if _remove_collected(one, environ):
                    removed.append(one.run)
                    over -= taken[one.run]
    return removed


def _remove_collected(one: KeptClones, environ: Mapping[str, str]) -> bool:
    """Remove only the clones whose work is at a ref, and report whether there were any. None is removed while a program
    works in one of them."""
    found = False
    for file, repository, _ in _facts(one.path) if _process_in(one.path) is None else ():
        name = file.name.removeprefix(".").removesuffix(".json")
        # An agent may have continued after its work was last collected.
        if not _is_collected(one, name, repository, environ):
            continue
        for path in [path for path in one.path.iterdir() if path.name == name or path.name.startswith(f"{name}.")]:
            remove_tree(path)
            found = True
    return found


def _is_collected(one: KeptClones, name: str, repository: Path, environ: Mapping[str, str]) -> bool:
    if not (one.path / name).is_dir():
        return True
    with suppress(SwarmError, OSError):
        return repository.is_dir() and Looker(repository, one.path.parent, environ).is_collected(one.run, name)
    return False


def remove(one: KeptClones, environ: Mapping[str, str]) -> None:
    """Remove the clones and refs of a run. Raises WorkspaceUnusable, also if a program still works in a clone."""
    if (found := _process_in(one.path)) is not None:
        pid, name = found
        raise WorkspaceUnusable(
            f"{name} (process {pid}) still works in {one.path}",
            suggestion=f"ai-session kill --run {one.run} where it runs in a terminal, or: kill {pid}",
        )
    git = Git(environ)
    for repository, ref in one.refs:
        if repository.is_dir():
            with suppress(WorkspaceUnusable, OSError):  # it is not a repository any more, or its disk is full
                for ending in REFS:
                    git.person(repository, "update-ref", "-d", ref + ending)
    remove_tree(one.path)


def _process_in(directory: Path) -> tuple[int, str] | None:
    """Return the id and name of a process working in the directory; None if there is none or it is unknown."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if Path(os.readlink(process / "cwd")).is_relative_to(directory):
                return int(process.name), (process / "comm").read_text().strip()
    return None


def _sizes(directory: int, depth: int = 0) -> Iterator[int]:
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(info.st_mode):
                    yield info.st_blocks * 512
                elif stat.S_ISDIR(info.st_mode) and depth < MOST_DEPTH:
                    inner = os.open(entry.name, DIRECTORY, dir_fd=directory)
                    try:
                        yield from _sizes(inner, depth + 1)
                    finally:
                        os.close(inner)


def _refs(path: Path) -> Iterator[tuple[Path, str]]:
    for _, repository, ref in _facts(path):
        yield repository, ref


def _facts(path: Path) -> Iterator[tuple[Path, Path, str]]:
    """Yield the file, the repository and the ref recorded next to each clone of a run."""
    for file in path.glob(".*.json"):
        with suppress(OSError, ValueError, KeyError):
            facts = json.loads(file.read_text())
            if str(facts["ref"]).startswith("refs/ccswarm/"):
                yield file, Path(facts["repository"]), str(facts["ref"])
