"""What a verb is told if the daemon ends while it asks."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from ai_session.client.connection import ControlClient, has_ended
from ai_session.errors import DaemonUnavailable


@pytest.mark.parametrize(
    ("left", "rest"),
    [(True, "ended; ai-session ls shows what runs"), (False, "was stopped, and its sessions ended")],
)
def test_a_verb_that_meets_the_end_of_the_daemon_says_what_became_of_the_sessions(
    left: bool, rest: str, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("HOME", str(home))
    if left:
        stored = home / ".local/state/ai-session/sessions/one"
        stored.mkdir(parents=True)
        (stored / "spec.json").touch()
    ours, theirs = socket.socketpair()
    with subprocess.Popen(("cat",), stdin=subprocess.PIPE) as daemon, theirs:
        theirs.sendall(json.dumps({"ai_session": 1, "pid": daemon.pid}).encode() + b"\n")
        with ControlClient(ours) as client:
            theirs.shutdown(socket.SHUT_WR)
            assert daemon.stdin is not None
            daemon.stdin.close()
            with pytest.raises(DaemonUnavailable) as caught:
                client.call("create_session", name="main")
    assert caught.value.suggestion == f"whether create_session took effect is unknown: the daemon {rest}"
    assert has_ended(daemon.pid)
