"""What asks for short turns gets them where the system has such a thing; what it starts goes on as ever."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SHOWS = "print(open('/proc/self/sched').read())"
ASKS = f"""
import subprocess, sys
from ai_session.scheduling import take_short_turns
before = open('/proc/self/sched').read()
done = take_short_turns()
print(done, before, '|', open('/proc/self/sched').read(), '|', flush=True)
subprocess.run([sys.executable, '-c', {SHOWS!r}], check=True)
"""


def slices(words: list[str]) -> tuple[str, list[int]]:
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return said, [int(found) for found in re.findall(r"se\.slice\s*:\s*(\d+)", said)]


@pytest.mark.skipif(not Path("/proc/self/sched").exists(), reason="a kernel that does not tell")
@pytest.mark.parametrize("nice", ["0", "5"])
def test_its_own_turns_are_short_and_those_of_its_children_are_not(nice: str) -> None:
    said, found = slices(["/usr/bin/nice", "-n", nice, sys.executable, "-c", ASKS])
    if not said.startswith("True"):
        pytest.skip("a system without")
    before, own, child = found
    assert own == 100_000
    assert child == before
    assert len(set(re.findall(r"prio\s*:\s*(\d+)", said))) == 1, "and its nice value stays"


def test_another_policy_is_left_alone() -> None:
    asks = "import os; os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0));"
    asks += "from ai_session.scheduling import take_short_turns; print(take_short_turns())"
    done = subprocess.run([sys.executable, "-c", asks], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
