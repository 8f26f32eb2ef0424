"""What the pages show is what happens: the first tutorial with every run, the others with the long tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parent.parent
FIRST = ROOT / "docs/tutorials/first-terminal.md"
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("first-*.md"))
HOWTO = sorted(page for page in (ROOT / "docs/howto").glob("*.md") if "```console" in page.read_text())


@pytest.mark.parametrize(
    "page",
    [FIRST, *(pytest.param(page, marks=pytest.mark.torture) for page in (*TUTORIALS, *HOWTO) if page != FIRST)],
    ids=lambda page: page.stem,
)
def test_what_the_page_shows_is_what_happens(page: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts/transcripts.py"), "--check", str(page)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_SECONDS)
    assert ran.returncode == 0, ran.stderr


def test_a_page_that_shows_something_else_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ seq 3\n1\n…\n$ echo took 0.25 s\ntook 0.31 s\n$ echo three\nfour\n```\n")
    command = [sys.executable, str(ROOT / "scripts/transcripts.py"), "--check", str(page)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_SECONDS, cwd=os.fspath(tmp_path))
    assert ran.returncode == 1
    assert "$ echo three" in ran.stderr
    assert "$ seq" not in ran.stderr
    assert "$ echo took" not in ran.stderr


def test_there_is_something_to_see() -> None:
    assert len(TUTORIALS) == 3
    assert len(HOWTO) >= 5
