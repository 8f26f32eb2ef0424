"""A virtual environment of the project stands first in PATH: nothing that a box put there runs outside of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[4]
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
    subprocess.run(("/usr/bin/git", "init", "-q"), cwd=project, check=True)  # git is asked what its settings name
    verb = (sys.executable, "-P", "-m", "ai_session")
    words = (*verb, "policy", "mode")
    started = subprocess.run(words, cwd=project, capture_output=True, text=True, timeout=BOUND_SECONDS)
    assert (started.returncode, started.stdout) == (0, "trusted\n"), started
    for words in (
        ("new", "mine", "--backend", "tmux", "--shell", "bash"),
        ("new", "boxed", "--backend", "pty", "--profile", "workspace"),
        ("exec", "boxed", "--", "/usr/bin/git init -q inner"),
        ("doctor",),  # of that repository it says what git may be told
        ("kill", "--all"),
        ("daemon", "stop"),
    ):
        code, said, errors = forked.run("ai_session", words, cwd=project, env=os.environ)
        assert code == 0, (words, said, errors)
        if "doctor" in words:
            assert b"keeps git status out of it" in said
    assert not (home / "ran").exists(), (home / "ran").read_text()


def test_where_ai_session_lies_in_the_workspace_a_box_cannot_change_it(home: Path) -> None:
    project = home / "project"
    venv.create(project / ".venv", symlinks=True)
    (project / "ccswarm").mkdir()
    for package in ("agentwire", "ai_session"):
        shutil.copytree(
            ROOT / package, project / package, ignore=shutil.ignore_patterns("*.pyc.*")
        )  # what is compiled stays
    # As an editable installation: the packages are those of the workspace, what they need is that of this environment.
    packages = project / f".venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    (packages / "here.pth").write_text(f"{project}\n{sysconfig.get_path('purelib')}\n")
    planted = " ".join(f"{location}/planted" for location in ("agentwire", "ai_session", "ccswarm", ".venv"))
    script = f"touch work {planted}; mv .venv moved; mv ai_session moved; mv agentwire moved"
    # A person's own line opens one of them.
    (home / ".config/ai-session/config.toml").write_text('[sandbox]\nprotected = ["!/ccswarm/"]\n')
    verb = (project / ".venv/bin/python", "-P", "-m", "ai_session")
    boxed = (*verb, "sandbox", "--profile", "workspace", "--", "sh", "-c", script)
    done = subprocess.run(boxed, cwd=project, capture_output=True, text=True, timeout=BOUND_SECONDS)
    subprocess.run((*verb, "daemon", "stop"), cwd=project, capture_output=True, check=True, timeout=BOUND_SECONDS)
    assert (project / "work").exists(), done.stderr
    assert [str(path.relative_to(project)) for path in project.rglob("planted")] == ["ccswarm/planted"], done.stderr
    assert not (project / "moved").exists()
