"""A daemon under an administrator's policy: it binds clients and people, is shown, and cannot be started without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ai_session.support import asking
from tests.ai_session.support.asking import client, error_of, greet, person
from tests.ai_session.support.command_line import ROOT
from tests.ai_session.support.mcp_client import DATA, living_in
from tests.conftest import new_home
from tests.support import forked

POLICY = """
[policy]
mode = "workspace"

[[policy.rules]]
id = "no-shadow"
decision = "deny"
commands = ["head"]
reason = "Not here."

[sandbox]
profile = "workspace"
processes = 64
"""
LOOSE = """
[policy]
mode = "trusted"

[[policy.rules]]
decision = "allow"
commands = ["head"]
"""


@contextmanager
def administered(home: Path, text: str, mode: int = 0o644, *, starts: bool = True) -> Iterator[None]:
    """A daemon of that home under that policy. One that cannot start leaves with its last client."""
    (home / "laid-down.toml").write_text(text)
    (home / "laid-down.toml").chmod(mode)
    script, words = str(DATA / "administered_daemon.py"), [str(home / "laid-down.toml")]
    env = {**living_in(home), "PYTHONPATH": str(ROOT)}
    daemon = forked.piped("ai_session", words, cwd=home, env=env, errors=home / "log", script=script)
    try:
        assert daemon.stdout
        assert daemon.stdout.readline() == b"ready\n"
        yield
        if starts:
            asking.control(home, "stop", sessions=True)
        daemon.wait()
    finally:
        daemon.close()


@pytest.fixture
def daemon_home(homes: Path) -> Path:
    return new_home(homes, LOOSE)


def test_it_binds_clients_and_people(daemon_home: Path) -> None:
    with administered(daemon_home, POLICY), client(daemon_home) as peer:
        greet(peer, {})
        (daemon_home / "ws").mkdir()
        made = peer.call("create_session", name="main", backend="pty", working_directory=str(daemon_home / "ws"))
        assert error_of(made)["code"] == "consent_needed", (
            "outside of the workspaces, which only the user's mode allows"
        )
        asking.approve(daemon_home, asking.approvals(daemon_home)["questions"][-1])
        made = peer.call("create_session", name="main", backend="pty", working_directory=str(daemon_home / "ws"))
        assert made["structuredContent"]["sandbox"].startswith("workspace")
        refused = error_of(peer.call("execute_command", session_id="main", command="head x"))
        assert "administrator:no-shadow: Not here." in refused["message"]
        assert not peer.call("execute_command", session_id="main", command="true")["isError"]
        said = person(daemon_home, "new", "free", "--profile", "trusted", "--cwd", str(daemon_home / "ws"), code=None)
        assert "administrator:default:profile" in said
        said = person(daemon_home, "policy", "mode", "trusted", code=None)
        assert "looser than workspace, which the administrator has set" in said
        assert person(daemon_home, "policy", "mode") == "workspace\nConfigured is trusted.\n"
        shown = person(daemon_home, "policy", "show")
        assert f"The administrator's policy, {daemon_home}/laid-down.toml, has mode workspace" in shown
        assert "administrator:no-shadow\tdeny\tcommands head" in shown
        person(daemon_home, "policy", "mode", "read-only")
        assert error_of(peer.call("execute_command", session_id="main", command="true"))["code"] == "denied"
        person(daemon_home, "policy", "mode", "workspace")
        assert not peer.call("execute_command", session_id="main", command="true")["isError"]


@pytest.mark.parametrize(("text", "mode"), [(POLICY, 0o666), ("[policy]\nmodes = 1\n", 0o644)])
def test_nothing_runs_under_one_that_cannot_be_trusted_or_read(daemon_home: Path, text: str, mode: int) -> None:
    with administered(daemon_home, text, mode, starts=False), client(daemon_home) as peer:
        greet(peer, {})
        refused = error_of(peer.call("create_session", name="main", backend="pty"))
    assert refused["code"] == "config_invalid"
    assert str(daemon_home / "laid-down.toml") in refused["message"]
