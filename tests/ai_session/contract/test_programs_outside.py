"""A virtual environment of the project stands first in PATH: nothing that a box put there runs outside of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ("tmux", "git", "bash", "bwrap", "prlimit", "ps", "python3", "sh", "env")


@pytest.fixture
def project(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With an activated environment in which an agent left programs, and modules of our names beside."""
    project = home / "project"
    folder = project / ".venv/bin"
    folder.mkdir(parents=True)
    (project / ".venv/pyvenv.cfg").touch()
    for name in NAMES:
        program = folder / name
        program.write_text(f'#!/bin/sh\necho {name} >> "{home}/ran"\nPATH=/usr/bin:/bin exec {name} "$@"\n')
        program.chmod(0o755)
    for name in ("ai_session", "json"):
        (project / f"{name}.py").write_text(f"open({str(home / 'ran')!r}, 'a').write('module {name}')\n")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return project


def test_our_own_verbs_run_none_of_it(home: Path, project: Path) -> None:
    verb = (sys.executable, "-P", "-m", "ai_session")
    for words in (("doctor",), ("new", "mine", "--backend", "tmux"), ("kill", "--all"), ("daemon", "stop")):
        subprocess.run((*verb, *words), cwd=project, capture_output=True, timeout=60)
    assert not (home / "ran").exists(), (home / "ran").read_text()
