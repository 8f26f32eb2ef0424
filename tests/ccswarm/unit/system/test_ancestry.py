"""Who was started in a session is known by the mark of its shells, at whatever ancestor it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ccswarm.system.ancestry import MOST_ANCESTORS, SESSION_VARIABLE, in_session

LOOK = "import os, sys; from ccswarm.system.ancestry import in_session; print(in_session(dict(os.environ)))"
PASSING = "import subprocess, sys, os; os.environ.pop('AI_SESSION_ID', 0); subprocess.run([sys.executable, '-c', %r])"
MARK = b"PATH=/bin\0AI_SESSION_ID=s1\0HOME=/root\0"


def table(folder: Path, *above: bytes, comm: str = "sh") -> Path:
    """Processes from this one upwards, with their environments."""
    numbers = [os.getpid(), *range(70001, 70001 + len(above))]
    for number, parent, variables in zip(numbers, [*numbers[1:], 0], [b"A=b\0", *above], strict=True):
        process = folder / str(number)
        process.mkdir()
        (process / "stat").write_text(f"{number} ({comm}) S {parent} 1 1 0 -1")
        (process / "environ").write_bytes(variables)
    return folder


@pytest.mark.parametrize(
    ("above", "found"),
    [
        ([], False),
        ([b"", b""], False),
        ([MARK], True),
        ([b"", b"", MARK, b""], True),
        ([b"X=AI_SESSION_ID=s1\0", b"AI_SESSION_NAME=a\0", b"MY_AI_SESSION_ID=s\0"], False),
        ([*([b""] * (MOST_ANCESTORS + 1)), MARK], False),
    ],
)
def test_the_mark_counts_wherever_it_is(tmp_path: Path, above: list[bytes], found: bool) -> None:
    assert in_session({}, table(tmp_path, *above)) is found


@pytest.mark.parametrize("comm", ["a b", "x) S 1 1", "(", "1 2 3"])
def test_the_name_of_a_program_hides_nothing(tmp_path: Path, comm: str) -> None:
    assert in_session({}, table(tmp_path, b"", MARK, comm=comm))


def test_of_what_cannot_be_seen_nothing_is_known(tmp_path: Path) -> None:
    assert not in_session({}, tmp_path)
    assert in_session({SESSION_VARIABLE: ""}, tmp_path)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_real_process_below_a_marked_one_is_found_though_the_variable_is_gone(depth: int) -> None:
    code = LOOK
    for _ in range(depth):
        code = PASSING % code
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd(), SESSION_VARIABLE: "s1"}
    done = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
