"""What is left of work that was not merged can be seen, and removed; what is still needed cannot."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.ccswarm.support.runs import QUICK, RunVerbs, step, task
from tests.ccswarm.support.verbs import agent, server

FAILS = 'expect = { contains = "nothing of the kind" }'


def git(directory: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.torture)])
def test_clones_and_refs_of_work_that_failed_are_removed(home: Path, again: bool) -> None:
    """Of the first run by another one that ends, where there is one ``again``."""
    project = home / "project"
    project.mkdir()
    git(project, "init", "-q", "-b", "main")
    for name in ("name", "email"):
        git(project, "config", f"user.{name}", "t@example.com")
    (project / "a.txt").write_text("one\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    ada = agent("ada", "*.*", more='workspace = "clone"')
    write = step("write", "files.write", more=FAILS, file="b.txt", text="two\n")
    text = f'{QUICK}[swarm]\nworkspace = "project"\n' + server("files", "files") + ada
    verbs = RunVerbs(home, text + task("t", write, more='agent = "ada"'))
    failed = verbs.result("run", code=1)
    ref = f"refs/ccswarm/{failed['run']}/t.1"
    assert git(project, "show", f"{ref}:b.txt") == "two"
    location = verbs.state / "workspaces" / failed["run"]
    written = (location / "t.1/b.txt").stat().st_mtime_ns
    assert location.stat().st_mtime_ns >= written, "its age is counted from the end of the run"

    assert verbs.json("clean")["removed"] == [], "it is not old enough"
    (one,) = verbs.json("clean", "--days", "0", "--dry-run")["left"]
    assert (one["run"], one["refs"]) == (failed["run"], 1)
    assert one["bytes"] > 0
    assert location.exists()
    assert "clones of 1 run, " in verbs.run("doctor", code=0).out

    second = failed["run"]
    if again:
        verbs.rewrite(text.replace("[engine]\n", "[engine]\nclone_days = 0\n") + task("t", write, more='agent = "ada"'))
        second = verbs.result("run", code=1)["run"]
        assert not location.exists(), "what is old goes when another run ends"
    assert git(project, "for-each-ref", "--format=%(refname)", "refs/ccswarm", "--count=1").startswith(
        f"refs/ccswarm/{second}/t.1"
    )

    with subprocess.Popen(["sleep", "1000"], cwd=location.with_name(second)) as left:
        refused = verbs.run("clean", "--days", "0", code=1)
        assert f"sleep (process {left.pid}) still works in" in refused.err
        assert f"ai-session kill --run {second}" in refused.err
        assert location.with_name(second).exists()
        assert git(project, "for-each-ref", "refs/ccswarm") != ""
        left.kill()
    assert len(verbs.json("clean", "--days", "0")["removed"]) == 1
    assert not location.with_name(second).exists()
    assert git(project, "for-each-ref", "refs/ccswarm") == ""
    assert verbs.json("clean", "--days", "0") == {"removed": [], "left": []}
    for number in ("inf", "nan"):
        assert (
            f"invalid value for '--days': {number} is not a finite number"
            in verbs.run("clean", "--days", number, code=2).err
        )
