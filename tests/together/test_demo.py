"""The demonstration that `make demo` gives is right in every answer and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"


def test_the_demo_meets_every_expectation() -> None:
    ran = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, timeout=55)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1].endswith(" expectations met, 0 not")
