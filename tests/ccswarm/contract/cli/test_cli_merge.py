"""Work that a person is asked about can be seen, accepted and given back; other work can be seen, too."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.ccswarm.support.runs import QUICK, SERVERS, RunVerbs, step, task
from tests.ccswarm.support.verbs import agent, server
from tests.conftest import environment

AGENT = agent("ada", "*.*", more='workspace = "clone"')
WRITE = step("write", "files.write", file="a.txt", text="two\n\x1b[2J\tthree\n")
CONFIG = QUICK + '[swarm]\nworkspace = "project"\nmerge = "ask"\n' + server("files", "files") + AGENT


class Project(RunVerbs):
    """A RunVerbs at a repository."""

    def __init__(self, home: Path, text: str) -> None:
        self.project = home / "project"
        self.project.mkdir()
        self.git("init", "-q", "-b", "main")
        for name in ("name", "email"):
            self.git("config", f"user.{name}", "t@example.com")
        (self.project / "a.txt").write_text("one\n")
        self.git("add", ".")
        self.git("commit", "-qm", "first")
        super().__init__(home, text)

    def git(self, *words: str, given: str = "") -> str:
        words = ("git", *words)
        done = subprocess.run(words, cwd=self.project, check=True, capture_output=True, text=True, input=given)
        return done.stdout.strip()


@pytest.fixture
def asked(home: Path) -> Project:
    """One at which the work of t waits for a word, by a run that was left."""
    gates = 'gates = [{ tool = "files.write", args = { file = "gate.txt", text = "" } }]'
    verbs = Project(home, CONFIG + task("t", WRITE, more=f'agent = "ada"\n{gates}'))
    said = verbs.run("run", "--no-wait", code=3)
    assert "asks: merge 1 file, +2 −1 of run_" in said.out
    return verbs


def test_work_is_seen_given_back_and_accepted(asked: Project) -> None:
    assert "Returned swarm.merge for ada" in asked.run("return", "last.t", "once more").err
    for verb in ("approvals", "status"):
        assert "returned it; it waits for a worker: ccswarm resume run_" in asked.run(verb).out
    assert "returned for more work by" in asked.run("resume", "last", "--no-wait", code=3).out
    (question,) = asked.json("approvals")["approvals"]
    run = question["task_id"].removesuffix(".t")
    assert f"merge 1 file, +2 −1 of {run[:12]}.t? (ada did it in {run}.t)" in asked.run("approvals").out
    assert f"asks: merge 1 file, +2 −1 of {run[:12]}.t?" in asked.run("status", "last").out

    lines = asked.run("transcript").out.splitlines()
    assert lines[0] == "== t (ada): waiting approval"
    assert [line.split(" ", 1)[1] for line in lines if line.endswith("gates passed")] == ["gates passed"] * 2

    shown = asked.run("diff", "last")
    assert shown.err == "t: 1 file, +2 −1, waits to be accepted\n"
    asked.git("apply", "--check", given=shown.out)
    with environment({**os.environ, "TMPDIR": "/proc/self"}):  # where nothing can be made, as on a full disk
        before = (asked.state / "workspaces").stat().st_mtime_ns
        assert asked.run("diff", "last").out == shown.out
        assert (asked.state / "workspaces").stat().st_mtime_ns == before, "nothing is made where the clones are"
    terminal = asked.run("diff", run[:10], "t", terminal=True).out
    assert "\x1b[2J" not in terminal
    assert "+\\x1b[2J   three" in terminal
    assert asked.run("diff", "last", "--stat").rows == [["t", "a.txt", "2", "1"]]
    (one,) = asked.json("diff", "last")["tasks"]
    assert (one["state"], one["files"]) == ("waits to be accepted", [{"path": "a.txt", "added": 2, "removed": 1}])

    assert asked.git("show", "HEAD:a.txt") == "one"
    assert "Agreed to swarm.merge for ada" in asked.run("accept", "t").err
    assert asked.json("accept", "last.t", code=1)["error"]["code"] == "answered_already"
    assert asked.result("resume", "last")["tasks"]["t"]["status"] == "succeeded"
    assert (asked.project / "a.txt").read_text() == "two\n\x1b[2J\tthree\n"
    (one,) = asked.json("diff", "last")["tasks"]
    assert (one["state"], one["files"][0]["added"]) == ("merged", 2)
    for verb, words in (("accept", ()), ("return", ("no",))):
        error = asked.json(verb, "last.t", *words, code=2)["error"]
        assert error["message"].endswith("is not waiting to be merged: it is merged")
    assert "there is no such task" in asked.json("accept", "last.x", code=2)["error"]["message"]
    error = asked.json("accept", "t", code=2)["error"]
    assert (error["message"], error["suggestion"]) == (
        "no task 't' is waiting to be merged in a run of this project",
        "ccswarm approvals shows what waits",
    )
    assert "has no task 'x'" in asked.json("diff", "last", "x", code=2)["error"]["message"]


@pytest.mark.torture  # test_delivery.py: what a person refuses
def test_work_is_kept_apart_where_it_is_refused(asked: Project) -> None:
    asked.run("reject", "ap_", "--reason", "no")
    result = asked.result("resume", "last", code=1)
    assert result["tasks"]["t"]["attempts"] == 1
    assert "rejected merging it: no; its work is kept" in result["tasks"]["t"]["summary"]
    (one,) = asked.json("diff", "last")["tasks"]
    assert (one["status"], one["state"]) == ("failed", "kept, not merged")
    error = asked.json("accept", "last.t", code=2)["error"]
    assert error["suggestion"].endswith(f"git merge {one['ref']} merges it anyway")
    assert asked.git("show", "HEAD:a.txt") == "one"


@pytest.mark.torture  # one that waits in the only run is named so above
def test_a_task_that_waits_in_one_run_of_the_project_needs_no_run(asked: Project) -> None:
    """Of another project's nothing is accepted by a bare name, and of two runs neither."""
    (first,) = (one["task_id"] for one in asked.json("approvals")["approvals"])
    error = asked.json("accept", "u", code=2)["error"]
    assert error["suggestion"] == f"write {first[:12]}.t"
    asked.run("run", "--no-wait", code=3)
    runs = [one["task_id"][:12] for one in asked.json("approvals")["approvals"]]
    error = asked.json("return", "t", "no", code=2)["error"]
    assert error["message"] == "t is waiting to be merged in 2 runs"
    assert sorted(error["suggestion"].removeprefix("write ").split(" or ")) == sorted(f"{run}.t" for run in runs)
    asked.run("return", f"{first[:12]}.t", "no")
    other = asked.file.parent / "elsewhere.toml"
    other.write_text(asked.file.read_text().replace('"project"', '"other"'))
    (asked.project.parent / "other").mkdir()
    error = asked.json("accept", "t", "--config", str(other), code=2)["error"]
    assert error["message"].startswith("no task 't' is waiting")
    (second,) = {run for run in runs if run != first[:12]}
    assert f"in {second}" in asked.run("accept", "t").err


@pytest.mark.torture  # test_delivery.py leaves work on branches
def test_work_under_way_and_on_a_branch_is_seen(home: Path) -> None:
    steps = (step("write", "files.write", file="a.txt", text="two\n"), step("wait", "pipe.read", path=f"{home}/pipe"))
    verbs = Project(home, CONFIG.replace('"ask"', '"branch"') + SERVERS + task("t", *steps, more='agent = "ada"'))
    with verbs.worker() as worker:
        worker.until("carries out queued runs")
        verbs.run("run", "--detach")
        with verbs.held() as pipe:
            (one,) = verbs.json("diff", "last")["tasks"]
            assert (one["state"], one["commit"], one["diff"].splitlines()[-1]) == ("under way", None, "+two")
            error = verbs.json("accept", "last.t", code=2)["error"]
            assert error["message"].endswith("it is running")
            pipe.write("on\n")
        worker.until("t: succeeded")
    (one,) = verbs.json("diff", "last")["tasks"]
    branch = one["ref"]
    assert (one["state"], branch.startswith("ccswarm/run_")) == ("on a branch", True)
    assert verbs.json("accept", "last.t", code=2)["error"]["suggestion"].startswith(f"git merge {branch}, or leave it")
    assert verbs.git("show", f"{branch}:a.txt") == "two"
