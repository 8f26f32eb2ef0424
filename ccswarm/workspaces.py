"""A git clone for each agent, and the way of its work back: taken over and merged by us, never lost.

A clone shares nothing with the repository it was made from, so nothing done in it can damage that one (a linked
worktree can, and a shared object store cannot be read inside a sandbox). What an agent could have written, its clone's
configuration, hooks and files, is never given to a program that would heed it: files and objects are read name by name
without following links, and git only ever sees them in a repository of ours (``workspaces_git``).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ccswarm.errors import Conflict, WorkspaceUnusable
from ccswarm.workspaces_collect import Clone, Clones
from ccswarm.workspaces_git import Git
from ccswarm.workspaces_merge import merge
from ccswarm.workspaces_tree import DIRECTORY

__all__ = ("Clone", "Merged", "Workspaces")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Merged:
    """``commits`` came over; 0: there was nothing new."""

    commits: int
    head: str


class Workspaces:
    """The clones of one repository, under ``root``. ``environ`` is what git is run with. Every method raises
    WorkspaceUnusable with git's own words when git fails."""

    def __init__(self, repository: Path, root: Path, environ: Mapping[str, str]) -> None:
        self.repository = repository
        self._root = root
        self._own_turn = asyncio.Lock()
        self._environ = environ
        self._git = Git(environ)
        self._clones = Clones(repository, root, self._git)

    async def clone(self, run_id: str, agent: str) -> Clone:
        """The agent's clone, made from what is committed now unless it is there already."""
        return await asyncio.to_thread(self._clones.make, run_id, agent)

    async def collect(self, clone: Clone, title: str) -> int:
        """Bring all work in the clone over to its ``ref``: what is committed there, and as one commit more what is not
        (but for what .gitignore names). How many commits are not merged yet. The clone's own configuration is not
        heeded, and nothing in the clone is changed. Of a clone that is gone it is what was brought over before.

        Raises WorkRefused for what cannot be taken over: other repositories inside the clone, files that go through a
        filter, what git would not take from a stranger.
        """
        return await self._in_turn(lambda: self._clones.collect(clone, title))

    async def merge(self, clone: Clone, title: str, configuration: Collection[str] = ()) -> Merged:
        """Collect, and merge into what is checked out in the repository; one merge at a time. ``configuration`` are
        files that decide what agents may do, beside every ``ccswarm.toml``.

        Raises Conflict when the repository has uncommitted changes, both changed the same, or the work changes what
        it is configured by: then the repository is as it was, and the work lies at ``clone.ref``.
        WorkRefused as ``collect``.
        """
        return await self._in_turn(lambda: self._merge(clone, title, configuration))

    async def remove(self, clone: Clone, *, force: bool = False) -> None:
        """Remove the clone. Raises Conflict where work in it is not merged, unless ``force``; what was collected stays
        at its ref even then."""
        if not clone.path.is_dir():
            return
        if not force and (commits := await self.collect(clone, f"left in the clone of {clone.path.name}")):
            raise Conflict(
                f"{clone.path} has work that is not merged ({commits} commits)",
                suggestion=f"git merge {clone.ref}",
            )
        await asyncio.to_thread(shutil.rmtree, clone.path)

    async def is_repository(self) -> bool:
        """Whether there is a repository with a commit to make clones from."""
        if not self.repository.is_dir() or not shutil.which("git", path=self._environ.get("PATH")):
            return False
        try:
            await asyncio.to_thread(self._clones.head)
        except WorkspaceUnusable:
            return False
        return True

    def _merge(self, clone: Clone, title: str, configuration: Collection[str]) -> Merged:
        if commits := self._clones.collect(clone, title):
            files = [Path(file).resolve() for file in configuration]
            head = merge(self._git, self._clones, clone, self.repository, files, title)
            return Merged(commits, head)
        return Merged(0, self._clones.head())

    async def _in_turn(self, do: Callable[[], T]) -> T:
        # Whoever waits for another process takes a thread of few; for this process's own it takes none.
        async with self._own_turn:
            return await asyncio.to_thread(self._alone, do)

    def _alone(self, do: Callable[[], T]) -> T:
        with _turn(self._root):
            return do()


@contextmanager
def _turn(root: Path) -> Generator[None]:
    """While one collects or merges; waits for the other processes."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(root, DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
