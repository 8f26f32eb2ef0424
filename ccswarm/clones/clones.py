"""A git clone for each attempt at a task, and the merge of its work into the repository.

A clone shares nothing with the repository it was made from, so nothing done in it can damage the repository. A linked
worktree could, and a shared object store cannot be read inside a sandbox. An agent may have written the clone's
configuration, hooks and files, so no program that would act on them ever reads them there: files and objects are read
name by name without following links, and git only sees them in a private repository (``git``).
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

from ccswarm.clones.collect import LOCK_SECONDS, Clone, Clones, shorten
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
    """The result of a merge. ``commits`` counts those merged; 0 if there was nothing new. ``candidate`` is the merge
    into ``head`` as a commit, if it was not carried out because it was not judged. ``not_run`` are the hooks and
    settings of the person's that git would have used."""

    commits: int
    head: str
    candidate: str = ""
    not_run: tuple[str, ...] = ()


class Workspaces:
    """The clones of one repository, under ``root``. Methods raise WorkspaceUnusable with git's message if git fails.
    ``repository`` is a path without links; if a link replaces part of it later, it is refused. ``environ`` is the
    environment of git."""

    def __init__(
        self, repository: Path, root: Path, environ: Mapping[str, str], *, lock_seconds: float = LOCK_SECONDS
    ) -> None:
        self.repository = repository
        self._root = root
        self._local_lock = asyncio.Lock()
        self._environ = environ
        self._git = Git(environ, written=(str(repository),))
        self._clones = Clones(repository, root, self._git, lock_seconds=lock_seconds)

    async def clone(self, run_id: str, name: str) -> Clone:
        """Return the clone of that name, made from the current commit unless it exists."""

        def made() -> Clone:
            with _disk_errors_as_conflicts(self.repository):
                return self._clones.make(run_id, name)

        return await in_thread(made)

    async def require_merged(self, clone: Clone, merged: Mapping[str, str]) -> None:
        """Raise Conflict, and remove a new clone, if it lacks one of the commits in ``merged``. The keys of ``merged``
        name the tasks whose work the commits hold."""
        try:
            await self._exclusively(lambda: self._clones.require(clone, merged))
        except Conflict:
            await self.forget(clone)
            raise

    async def copy(self, clone: Clone, commit: str, name: str, *, seconds: float | None = None) -> Clone:
        """Return a separate clone that has ``commit``, collected from ``clone``, checked out. It is for reviewers,
        whose changes are discarded. A clone of that ``name`` is reused."""

        def copied() -> Clone:
            with _disk_errors_as_conflicts(self.repository), _time_limit(seconds):
                return self._clones.copy(clone, commit, name)

        return await in_thread(copied)

    async def difference(self, base: str, commit: str) -> Difference:
        """Return the difference of the repository's files between two commits."""

        def compared() -> Difference:
            with self._clones.scratch() as scratch:
                return self._clones.difference(base, commit, scratch)

        return await self._exclusively(compared)

    async def leave_on_branch(self, clone: Clone, commit: str) -> tuple[str, bool]:
        """Create a branch at ``commit`` for a person to merge, and return its name. The second value tells whether the
        current branch contains the commit already. An existing branch of that name is left as it is. Raises Conflict if
        the branch cannot be created."""
        return await self._exclusively(lambda: self._clones.leave_on_branch(clone, commit))

    async def require_ready(self, *, merges: bool = True) -> None:
        """Raise Conflict if future work could not be committed, merged (if ``merges``) or left on a branch. Reasons are
        a missing identity, uncommitted changes and a sparse checkout."""

        def changed() -> list[str]:
            repository = self._clones.repository()
            self._git.identity(self.repository, repository.configuration)
            if merges:
                require_whole(repository)
            else:
                self._clones.require_branches()
            return uncommitted(self._git, self._clones, repository)

        if mine := await self._exclusively(changed):
            raise Conflict(
                f"{self.repository} has uncommitted changes, so no work could be merged into it: {shorten(mine)}",
                suggestion="commit or stash them, then ccswarm resume",
            )

    async def commit(self, clone: Clone, title: str, *, seconds: float | None = None) -> str:
        """Copy all work in the clone to its ``ref``, and return the commit with it, or the base if there is none.

        Uncommitted files become one more commit, except for those that .gitignore names. The clone's own configuration
        is not used, and nothing in the clone changes. If the clone was removed, the work is what was collected before.
        Raises WorkRefused for other repositories inside the clone, files that pass through a filter, and objects that
        git rejects.
        """
        return await self._exclusively(lambda: self._clones.collect(clone, title).commit, seconds)

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
        """Merge ``commit``, which was collected from the clone, into what is checked out in the repository.

        Merges run one at a time. Without ``commit`` the work is collected first. ``configuration`` names files that
        decide what agents may do, in addition to every ``ccswarm.toml``. With ``judged`` the merge is carried out only
        if the resulting files are those of one of these commits; otherwise it only exists as a commit, to be judged.

        Raises Conflict if the repository has uncommitted changes, both sides changed the same lines, or the work
        changes ccswarm's configuration: then the repository is unchanged, and the work is at ``clone.ref``. Raises
        WorkRefused as ``commit`` does, and if it takes longer than ``seconds``, not counting the wait for its turn.
        """

        def merged() -> Merged:
            if commit:
                work, repository = commit, self._clones.repository()
                commits = self._clones.unmerged(repository, work)
            else:
                collected = self._clones.collect(clone, title)
                work, commits, repository = collected.commit, collected.commits, collected.repository
            if work == clone.base or not commits:
                return Merged(0, repository.head)
            if finish(self._git, self._clones, repository, self._clones.lock_seconds):
                repository = self._clones.repository()
                if not self._clones.unmerged(repository, work):
                    return Merged(commits, repository.head, not_run=not_run(self._git, repository))
            files = [Path(file).resolve() for file in configuration]
            made = merge(self._git, self._clones, clone, work, repository, files, title, judged)
            if not made.is_merged:
                return Merged(0, made.head, made.commit)
            return Merged(commits, made.commit, not_run=not_run(self._git, repository))

        return await self._exclusively(merged, seconds)

    async def discard(self, clone: Clone) -> None:
        """Remove the clone with all its contents; its ref stays."""
        await asyncio.to_thread(self._clones.remove, clone)

    async def forget(self, clone: Clone) -> None:
        """Remove the clone and its refs. Its work is merged, or there is none."""

        def forgotten() -> None:
            with _disk_errors_as_conflicts(self.repository):
                self._clones.forget(clone)

        await in_thread(forgotten)

    async def is_repository(self) -> bool:
        """Report whether there is a repository with a commit to clone."""
        if not self.repository.is_dir() or not shutil.which("git", path=self._environ.get("PATH")):
            return False
        try:
            await in_thread(self._clones.checked_out)
        except WorkspaceUnusable:
            return False
        return True

    async def _exclusively(self, do: Callable[[], T], seconds: float | None = None) -> T:
        # Waiting for another process occupies one of few threads; waiting for this one's own calls does not.
        async with self._local_lock:
            return await in_thread(lambda: self._locked(do, seconds))

    def _locked(self, do: Callable[[], T], seconds: float | None) -> T:
        with _disk_errors_as_conflicts(self.repository), _process_lock(self._root), _time_limit(seconds):
            return do()


@contextmanager
def _disk_errors_as_conflicts(repository: Path) -> Generator[None]:
    """Convert an OSError to a Conflict. A person fixes the disk, and the work continues later."""
    try:
        yield
    except OSError as error:
        raise Conflict(
            f"{error.filename or repository}: {error.strerror}",
            suggestion="check free disk space and permissions; then ccswarm resume",
        ) from None


@contextmanager
def _time_limit(seconds: float | None) -> Generator[None]:
    """Raise WorkRefused if the block takes longer."""
    try:
        with time_limit(seconds):
            yield
    except OutOfTime:
        raise WorkRefused(
            f"it was not collected in the remaining time ({max(0.0, seconds or 0.0):.3g} s)",
            suggestion="check how large it is, or give the task more time; then ccswarm resume",
        ) from None


@contextmanager
def _process_lock(root: Path) -> Generator[None]:
    """Hold the lock that all processes share while one of them collects or merges."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(root, DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
