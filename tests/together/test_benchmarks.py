"""Every benchmark runs, at a size that measures nothing; and what fails in it says why."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import children
from benchmarks.__main__ import ALL
from tests.support import forked

ROOT = Path(__file__).parents[2]


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TMPDIR": str(home)}  # its homes lie in the test's, which leaves nobody behind
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.torture  # minutes; below each is loaded, and the audit log's run
@pytest.mark.parametrize("name", ALL)
def test_it_runs(home: Path, name: str) -> None:
    ran = run(home, "--tiny", name)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\n  " in ran.stdout, "it reports something"


def test_none_is_left_out(tmp_path: Path) -> None:
    with_rows = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "async def run(report" in path.read_text()}
    assert with_rows == set(ALL)
    words = "import sys; from importlib import import_module; [import_module('benchmarks.' + n) for n in sys.argv[1:]]"
    (tmp_path / "load.py").write_text(words)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    code, _, errors = forked.run("ai_session", ALL, cwd=ROOT, env=env, script=str(tmp_path / "load.py"))
    assert code == 0, errors


def test_one_that_fails_says_so_and_keeps_no_other_from_being_run(home: Path) -> None:
    ran = run(home, "--tiny", "no_such_one", "audit")
    assert ran.returncode == 1
    assert "No module named 'benchmarks.no_such_one'" in ran.stderr
    assert "audit log" in ran.stdout
    assert ran.stdout.endswith("failed: no_such_one\n")


def test_help_lists_every_benchmark_and_a_wrong_option_is_reported(home: Path) -> None:
    shown = run(home, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("usage: python -m benchmarks ")
    assert {line.split(" ")[0] for line in shown.stdout.splitlines()} >= set(ALL)
    wrong = run(home, "--quick")
    assert (wrong.returncode, wrong.stderr.split(";")[0]) == (2, "unknown option --quick")


FAILS = (sys.executable, "-c", "raise SystemExit('the reason')")
REASON = r"exit code 1 of .*\nthe reason"


def test_what_a_program_of_one_fails_with_is_what_is_shown() -> None:
    async def serve() -> None:
        async with children.serving(*FAILS):
            pass

    with pytest.raises(children.ChildFailed, match=REASON):
        children.output(FAILS)
    with pytest.raises(children.ChildFailed, match=REASON):
        asyncio.run(serve())
