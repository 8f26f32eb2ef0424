"""How a verb ends whose caller has closed its streams, or given it one that takes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[3]
FULL = Path("/dev/full")
PROGRAM = """
import os, sys
from agentwire.cli.ending import end
from agentwire.cli.output import remark, show_json
from agentwire.errors import CodedError

def report(error):
    show_json({"error": error.message})
    return 3

def shows():
    show_json(["found"])
    sys.stdout.flush()

def prints():
    print("found")

def fails():
    raise CodedError("there is none")

def opens():
    with open(os.devnull) as file:
        assert file.fileno() > 2
    print("out")
    remark("remark")

verb = {"shows": shows, "prints": prints, "fails": fails, "opens": opens}[sys.argv[1]]
end(verb, report, CodedError, "look", refused=7)
"""


def ran(verb: str, *before: str, stdout: int = subprocess.PIPE) -> tuple[int, str]:
    """Exit code, and what stands on standard error."""
    line = [*before, sys.executable, "-c", PROGRAM, verb]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        line, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=BOUND_SECONDS, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("verb", "code", "said"),
    [
        ("shows", 7, "error: No space left on device\nhint: free disk space\n"),
        ("prints", 7, "error: No space left on device\n"),
        ("fails", 3, "error: there is none\n"),
    ],
)
def test_output_that_has_no_room_is_said_on_standard_error(verb: str, code: int, said: str) -> None:
    with FULL.open("w") as full:
        assert ran(verb, stdout=full.fileno()) == (code, said)


@pytest.mark.parametrize("verb", ["shows", "prints", "fails"])
def test_output_that_nobody_reads_is_not_mentioned(verb: str) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        code, said = ran(verb, stdout=write)
    finally:
        os.close(write)
    assert (code, said) == (3 if verb == "fails" else 7, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_nobodys(closed: str) -> None:
    code, said = ran("opens", "sh", "-c", f'exec "$@" {closed}', "sh")
    assert code == 0
    assert said == ("" if "2>&-" in closed else "remark\n")
