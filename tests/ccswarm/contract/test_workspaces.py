"""Clones with real git: work comes back whole or not at all, and nothing an agent plants in its clone is run."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from ccswarm.errors import Conflict, WorkspaceUnusable
from ccswarm.workspaces import Clone, Workspaces

pytestmark = pytest.mark.anyio


class World:
    """A repository with one commit, and the clones made from it."""

    def __init__(self, directory: Path) -> None:
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            **{f"GIT_{who}_{what}": "t@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
        self.directory = directory
        self.repository = directory / "project"
        self.repository.mkdir()
        self.git("init", "-q", "-b", "main")
        self.write(self.repository / "a.txt", "one\n")
        self.commit(self.repository, "first")
        self.workspaces = Workspaces(self.repository, directory / "clones", self.environ)

    def git(self, *words: str, at: Path | None = None) -> str:
        where = at or self.repository
        done = subprocess.run(["git", *words], cwd=where, env=self.environ, check=True, capture_output=True, text=True)
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


@pytest.fixture
def place(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_work_of_two_agents_comes_back(place: World) -> None:
    ada, bob = await place.work("ada", "b.txt", "b\n"), await place.work("bob", "c.txt", "c\n")
    assert (await place.workspaces.merge(ada, "ada's work")).commits == 1
    assert (await place.workspaces.merge(bob, "bob's work")).commits == 1
    assert sorted(path.name for path in place.repository.glob("*.txt")) == ["a.txt", "b.txt", "c.txt"]
    assert place.git("log", "--format=%s", "-4").splitlines()[0] == "bob's work"
    assert place.git("status", "--porcelain") == ""
    assert (await place.workspaces.merge(ada, "again")).commits == 0
    for clone in (ada, bob):
        await place.workspaces.remove(clone)
        assert not clone.path.exists()


async def test_merges_at_once_take_turns(place: World) -> None:
    clones = [await place.work(f"a{number}", f"{number}.txt", "x\n") for number in range(5)]
    done = await asyncio.gather(*(place.workspaces.merge(clone, clone.branch) for clone in clones))
    assert [merged.commits for merged in done] == [1] * 5
    assert len(list(place.repository.glob("*.txt"))) == 6


async def test_the_same_agent_finds_its_clone_again_and_what_it_was_made_from(place: World) -> None:
    clone = await place.work("ada", "b.txt", "b\n")
    place.write(place.repository / "later.txt", "later\n")
    place.commit(place.repository, "later")
    assert await place.workspaces.clone("run_1", "ada") == clone
    assert clone.base == place.git("rev-parse", "HEAD~1")
    assert (clone.path / "b.txt").exists()
    other = await place.workspaces.clone("run_2", "ada")
    assert (other.path / "later.txt").exists()


async def test_a_clone_that_was_cut_short_is_made_anew(place: World) -> None:
    place.write(place.directory / "clones/run_1/.ada.new/half", "half")
    clone = await place.workspaces.clone("run_1", "ada")
    assert sorted(path.name for path in clone.path.iterdir()) == [".git", "a.txt"]


async def test_a_dirty_repository_is_not_merged_into(place: World) -> None:
    clone = await place.work("ada", "b.txt", "b\n")
    place.write(place.repository / "a.txt", "mine\n")
    with pytest.raises(Conflict, match=r"uncommitted changes: a\.txt") as refused:
        await place.workspaces.merge(clone, "ada's work")
    assert refused.value.suggestion == "commit or stash them; its work lies at refs/ccswarm/run_1/ada"
    assert (place.repository / "a.txt").read_text() == "mine\n"
    assert place.git("rev-parse", "refs/ccswarm/run_1/ada") == place.git("rev-parse", "HEAD", at=clone.path)


async def test_a_conflict_leaves_the_repository_as_it_was_and_the_work_at_its_ref(place: World) -> None:
    clone = await place.work("ada", "a.txt", "ada's\n")
    place.write(place.repository / "a.txt", "ours\n")
    head = place.commit(place.repository, "ours")
    with pytest.raises(Conflict, match=r"both changed a\.txt"):
        await place.workspaces.merge(clone, "ada's work")
    assert place.git("rev-parse", "HEAD") == head
    assert place.git("status", "--porcelain") == ""
    assert place.git("show", "refs/ccswarm/run_1/ada:a.txt") == "ada's"


async def test_a_file_of_the_person_that_is_in_the_way_is_kept(place: World) -> None:
    clone = await place.work("ada", "b.txt", "ada's\n")
    place.write(place.repository / "b.txt", "not committed\n")
    with pytest.raises(Conflict, match=r"(?s)git merge: .*b\.txt"):
        await place.workspaces.merge(clone, "ada's work")
    assert (place.repository / "b.txt").read_text() == "not committed\n"
    assert place.git("rev-list", "--count", "HEAD") == "1"


async def test_what_is_not_committed_comes_over_too_and_nothing_is_removed_that_would_be_lost(place: World) -> None:
    clone = await place.work("ada", "b.txt", "b\n")
    place.write(clone.path / "a.txt", "changed\n")
    place.write(clone.path / "new name.txt", "new\n")
    place.write(clone.path / ".gitignore", "*.log\n")
    place.write(clone.path / "noise.log", "noise\n")
    for _ in range(2):
        assert await place.workspaces.collect(clone, "left") == 2
    assert place.git("status", "--porcelain", at=clone.path) != "", "the clone is as the agent left it"
    with pytest.raises(Conflict, match=r"work that is not merged \(2 commits\)"):
        await place.workspaces.remove(clone)
    assert (await place.workspaces.merge(clone, "ada's work")).commits == 2
    assert (place.repository / "new name.txt").read_text() == "new\n"
    assert place.git("diff", "HEAD~1", "--name-only").split("\n") == [".gitignore", "a.txt", "b.txt", "new name.txt"]
    place.write(clone.path / "late.txt", "late\n")
    with pytest.raises(Conflict, match=r"not merged \(\d commits\)"):
        await place.workspaces.remove(clone)
    await place.workspaces.remove(clone, force=True)
    assert not clone.path.exists()
    assert place.git("show", f"{clone.ref}:late.txt") == "late"
    await place.workspaces.remove(clone)


async def test_what_an_agent_plants_in_its_clone_is_never_run(place: World) -> None:
    clone = await place.work("ada", "b.txt", "b\n")
    trap = place.directory / "ran"
    for name in ("post-checkout", "pre-merge-commit", "post-merge", "reference-transaction", "fsmonitor", "pack"):
        hook = clone.path / ".git/hooks" / name
        place.write(hook, f"#!/bin/sh\necho {name} >>{trap}\nexec cat\n")
        hook.chmod(0o755)
    planted = clone.path / ".git/config"
    hooks = clone.path / ".git/hooks"
    planted.write_text(
        planted.read_text()
        + f"[core]\n\tfsmonitor = {hooks}/fsmonitor\n\thooksPath = {hooks}\n\tpager = {hooks}/pack\n"
        + f"[uploadpack]\n\tpackObjectsHook = {hooks}/pack\n"
        + f'[filter "x"]\n\tclean = {hooks}/pack\n\tsmudge = {hooks}/pack\n'
    )
    place.write(clone.path / ".gitattributes", "*.txt filter=x diff=x\n")
    assert await place.workspaces.collect(clone, "left") == 2
    await place.workspaces.merge(clone, "ada's work")
    await place.workspaces.remove(clone)
    assert not trap.exists()
    assert place.git("show", "HEAD:b.txt") == "b"


async def test_a_directory_without_a_repository_says_so(place: World, tmp_path: Path) -> None:
    bare = Workspaces(tmp_path / "clones", tmp_path / "x", place.environ)
    assert not await bare.is_repository()
    (tmp_path / "clones").mkdir()
    assert not await bare.is_repository()
    assert await place.workspaces.is_repository()
    with pytest.raises(WorkspaceUnusable, match=r"git rev-parse in .*not a git repository"):
        await bare.clone("run_1", "ada")
    assert not await Workspaces(place.repository, tmp_path / "x", {"PATH": "/nowhere"}).is_repository()
