"""A person's repository with one commit, and the clones that agents work in."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ccswarm.clones.clones import Clone, Workspaces


def environ(home: Path) -> dict[str, str]:
    """Return the environment of a person's git."""
    who = {f"GIT_{who}_{what}": "t@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {"PATH": os.environ["PATH"], "HOME": str(home), **who}


def git(directory: Path, env: dict[str, str], *words: str, given: str = "") -> str:
    """Run git and return its output, without maintenance, which takes as long as a commit."""
    line = ["git", "-c", "maintenance.auto=false", *words]
    done = subprocess.run(line, cwd=directory, env=env, check=True, capture_output=True, text=True, input=given)
    return done.stdout.strip()


@cache
def first(given: tuple[str, ...]) -> Path:
    """Return a repository with one commit, created once in this process for tests to copy."""
    home = Path(tempfile.mkdtemp(prefix="first-", dir="/tmp"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    repository, env = home / "project", environ(home)
    repository.mkdir()
    git(repository, env, "init", "-q", "-b", "main", *given)
    for sample in (repository / ".git/hooks").iterdir():  # half of what each copy would copy
        sample.unlink()
    (repository / "a.txt").write_text("one\n")
    git(repository, env, "add", "-A")
    git(repository, env, "commit", "-qm", "first")
    return repository


class ClonedProject:
    """A repository and the workspaces of its clones. ``given`` are arguments for ``git init``."""

    def __init__(self, directory: Path, given: Sequence[str] = ()) -> None:
        self.environ = environ(directory)
        self.directory = directory
        self.repository = directory / "project"
        shutil.copytree(first(tuple(given)), self.repository, symlinks=True)
        self.git("update-index", "-q", "--refresh")  # so that the index knows the copied files
        self.workspaces = Workspaces(self.repository, directory / "clones", self.environ, lock_seconds=0)

    def git(self, *words: str, at: Path | None = None, given: str = "") -> str:
        where = at or self.repository
        return git(where, self.environ, *words, given=given)

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self, at: Path, title: str) -> str:
        self.git("add", "-A", at=at)
        self.git("commit", "-qm", title, at=at)
        return self.git("rev-parse", "HEAD", at=at)

    async def work(self, agent: str, name: str, text: str) -> Clone:
        clone = await self.workspaces.clone("run_1", agent)
        self.write(clone.path / name, text)
        self.commit(clone.path, f"{agent} wrote {name}")
        return clone
