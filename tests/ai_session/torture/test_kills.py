"""kill -9 of each process at random moments of a running command: exact where the shell survived, true where not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from ai_session.client.connection import connect
from tests.ai_session.torture.kills import Round, daemon, keepers, spin
from tests.support.process_ends import kill_process

HOLDER = r"pty[./]holder"
ROUNDS = [pytest.param(1, id="once"), pytest.param(50, id="many", marks=pytest.mark.torture)]


def each_round(backend: str, rounds: int, judge: Callable[[Round, list[int]], None], victims: str = "") -> None:
    """``judge`` gets the round and the pids of processes whose command line matches ``victims`` (else the daemon)."""
    with daemon():
        with connect() as client:
            client.call("create_session", name="other", backend="pty")
            client.call("execute_command", session_id="other", command="other=kept")
        for seed in range(rounds):
            with connect() as client:
                one = Round(client, backend, seed + 1)
                pids = keepers(victims) if victims else [client.hello["pid"]]
            one.begin()
            one.wait_random_byte()
            judge(one, pids)
            with connect() as client:
                client.call("close_session", session_id=one.name)
                answer = client.call("execute_command", session_id="other", command="echo $other").structured
                assert answer["output"] == "kept\n", answer


@pytest.mark.torture  # test_backend_survival.py, contract/sessions/test_recovery.py
@pytest.mark.either("backend")
@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("backend", ["pty", "tmux"])
def test_the_daemon_is_killed(backend: str, rounds: int) -> None:
    def judge(one: Round, pids: list[int]) -> None:
        kill_process(pids[0])
        with connect() as client:
            assert client.hello["pid"] not in pids
            one.check_survived(client)

    each_round(backend, rounds, judge)


@pytest.mark.torture  # test_backend_survival.py: a killed keeper
@pytest.mark.parametrize("rounds", ROUNDS)
def test_the_holder_is_killed(rounds: int) -> None:
    def judge(one: Round, pids: list[int]) -> None:
        (holder,) = pids
        kill_process(holder)
        with connect() as client:
            one.check_survived(client)
            client.call("create_session", name="next", backend="pty")
            assert client.call("execute_command", session_id="next", command="echo ok").structured["output"] == "ok\n"
            client.call("close_session", session_id="next")

    each_round("pty", rounds, judge, HOLDER)


@pytest.mark.torture  # test_backend_survival.py kills both without sessions
@pytest.mark.parametrize("rounds", ROUNDS)
def test_holder_then_daemon_are_killed(rounds: int) -> None:
    def judge(one: Round, pids: list[int]) -> None:
        with connect() as client:
            daemon_pid = client.hello["pid"]
        (holder,) = pids
        kill_process(holder)
        spin(lambda: [p for p in keepers(HOLDER) if p != holder], "no new holder")
        with connect() as client:
            # Its creation is answered by the new holder, which therefore has taken over all terminals.
            client.call("create_session", name="next", backend="pty")
        kill_process(daemon_pid)
        with connect() as client:
            one.check_survived(client)
            client.call("close_session", session_id="next")

    each_round("pty", rounds, judge, HOLDER)


@pytest.mark.torture  # test_faults.py: the working directory is removed kills one
@pytest.mark.either("backend")
@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("backend", ["pty", "tmux"])
def test_the_shell_is_killed(backend: str, rounds: int) -> None:
    def judge(one: Round, _pids: list[int]) -> None:
        kill_process(one.pid)
        with connect() as client:
            one.check_ended(client, "exited")
            info = client.call("get_session_info", session_id=one.name).structured
            assert info["exit"]["signal"] == 9
            client.call("create_session", name=one.name)
            state = client.call("execute_command", session_id=one.name, command="pwd").structured
            assert state["output"] == "/usr\n"

    each_round(backend, rounds, judge)


@pytest.mark.torture  # test_tmux_backend.py
@pytest.mark.parametrize("rounds", ROUNDS)
def test_the_tmux_server_is_killed(rounds: int) -> None:
    def judge(one: Round, pids: list[int]) -> None:
        assert pids
        for server in pids:
            if os.path.exists(f"/proc/{server}"):
                kill_process(server)
        with connect() as client:
            one.check_ended(client, "lost")
            client.call("create_session", name="again", backend="tmux")
            assert client.call("execute_command", session_id="again", command="echo ok").structured["output"] == "ok\n"
            client.call("close_session", session_id="again")

    each_round("tmux", rounds, judge, r"tmux\.sock")


@pytest.mark.torture  # test_audit_join.py kills clients in the midst of calls
@pytest.mark.parametrize("rounds", ROUNDS)
def test_the_relay_is_killed(rounds: int) -> None:
    command = [sys.executable, "-m", "ai_session", "mcp-server", "--stdio"]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}

    def judge(one: Round, _pids: list[int]) -> None:
        relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        assert relay.stdin
        assert relay.stdout
        wait = {"session_id": one.name, "command_id": one.command_id, "wait_for": "finish"}
        for message in (
            {"id": 1, "method": "initialize", "params": hello},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "read_output", "arguments": wait}},
        ):
            relay.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            relay.stdin.flush()
        assert json.loads(relay.stdout.readline())["id"] == 1
        os.kill(relay.pid, random.choice([signal.SIGKILL, signal.SIGTERM]))
        relay.wait()
        relay.stdin.close()
        relay.stdout.close()
        with connect() as client:
            one.check_survived(client)

    each_round("pty", rounds, judge)


def test_stop_leaves_no_orphan() -> None:
    fled = "sleep 1000 & nohup sleep 1001 >/dev/null & "
    fled += "(setsid sh -c 'sleep 1002 & exec sleep 1003' >/dev/null 2>&1 &)"
    with daemon(), connect() as client:
        for backend in ("pty", "tmux"):
            client.call("create_session", name=backend, backend=backend)
            client.call("execute_command", session_id=backend, command=fled)
        assert len(keepers_of_home()) >= 8
    spin(lambda: not keepers_of_home(), "processes are left")


def keepers_of_home() -> list[str]:
    """Whatever carries this test's HOME in its environment, but this process and its children of the test runner."""
    home = os.environ["HOME"].encode()
    left: list[str] = []
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if b"HOME=" + home in file.read():
                    left.append(pid)
        except OSError:
            continue
    return left
