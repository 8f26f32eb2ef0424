"""The disk that holds the runtime directory is full: reading and ending go on, and nothing is reported wrongly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.torture.faults import BACKENDS, TMUX_FIRST, Caller, Machine, fill, mounted
from tests.support.process_ends import kill_process

LINES = 500_000
LOST = {"pty": "bytes of output are lost: the disk was full", "tmux": "some of its output is missing"}
HERE = "output is missing here"


@pytest.fixture
def small(home: Path) -> Iterator[Machine]:
    """A HOME on a disk of 9 MB; the output of one command here needs 5.4."""
    with mounted(home, f"mount -t tmpfs -o size=9m,mode=700 none {home}") as homes:
        yield homes


@pytest.fixture
def gate(homes: Path) -> Iterator[Path]:
    """A FIFO on another disk, which a command waits at."""
    path = homes / "gate"
    os.mkfifo(path)
    yield path
    path.unlink()


def begin(client: Caller, backend: str, gate: Path) -> str:
    """A command that prints and exits 7 once the gate is opened."""
    client.ok("create_session", name="loud", backend=backend)
    client.run("loud", "kept=yes; cd /usr")
    command_id = client.begin("loud", f"seq 1 200000; read _ <{gate}; seq 1 {LINES}; (exit 7)")
    client.ok("read_output", session_id="loud", command_id=command_id, wait_for="pattern", pattern="^200000$")
    return command_id


def while_full(client: Caller, backend: str, command_id: str) -> None:
    """How the command stands: a terminal read by the daemon tells its end, one that a sink reads cannot."""
    wait = {"wait_for": "finish", "timeout_seconds": 50 if backend == "pty" else 1.5, "tail_lines": 5}
    facts = client.ok("read_output", session_id="loud", command_id=command_id, **wait)
    if backend == "pty":
        assert (facts["status"], facts["exit_code"]) == ("finished", 7), facts
        assert LOST[backend] in facts["note"]
        assert facts["output"].endswith(f"{LINES}\n")
    else:
        assert (facts["status"], facts["waited"]) == ("running", "timeout"), facts
        assert "output cannot be stored now" in facts["note"]


def until_refused(client: Caller, session: str) -> None:
    """What was reserved for a session before is used up by commands that end as they should; then none is begun."""
    for number in range(64):
        result = client.call("execute_command", session_id=session, command=f"seq 1 1500; (exit {number})")
        if result.get("isError"):
            break
        assert result["structuredContent"].get("exit_code") == number, result
    client.refused("storage_full", "execute_command", session_id=session, command="echo")


def works(client: Caller, backend: str, session: str) -> None:
    """A session made before and one made now run commands."""
    assert client.run(session, "echo ok") == "ok\n"
    client.ok("create_session", name="next", backend=backend)
    assert client.run("next", "seq 1 10000").endswith("\n10000\n")
    client.ok("close_session", session_id="next")


@pytest.mark.torture  # unit/audit: test_log.py, test_files.py; terminal/test_log.py
@pytest.mark.either("backend")
@pytest.mark.parametrize("backend", BACKENDS)
def test_while_the_disk_is_full_only_beginning_is_refused(small: Machine, gate: Path, backend: str) -> None:
    with small.caller() as client:
        command_id = begin(client, backend, gate)
        for name in ("quiet", "spare"):
            client.ok("create_session", name=name, backend=backend)
        client.begin("spare", "sleep 1000")
        client.run("quiet", "echo quiet")
        filler = fill(small)
        gate.write_text("go\n")
        while_full(client, backend, command_id)
        until_refused(client, "quiet")
        client.refused("storage_full", "create_session", name="more", backend=backend)
        names = [session["name"] for session in client.ok("list_sessions")["sessions"]]
        assert names == ["loud", "quiet", "spare"]
        assert client.state("spare") == "running"
        assert client.state("quiet") == "ready"
        assert client.ok("read_screen", session_id="quiet")["screen"]
        assert client.ok("read_output", session_id="quiet", offset=0)["status"] == "finished"
        facts = client.ok("interrupt_command", session_id="spare")
        assert (facts["status"], facts["exit_code"]) == ("interrupted", 130), facts
        client.ok("close_session", session_id="spare")
        filler.unlink()
        facts = client.finish("loud", command_id)
        assert (facts["status"], facts["exit_code"]) == ("finished", 7), facts
        for page in ({}, {"tail_lines": 1}, {"offset": 0}):
            facts = client.ok("read_output", session_id="loud", command_id=command_id, **page)
            assert LOST[backend] in facts["note"], facts
        if backend == "tmux":
            # There it is said where it is lost, too.
            wanted = {"wait_for": "pattern", "pattern": HERE}
            assert client.ok("read_output", session_id="loud", command_id=command_id, **wanted)["matches"] == 1
        assert client.run("loud", "echo $kept; pwd") == "yes\n/usr\n"
        works(client, backend, "quiet")


@pytest.mark.torture
@pytest.mark.either("backend")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_session_can_be_closed_to_free_the_disk(small: Machine, gate: Path, backend: str) -> None:
    with small.caller() as client:
        command_id = begin(client, backend, gate)
        client.ok("create_session", name="quiet", backend=backend)
        fill(small)
        gate.write_text("go\n")
        while_full(client, backend, command_id)
        until_refused(client, "quiet")
        client.ok("close_session", session_id="loud")
        assert [session["name"] for session in client.ok("list_sessions")["sessions"]] == ["quiet"]
        works(client, backend, "quiet")


@pytest.mark.torture  # above the disk is full, in test_kills.py the daemon is killed
@pytest.mark.parametrize("backend", TMUX_FIRST)
def test_a_daemon_killed_while_the_disk_is_full_is_replaced(small: Machine, gate: Path, backend: str) -> None:
    with small.caller() as client:
        command_id = begin(client, backend, gate)
    filler = fill(small)
    kill_process(small.daemon())
    with small.caller() as client:
        assert client.state("loud") == "running"
        kill_process(small.daemon())
    gate.write_text("go\n")
    with small.caller() as client:
        assert client.ok("read_screen", session_id="loud")["rows"] == 50
        filler.unlink()
        facts = client.finish("loud", command_id)
        assert (facts["status"], facts["exit_code"]) == ("finished", 7), facts
        assert client.run("loud", "echo $kept; pwd") == "yes\n/usr\n"


@pytest.mark.torture
def test_zsh_tells_an_end_that_went_unseen(small: Machine, gate: Path) -> None:
    with small.caller() as client:
        client.ok("create_session", name="loud", backend="tmux", shell="zsh")
        command_id = client.begin("loud", f"cat {gate}; seq 1 {LINES}; sh -c 'exit 7'")
        filler = fill(small)
        gate.write_text("go\n")
        while_full(client, "tmux", command_id)
        filler.unlink()
        facts = client.finish("loud", command_id)
        assert (facts["status"], facts["exit_code"]) == ("finished", 7), facts
        assert client.run("loud", "echo ok") == "ok\n"


@pytest.mark.torture
def test_the_shell_tells_how_it_ended_what_was_interrupted_unseen(small: Machine, gate: Path) -> None:
    with small.caller() as client:
        command_id = begin(client, "tmux", gate)
        filler = fill(small)
        gate.write_text("go\n")
        while_full(client, "tmux", command_id)
        facts = client.ok("interrupt_command", session_id="loud")
        assert facts["status"] == "running", facts
        filler.unlink()
        facts = client.finish("loud", command_id)
        # It may have ended by itself before.
        assert (facts["status"], facts.get("exit_code")) in (("interrupted", 130), ("interrupted", 7)), facts
        assert client.run("loud", "echo $kept") == "yes\n"
