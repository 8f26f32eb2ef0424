"""What asks for short turns gets them where the system has such a thing; what it starts goes on as ever."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ai_session.system.scheduling import TURN_NANOSECONDS

PROGRAM = """
import json, pathlib, re, subprocess, sys
from ai_session.system.scheduling import take_short_turns
def reported():
    where = pathlib.Path("/proc/self/sched")
    text = where.read_text() if where.exists() else ""
    return {name: re.findall(rf"^{name}\\s*:\\s*(\\d+)", text, re.M) for name in ("se.slice", "prio")}
if sys.argv[1:]:
    print(json.dumps(reported()))
else:
    before = reported()
    done = take_short_turns()
    child = subprocess.run([sys.executable, "-c", PROGRAM, "child"], check=True, capture_output=True).stdout
    print(json.dumps([done, before, reported(), json.loads(child)]))
"""


def run(program: str, *before: str) -> str:
    words = [*before, sys.executable, "-c", program]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("nice", ["0", "5"])
def test_its_own_turns_are_short_and_those_of_its_children_are_not(nice: str) -> None:
    said = run(f"PROGRAM = {PROGRAM!r}\n{PROGRAM}", "nice", "-n", nice)
    done, before, own, child = json.loads(said)
    assert own["prio"] == child["prio"] == before["prio"]
    assert child == before
    assert own["se.slice"] == ([str(TURN_NANOSECONDS)] if done and before["se.slice"] else before["se.slice"])


def test_another_policy_is_left_alone() -> None:
    program = "import os; getattr(os, 'sched_setscheduler', int)(0, os.SCHED_BATCH, os.sched_param(0))\n"
    program += "from ai_session.system.scheduling import take_short_turns; print(take_short_turns())"
    assert run(program) == "False\n"
