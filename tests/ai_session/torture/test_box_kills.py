"""kill -9 of each process around a boxed session while it prints: exact where the shell survived, true where not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ai_session.client.connection import connect
from ai_session.models import SandboxLevel
from ai_session.system import membership, processes
from tests.ai_session.torture.kills import EXPECTED, Round, daemon, keepers
from tests.ai_session.torture.test_kills import HOLDER
from tests.support.process_ends import ending, kill_process, wait_ended

BOXED = '[policy]\nmode = "trusted"\n'
ROUNDS = [pytest.param(1, id="once"), pytest.param(25, id="many", marks=pytest.mark.torture)]
BACKENDS = ["pty", "tmux"]


@pytest.fixture
def workspace(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the sessions of a daemon that boxes them; clients are started in it."""
    (home / ".config/ai-session/config.toml").write_text(BOXED)
    (home / "ws").mkdir()
    monkeypatch.chdir(home / "ws")
    return home / "ws"


def each_round(workspace: Path, backend: str, rounds: int, judge: Callable[[Round], None]) -> None:
    """Nothing of a round is left when its session is closed, and another session notices none of it."""
    with daemon():
        with connect() as client:
            made = client.call("create_session", name="other", backend="pty").structured
            assert made["sandbox"] == "workspace (bwrap, network off)"
            client.call("execute_command", session_id="other", command="other=kept; touch mine")
        placed = set(os.listdir(workspace))
        for seed in range(rounds):
            with connect() as client:
                one = Round(client, backend, seed + 1)
            cookie = json.loads((one.directory / "spec.json").read_bytes())["cookie"]
            one.begin()
            one.wait_random_byte()
            judge(one)
            with connect() as client:
                client.call("close_session", session_id=one.name)
                assert membership.members(cookie) == []
                assert set(os.listdir(workspace)) == placed
                answer = client.call("execute_command", session_id="other", command="echo $other").structured
                assert answer["output"] == "kept\n", answer
        with connect() as client:
            leaving = client.hello["pid"]
    wait_ended(leaving)
    assert os.listdir(workspace) == ["mine"]


def ended(one: Round, pid: int) -> None:
    """Of a kill that takes the shell with it. Hung up, it may find the time to say so in what it printed last."""
    shell = processes.boxed(one.pid, SandboxLevel.BWRAP)
    assert shell
    with ending(shell):
        kill_process(pid)
    wait = {"command_id": one.command_id, "wait_for": "finish", "timeout_seconds": 50}
    with connect() as client:
        end = client.call("read_output", session_id=one.name, **wait).structured
        assert (end["status"], end["exit_code"]) in (("finished", 137), ("finished", 7)), end
        text, shell_said, _ = one.output(client).partition("Hangup")
        assert EXPECTED.startswith(text.rpartition("\n")[0])
        assert not shell_said or pid == one.pid
        assert end["exit_code"] == 137 or text == EXPECTED
        info = client.call("get_session_info", session_id=one.name).structured
        assert info["exit"]["signal"] == 9, info
        client.call("create_session", name=one.name)
        state = client.call("execute_command", session_id=one.name, command="pwd").structured
        assert state["output"] == "/usr\n"


@pytest.mark.either("backend")
@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.torture  # test_kills.py kills it without a box, test_workspace_protection.py with one
def test_the_daemon(workspace: Path, backend: str, rounds: int) -> None:
    def judge(one: Round) -> None:
        with connect() as client:
            pid = client.hello["pid"]
        kill_process(pid)
        with connect() as client:
            assert client.hello["pid"] != pid
            one.check_survived(client)

    each_round(workspace, backend, rounds, judge)


@pytest.mark.torture  # test_kills.py kills it without a box
@pytest.mark.parametrize("rounds", ROUNDS)
def test_the_holder(workspace: Path, rounds: int) -> None:
    def judge(one: Round) -> None:
        (holder,) = keepers(HOLDER)
        kill_process(holder)
        with connect() as client:
            one.check_survived(client)

    each_round(workspace, "pty", rounds, judge)


@pytest.mark.torture  # test_kills.py kills it without a box
@pytest.mark.parametrize("rounds", ROUNDS)
def test_the_tmux_server(workspace: Path, rounds: int) -> None:
    def judge(one: Round) -> None:
        for server in keepers(r"tmux\.sock"):
            if os.path.exists(f"/proc/{server}"):
                kill_process(server)
        with connect() as client:
            one.check_ended(client, "lost")

    each_round(workspace, "tmux", rounds, judge)


@pytest.mark.torture  # the shell ends as it does with the first process of its box, below
@pytest.mark.either("backend")
@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_outer_process_of_the_box(workspace: Path, backend: str, rounds: int) -> None:
    each_round(workspace, backend, rounds, lambda one: ended(one, one.pid))


@pytest.mark.torture  # test_workspace_protection.py: nothing is left whatever was killed
@pytest.mark.either("backend")
@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_process_of_the_box(workspace: Path, backend: str, rounds: int) -> None:
    each_round(workspace, backend, rounds, lambda one: ended(one, first_of(one.pid)))


@pytest.mark.torture  # test_kills.py kills it without a box
@pytest.mark.either("backend")
@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_shell(workspace: Path, backend: str, rounds: int) -> None:
    each_round(workspace, backend, rounds, lambda one: ended(one, processes.boxed(one.pid, SandboxLevel.BWRAP) or 0))


def first_of(outer: int) -> int:
    """Process 1 of the box."""
    return int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])
