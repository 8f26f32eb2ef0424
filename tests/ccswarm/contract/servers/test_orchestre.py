"""Orchestre's tools over the wire: the messages of its document, line by line, and whatever else comes."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccswarm import __version__
from ccswarm.servers.mcp.toolsets.orchestre.plugin import BY_NAME
from ccswarm.servers.mcp.toolsets.orchestre.starters import ABOUT
from ccswarm.servers.mcp.toolsets.swarm.tools import TOOLS as SWARM
from tests.ccswarm.support.mcp_server_process import INITIALIZE, MODERN, ServerClient, serving
from tests.ccswarm.support.runs import BASE, RunVerbs
from tests.conftest import client_environment, environment

SECRET = "hunter2-hunter2"
SAAS = "Build SaaS with auth and billing"
NAMES = sorted({name for tool in BY_NAME.values() for name in tool.input_schema["properties"]})
MOST_LIST_CHARS = 60_000


@pytest.fixture(scope="module")
def verbs(shared_home: Path) -> RunVerbs:
    return RunVerbs(shared_home, BASE)


@pytest.fixture(scope="module")
def client(verbs: RunVerbs) -> Iterator[ServerClient]:
    given = {**client_environment(verbs.home), "GEMINI_API_KEY": SECRET, "ORCHESTRE_DEBUG": "true"}
    with environment(given), serving(verbs.home, "--workspace", str(verbs.home)) as client:
        yield client


def whole(client: ServerClient, name: str, arguments: Any) -> dict[str, Any]:
    """The whole answer to a call."""
    return client.answer(client.begin("tools/call", {"name": name, "arguments": arguments}))


def text_of(answer: dict[str, Any]) -> Any:
    """What the one text of a result says."""
    (content,) = answer["result"]["content"]
    assert content["type"] == "text"
    return json.loads(content["text"])


def reported(client: ServerClient, name: str, /, **arguments: Any) -> Any:
    """The answer of a tool that did what was asked: its text and its facts say the same."""
    answer = whole(client, name, arguments)
    found = text_of(answer)
    assert answer["result"]["structuredContent"] == found
    assert answer["result"]["isError"] is False
    assert found["success"] is True
    assert found["metadata"]["version"] == __version__
    return found


def failed(client: ServerClient, name: str, /, **arguments: Any) -> Any:
    """What a tool says that did not."""
    answer = whole(client, name, arguments)
    assert answer["result"]["isError"] is True
    assert "structuredContent" not in answer["result"]
    return text_of(answer)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("analyze_project", {"requirements": "Build a shop with billing"}, "by rules: "),
        ("generate_plan", {"requirements": "Build a shop with billing"}, "by rules: "),
        ("research", {"topic": f"billing with {SECRET}"}, "0 files have words of it"),
    ],
)
def test_partial_results_come_as_progress(
    client: ServerClient, tool: str, arguments: dict[str, Any], said: str
) -> None:
    given = {"name": tool, "arguments": arguments, "_meta": {"progressToken": tool}}
    asked = client.begin("tools/call", given)
    params = client.notification("notifications/progress")
    assert (params["progressToken"], params["message"].startswith(said)) == (tool, True)
    assert SECRET not in params["message"]
    assert text_of(client.answer(asked))["success"]


def test_its_tools_are_listed_beside_the_swarms(client: ServerClient) -> None:
    for params in ({}, {"_meta": MODERN}):
        result = client.ask("tools/list", params)
        names = [tool["name"] for tool in result["tools"]]
        assert names == [*(tool.name for tool in SWARM), *BY_NAME]
        assert len(names) == 11 + 7
        assert "nextCursor" not in result
        assert len(json.dumps(result)) < MOST_LIST_CHARS
    begin = next(tool for tool in result["tools"] if tool["name"] == "initialize_project")
    assert begin["inputSchema"]["required"] == ["projectName", "template", "projectPath"]
    assert begin["annotations"]["readOnlyHint"] is False


def test_the_messages_of_the_document(client: ServerClient) -> None:
    """As they stand in it, but for what is left out there."""
    client.send(
        b'{"jsonrpc": "2.0", "id": "doc-1", "method": "tools/call", "params": {"name": "analyze_project", "arguments": '
        b'{"requirements": "Build a SaaS application"}}}'
    )
    answer = client.answer("doc-1")
    assert answer.keys() == {"jsonrpc", "id", "result"}
    analysis = text_of(answer)["analysis"]
    client.send(b'{"jsonrpc": "2.0", "id": "doc-2", "method": "tools/list"}')
    assert set(BY_NAME) <= {tool["name"] for tool in client.answer("doc-2")["result"]["tools"]}
    arguments = {"analysis": analysis, "requirements": SAAS}
    planned = reported(client, "generate_plan", **arguments)
    assert planned["plan"]["phases"]
    assert whole(client, "analyze_project", {})["error"] == {
        "code": -32602,
        "message": "Invalid params",
        "data": {"details": "Missing required field: requirements"},
    }
    assert failed(client, "analyze_project", requirements="") == {
        "error": "Requirements are required",
        "code": "MISSING_REQUIREMENTS",
        "suggestion": "Provide project requirements as a string",
    }
    where = str(Path.home())
    assert failed(client, "initialize_project", projectName="a", template="rails", projectPath=where) == {
        "error": "Template not found",
        "code": "TEMPLATE_NOT_FOUND",
        "availableTemplates": list(ABOUT),
        "suggestion": "Choose one of the available templates",
    }
    assert {"makerkit-nextjs", "cloudflare-hono"} < set(ABOUT)
    assert reported(client, "set_context", key="stack", value={"db": "postgres"})["success"]
    for line, code in ((b"{", -32700), (b'{"jsonrpc":"2.0","id":9}', -32600)):
        client.send(line)
        assert client.answer(9 if b"9" in line else None)["error"]["code"] == code
    assert client.answer(client.begin("no/such"))["error"]["code"] == -32601


def test_what_is_missing_null_or_short(client: ServerClient) -> None:
    for arguments in ({}, {"requirements": None}, {"constraints": ["x"]}):
        error = whole(client, "generate_plan", arguments)["error"]
        assert (error["code"], error["data"]) == (-32602, {"details": "Missing required field: requirements"})
    assert failed(client, "analyze_project", requirements="9 letters")["code"] == "INVALID_ARGUMENTS"
    assert failed(client, "analyze_project", requirements=7)["code"] == "INVALID_ARGUMENTS"
    error = whole(client, "initialize_project", {})["error"]["data"]["details"]
    assert error.count("Missing required field: ") == 3
    assert whole(client, "no_such_tool", {})["error"]["code"] == -32602


def test_context_is_kept_from_call_to_call_and_era_to_era(client: ServerClient) -> None:
    reported(client, "set_context", key="team", value=["ada", {"n": 1}])
    meant = {"name": "get_context", "arguments": {"key": "team"}}
    assert client.ask("tools/call", {**meant, "_meta": MODERN})["structuredContent"]["value"] == ["ada", {"n": 1}]
    client.ask("initialize", {**INITIALIZE, "protocolVersion": "2024-11-05"})
    assert reported(client, "get_context", key="team")["value"] == ["ada", {"n": 1}]
    assert reported(client, "set_context", key="team", value=None)["removed"] is True
    assert failed(client, "get_context", key="team")["code"] == "CONTEXT_NOT_FOUND"


def test_where_nothing_may_or_can_be_written(client: ServerClient, verbs: RunVerbs) -> None:
    meant = {"projectName": "shop", "template": "cloudflare-hono"}
    for path in ("/", "/etc", str(verbs.home / "../other"), f"{verbs.home}/../../x"):
        assert failed(client, "initialize_project", **meant, projectPath=path)["code"] == "PATH_NOT_ALLOWED"
    refused = failed(client, "initialize_project", **meant, projectPath="here")
    assert refused["code"] == "INVALID_PATH"
    there = verbs.home / "there/shop"
    there.mkdir(parents=True)
    (there / "package.json").write_text("{}")
    (there / "src").symlink_to("/etc")
    found = failed(client, "initialize_project", **meant, projectPath=str(there))
    assert (found["code"], found["existingFiles"]) == ("PROJECT_EXISTS", ["package.json", "src"])
    none = failed(client, "initialize_project", **meant, projectPath=str(verbs.home))
    assert none["code"] == "NO_AGENT_CONFIGURED"
    assert "ai-session.execute_command" in none["suggestion"]
    assert not (verbs.home / "shop").exists()


def test_no_more_than_ten_calls_of_one_operation_and_the_connection_lives(verbs: RunVerbs) -> None:
    with environment(client_environment(verbs.home)), serving(verbs.home, "--workspace", str(verbs.home)) as client:
        call = {"name": "research", "arguments": {"topic": "nothing"}}
        numbers = [client.begin("tools/call", call) for _ in range(11)]
        answers = [text_of(client.answer(number)) for number in numbers]
        assert [answer.get("code", "") for answer in answers] == [""] * 10 + ["RATE_LIMIT_EXCEEDED"]
        assert 0 < answers[-1]["retryAfterSeconds"] <= 60
        assert str(answers[-1]["retryAfterSeconds"]) in answers[-1]["suggestion"]
        for _ in range(12):  # what is missing costs nothing
            assert whole(client, "set_context", {})["error"]["code"] == -32602
        for _ in range(12):  # what is kept in memory costs nothing either, and is not counted
            reported(client, "set_context", key="a", value=1)
        assert client.tool("list_runs")["runs"] == []


def test_secrets_are_neither_shown_nor_traced(client: ServerClient, verbs: RunVerbs) -> None:
    reported(client, "set_context", key="keys", value={"apiKey": "s3cr3t", "note": f"it is {SECRET}"})
    found = reported(client, "get_context", key="keys")
    assert found["value"] == {"apiKey": "[REDACTED]", "note": "it is [REDACTED]"}
    log = (verbs.home / "server.log").read_text()
    assert '[MCP] <- {"jsonrpc":"2.0",' in log
    assert '[MCP] -> {"jsonrpc":"2.0",' in log
    assert SECRET not in log
    assert "s3cr3t" not in log
    assert os.environ.get("ORCHESTRE_DEBUG") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
WORDS = ("cloudflare-hono", "shop", "", "/etc", ".", "x" * 12, "x" * 6000)
CALL = st.builds(
    lambda name, arguments: {"name": name, "arguments": arguments},
    st.sampled_from(list(BY_NAME)),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(WORDS) | JSON, max_size=5) | JSON,
)


@pytest.mark.parametrize("examples", [8, pytest.param(40, marks=pytest.mark.torture)])
def test_whatever_comes_every_call_is_answered(client: ServerClient, examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.lists(CALL | JSON, min_size=1, max_size=6), st.binary(max_size=60))
    def tried(calls: list[Any], noise: bytes) -> None:
        sent: dict[str, Any] = {}
        for params in calls:
            number = f"f-{uuid.uuid4()}"
            sent[number] = params
            client.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        client.send(noise.replace(b"\n", b" "))
        for number, params in sent.items():
            answer = client.answer(number)
            assert ("result" in answer) is not ("error" in answer)
            if "error" in answer:
                assert answer["error"]["code"] in (-32602, -32600), (params, answer)
            else:
                found = text_of(answer)
                assert found.get("success") is True or {"error", "code", "suggestion"} <= found.keys()
                assert found.get("code") != "INTERNAL_ERROR", (params, found)
        client.ask("ping")

    tried()


def test_what_fails_inside_is_an_internal_error_and_costs_that_question_only(home: Path) -> None:
    verbs = RunVerbs(home, BASE, stored=False)
    verbs.state.mkdir(mode=0o700, parents=True)
    (verbs.state / "engine.db").write_bytes(b"no database\n" * 1000)
    with environment(client_environment(home)), serving(home, "--workspace", str(home)) as client:
        answer = client.answer(client.begin("resources/list", {}))
        assert answer["error"]["code"] == -32603
        assert "Traceback" not in json.dumps(answer)
        assert reported(client, "set_context", key="a", value=1)["data"]["keys"] == ["a"]
