"""What ``--workers`` runs and reports, next to what one process would."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ends_within
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[1]
CONFTEST = """
from tests.support import workers
def pytest_addoption(parser):
    workers.add_option(parser)
def pytest_runtestloop(session):
    return workers.run(session, prepare=lambda: None)
"""
OUTCOMES = """
import os, pytest, signal, sys, warnings
AT_IMPORT = sys.stderr
@pytest.mark.parametrize("number", range(3))
def test_passes(number, tmp_path):
    assert not list(tmp_path.iterdir())
    os.fstat(AT_IMPORT.fileno())
def test_fails():
    print("this was said")
    print("this was complained", file=sys.stderr)
    assert 1 + 1 == 3
def test_is_skipped():
    pytest.skip("for a reason")
def test_warns():
    warnings.warn("take care")
def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)
def test_after_it():
    pass
"""
TORN_DOWN = """
import pytest
@pytest.fixture(scope="module")
def shared():
    yield 1
    assert False, "cannot be torn down"
def test_uses_it(shared):
    pass
"""


WAITING = """
import pathlib
PIPE = pathlib.Path(__file__).with_name("pipe")
def test_reads():
    assert PIPE.read_text() == "written by the last of the same file"
def test_is_given_with_it(): pass
def test_third(): pass
def test_writes():
    PIPE.write_text("written by the last of the same file")
"""
"""One worker would wait for what it itself has to do later."""


def command(directory: Path, *options: str, **files: str) -> list[str]:
    (directory / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)
    return [sys.executable, "-m", "pytest", "--rootdir", str(directory), *options, str(directory)]


def environment() -> dict[str, str]:
    names = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | names


def ran(directory: Path, *options: str, **files: str) -> tuple[int, str]:
    """Run the tests of these files, and return the exit code and what was printed."""
    line = command(directory, *options, **files)
    done = subprocess.run(
        line, cwd=directory, env=environment(), capture_output=True, text=True, timeout=BOUND_SECONDS, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_each_outcome_is_reported_once_with_what_belongs_to_it(tmp_path: Path) -> None:
    code, said = ran(tmp_path, "--workers", "2", "-ra", test_outcomes=OUTCOMES, test_torn_down=TORN_DOWN)
    assert code == 1
    assert "2 failed, 6 passed, 1 skipped, 1 warning, 1 error" in said
    for part in (
        "assert (1 + 1) == 3",
        "this was said\n",
        "this was complained\n",
        "for a reason",
        "UserWarning: take care",
        "the process that ran this test was killed by signal 9",
        "cannot be torn down",
        "FAILED test_outcomes.py::test_dies",
        "ERROR test_torn_down.py::test_uses_it",
    ):
        assert said.count(part) >= 1, part
    assert (tmp_path / ".pytest_cache/v/cache/lastfailed").read_text().count("::") == 3


def test_they_stop_at_the_first_failure_if_they_shall(tmp_path: Path) -> None:
    failing = "import pytest\n@pytest.mark.parametrize('number', range(50))\ndef test_it(number):\n    assert number\n"
    code, said = ran(tmp_path, "--workers", "1", "-x", test_failing=failing)
    assert code == 1
    assert "stopping after 1 failures" in said
    counts = re.search(r"1 failed(?:, (\d+) passed)?", said)
    assert counts
    assert int(counts[1] or 0) <= 1, "it had been given one more"


def test_what_one_has_left_is_run_by_another(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    code, said = ran(tmp_path, "--workers", "2", test_waiting=WAITING)
    assert (code, "4 passed" in said) == (0, True), said


def test_one_more_begins_when_a_process_has_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        ending = f"import os\ndef test_ends_it(): os.kill({other.pid}, 9)\n"
        options = ("--workers", "1", "--one-more-after", str(other.pid))
        code, said = ran(tmp_path, *options, test_waiting=ending + WAITING)
    assert (code, "5 passed" in said) == (0, True), said


def test_one_more_is_there_from_the_start_if_that_process_is_gone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["true"]) as other:
        pass
    code, said = ran(tmp_path, "--workers", "1", "--one-more-after", str(other.pid), test_waiting=WAITING)
    assert (code, "4 passed" in said) == (0, True), said


@pytest.mark.parametrize("who", ["the run", "all of them"])
@pytest.mark.either("who")
def test_an_interrupt_ends_them_and_tears_their_fixtures_down(tmp_path: Path, who: str) -> None:
    os.mkfifo(tmp_path / "begun")
    waiting = """
import os, pathlib, pytest, signal
HERE = pathlib.Path(__file__).parent
@pytest.fixture(scope="session")
def shared():
    yield
    (HERE / "torn_down").touch()
def test_waits(shared):
    (HERE / "begun").write_text(str(os.getpid()))
    signal.pause()
"""
    line = command(tmp_path, "--workers", "2", test_waiting=waiting)
    with subprocess.Popen(line, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, process_group=0) as run:
        worker = int((tmp_path / "begun").read_text())
        (os.killpg if who == "all of them" else os.kill)(run.pid, signal.SIGINT)
        said = run.communicate(timeout=BOUND_SECONDS)[0].decode()
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in said
    assert (tmp_path / "torn_down").exists()
    assert not Path(f"/proc/{worker}").exists()


def test_a_worker_ends_with_the_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    waiting = """
import os, pathlib
HERE = pathlib.Path(__file__).parent
def test_waits():
    (HERE / "begun").write_text(str(os.getpid()))
    (HERE / "begun").read_text()
"""
    line = command(tmp_path, "--workers", "2", test_waiting=waiting)
    with subprocess.Popen(line, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL) as run:
        worker = int((tmp_path / "begun").read_text())
        run.kill()
    (tmp_path / "begun").write_text("")
    assert ends_within(worker, time.monotonic() + BOUND_SECONDS)
