"""A shell that lies in the home, which a box hides: refused with what to do where it was asked for, else another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ai_session.errors import ShellUnavailable
from ai_session.models import TRUSTED, SandboxProfile
from ai_session.sandbox.boxes import hides
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import NewSession, SessionDefaults, shell_for
from tests.ai_session.support.sessions import runtime_directory

pytestmark = pytest.mark.anyio


def boxed(home: Path, *readable: str) -> SandboxProfile:
    return SandboxProfile("workspace", str(home / "work"), str(home), readable, home_readable=("bin", ".pyenv"))


def test_what_a_box_hides_with_the_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("bin", "own", "work"):
        (home / name).mkdir(parents=True)
        (home / name / "bash").symlink_to("/bin/bash")
    (tmp_path / "linked").symlink_to(home / "own" / "bash")
    (home / "own" / "bash").unlink()
    (home / "own" / "bash").write_text("a shell")
    (tmp_path / "way").symlink_to(home)
    profile, own = boxed(home), str(home / "own")
    assert hides(profile, f"{own}/bash") == own
    assert hides(profile, f"{tmp_path}/way/own/bash") == own, "whichever way it is named"
    assert hides(profile, f"{tmp_path}/linked") == own, "and where it leads"
    shown = ("/bin/bash", f"{home}/bin/bash", f"{home}/work/bash", f"{home}-of-another/bash")
    assert [hides(profile, one) for one in shown] == [""] * 4
    assert hides(boxed(home, own), f"{own}/bash") == "", "as it is told to the one who asked"
    assert hides(TRUSTED, f"{own}/bash") == ""
    assert hides(SandboxProfile("workspace", "/work", "/"), f"{own}/bash") == "", "nothing is hidden then"


async def test_a_shell_that_was_asked_for_is_refused_with_what_to_do(home: Path) -> None:
    own = home / "own"
    own.mkdir()
    (own / "bash").write_text("#!/bin/sh\n")
    (own / "bash").chmod(0o755)
    manager = SessionManager(runtime_directory(home), SessionDefaults(backend="pty"))
    own_shell, profile = str(own / "bash"), boxed(home)
    asked = NewSession("a", str(home), {"SHELL": "/bin/sh"}, {}, shell=own_shell, profile=profile)
    try:
        with pytest.raises(
            ShellUnavailable, match=re.escape("is in the home directory, which the sandbox hides")
        ) as refused:
            await manager.create(asked)
        assert f'add "{own}" to sandbox.readable' in refused.value.suggestion
        assert manager.all() == []
    finally:
        await manager.stop()
    usual = NewSession("b", "/", {"SHELL": own_shell}, {}, profile=profile)
    assert not shell_for(usual, "")[1].startswith(str(home)), "SHELL alone is no wish: the session has another one"
    assert shell_for(NewSession("c", "/", {"SHELL": own_shell}, {}), "")[1] == own_shell, "without a box it is that"
