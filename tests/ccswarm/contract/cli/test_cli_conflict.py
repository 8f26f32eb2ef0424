"""Two agents change the same line: nothing is lost, the message says what to do, and the run goes on afterwards."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.ccswarm.support.runs import QUICK, RunVerbs, step, task
from tests.ccswarm.support.verbs import agent, server

NAMES = ("ada", "bob")


def write(name: str) -> str:
    """Both have begun before one writes, so both began from the same commit."""
    meet = '[[tasks.steps]]\nid = "meet"\ntool = "small.meet"\nargs = { together = 2 }\n'
    text = f"{name}'s\n"
    return task(f"t{name}", meet, step("write", "files.write", file="a.txt", text=text), more=f'agent = "{name}"')


AFTER = task("after", step("say"), more='agent = "cy"\nneeds = ["tada", "tbob"]')


class Project:
    """A repository that a swarm of two works on."""

    def __init__(self, home: Path) -> None:
        self.directory = home / "project"
        self.directory.mkdir()
        self.git("init", "-q", "-b", "main")
        for name in ("name", "email"):
            self.git("config", f"user.{name}", "t@example.com")
        (self.directory / "a.txt").write_text("one\n")
        self.git("add", ".")
        self.git("commit", "-qm", "first")
        shared = server("small", "plain", more=f'cwd = "{home}"')
        agents = "".join(agent(name, "*.*", more='workspace = "clone"') for name in NAMES) + agent("cy", "small.*")
        swarm = f'{QUICK}[swarm]\nworkspace = "project"\nstrategy = "parallel"\n'
        self.verbs = RunVerbs(
            home, swarm + shared + server("files", "files") + agents + write("ada") + write("bob") + AFTER
        )

    def git(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(["git", *words], cwd=self.directory, check=False, capture_output=True, text=True)
        assert done.returncode == code, done
        return done.stdout.strip()

    @property
    def text(self) -> str:
        return (self.directory / "a.txt").read_text()

    def blocked(self) -> tuple[dict[str, Any], str, str]:
        """A run that ended so, the task that is blocked, and the command that is named."""
        result = self.verbs.result("run", code=3)
        statuses = {name: one["status"] for name, one in result["tasks"].items()}
        assert sorted(statuses.values()) == ["blocked", "skipped", "succeeded"]
        [name] = [name for name, status in statuses.items() if status == "blocked"]
        said, _, command = result["tasks"][name]["summary"].rpartition(": ")
        assert said == f"both changed a.txt; merge by hand in {self.directory}"
        return result, name, command


@pytest.fixture
def project(home: Path) -> Project:
    return Project(home)


@pytest.mark.torture  # test_attempts.py does the same without servers
def test_what_a_person_merged_is_not_done_again(project: Project) -> None:
    first, name, command = project.blocked()
    loser = name[1:]
    [winner] = {*NAMES} - {loser}
    assert (project.text, project.git("status", "--porcelain")) == (f"{winner}'s\n", "")
    assert command.startswith("git merge refs/ccswarm/run_")
    assert project.git("show", f"{command.split()[-1]}:a.txt") == f"{loser}'s"
    assert first["usage"]["calls"] == 4

    said = project.verbs.run("resume", first["run"], code=3)
    assert said.err.splitlines()[0].endswith("repeats its tasks that did not succeed")
    assert said.err.splitlines()[-1].startswith("next: fix what blocks it, then ccswarm resume run_")
    assert f"{name}: merge of {command.split()[-1]}: it cannot be merged" in said.out
    assert project.text == f"{winner}'s\n"

    project.git(*command.split()[1:], code=1)
    (project.directory / "a.txt").write_text("of both\n")
    project.git("commit", "-qam", "merged by hand")
    last = project.verbs.result("resume", "last")
    assert {one["status"] for one in last["tasks"].values()} == {"succeeded"}
    assert last["tasks"][name]["summary"] == "2 steps done"
    assert last["tasks"][name]["result"] == first["tasks"][name]["result"]
    assert last["usage"]["calls"] == 1, "only the task that needs both"
    assert (project.text, project.git("status", "--porcelain")) == ("of both\n", "")


@pytest.mark.torture  # test_attempts.py: a dirty repository is refused
def test_uncommitted_changes_block_a_task_before_it_begins(project: Project) -> None:
    text = project.verbs.file.read_text().replace("together = 2", "together = 1")
    project.verbs.rewrite(text.partition('[[tasks]]\nid = "tbob"')[0])
    (project.directory / "b.txt").write_text("mine\n")
    project.git("add", "b.txt")
    result = project.verbs.result("run", code=3)
    assert "has uncommitted changes, so no work could be merged into it: b.txt" in result["tasks"]["tada"]["summary"]
    assert result["tasks"]["tada"]["summary"].endswith("; commit or stash them, then ccswarm resume")
    assert result["usage"]["calls"] == 0, "nothing was paid for"
    assert project.text == "one\n"
    project.git("commit", "-qm", "mine")
    assert project.verbs.result("resume", "last")["usage"]["calls"] == 2
    assert project.text == "ada's\n"


@pytest.mark.torture  # test_workspaces_attacks.py: what configures ccswarm
def test_what_a_run_was_started_with_is_not_merged(project: Project) -> None:
    """Whatever the plan is called: it says what agents do the next time."""
    plan = project.directory / "plan.toml"
    plan.write_text(
        task("t", step("write", "files.write", file="plan.toml", text="[[tasks]]\nid = 'x'\n"), more='agent = "ada"')
    )
    project.git("add", "plan.toml")
    project.git("commit", "-qm", "plan")
    result = project.verbs.result("run", "project/plan.toml", code=3)
    assert "changes ccswarm's configuration: plan.toml" in result["tasks"]["t"]["summary"]
    assert project.git("status", "--porcelain") == ""
    assert "files.write" in plan.read_text()
