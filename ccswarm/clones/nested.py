"""Repositories inside a work tree that git did not create. Methods block.

Their parts are ordinary files, but git treats a directory that has them as a repository and obeys its configuration and
hooks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from agentwire.system.path_patterns import fold, fold_path
from ccswarm.clones.checkout import Change
from ccswarm.clones.git import Git, PrivateRepository
from ccswarm.errors import WorkRefused

HEAD = "head"
LEADING = frozenset(("config", "config.worktree", "commondir"))
"""Files next to HEAD that name programs, or another directory that does."""
STORES = frozenset(("objects", "refs"))
PARTS = LEADING | STORES | {HEAD, "hooks"}


def refuse_nested(git: Git, repository: PrivateRepository, commit: str, changed: Sequence[Change], top: Path) -> None:
    """Raise WorkRefused if ``commit``, written over ``top``, has a directory that git uses as a repository. ``changed``
    are the changes of the commit; only a directory without a work tree is searched for."""
    suspects: dict[str, str] = {}
    for change in changed:
        names = change.path.split("/") if not change.removed else ()
        for count, name in enumerate(names):
            if fold(name) in PARTS:
                folder = "/".join(names[:count])
                suspects[fold_path(folder)] = folder
    if not suspects:
        return
    output = git.private(repository, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
    inner = _inner(output.decode(errors="surrogateescape").split("\0")[:-1], suspects)
    for folded, folder in sorted(suspects.items()):
        files, directories = inner[folded]
        with suppress(OSError), os.scandir(top / folder) as entries:
            for entry in entries:
                (directories if entry.is_dir(follow_symlinks=False) else files).add(fold(entry.name))
        if HEAD in files and (files & LEADING or files | directories >= STORES):
            raise WorkRefused(
                f"{folder or '.'!r} is a git repository without a work tree, whose configuration runs programs",
                suggestion=f"remove {folder!r}, or name it in .gitignore",
            )


def _inner(paths: Iterable[str], folders: Iterable[str]) -> dict[str, tuple[set[str], set[str]]]:
    found: dict[str, tuple[set[str], set[str]]] = {folder: (set(), set()) for folder in folders}
    for path in paths:
        names = fold_path(path).split("/")
        for count, name in enumerate(names):
            if inner := found.get("/".join(names[:count])):
                inner[0 if count == len(names) - 1 else 1].add(name)
    return found


def other_repositories(top: Path, paths: Iterable[str]) -> list[str]:
    """Return the directories below the top that contain ``paths`` and are repositories of their own."""
    around: dict[str, None] = {}
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in around:
            around[path] = None
    return sorted(path for path in around if _is_repository(top / path))


def _is_repository(directory: Path) -> bool:
    names: set[str] = set()
    for name in (".git", "HEAD", "commondir", *STORES):
        with suppress(OSError):
            mode = (directory / name).lstat().st_mode
            if name != "HEAD" or not stat.S_ISDIR(mode):
                names.add(name)
    return ".git" in names or ("HEAD" in names and ("commondir" in names or names >= STORES))
