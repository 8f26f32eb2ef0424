"""A virtual environment of the project stands first in PATH: a git that an agent put there is never run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import forked

CONFIGURATION = """
[mcp]
servers = [{ name = "none", command = "/bin/false" }]

[[agents]]
name = "ada"
workspace = "clone"
grants = ["none.*"]

[[tasks]]
id = "one"
agent = "ada"
steps = [{ id = "call", tool = "none.call" }]
"""


def test_verbs_run_no_git_of_the_projects_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, ran = tmp_path / "home/project", tmp_path / "ran"
    folder = project / ".venv/bin"
    folder.mkdir(parents=True)
    (project / ".venv/pyvenv.cfg").touch()
    for words in (
        ("init", "-q"),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-mx"),
    ):
        subprocess.run(("git", *words), cwd=project, check=True)
    for name in ("git", "rm", "chmod"):
        program = folder / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> "{ran}"\nPATH=/usr/bin:/bin exec {name} "$@"\n')
        program.chmod(0o755)
    (tmp_path / "home/ccswarm.toml").write_text(CONFIGURATION)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("CCSWARM_CONFIG", str(tmp_path / "home/ccswarm.toml"))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for words in (("doctor",), ("run",), ("clean", "--days", "0")):
        done = forked.run("ccswarm", words, cwd=project, env=os.environ)
        assert not ran.exists(), f"{words}: {ran.read_text()}\n{done}"
