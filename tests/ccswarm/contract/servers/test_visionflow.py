"""VisionFlow as its document has it, and as its clients really speak it, against a running server."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ccswarm.support.runs import RunVerbs
from tests.ccswarm.support.visionflow_server import IDS, TEXT, Served, Wire, served

INIT = {"topology": "hierarchical", "maxAgents": 10, "strategy": "adaptive"}


@pytest.fixture(scope="module")
def verbs(shared_home: Path) -> RunVerbs:
    return RunVerbs(shared_home, TEXT)


@pytest.fixture(scope="module")
def server(verbs: RunVerbs) -> Iterator[Served]:
    with served(verbs) as server:
        yield server


@pytest.fixture
def wire(server: Served) -> Iterator[Wire]:
    with Wire(server.port) as wire:
        yield wire


def alike(found: Any, documented: Any) -> bool:
    """Field by field, in any order; ids are of their form."""
    assert found.keys() == documented.keys()
    for name, value in documented.items():
        if isinstance(value, dict):
            assert alike(found[name], value)
        elif isinstance(value, str) and IDS.match(value):
            form = IDS.match(found[name])
            assert form
            assert form[1] == value.partition("-")[0]
        else:
            assert found[name] == value, (name, found)
    return True


UUID = "550e8400-e29b-41d4-a716-44665544000"
SPAWNED = {"agentId": f"agent-{UUID}1", "type": "researcher", "status": "active"}
TASK = {"task": "Analyze knowledge graph for communities", "strategy": "parallel", "priority": "high"}
STATUS = {"topology": "hierarchical", "activeAgents": 3, "maxAgents": 10, "pendingTasks": 0, "completedTasks": 1}
WRONG = {"field": "topology", "message": "Must be one of: hierarchical, mesh, ring, star"}


def test_the_messages_of_the_document_get_its_answers(wire: Wire) -> None:
    """One after the other, with the ids that were really given."""

    def replayed(number: str, method: str, params: Any, **answer: Any) -> Any:
        wire.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        found = wire.answer()
        assert alike(found, {"jsonrpc": "2.0", "id": number, **answer})
        return found.get("result")

    made = {"swarmId": f"swarm-{UUID}0", "topology": "hierarchical", "maxAgents": 10}
    swarm = replayed("1", "swarm_init", INIT, result=made)["swarmId"]
    spawn = {"swarmId": swarm, "type": "researcher", "capabilities": ["analysis", "synthesis"]}
    agent = replayed("2", "agent_spawn", spawn, result=SPAWNED)["agentId"]
    for kind in ("coder", "coordinator"):
        wire.ask("agent_spawn", swarmId=swarm, type=kind)
    queued = {"taskId": f"task-{UUID}2", "status": "queued", "assignedAgents": 3}
    task = replayed("3", "task_orchestrate", {"swarmId": swarm, **TASK}, result=queued)["taskId"]
    assert wire.over(task)["status"] == "completed"
    replayed("4", "swarm_status", {"swarmId": swarm}, result={"swarmId": swarm, **STATUS})
    replayed("5", "agent_terminate", {"agentId": agent}, result={"agentId": agent, "status": "terminated"})
    error = {"code": -32602, "message": "Invalid params", "data": WRONG}
    replayed("1", "swarm_init", {**INIT, "topology": "tree"}, error=error)


def test_what_is_missing_or_does_not_fit_is_named(wire: Wire) -> None:
    swarm, _ = wire.swarm()
    for method, params, field, reported in (
        ("swarm_init", {}, "topology", "Required"),
        ("swarm_init", {"topology": 7}, "topology", "Must be a string"),
        ("swarm_init", {"topology": "mesh", "maxAgents": "10"}, "maxAgents", "Must be an integer"),
        ("swarm_init", {"topology": "mesh", "maxAgents": True}, "maxAgents", "Must be an integer"),
        ("swarm_init", {"topology": "mesh", "maxAgents": 0}, "maxAgents", "Must be at least 1"),
        ("swarm_init", {"topology": "mesh", "maxAgents": 5000}, "maxAgents", "Must be at most 1000: swarm.max_agents"),
        ("swarm_init", {"topology": "mesh", "strategy": "x"}, "strategy", "Must be one of: adaptive, balanced, specia"),
        ("agent_spawn", {"type": "coder"}, "swarmId", "Required"),
        ("agent_spawn", {"swarmId": swarm}, "type", "Required"),
        (
            "agent_spawn",
            {"swarmId": swarm, "type": "tester"},
            "type",
            "Must be one of: researcher, coder, analyst, opt",
        ),
        (
            "agent_spawn",
            {"swarmId": swarm, "type": "coder", "capabilities": "x"},
            "capabilities",
            "Must be an array of",
        ),
        (
            "agent_spawn",
            {"swarmId": swarm, "type": "coder", "capabilities": [1]},
            "capabilities",
            "Must be an array of",
        ),
        ("task_orchestrate", {"swarmId": swarm}, "task", "Required"),
        ("task_orchestrate", {"swarmId": swarm, "task": " "}, "task", "Must not be empty"),
        ("task_orchestrate", {"swarmId": swarm, "task": "x" * 20_001}, "task", "Must have at most 20000 characters"),
        (
            "task_orchestrate",
            {"swarmId": swarm, "task": "x", "priority": "urgent"},
            "priority",
            "Must be one of: low, m",
        ),
        ("task_orchestrate", {"swarmId": swarm, "task": "x", "maxAgents": 0}, "maxAgents", "Must be at least 1"),
        ("swarm_status", {}, "swarmId", "Required"),
        ("agent_terminate", {}, "agentId", "Required"),
        ("tools/call", {"name": "nothing"}, "name", "Must be one of: swarm_init"),
        ("tools/call", {"name": "swarm_init", "arguments": []}, "arguments", "Must be an object"),
    ):
        fault = wire.fault(method, **params)
        assert (fault["code"], fault["message"], fault["data"]["field"]) == (-32602, "Invalid params", field), params
        assert fault["data"]["message"].startswith(reported), fault
    assert wire.ask("swarm_init", topology="ring", maxAgents=None, strategy=None)["maxAgents"] == 10


def test_who_and_what_is_not_there_has_codes_of_its_own(wire: Wire) -> None:
    swarm, _ = wire.swarm("mesh", maxAgents=1)
    nobody = "agent-550e8400-e29b-41d4-a716-446655440001"
    for method, params, code, message in (
        ("swarm_status", {"swarmId": "swarm-x"}, -32001, "Swarm not found"),
        ("agent_spawn", {"swarmId": "swarm-x", "type": "coder"}, -32001, "Swarm not found"),
        ("task_orchestrate", {"swarmId": "swarm-x", "task": "x"}, -32001, "Swarm not found"),
        ("swarm_destroy", {"swarmId": "swarm-x"}, -32001, "Swarm not found"),
        ("agent_terminate", {"agentId": nobody}, -32002, "Agent not found"),
        ("task_orchestrate", {"swarmId": swarm, "task": "x"}, -32002, "Agent not found"),
        ("task_status", {"taskId": "task-x"}, -32003, "Task not found"),
        ("agent_spawn", {"swarmId": swarm, "type": "optimizer"}, -32005, "Agent spawn failed"),
        ("no_such", {}, -32601, "Method not found"),
    ):
        fault = wire.fault(method, **params)
        assert (fault["code"], fault["message"]) == (code, message), (method, fault)
        assert fault["data"]["message"]
    reported = wire.fault("agent_spawn", swarmId=swarm, type="optimizer")["data"]["message"]
    assert 'add [[agents]] with type = "optimizer" to ' in reported


def test_the_eleventh_agent_of_ten_is_one_too_many(wire: Wire) -> None:
    swarm, agents = wire.swarm("star", *["researcher"] * 10)
    assert len(set(agents)) == 10
    fault = wire.fault("agent_spawn", swarmId=swarm, type="researcher")
    assert (fault["code"], fault["message"]) == (-32004, "Swarm capacity exceeded")
    assert wire.ask("swarm_status", swarmId=swarm)["activeAgents"] == 10
    wire.ask("agent_terminate", agentId=agents[3])
    assert wire.ask("agent_spawn", swarmId=swarm, type="coder")["status"] == "active"
    names = [one["name"] for one in wire.ask("agent_list", swarmId=swarm)["agents"]]
    assert names == ["ada"] * 9 + ["bob"]
    wire.ask("swarm_destroy", swarmId=swarm)


def test_ids_come_back_as_they_were(wire: Wire) -> None:
    for number in ("1", 1, 0, -7, "", "550e8400-e29b-41d4-a716-446655440000", 1732233600000, 2**64 - 1, "ü\n\u2028"):
        wire.send({"jsonrpc": "2.0", "id": number, "method": "server_info"})
        answer = wire.answer()
        assert (answer["id"], type(answer["id"])) == (number, type(number))
        assert answer["result"]["server_id"] == "ccswarm"


def test_lines_come_in_any_pieces(wire: Wire) -> None:
    lines = [{"jsonrpc": "2.0", "id": number, "method": "server_info", "params": {}} for number in range(5)]
    wire.send(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert [wire.answer()["id"] for _ in lines] == list(range(5))
    for byte in json.dumps(lines[3]).encode() + b"\r\n":
        wire.send(bytes([byte]))
    assert wire.answer()["id"] == 3


def test_bad_lines_are_answered_and_cost_nothing_else(wire: Wire) -> None:
    assert wire.ask("ping") == {}
    for line, number, code in (
        (b"{nonsense}", None, -32700),
        (b"hello", None, -32700),
        (b"Host: localhost", None, -32700),
        (b"GET / HTTP/1.1", None, -32700),
        (b"\xff\xfe", None, -32700),
        (b'{"jsonrpc":"2.0","id":7,"method":"server_info",', 7, -32700),
        (b'{"jsonrpc":"2.0","id":8,"method":"server_info","params":{"a":NaN}}', 8, -32700),
        (b'{"jsonrpc":"2.0","id":8,"method":"server_info","params":{"a":1e999}}', 8, -32700),
        (b'{"jsonrpc":"2.0","id":1e999,"method":"server_info"}', None, -32700),
        (b'{"jsonrpc":"2.0","id":"9","method":"server_info","params":[]}', "9", -32600),
        (b'{"jsonrpc":"1.0","id":"9","method":"server_info"}', "9", -32600),
        (b'{"jsonrpc":"2.0","id":"9","method":5}', "9", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"server_info"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"server_info"}', None, -32600),
        (b'[{"jsonrpc":"2.0","id":4,"method":"server_info"}]', 4, -32600),
        (b"[]", None, -32600),
        (b"5", None, -32600),
        (b"[" * 100_000, None, -32600),
        (b'{"jsonrpc":"2.0","id":11,"method":"' + b"x" * 2_000_000 + b'"}', 11, -32600),
    ):
        wire.send(line + b"\n")
        answer = wire.answer()
        assert (answer["id"], answer["error"]["code"]) == (number, code), (line[:80], answer)
    wire.send(b"\n  \n" + b'{"jsonrpc":"2.0","method":"swarm_init","params":{"topology":"mesh"}}\n')
    assert wire.ask("server_info")["server_type"] == "ccswarm"


def test_what_was_asked_before_the_end_is_answered(server: Served) -> None:
    """As ``printf … | nc`` does it: one line, the last one without its newline, and then nothing."""
    with Wire(server.port) as wire:
        wire.send(json.dumps({"jsonrpc": "2.0", "id": "1", "method": "swarm_init", "params": INIT}).encode())
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.answer()["result"]["topology"] == "hierarchical"
        assert wire.answer() is None


def test_nothing_comes_that_was_not_asked_for(server: Served) -> None:
    with Wire(server.port) as quiet:
        for method in ("notifications/initialized", "server_info", "no_such"):
            quiet.send({"jsonrpc": "2.0", "method": method})
        quiet.send({"jsonrpc": "2.0", "id": 1, "result": {}})
        with Wire(server.port) as busy:
            busy.swarm("mesh", "researcher")
        assert quiet.whole("ping")["result"] == {}
        quiet.socket.shutdown(socket.SHUT_WR)
        assert quiet.answer() is None


def test_a_client_that_calls_tools_without_a_handshake_gets_one_line(server: Served) -> None:
    with Wire(server.port) as wire:
        swarm, (agent,) = wire.swarm("mesh", "researcher")
    with Wire(server.port) as wire:
        request = {"jsonrpc": "2.0", "method": "tools/call", "id": 1732233600123}
        arguments = {"filter": "all", "include_metadata": True}
        wire.send({**request, "params": {"name": "agent_list", "arguments": arguments}})
        answer = wire.answer()
        assert answer["id"] == 1732233600123
        (content,) = answer["result"]["content"]
        (found,) = [one for one in json.loads(content["text"])["agents"] if one["id"] == agent]
        assert (found["name"], found["type"], found["status"], found["swarm_id"]) == (
            "ada",
            "researcher",
            "active",
            swarm,
        )
        assert found["capabilities"] == ["analysis", "synthesis", "prose"]
        assert found["performance"] == {
            "tasks_active": 0,
            "tasks_completed": 0,
            "tasks_failed": 0,
            "tool_calls": 0,
            "token_usage": 0,
            "tool_seconds": 0.0,
        }
        assert found["metadata"]["configured_agent"] == "ada"
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.answer() is None


@pytest.mark.parametrize("version", ["2024-11-05", "0.1.0", {"major": 2024, "minor": 11}, 1, None])
def test_every_greeting_is_answered(wire: Wire, version: Any) -> None:
    about = {"clientInfo": {"name": "visionflow", "version": "1"}, "capabilities": {"tools": {"listChanged": True}}}
    result = wire.ask("initialize", protocolVersion=version, **about)
    assert (result["protocolVersion"], result["serverInfo"]["name"]) == ("2024-11-05", "ccswarm")
    assert result["capabilities"]["tools"] == {"listChanged": False}
    tools = {one["name"]: one["inputSchema"] for one in wire.ask("tools/list")["tools"]}
    assert tools["agent_spawn"]["required"] == ["swarmId", "type"]
    assert tools["swarm_init"]["properties"]["topology"]["enum"] == ["hierarchical", "mesh", "ring", "star"]
    assert wire.tool("server_info")["supported_tools"] == list(tools)


def test_as_tools_the_newest_swarm_is_meant_where_none_is_named(wire: Wire) -> None:
    wire.swarm("ring", "researcher")
    swarm = wire.tool("swarm_init", topology="star", maxAgents=5)["swarmId"]
    wire.tool("agent_spawn", type="coder", swarmId=swarm)
    task = wire.tool("task_orchestrate", task="say it", priority="critical", strategy="sequential")["taskId"]
    assert wire.over(task)["swarmId"] == swarm
    status = wire.tool("swarm_status", include_topology=True, include_performance=True)
    assert (status["swarmId"], status["topology_type"], status["total_agents"]) == (swarm, "star", 1)
    assert (status["coordination_layers"], status["efficiency_score"], status["completedTasks"]) == (1, 1.0, 1)
    assert wire.tool("task_status", swarmId=swarm)["tasks"][0]["taskId"] == task
    assert [one["id"] for one in wire.ask("agents/list", swarmId=swarm)["agents"]] == [
        one["id"] for one in wire.tool("agent_list", swarmId=swarm)["agents"]
    ]


def test_the_older_methods_answer_plainly(wire: Wire) -> None:
    swarm = wire.ask("swarm.initialize", **INIT)["swarmId"]
    snapshot = wire.ask("visualization.snapshot")
    assert swarm in [one["swarmId"] for one in snapshot["swarms"]]
    metrics = wire.ask("metrics.get")
    assert metrics["swarms"] == len(snapshot["swarms"])
    assert metrics["active_agents"] == len(wire.ask("agent_list", filter="active")["agents"])
    assert sum(metrics["tasks"].values()) == len(snapshot["tasks"])
    wire.ask("swarm_destroy", swarmId=swarm)
    assert wire.fault("swarm_status", swarmId=swarm)["code"] == -32001
