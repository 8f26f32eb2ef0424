"""PATH as programs outside of boxes are looked for in it: nothing that an agent can have put there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentwire.system import program_path
from ai_session.config import config
from ai_session.gate import written as gate_written


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for name in ("project/.venv/bin", "project/scripts", ".local/bin", "elsewhere/node_modules/.bin"):
        (home / name).mkdir(parents=True)
    (home / "project/.venv/pyvenv.cfg").touch()
    (home / "by-link").symlink_to(home / "project/scripts")
    (home / "project/to-system").symlink_to("/usr/bin")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir("/")
    return home


def kept(home: Path, *entries: object, written: tuple[Path, ...] = ()) -> list[str]:
    path = os.pathsep.join(str(entry) for entry in entries)
    return [entry for entry in program_path.directories(path, map(str, written)).split(os.pathsep) if entry]


def test_what_agents_may_have_made_is_passed_over(home: Path) -> None:
    project = home / "project"
    venv, packages = project / ".venv/bin", home / "elsewhere/node_modules/.bin"
    own = [str(home / ".local/bin"), "/usr/bin"]
    assert kept(home, venv, packages, "", ".", "bin", *own) == own
    everything = (project / "scripts", project / "to-system", home / "by-link", project / "x/../scripts", *own)
    assert kept(home, *everything, written=(project,)) == own


def test_the_current_directory_counts_unless_it_is_the_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = str(home / "project/scripts")
    monkeypatch.chdir(home / "project")
    assert kept(home, scripts, "/usr/bin") == ["/usr/bin"]
    monkeypatch.chdir(home)
    assert kept(home, scripts, "/usr/bin") == [scripts, "/usr/bin"]


def test_without_any_left_the_systems_are_taken(home: Path) -> None:
    assert program_path.environment({"PATH": "bin"}) == {"PATH": os.defpath}


def test_the_record_of_what_boxes_wrote_counts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = home / "project/scripts"
    monkeypatch.setenv("PATH", f"{scripts}:/usr/bin")
    assert config.outside_path() == f"{scripts}:/usr/bin"
    [directory, *_] = config.runtime_directories(home, os.getuid())
    try:
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        record = {"path": str(home / "project"), "device": 1, "inode": 2}
        (directory / gate_written.FILE).write_text(json.dumps(record) + "\n")
        assert config.outside_path() == "/usr/bin"
    finally:
        (directory / gate_written.FILE).unlink(missing_ok=True)
