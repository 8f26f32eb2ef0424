"""``ccswarm serve --tcp`` from its beginning to its end: what outlives it, who may come in, and how many."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import pytest

from ccswarm.servers.visionflow.plugin import UNKNOWN_ADVICE
from tests.ccswarm.support.runs import RunVerbs
from tests.ccswarm.support.visionflow_server import TEXT, Wire, children, served
from tests.conftest import client_environment, environment
from tests.support.products import first

LOST = "lost_after_seconds = 1.0\n"
TOKEN = "correct horse"
MUTE = '[[mcp.servers]]\nname = "mute"\ncommand = "sleep 1000"\nconnect_seconds = 300\n'
PLAIN = 'grants = ["small.*"]\n'


@pytest.fixture
def verbs(home: Path) -> RunVerbs:
    return RunVerbs(home, TEXT.replace("[engine]\n", f"[engine]\n{LOST}"))


def until(wire: Wire, swarm: str, **expected: int) -> None:
    """Agents are started again side by side with everything else."""
    while not expected.items() <= wire.ask("swarm_status", swarmId=swarm).items():
        pass


@pytest.mark.parametrize("how", [pytest.param(signal.SIGTERM, marks=pytest.mark.torture), signal.SIGKILL])
def test_swarms_outlive_the_server_and_their_tasks_go_on(verbs: RunVerbs, how: signal.Signals) -> None:
    with served(verbs) as first, Wire(first.port) as wire:
        swarm, (ann, ada) = wire.swarm("ring", "analyst", "researcher")
        old = wire.ask("task_orchestrate", swarmId=swarm, task="first")["taskId"]
        with verbs.answering("done"):
            wire.over(old)
        task = wire.ask("task_orchestrate", swarmId=swarm, task="second", priority="low")["taskId"]
        with verbs.held():
            assert first.end(how) == (0 if how == signal.SIGTERM else -9)
    with served(verbs) as second, Wire(second.port) as wire:
        status = wire.ask("swarm_status", swarmId=swarm)
        assert (status["topology"], status["pendingTasks"], status["completedTasks"]) == ("ring", 1, 1)
        until(wire, swarm, activeAgents=2)
        with verbs.answering("went on"):
            found = wire.over(task)
        assert (found["status"], found["priority"], found["task"]) == ("completed", "low", "second")
        assert found["parts"][0]["result"]["steps"]["do"]["text"] == "went on"
        assert [one["id"] for one in wire.ask("agent_list", swarmId=swarm)["agents"]] == [ann, ada]
        until(wire, swarm, pendingTasks=0, completedTasks=2)


def test_a_server_of_another_directory_has_none_of_its_swarms(verbs: RunVerbs, tmp_path: Path) -> None:
    other = RunVerbs(tmp_path)
    other.state = verbs.state
    for one in (verbs, other):
        one.rewrite(verbs.file.read_text())
    with served(verbs) as first, Wire(first.port) as wire:
        swarm, _ = wire.swarm("ring", "analyst")
        with served(other) as second, Wire(second.port) as elsewhere:
            assert elsewhere.fault("swarm_status", swarmId=swarm)["code"] == -32001
        assert wire.ask("swarm_status", swarmId=swarm)["topology"] == "ring"


@pytest.mark.torture  # without a restart: test_what_a_terminated_agent_has_not_begun_never_begins
def test_what_is_to_follow_a_run_that_an_agent_left_follows_after_a_restart(verbs: RunVerbs) -> None:
    with served(verbs) as first, Wire(first.port) as wire:
        swarm, (_, bob, _) = wire.swarm("ring", "analyst", "coder", "researcher")
        task = wire.ask("task_orchestrate", swarmId=swarm, task="pass it on")["taskId"]
        with verbs.held():
            wire.ask("agent_terminate", agentId=bob)
            assert first.end() == 0
    with served(verbs) as second, Wire(second.port) as wire:
        assert wire.ask("swarm_status", swarmId=swarm)["pendingTasks"] == 1
        with verbs.answering("done"):
            found = wire.over(task)
        assert [(one["agent"], one["status"]) for one in found["parts"]] == [("ann", "completed"), ("ada", "completed")]


def test_what_cannot_be_started_again_is_not_active_and_a_file_that_is_no_swarm_is_left_alone(verbs: RunVerbs) -> None:
    with served(verbs) as first, Wire(first.port) as wire:
        swarm, (_, bob) = wire.swarm("mesh", "researcher", "coder")
        destroyed, _ = wire.swarm()
        wire.ask("swarm_destroy", swarmId=destroyed)
    (file,) = (verbs.state / "visionflow").iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == (f"{swarm}.json", 0o600)
    broken = file.with_name("swarm-550e8400-e29b-41d4-a716-446655440000.json")
    broken.write_text("{")
    text = verbs.file.read_text()
    verbs.rewrite(text.replace('name = "bob"', 'name = "bert"'))
    with served(verbs) as second, Wire(second.port) as wire:
        assert wire.fault("swarm_status", swarmId=destroyed)["code"] == -32001
        until(wire, swarm, activeAgents=1)
        while not (stopped := wire.ask("agent_list", swarmId=swarm, filter="stopped", include_metadata=True)["agents"]):
            pass
        assert [one["id"] for one in stopped] == [bob]
        assert "is the configured agent bob, which no longer exists" in stopped[0]["metadata"]["problem"]
        asked = wire.ask("task_orchestrate", swarmId=swarm, task="go")
        assert asked["assignedAgents"] == 1
        assert wire.over(asked["taskId"])["status"] == "completed"
        wire.ask("agent_terminate", agentId=bob)
        assert wire.ask("agent_list", swarmId=swarm, filter="stopped")["agents"] == []
    assert broken.read_text() == "{"
    assert any("is not a swarm and is ignored" in line for line in second.said)


@pytest.mark.torture
def test_who_may_not_use_a_server_that_never_answers_does_not_ask_it(verbs: RunVerbs) -> None:
    verbs.rewrite(verbs.file.read_text() + MUTE)
    with served(verbs) as server, Wire(server.port) as wire:
        swarm, _ = wire.swarm("mesh", "researcher")
        until(wire, swarm, activeAgents=1)


@pytest.mark.torture
def test_a_server_of_an_agent_that_never_answers_holds_nobody_up(verbs: RunVerbs) -> None:
    with served(verbs) as first, Wire(first.port) as wire:
        swarm, (ada,) = wire.swarm("mesh", "researcher")
    text = verbs.file.read_text()
    verbs.rewrite(text.replace("capabilities =", 'grants = ["*"]\ncapabilities =').replace(PLAIN, "", 1) + MUTE)
    with served(verbs) as second, Wire(second.port) as wire:
        (found,) = wire.ask("agent_list", swarmId=swarm)["agents"]
        assert (found["id"], found["status"]) == (ada, "starting")
        assert wire.fault("task_orchestrate", swarmId=swarm, task="go")["code"] == -32002
        began = time.monotonic()
        assert second.end() == 0
        assert time.monotonic() - began < 30  # an agent may take 35 s to be started
        assert children(second, "sleep") == []


@pytest.mark.torture
def test_it_ends_when_told_and_answers_what_it_was_asked(verbs: RunVerbs) -> None:
    with served(verbs) as server, Wire(server.port) as idle, Wire(server.port) as wire:
        swarm, _ = wire.swarm("mesh", "analyst")
        wire.ask("task_orchestrate", swarmId=swarm, task="wait")
        with verbs.held():
            assert server.end() == 0
        assert wire.answer() is None
        assert idle.answer() is None
        assert children(server, ".py") == []
        with pytest.raises(ConnectionRefusedError):
            Wire(server.port)


def test_before_the_token_only_a_greeting_is_answered_and_with_it_one_may_come_from_elsewhere(verbs: RunVerbs) -> None:
    with served(verbs, "--host", "0.0.0.0", TCP_AUTH_TOKEN=TOKEN) as server, Wire(server.port) as wire:
        required = {"code": -32000, "message": "Authentication required", "data": {"message": UNKNOWN_ADVICE}}
        assert wire.ask("initialize", protocolVersion="0.1.0")["serverInfo"] == {"name": "ccswarm", "version": ""}
        for method in ("swarm_init", "tools/list", "tools/call", "ping", "server_info", "no_such"):
            assert wire.fault(method, topology="mesh", name="server_info") == required
        for wrong in ("", "wrong", None, 7):
            assert wire.fault("authenticate", token=wrong) == {"code": -32000, "message": "Authentication failed"}
        assert wire.ask("authenticate", token=TOKEN) == {"authenticated": True}
        assert wire.ask("swarm_init", topology="mesh")["maxAgents"] == 10
        with Wire(server.port) as other:
            assert other.fault("server_info") == required
            for _ in range(5):
                other.fault("authenticate", token="guess")
            assert other.answer() is None
        assert not any(TOKEN in line for line in server.said)


@pytest.mark.parametrize("host", first(["0.0.0.0", "::", "192.0.2.1", "some.where"], "0.0.0.0", "some.where"))
def test_other_machines_need_a_token(verbs: RunVerbs, host: str) -> None:
    with environment(client_environment(verbs.home)):
        said = verbs.run("serve", "--tcp", "--host", host, "--workspace", str(verbs.home), code=2)
    assert f"error usage_invalid: other machines can reach {host}" in said.err
    assert "TCP_AUTH_TOKEN" in said.err


def test_the_port_is_the_options_or_that_of_the_environment(verbs: RunVerbs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, environment(client_environment(verbs.home)):
        port = taken.getsockname()[1]
        said = verbs.run("serve", "--tcp", "--port", str(port), "-w", str(verbs.home), code=1)
        assert f"cannot listen on 127.0.0.1 port {port}" in said.err
        with environment({**client_environment(verbs.home), "MCP_TCP_PORT": str(port)}):
            assert (
                f"cannot listen on 127.0.0.1 port {port}"
                in verbs.run("serve", "--tcp", "-w", str(verbs.home), code=1).err
            )
        with environment({**client_environment(verbs.home), "MCP_TCP_PORT": "many"}):
            assert "MCP_TCP_PORT is 'many'" in verbs.run("serve", "--tcp", "-w", str(verbs.home), code=2).err
        assert "no dialect to serve was given" in verbs.run("serve", code=2).err
        assert "is not a directory" in verbs.run("serve", "--tcp", "-w", str(verbs.home / "none"), code=2).err


def test_one_connection_too_many_gets_an_error(verbs: RunVerbs) -> None:
    with served(verbs, "--connections", "2") as server, Wire(server.port) as one, Wire(server.port) as two:
        assert [wire.ask("ping") for wire in (one, two)] == [{}, {}]
        with Wire(server.port) as three:
            refused = three.answer()
            assert (refused["id"], refused["error"]) == (None, {"code": -32000, "message": "Too many connections"})
            assert three.answer() is None
        one.close()
        while True:  # its place is free when the server has seen it go
            with Wire(server.port) as four:
                four.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
                if four.answer()["id"] == 1:
                    break
        assert two.ask("ping") == {}


def test_an_address_that_asks_too_much_gets_an_error(verbs: RunVerbs) -> None:
    with served(verbs, "--requests", "5") as server, Wire(server.port) as wire:
        numbers = [wire.begin("ping", {}) for _ in range(40)]
        answers = [wire.answer() for _ in numbers]
        assert [one["id"] for one in answers] == numbers
        errors = [one["error"] for one in answers if "error" in one]
        assert len(errors) > 20
        assert all(error == {"code": -32000, "message": "Rate limit exceeded"} for error in errors)
        assert all("result" in one for one in answers[:10])


def test_the_program_says_what_it_serves(verbs: RunVerbs) -> None:
    with served(verbs) as server:
        assert server.said[0] == f"VisionFlow is served at 127.0.0.1 port {server.port}"
        with Wire(server.port, token="any") as wire:  # no token is required, and any is taken
            assert wire.ask("ping") == {}
        assert server.end() == 0
    team = "ada (researcher), bob (coder), eve (coordinator), ann (analyst), mia (writer)"
    assert server.said[1:] == [
        "your own programs need no token, all others do: ccswarm token shows it",
        f"agents that take tasks in words: {team}",
        "missing: an agent of type optimizer; add it: ccswarm init --for visionflow",
    ]
    with environment(client_environment(verbs.home)):
        shown = verbs.run("serve", "--help").out
    assert "--tcp" in shown


def test_what_cannot_be_kept_is_an_internal_error_without_its_inside(verbs: RunVerbs) -> None:
    with served(verbs) as server, Wire(server.port) as wire:
        kept, aside = verbs.state / "visionflow", verbs.state / "aside"
        kept.rename(aside)
        kept.touch()
        error = wire.whole("swarm_init", topology="mesh")["error"]
        assert (error["code"], error["message"]) == (-32603, "Internal error")
        assert str(verbs.state) not in str(error)
        kept.unlink()
        aside.rename(kept)
        assert wire.ask("swarm_init", topology="mesh")["topology"] == "mesh"
