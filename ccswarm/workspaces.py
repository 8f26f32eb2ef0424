"""A git clone for each agent, and the way of its work back: fetched and merged by us, never lost.

A clone shares nothing with the repository it was made from, so nothing done in it can damage that one (a linked
worktree can, and a shared object store cannot be read inside a sandbox). What an agent could have written, its clone's
configuration and hooks too, is never given to a git that would heed it: we only fetch from a clone, and read its
files with the repository's own configuration.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ccswarm.errors import Conflict, WorkspaceUnusable

SAFE = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "commit.gpgSign=false")
SHOWN_PATHS = 10


@dataclass(frozen=True, slots=True)
class Clone:
    """One agent's. ``branch`` is checked out in it, ``ref`` is where its work lies in the repository once collected."""

    path: Path
    branch: str
    ref: str
    base: str
    """The commit it was made from."""


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
        self._environ = {
            **environ,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "LC_ALL": "C.UTF-8",
        }

    async def clone(self, run_id: str, agent: str) -> Clone:
        """The agent's clone, made from what is committed now unless it is there already."""
        path = self._root / run_id / agent
        branch, ref = f"agent/{run_id}/{agent}", f"refs/ccswarm/{run_id}/{agent}"
        if not path.is_dir():
            base = await self._git("rev-parse", "--verify", "HEAD^{commit}")
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished = path.with_name(f".{agent}.new")
            shutil.rmtree(unfinished, ignore_errors=True)
            await self._git("clone", "--quiet", "--no-hardlinks", "--no-tags", str(self.repository), str(unfinished))
            await self._git("checkout", "--quiet", "-B", branch, base, directory=unfinished)
            await self._git("update-ref", f"{ref}-base", base)
            unfinished.rename(path)
        base = await self._git("rev-parse", "--verify", f"{ref}-base")
        return Clone(path, branch, ref, base)

    async def collect(self, clone: Clone, title: str) -> int:
        """Bring all work in the clone over to its ``ref``: what is committed there, and as one commit more what is not
        (but for what .gitignore names). How many commits are not merged yet. The clone's own configuration is not
        heeded, and nothing in the clone is changed. Of a clone that is gone it is what was brought over before."""
        if not clone.path.is_dir():
            return int(await self._git("rev-list", "--count", f"HEAD..{clone.ref}"))
        sent = f"{clone.ref}-sent"
        await self._git(
            "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head",
            str(clone.path), f"+refs/heads/{clone.branch}:{sent}",
        )  # fmt: skip
        tree = await self._tree(clone, sent)
        commit = await self._git("rev-parse", sent)
        if tree != await self._git("rev-parse", f"{sent}^{{tree}}"):
            known, found = await self._run(("rev-parse", f"{clone.ref}^{{tree}}", f"{clone.ref}^"), self.repository)
            if known == 0 and found.split("\n") == [tree, commit]:
                commit = await self._git("rev-parse", clone.ref)
            else:
                commit = await self._git("commit-tree", tree, "-p", commit, "-m", title)
        await self._git("update-ref", clone.ref, commit)
        return int(await self._git("rev-list", "--count", f"HEAD..{clone.ref}"))

    async def _tree(self, clone: Clone, sent: str) -> str:
        index = clone.path.with_name(f".{clone.path.name}.index")
        directory = await self._git("rev-parse", "--absolute-git-dir")
        environ = {"GIT_DIR": directory, "GIT_WORK_TREE": str(clone.path), "GIT_INDEX_FILE": str(index)}
        try:
            await self._git("read-tree", sent, directory=clone.path, environ=environ)
            await self._git("add", "--all", directory=clone.path, environ=environ)
            return await self._git("write-tree", directory=clone.path, environ=environ)
        finally:
            index.unlink(missing_ok=True)

    async def merge(self, clone: Clone, title: str) -> Merged:
        """Collect, and merge into what is checked out in the repository; one merge at a time.

        Raises Conflict when the repository has uncommitted changes, or both changed the same: then the repository is as
        it was, and the work lies at ``clone.ref``.
        """
        # Whoever waits for another process takes a thread of few; for this process's own merges it takes none.
        async with self._own_turn:
            return await self._merge_in_turn(clone, title)

    async def _merge_in_turn(self, clone: Clone, title: str) -> Merged:
        with await asyncio.to_thread(_turn, self._root):
            commits = await self.collect(clone, title)
            if commits:
                if dirty := await self._git("status", "--porcelain", "--untracked-files=no"):
                    raise Conflict(
                        f"{self.repository} has uncommitted changes: {_few(line[3:] for line in dirty.splitlines())}",
                        suggestion=f"commit or stash them; its work lies at {clone.ref}",
                    )
                await self._merge(clone, title)
            return Merged(commits, await self._git("rev-parse", "HEAD"))

    async def _merge(self, clone: Clone, title: str) -> None:
        code, output = await self._run(("merge", "--no-ff", "--no-edit", "-m", title, clone.ref), self.repository)
        if code == 0:
            return
        unmerged = await self._git("diff", "--name-only", "--diff-filter=U")
        _, _ = await self._run(("merge", "--abort"), self.repository)
        if not unmerged:
            raise Conflict(f"git merge: {output}", suggestion=f"repair what git says; its work lies at {clone.ref}")
        raise Conflict(
            f"both changed {_few(unmerged.splitlines())}",
            suggestion=f"merge by hand in {self.repository}: git merge {clone.ref}",
        )

    async def remove(self, clone: Clone, *, force: bool = False) -> None:
        """Remove the clone. Raises Conflict where work in it is not merged, unless ``force``; what was collected stays
        at its ref even then."""
        if not clone.path.is_dir():
            return
        if not force and (commits := await self.collect(clone, f"left in the clone of {clone.path.name}")):
            raise Conflict(
                f"{clone.path} has work that is not merged ({commits} commits)",
                suggestion=f"git merge {clone.ref}, or remove it with --force",
            )
        await asyncio.to_thread(shutil.rmtree, clone.path)

    async def is_repository(self) -> bool:
        """Whether there is a repository with a commit to make clones from."""
        if not self.repository.is_dir() or not shutil.which("git", path=self._environ.get("PATH")):
            return False
        code, _ = await self._run(("rev-parse", "--verify", "--quiet", "HEAD^{commit}"), self.repository)
        return code == 0

    async def _git(self, *words: str, directory: Path | None = None, environ: Mapping[str, str] | None = None) -> str:
        code, output = await self._run(words, directory or self.repository, environ or {})
        if code:
            raise WorkspaceUnusable(
                f"git {words[0]} in {directory or self.repository}: {output or f'exit code {code}'}",
                suggestion="the workspace has to be a git repository with a commit; or set workspace = 'shared'",
            )
        return output

    async def _run(
        self, words: Sequence[str], directory: Path, environ: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        try:
            process = await asyncio.create_subprocess_exec(
                "git", *SAFE, *words,
                cwd=directory, env={**self._environ, **(environ or {})},
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except OSError as error:
            raise WorkspaceUnusable(
                f"git cannot be run in {directory}: {error.strerror}",
                suggestion="install git, or use workspace = 'shared'",
            ) from None
        output, problems = await process.communicate()
        text = output if not process.returncode else output + problems
        return process.returncode or 0, text.decode(errors="replace").strip("\n")


def _turn(root: Path) -> closing[_Lock]:
    """Held while one merges; waits for the others."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = _Lock(os.open(root, os.O_RDONLY | os.O_CLOEXEC))
    fcntl.flock(lock.fd, fcntl.LOCK_EX)
    return closing(lock)


@dataclass(frozen=True, slots=True)
class _Lock:
    fd: int

    def close(self) -> None:
        os.close(self.fd)


def _few(paths: Iterable[str]) -> str:
    found = list(paths)
    more = f" and {len(found) - SHOWN_PATHS} more" if len(found) > SHOWN_PATHS else ""
    return ", ".join(found[:SHOWN_PATHS]) + more
