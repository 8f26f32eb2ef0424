"""A git clone for each attempt at a task, and the way of its work back: taken over and merged by us, never lost.

A clone shares nothing with the repository it was made from, so nothing done in it can damage that one (a linked
worktree can, and a shared object store cannot be read inside a sandbox). What an agent could have written, its clone's
configuration, hooks and files, is never given to a program that would heed it: files and objects are read name by name
without following links, and git only ever sees them in a repository of ours (``git``).
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

from ccswarm.clones.collect import LOCK_SECONDS, Clone, Clones, few
from ccswarm.clones.difference import Difference
from ccswarm.clones.git import Git
from ccswarm.clones.hooks import not_run
from ccswarm.clones.merge import finish, merge, require_whole, uncommitted
from ccswarm.clones.threads import in_thread
from ccswarm.errors import Conflict, WorkRefused, WorkspaceUnusable
from ccswarm.system.bounded_process import OutOfTime, time_limit
from ccswarm.system.untrusted_tree import DIRECTORY

__all__ = ("Clone", "Difference", "Merged", "Workspaces")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Merged:
    """``commits`` came over; 0: there was nothing new. ``candidate`` is what the merge into ``head`` would be, where
    nothing was merged since nobody judged it. ``not_run`` are what git itself would have done for the person."""

    commits: int
    head: str
    candidate: str = ""
    not_run: tuple[str, ...] = ()


class Workspaces:
    """The clones of one repository, under ``root``. ``repository`` has its links followed already: one that takes the
    place of a directory on its way later is refused. ``environ`` is what git is run with. Every method raises
    WorkspaceUnusable with git's own words when git fails."""

    def __init__(
        self, repository: Path, root: Path, environ: Mapping[str, str], *, lock_seconds: float = LOCK_SECONDS
    ) -> None:
        self.repository = repository
        self._root = root
        self._own_turn = asyncio.Lock()
        self._environ = environ
        self._git = Git(environ, written=(str(repository),))
        self._clones = Clones(repository, root, self._git, lock_seconds=lock_seconds)

    async def clone(self, run_id: str, name: str) -> Clone:
        """The clone of that name, made from what is committed now unless it is there already."""

        def made() -> Clone:
            with _on_disk(self.repository):
                return self._clones.make(run_id, name)

        return await in_thread(made)

    async def require_merged(self, clone: Clone, merged: Mapping[str, str]) -> None:
        """Raises Conflict where a clone that nobody has worked in was made from something that lacks one of the commits
        of ``merged``, which are named by whose work they are; then the clone is gone."""
        try:
            await self._in_turn(lambda: self._clones.require(clone, merged))
        except Conflict:
            await self.forget(clone)
            raise

    async def copy(self, clone: Clone, commit: str, name: str, *, seconds: float | None = None) -> Clone:
        """A clone of its own with ``commit``, which was collected from ``clone``, checked out: for who looks at the
        work and whose changes come to nothing. It is there already where one of that ``name`` was made."""

        def copied() -> Clone:
            with _on_disk(self.repository), _in_time(seconds):
                return self._clones.copy(clone, commit, name)

        return await in_thread(copied)

    async def difference(self, base: str, commit: str) -> Difference:
        """What of the repository's files is another one in ``commit`` than it was in ``base``."""

        def compared() -> Difference:
            with self._clones.scratch() as scratch:
                return self._clones.difference(base, commit, scratch)

        return await self._in_turn(compared)

    async def leave_on_branch(self, clone: Clone, commit: str) -> tuple[str, bool]:
        """The branch of the repository that ``commit`` lies on from now on, for a person to merge, and whether what is
        checked out has it already. A branch of that name that is there stays as it is. Raises Conflict where none of
        that name can be."""
        return await self._in_turn(lambda: self._clones.leave_on_branch(clone, commit))

    async def require_ready(self, *, merges: bool = True) -> None:
        """Raises Conflict where work that is to be done could not be committed, or, where somebody ``merges`` it, not
        be merged into the repository, for what is not committed there, or for what is not checked out; or else not be
        left on a branch."""
        await in_thread(lambda: self._git.identity(self.repository))
        if merges:
            await in_thread(lambda: require_whole(self._clones.repository()))
        else:
            await in_thread(self._clones.require_branches)
        if mine := await self._in_turn(lambda: uncommitted(self._git, self._clones)):
            raise Conflict(
                f"{self.repository} has uncommitted changes, so no work could be merged into it: {few(mine)}",
                suggestion="commit or stash them, then ccswarm resume",
            )

    async def commit(self, clone: Clone, title: str, *, seconds: float | None = None) -> str:
        """As ``collect``; the commit that holds the work, which is the clone's base where there is none."""

        def collected() -> str:
            self._clones.collect(clone, title)
            return self._clones.work(clone)

        return await self._in_turn(collected, seconds)

    async def collect(self, clone: Clone, title: str) -> int:
        """Bring all work in the clone over to its ``ref``: what is committed there, and as one commit more what is not
        (but for what .gitignore names). How many commits are not merged yet. The clone's own configuration is not
        heeded, and nothing in the clone is changed. Of a clone that is gone it is what was brought over before.

        Raises WorkRefused for what cannot be taken over: other repositories inside the clone, files that go through a
        filter, what git would not take from a stranger.
        """
        return await self._in_turn(lambda: self._clones.collect(clone, title))

    async def merge(
        self,
        clone: Clone,
        title: str,
        configuration: Collection[str] = (),
        *,
        commit: str = "",
        judged: Collection[str] | None = None,
        seconds: float | None = None,
    ) -> Merged:
        """Merge ``commit``, which was collected from the clone, into what is checked out in the repository; one merge
        at a time. Without one, collect what is there first. ``configuration`` are files that decide what agents may do,
        beside every ``ccswarm.toml``. With ``judged`` nothing is merged unless the files are then those of one of these
        commits: else the merge is only made as a commit, for somebody to judge it.

        Raises Conflict when the repository has uncommitted changes, both changed the same, or the work changes what
        it is configured by: then the repository is as it was, and the work lies at ``clone.ref``.
        WorkRefused as ``collect``, and where it is not done ``seconds`` after its turn came.
        """
        return await self._in_turn(lambda: self._merge(clone, title, configuration, commit, judged), seconds)

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
        await self.discard(clone)

    async def discard(self, clone: Clone) -> None:
        """Remove the clone with all that is in it, whoever may miss it; its ref stays."""
        await asyncio.to_thread(self._clones.remove, clone)

    async def forget(self, clone: Clone) -> None:
        """Remove the clone and its refs: its work is merged, or there is none."""

        def forgotten() -> None:
            with _on_disk(self.repository):
                self._clones.forget(clone)

        await in_thread(forgotten)

    async def is_repository(self) -> bool:
        """Whether there is a repository with a commit to make clones from."""
        if not self.repository.is_dir() or not shutil.which("git", path=self._environ.get("PATH")):
            return False
        try:
            await in_thread(self._clones.checked_out)
        except WorkspaceUnusable:
            return False
        return True

    def _merge(
        self, clone: Clone, title: str, configuration: Collection[str], commit: str, judged: Collection[str] | None
    ) -> Merged:
        if not commit:
            self._clones.collect(clone, title)
            commit = self._clones.work(clone)
        repository = self._clones.repository()
        if commit == clone.base or not (commits := self._clones.unmerged(repository, commit)):
            return Merged(0, repository.head)
        if finish(self._git, self._clones, repository, self._clones.lock_seconds):
            repository = self._clones.repository()
            if not self._clones.unmerged(repository, commit):
                return Merged(commits, repository.head, not_run=not_run(self._git, self.repository))
        files = [Path(file).resolve() for file in configuration]
        made = merge(self._git, self._clones, clone, commit, repository, files, title, judged)
        if not made.is_merged:
            return Merged(0, made.head, made.commit)
        return Merged(commits, made.commit, not_run=not_run(self._git, self.repository))

    async def _in_turn(self, do: Callable[[], T], seconds: float | None = None) -> T:
        # Whoever waits for another process takes a thread of few; for this process's own it takes none.
        async with self._own_turn:
            return await in_thread(lambda: self._alone(do, seconds))

    def _alone(self, do: Callable[[], T], seconds: float | None) -> T:
        with _on_disk(self.repository), _turn(self._root), _in_time(seconds):
            return do()


@contextmanager
def _on_disk(repository: Path) -> Generator[None]:
    """What a disk does not take, or give, is a person's to see to; what was begun of it is continued later."""
    try:
        yield
    except OSError as error:
        raise Conflict(
            f"{error.filename or repository}: {error.strerror}",
            suggestion="check free disk space and permissions; then ccswarm resume",
        ) from None


@contextmanager
def _in_time(seconds: float | None) -> Generator[None]:
    """What takes longer is refused."""
    try:
        with time_limit(seconds):
            yield
    except OutOfTime:
        raise WorkRefused(
            f"it was not taken over in the remaining time ({max(0.0, seconds or 0.0):.3g} s)",
            suggestion="check how large it is, or give the task more time; then ccswarm resume",
        ) from None


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
