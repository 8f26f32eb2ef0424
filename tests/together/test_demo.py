"""The demonstrations that `make demo` gives are right in every answer and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bounds import BOUND_SECONDS

SCRIPTS = Path(__file__).parents[2] / "scripts"


def test_the_demo_meets_every_expectation() -> None:
    ran = subprocess.run(
        [sys.executable, str(SCRIPTS / "demo.py")], capture_output=True, text=True, timeout=BOUND_SECONDS
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1].endswith(" expectations met, 0 not")


@pytest.mark.torture  # test_shipped_plans.py has the same configuration survey a repository
def test_the_swarm_s_demo_proves_every_call() -> None:
    demo = [sys.executable, str(SCRIPTS / "demo_swarm.py")]
    ran = subprocess.run(demo, capture_output=True, text=True, timeout=BOUND_SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "the swarm did it, and can prove it"
    assert "\nrun succeeded: 4 succeeded\n" in ran.stdout
