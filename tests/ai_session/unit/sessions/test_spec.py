"""What a new shell finds in its environment, and which shells there are."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.config.settings import SessionSettings
from ai_session.errors import ShellUnavailable
from ai_session.models import SessionSpec
from ai_session.sessions.spec import SessionDefaults, find_shell, read, shell_named, store


@pytest.mark.parametrize(
    ("given", "language"),
    [
        ({}, "C.UTF-8"),
        ({"LANG": ""}, "C.UTF-8"),
        ({"LANG": "", "LC_ALL": ""}, "C.UTF-8"),
        ({"LANG": "de_DE.UTF-8"}, "de_DE.UTF-8"),
        ({"LANG": "", "LC_CTYPE": "de_DE.UTF-8"}, ""),
        ({"LC_ALL": "C"}, None),
    ],
)
def test_where_no_locale_is_set_text_is_utf_8(given: dict[str, str], language: str | None) -> None:
    assert SessionDefaults().environment(given, {}).get("LANG") == language


def test_what_is_stored_of_a_session_is_replaced_as_a_whole(tmp_path: Path) -> None:
    spec = SessionSpec("i", "before", "bash", "pty", "/", {}, 1, 1, 0.0, "x", "y")
    store(tmp_path, spec)
    with (tmp_path / "spec.json").open() as earlier:
        store(tmp_path, replace(spec, name="after"))
        assert '"before"' in earlier.read()
    assert read(tmp_path) == replace(spec, name="after")


def test_the_setting_names_shells_that_are_supported() -> None:
    description = SessionSettings.model_fields["shell"].description or ""
    named = re.findall(r"\w+", description.partition(" or ")[0])
    assert len(named) > 2
    assert {name for name in named if name not in shell_named(name).names} == set()


@pytest.mark.parametrize("plugin", plugins.names("ai_session.shells"))
def test_installed_shells_of_every_plugin_are_suggested(
    plugin: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = plugins.load("ai_session.shells", plugin).names[-1]
    (home / "programs").mkdir()
    (home / "programs" / program).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(home / "programs"))
    with pytest.raises(ShellUnavailable) as refused:
        find_shell("/nowhere/bash")
    assert refused.value.suggestion == f"installed shells: {program}"
