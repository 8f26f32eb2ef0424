"""The tutorial with every way to begin, with Claude Code as it is installed and a model on the loopback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.node import program
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.clients

ROOT = Path(__file__).parents[2]


def test_the_page_with_claude_too() -> None:
    assert program("claude")
    command = [sys.executable, "scripts/transcripts.py", "--check", "docs/tutorials/first-minutes.md"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BOUND_SECONDS)
    assert ran.returncode == 0, ran.stderr
