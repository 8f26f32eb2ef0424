"""The shipped suite in plain shells: every gate refuses nothing done and what is wrong, and lets solutions pass. In
boxes, by agents and by recorded models: tests/together/test_eval_suites.py."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ccswarm.config.settings import PlanStep
from ccswarm.evaluation import suite
from ccswarm.evaluation.suite import Case
from ccswarm.evaluation.workdir import WorkDirectory

ROOT = Path(__file__).parents[4]
FILE = ROOT / "ccswarm/evaluation/suites/basics.toml"
SUITE = suite.load(FILE, shipped=True)
IN_TERMINALS = {"wizard", "long-build", "interrupt"}
"""Whose solutions are more than commands one after the other."""


DAILY = set(range(0, len(SUITE.cases), 15))
"""Every fifteenth shows what the suite is made of; that each of them is sound is torture: its files do not change."""


@pytest.fixture(
    params=[
        pytest.param(case, id=case.id, marks=() if number in DAILY else pytest.mark.torture)
        for number, case in enumerate(SUITE.cases)
    ]
)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def work_directory(case: Case, tmp_path: Path) -> WorkDirectory:
    work_directory = WorkDirectory(tmp_path / "place", {"PATH": os.environ["PATH"]})
    work_directory.fill(case, FILE.parent)
    return work_directory


def run(work_directory: WorkDirectory, command: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(work_directory.directory.parent), "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=work_directory.directory,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def gates_hold(work_directory: WorkDirectory, case: Case) -> bool:
    work_directory.put(case.gate_files)
    return all(run(work_directory, command).returncode == 0 for command in case.gates)


def do(work_directory: WorkDirectory, commands: Sequence[str | PlanStep]) -> None:
    for command in commands:
        assert isinstance(command, str)
        done = run(work_directory, command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)


def test_nothing_done_is_refused(work_directory: WorkDirectory, case: Case) -> None:
    assert not gates_hold(work_directory, case)


def test_what_only_looks_like_a_solution_is_refused(work_directory: WorkDirectory, case: Case) -> None:
    assert case.wrong
    do(work_directory, case.wrong)
    assert not gates_hold(work_directory, case)


def test_solutions_pass(work_directory: WorkDirectory, case: Case) -> None:
    assert case.steps
    if case.id in IN_TERMINALS:
        assert any(isinstance(step, PlanStep) for step in case.steps)
        return
    do(work_directory, case.steps)
    assert gates_hold(work_directory, case)


def test_the_suite_is_as_large_as_it_is_told() -> None:
    assert len(SUITE.cases) >= 20
    assert sum(bool(case.replies) for case in SUITE.cases) >= 5
    assert not [case.id for case in SUITE.cases if not case.tags or not case.text.strip()]


def test_the_suite_of_the_guide_is_one(tmp_path: Path) -> None:
    found = re.search(
        r"^```toml\n(.*?)^```$", (ROOT / "docs/howto/evaluation.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert found
    (tmp_path / "mine.toml").write_text(found[1])
    (case,) = suite.load(tmp_path / "mine.toml").cases
    work_directory = WorkDirectory(tmp_path / "place", {"PATH": os.environ["PATH"]})
    for commands, wanted in ((case.steps, True), (case.wrong, False), ((), False)):
        work_directory.fill(case, tmp_path)
        do(work_directory, commands)
        assert gates_hold(work_directory, case) is wanted
