"""A person's repository with one commit, and the clones that agents work in."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ccswarm.clones.clones import Clone, Workspaces


class World:
    """``given`` are words for ``git init``."""

    def __init__(self, directory: Path, given: Sequence[str] = ()) -> None:
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            **{f"GIT_{who}_{what}": "t@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
        self.directory = directory
        self.repository = directory / "project"
        self.repository.mkdir()
        self.git("init", "-q", "-b", "main", *given)
        self.write(self.repository / "a.txt", "one\n")
        self.commit(self.repository, "first")
        self.workspaces = Workspaces(self.repository, directory / "clones", self.environ, lock_seconds=0)

    def git(self, *words: str, at: Path | None = None, given: str = "") -> str:
        where = at or self.repository
        done = subprocess.run(
            ["git", *words], cwd=where, env=self.environ, check=True, capture_output=True, text=True, input=given
        )
        return done.stdout.strip()

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
