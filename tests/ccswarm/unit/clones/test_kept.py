"""Clones of runs that are over go when they are old, or take too much; work at a ref is not lost by it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

import pytest

from ccswarm.clones.kept import KeptClones, expire, list_kept, note_end, sizes
from tests.ccswarm.support.clones import ClonedProject
from tests.support.products import first


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "clones"


def aged(project: ClonedProject, root: Path, run: str, days: float, *, collected: bool = True) -> None:
    """A clone of that age, with 1 MB."""
    clone = asyncio.run(project.workspaces.clone(run, "t.1"))
    project.write(clone.path / "large.txt", "x" * (1 << 20))
    if collected:
        asyncio.run(project.workspaces.commit(clone, "work"))
    then = time.time() - days * 86400
    os.utime(root / run, (then, then))


def test_what_is_old_goes_and_what_is_too_much_but_for_its_ref(tmp_path: Path, root: Path) -> None:
    project = ClonedProject(tmp_path)
    aged(project, root, "run_1", 9)
    aged(project, root, "run_2", 3, collected=False)
    aged(project, root, "run_3", 2)
    aged(project, root, "run_4", 1)
    aged(project, root, "run_5", 8)

    found = list_kept(root, ["run_5"])
    taken = sizes(root, found)
    assert taken == {one.run: one.bytes for one in found}
    assert expire(root, ["run_5"], 7, 0, project.environ) == ["run_1"], "run_5 is running"
    assert [one.run for one in list_kept(root)] == ["run_5", "run_2", "run_3", "run_4"]
    (root / "run_0").mkdir()
    (root / "run_5-parts").mkdir()
    most = taken["run_2"] + taken["run_4"] + (64 << 10)
    assert expire(root, ["run_5"], 7, most, project.environ) == ["run_3"], "the work of run_2 is nowhere else"
    assert not (root / "run_3/t.1").exists()
    assert not (root / "run_0").exists(), "of a run that is over, and left nothing"
    assert (root / "run_5-parts").exists()
    assert (root / "run_2/t.1").exists()
    assert project.git("cat-file", "-s", "refs/ccswarm/run_3/t.1:large.txt") == str(1 << 20)
    assert expire(root, ["run_5"], 7, most, project.environ) == []
    assert expire(root, ["run_5"], 0, most, project.environ) == ["run_2", "run_4", "run_3"], "the oldest change first"
    refs = project.git("for-each-ref", "--format=%(refname)", "refs/ccswarm").split()
    assert refs == [f"refs/ccswarm/run_5/t.1{end}" for end in ("", "-base", "-sent")]


@pytest.mark.parametrize("how", first(["uncommitted", "committed", "in a program"], "uncommitted", "in a program"))
def test_what_an_agent_did_after_its_work_was_collected_is_not_lost(tmp_path: Path, root: Path, how: str) -> None:
    project = ClonedProject(tmp_path)
    aged(project, root, "run_1", 1)
    clone = root / "run_1/t.1"
    if how == "in a program":
        with subprocess.Popen(["cat"], cwd=clone, stdin=subprocess.PIPE):  # which ends when the pipe is closed
            assert expire(root, [], 7, 1, project.environ) == []
        assert expire(root, [], 7, 1, project.environ) == ["run_1"]
        return
    (clone / "later.txt").write_text("two\n")
    if how == "committed":
        project.commit(clone, "later")
    assert expire(root, [], 7, 1, project.environ) == []
    assert (clone / "later.txt").read_text() == "two\n"


def test_what_waited_for_a_person_is_kept_as_long_as_anything_after_its_run_has_ended(root: Path) -> None:
    for name in ("run_1", "run_1-part", "run_10"):
        (root / name / "t.1").mkdir(parents=True)
        os.utime(root / name, (0, 0))
    note_end(root, "run_1")
    assert expire(root, [], 7, 0, {}) == ["run_10"]


def test_sizes_are_counted_once(root: Path) -> None:
    (root / "run_1").mkdir(parents=True)
    one = KeptClones("run_1", root / "run_1", 0, ())
    (root / "run_1/a").write_bytes(b"x" * 8192)
    before = sizes(root, [one])
    (root / "run_1/a").write_bytes(b"x" * 16384)
    assert sizes(root, [one]) == before
    (root / "run_1/b").write_bytes(b"x")
    assert sizes(root, [one])["run_1"] > before["run_1"]
    assert [name.name for name in root.glob(".*")] == [".sizes.json"]
