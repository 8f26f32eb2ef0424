"""AgentVault's profile of ``ccswarm serve --a2a``: calls of tools, what comes of them, and whose fault it is."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccswarm.journal.files import read
from tests.ccswarm.support.a2a_standard_server import served
from tests.ccswarm.support.a2a_vault_server import IDS, JSON, TEXT, Vault, wanted
from tests.ccswarm.support.rpc_servers import RpcServer, rpc_server
from tests.ccswarm.support.runs import RunVerbs
from tests.support.bounds import BOUND_SECONDS

LARGE = 9007199254740993
CONTENT = [{"type": "text", "text": "Content of the file."}]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RpcServer]:
    root = tmp_path_factory.mktemp("data")
    (root / "data").mkdir()
    (root / "data/file.txt").write_text("Content of the file.")
    with rpc_server(root) as one:
        yield one


@pytest.fixture(scope="module")
def verbs(tmp_path_factory: pytest.TempPathFactory) -> RunVerbs:
    return RunVerbs(tmp_path_factory.mktemp("vault"), TEXT)


@pytest.fixture(scope="module")
def port(verbs: RunVerbs, files: RpcServer) -> Iterator[int]:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}"
        servers = {"filesystem": files.url, "code": f"{files.url}/rpc", "nowhere": nowhere}
        variables = {"MCP_SERVER_MAP": json.dumps(servers)}
        with served(verbs, **variables) as one:
            yield one.port


@pytest.fixture(scope="module")
def vault(port: int) -> Iterator[Vault]:
    with Vault(port) as one:
        yield one


def test_a_tool_is_called_and_its_result_comes_with_the_task(vault: Vault, files: RpcServer) -> None:
    number = vault.send("filesystem", "filesystem.readFile", path="/data/file.txt")
    assert IDS.match(number)
    events = vault.events(number)
    task = vault.ask("tasks/get", id=number)
    assert list(task) == ["id", "state", "createdAt", "updatedAt", "messages", "artifacts", "metadata"]
    assert (task["id"], task["state"], task["artifacts"], task["metadata"]) == (number, "COMPLETED", [], None)
    asked, answer = task["messages"]
    assert asked == wanted("filesystem", "filesystem.readFile", path="/data/file.txt")["message"]
    content = {"success": True, "mcp_result": {"content": CONTENT}}
    part = {"type": "data", "content": content, "mediaType": "application/json"}
    assert answer == {"role": "assistant", "parts": [part], "metadata": None}
    names = [name for name, _ in events]
    assert names[-2:] == ["task_message", "task_status"]
    assert set(names[:-2]) <= {"task_status"}
    assert events[-2][1] == {"taskId": number, "message": answer, "timestamp": events[-2][1]["timestamp"]}
    assert (events[-1][1]["state"], events[-1][1]["message"], events[-1][1]["taskId"]) == ("COMPLETED", None, number)
    assert {"path": "/data/file.txt"} in [request["params"] for request in files.asked]


def test_both_addresses_are_one(port: int, vault: Vault) -> None:
    number = vault.send("small", "echo", text="x")
    with Vault(port, "/a2a/") as other:
        assert other.over(number)["id"] == number


def test_of_a_task_that_is_over_all_is_told_and_the_stream_ends(vault: Vault) -> None:
    number = vault.send("small", "echo", text="late")
    vault.over(number)
    (first, message), (second, status) = vault.events(number)
    assert (first, second) == ("task_message", "task_status")
    assert message["message"]["parts"][0]["content"]["mcp_result"]["content"][0]["text"] == "late"
    assert status["state"] == "COMPLETED"


def test_a_server_of_the_configuration_is_a_target_as_well(vault: Vault) -> None:
    for target, tool in (("small", "echo"), ("small", "small.echo"), ("", "small.echo")):
        result = vault.said(target, tool, text="hello")["mcp_result"]
        assert result["content"] == [{"type": "text", "text": "hello"}]
        params = result["structuredContent"]["params"]
        assert params["arguments"]["text"] == "hello"
        assert params["_meta"]["ai-session/agent"] == "proxy"


def test_numbers_and_the_order_of_keys_pass_unchanged(vault: Vault) -> None:
    given = {"z": LARGE, "a": [1, 2.5, 1e300, None, {"y": "ü☃", "b": -(LARGE**3)}], "m": {"b": True, "a": ""}}
    body = json.dumps(vault.request("tasks/send", wanted("filesystem", "echo", **given)))
    answer = vault.http.post("/a2a", content=body.encode(), headers=JSON).json()
    vault.events(answer["result"]["id"])
    reported = vault.http.post("/a2a", json=vault.request("tasks/get", {"id": answer["result"]["id"]})).text
    result = json.loads(reported)["result"]["messages"][1]["parts"][0]["content"]["mcp_result"]
    assert json.dumps(result["given"]) == json.dumps(given)
    assert f'"z":{LARGE},"a":[1,2.5,1e+300,null,' in reported


def test_what_code_wrote_is_told_as_the_server_tells_it(vault: Vault) -> None:
    result = vault.said("code", "code.runPython", code="print(1 + 2)")["mcp_result"]
    block = {"type": "code_output", "stdout": "3\n", "stderr": "careful\n"}
    assert result == {"content": [block], "exit_code": 0}


def test_a_prefix_of_the_tool_names_the_server_where_the_target_does_not(vault: Vault) -> None:
    assert vault.said("unheard-of", "filesystem.readFile", path="/data/file.txt")["mcp_result"]["content"] == CONTENT
    assert vault.said("filesystem.local", "echo")["mcp_result"]["given"] == {}


def test_every_kind_of_failure_says_whose_it_is(vault: Vault, files: RpcServer) -> None:
    outside = vault.said("filesystem", "filesystem.readFile", path="/../../etc/passwd")["error"]
    assert outside == {
        "source": "MCP_TOOL",
        "code": "TOOL_EXECUTION_FAILED",
        "message": "Execution failed for tool 'filesystem.readFile'",
        "details": {
            "mcp_tool_error_content": [{"type": "text", "text": "Error: Path is outside of the allowed directory."}]
        },
    }
    assert vault.error("small", "fail") == ("MCP_TOOL", "TOOL_EXECUTION_FAILED")
    assert vault.error("filesystem", "filesystem.eatFile") == ("MCP_PROTOCOL", "-32601")
    assert vault.error("small", "eat") == ("MCP_PROTOCOL", "-32601")
    assert vault.error("filesystem", "filesystem.readFile") == ("MCP_PROTOCOL", "-32602")
    assert vault.error("small", "echo", text=5) == ("MCP_PROTOCOL", "-32602")
    fault = vault.said("filesystem", "fault", code=-32050, message="no", data={"why": 1})["error"]
    reported = {"source": "MCP_PROTOCOL", "code": "-32050", "message": "no"}
    assert fault == {**reported, "details": {"mcp_protocol_error_data": {"why": 1}}}
    assert vault.error("small", "refuse", code=-32050) == ("MCP_PROTOCOL", "-32050")
    assert vault.error("filesystem", "raw", status=200, body="no json") == ("A2A_PROXY", "MCP_INVALID_RESPONSE")
    assert vault.error("filesystem", "any", result=[1]) == ("A2A_PROXY", "MCP_INVALID_RESULT")
    assert vault.error("nowhere", "x.y") == ("A2A_PROXY", "MCP_CONNECTION_ERROR")
    assert vault.error("unheard-of", "read") == ("A2A_PROXY", "UNKNOWN_TARGET")


def test_a_call_that_exceeds_its_time_limit_is_reported(home: Path, files: RpcServer) -> None:
    for seconds in ("1", "5", "50"):  # the first that is long enough for the call to reach the server
        files.held.clear()
        variables = {"MCP_SERVER_MAP": json.dumps({"filesystem": files.url}), "MCP_CALL_TIMEOUT": seconds}
        with served(RunVerbs(home, TEXT), **variables) as one, Vault(one.port) as vault:
            slow = vault.said("filesystem", "hold")["error"]
        if files.held.is_set():
            break
    assert (slow["source"], slow["code"], slow["details"]["effect"]) == ("A2A_PROXY", "MCP_TIMEOUT", "unknown")
    assert files.gone.wait(BOUND_SECONDS)
    files.gone.clear()


def test_a_failure_is_reported_with_the_last_state(vault: Vault) -> None:
    number = vault.send("unheard-of", "read")
    events = vault.events(number)
    assert events[-2][1]["message"]["parts"][0]["content"]["success"] is False
    assert (events[-1][1]["state"], events[-1][1]["message"]) == (
        "FAILED",
        "[A2A_PROXY/UNKNOWN_TARGET] there is no server for target 'unheard-of' or tool 'read'",
    )


def test_what_the_agent_is_not_granted_is_refused_and_on_record(home: Path, files: RpcServer) -> None:
    verbs = RunVerbs(home, TEXT)
    variables = {"MCP_SERVER_MAP": json.dumps({"filesystem": files.url})}
    with served(verbs, "--agent", "other", **variables) as server, Vault(server.port) as vault:
        before = len(files.asked)
        assert vault.error("filesystem", "filesystem.readFile", path="/data/file.txt") == ("A2A_PROXY", "NOT_GRANTED")
        assert {one["method"] for one in files.asked[before:]} <= {"tools/list"}
        assert vault.said("small", "echo", text="granted")["success"]
    records = list(read(verbs.state / "journal", "a2a"))
    reported = [(one.event, one.facts["tool"], one.facts["agent"]) for one in records]
    assert ("call.refused", "filesystem.filesystem.readFile", "other") in reported
    assert ("call.end", "small.echo", "other") in reported


def test_a_task_is_one_call_and_cannot_be_continued(vault: Vault) -> None:
    number = vault.send("small", "echo", text="once")
    again = {**wanted("small", "echo", text="twice"), "id": number}
    fault = vault.fault("tasks/send", **again)
    assert fault["code"] == -32000
    assert fault["message"] == f"Agent error: a task is one call: {number} cannot be continued, start another one"
    assert vault.fault("tasks/send", **{**again, "id": "mcp-proxy-x"})["code"] == -32001


def test_what_nobody_began_is_not_found(vault: Vault) -> None:
    for method in ("tasks/get", "tasks/cancel", "tasks/sendSubscribe"):
        assert vault.fault(method, id="nothing") == {"code": -32001, "message": "Task not found: nothing"}
    with vault.stream("nothing") as events:
        assert list(events) == [("error", {"error": "task_not_found", "message": "Task not found: nothing"})]


def part(content: Any) -> dict[str, Any]:
    return {"message": {"role": "user", "parts": [{"type": "data", "content": content}]}}


@pytest.mark.parametrize(
    ("params", "code", "words"),
    [
        ({}, -32602, "message must be an object"),
        ({"message": {"role": "nobody", "parts": [{"type": "text", "content": ""}]}}, -32602, "message.role"),
        ({"message": {"role": "user", "parts": []}}, -32602, "message.parts"),
        ({"message": {"role": "user", "parts": [{"kind": "data", "data": {}}]}}, -32602, "a part's type"),
        ({"message": {"role": "user", "parts": [{"type": "text", "content": "x"}]}}, -32000, "expected a data part"),
        (part("x"), -32000, "expected a data part"),
        (part({"tool_name": "x", "arguments": {}}), -32000, "must be strings"),
        (part({"target_mcp_server_id": "a", "tool_name": "", "arguments": {}}), -32000, "must be strings"),
        (part({"target_mcp_server_id": "a", "tool_name": "b"}), -32000, "arguments must be an object"),
    ],
)
def test_what_is_no_call_is_refused_before_there_is_a_task(
    vault: Vault, params: dict[str, Any], code: int, words: str
) -> None:
    fault = vault.fault("tasks/send", **params)
    assert fault["code"] == code
    assert words in fault["message"]


@pytest.mark.parametrize(
    ("body", "code", "number"),
    [
        (b"{", -32700, None),
        (b"", -32700, None),
        (b'"\xff"', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":NaN}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"\\ud800"}}', -32700, None),
        (b"[" * 5000, -32700, None),
        (b'{"a":' * 200 + b"1" + b"}" * 200, -32700, None),
        (b"[]", -32600, None),
        (b"1", -32600, None),
        (b'{"jsonrpc":"1.0","id":"a","method":"x"}', -32600, "a"),
        (b'{"jsonrpc":"2.0","id":true,"method":"x"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":7}', -32600, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":[]}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{"id":5}}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"tasks/sendSubscribe"}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"message/send"}', -32601, 7),
    ],
)
def test_what_is_no_request_is_answered_with_an_error(vault: Vault, body: bytes, code: int, number: Any) -> None:
    answer = vault.post(body)
    assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", number, code)


def test_a_call_under_way_is_cancelled_with_its_task(vault: Vault, files: RpcServer) -> None:
    files.held.clear()
    number = vault.send("filesystem", "hold")
    assert files.held.wait(BOUND_SECONDS)
    with vault.stream(number) as events:
        assert next(events)[1]["state"] == "WORKING"
        assert vault.ask("tasks/cancel", id=number) == {"success": True, "message": None}
        name, last = next(events)
        assert (name, last["state"], last["message"]) == ("task_status", "CANCELED", "Cancelled by request.")
        assert list(events) == []
    assert files.gone.wait(BOUND_SECONDS)
    files.gone.clear()
    assert vault.ask("tasks/get", id=number)["messages"][1:] == []
    again = {"success": False, "message": "the task is CANCELED"}
    assert vault.ask("tasks/cancel", id=number) == again


def test_a_client_that_leaves_a_stream_takes_nothing_with_it(vault: Vault, port: int, files: RpcServer) -> None:
    files.held.clear()
    number = vault.send("filesystem", "hold")
    with Vault(port) as other, other.stream(number) as events:
        assert next(events)[1]["taskId"] == number
    assert files.held.wait(BOUND_SECONDS)
    files.release()
    assert vault.over(number)["state"] == "COMPLETED"


def test_the_card_says_who_is_here(vault: Vault, port: int) -> None:
    answer = vault.http.get("/agent-card.json")
    card = answer.json()
    assert card["url"] == f"http://localhost:{port}/a2a"
    assert [one["scheme"] for one in card["authSchemes"]] == ["none"]
    assert [one["id"] for one in card["skills"]] == ["mcp.execute_tool"]
    assert vault.http.get("/a2a").status_code == 405
