"""The parts of AgentVault's profile: where calls go, and what their outcomes are tool_answer as."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ccswarm.config.settings import AgentSettings, McpSettings, ServerSettings, Settings
from ccswarm.errors import ConfigInvalid
from ccswarm.models import CallOutcome, CallStatus
from ccswarm.servers.a2a.agentvault.card import card_of
from ccswarm.servers.a2a.agentvault.outcomes import line_of, tool_answer
from ccswarm.servers.a2a.agentvault.targets import caller_of_tools, find_target, mapped_servers, with_mapped


def settings(*servers: ServerSettings) -> Settings:
    return Settings(mcp=McpSettings(servers=servers))


def test_the_map_names_servers_at_their_rpc() -> None:
    addresses = {"filesystem": "http://files:8001", "code": "https://code/base/", "x_1-y": "http://127.0.0.1:1/rpc"}
    variables = {"MCP_SERVER_MAP": json.dumps(addresses), "MCP_CALL_TIMEOUT": "2.5"}
    servers = mapped_servers(variables)
    assert [(one.name, one.url) for one in servers] == [
        ("filesystem", "http://files:8001/rpc"),
        ("code", "https://code/base/rpc"),
        ("x_1-y", "http://127.0.0.1:1/rpc"),
    ]
    assert {(one.protocol, one.timeout_seconds, one.insecure) for one in servers} == {("rpc", 2.5, True)}
    assert mapped_servers({"MCP_SERVER_MAP": json.dumps(addresses)})[0].timeout_seconds == 60
    assert mapped_servers({}) == mapped_servers({"MCP_SERVER_MAP": " "}) == []
    base = settings(ServerSettings(name="small", command="x"))
    assert [one.name for one in with_mapped(base, variables).mcp.servers] == ["small", "filesystem", "code", "x_1-y"]
    assert with_mapped(base, {}) is base


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is not an object"),
        ('{"a": 1}', "no address"),
        ('{"a": "ftp://x"}', "no address"),
        ('{"a": "http://"}', "no address"),
        ('{"a": "http://user:word@x"}', "no address"),
        ('{"a.b": "http://x"}', "letters, digits"),
    ],
)
def test_a_map_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words):
        mapped_servers({"MCP_SERVER_MAP": text})


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf", "nan"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="which is not a duration"):
        mapped_servers({"MCP_SERVER_MAP": '{"a": "http://x"}', "MCP_CALL_TIMEOUT": text})


def test_a_target_is_an_id_or_what_a_name_begins_with() -> None:
    shell = ServerSettings(name="shell", command="x")
    files = ServerSettings(name="files", url="http://127.0.0.1:1/rpc", protocol="rpc")
    known = settings(shell, files)
    assert find_target(known, "shell", "execute") == (shell, "execute")
    assert find_target(known, "shell", "shell.execute") == (shell, "execute")
    assert find_target(known, "files", "files.read") == (files, "files.read")
    assert find_target(known, "?", "files.read") == (files, "files.read")
    assert find_target(known, "shell", "files.read") == (shell, "files.read")
    assert find_target(known, "files.old", "read") == (files, "read")
    assert find_target(known, "?", "read") is None


@pytest.mark.parametrize(
    ("outcome", "source", "code"),
    [
        (CallOutcome(CallStatus.INVALID, code="unknown_tool", message="m"), "MCP_PROTOCOL", "-32601"),
        (CallOutcome(CallStatus.INVALID, code="invalid_arguments", message="m"), "MCP_PROTOCOL", "-32602"),
        (CallOutcome(CallStatus.DENIED, code="not_granted", message="m"), "A2A_PROXY", "NOT_GRANTED"),
        (CallOutcome(CallStatus.BUDGET, code="budget_exhausted", message="m"), "A2A_PROXY", "BUDGET_EXHAUSTED"),
        (CallOutcome(CallStatus.TIMEOUT, code="call_timed_out", message="m"), "A2A_PROXY", "MCP_TIMEOUT"),
        (CallOutcome(CallStatus.LOST, code="server_lost", message="m"), "A2A_PROXY", "MCP_CONNECTION_ERROR"),
        (CallOutcome(CallStatus.UNAVAILABLE, code="login_needed", message="m"), "A2A_PROXY", "MCP_CONNECTION_ERROR"),
        (CallOutcome(CallStatus.LOST, code="internal_error", message="m"), "A2A_PROXY", "PROXY_INTERNAL_ERROR"),
        (CallOutcome(CallStatus.DENIED, code="something_new", message="m"), "A2A_PROXY", "SOMETHING_NEW"),
        (CallOutcome(CallStatus.TOOL_ERROR, code="-32050", message="m"), "MCP_PROTOCOL", "-32050"),
        (CallOutcome(CallStatus.TOOL_ERROR, code="invalid_result", message="m"), "A2A_PROXY", "MCP_INVALID_RESULT"),
        (
            CallOutcome(CallStatus.TOOL_ERROR, code="unknown_error", message="m"),
            "MCP_PROTOCOL",
            "MCP_UNKNOWN_PROTOCOL_ERROR",
        ),
        (CallOutcome(CallStatus.TOOL_ERROR, "t", message="m"), "MCP_TOOL", "TOOL_EXECUTION_FAILED"),
        (CallOutcome(CallStatus.TOOL_ERROR, "t", code="file_not_found"), "MCP_TOOL", "TOOL_EXECUTION_FAILED"),
    ],
)
def test_every_outcome_has_its_source_and_code(outcome: CallOutcome, source: str, code: str) -> None:
    content = tool_answer(outcome, "x", whole=True)
    assert (content["success"], content["error"]["source"], content["error"]["code"]) == (False, source, code)
    assert line_of(content) == f"[{source}/{code}] {content['error']['message']}"
    unknown = outcome.status in (CallStatus.TIMEOUT, CallStatus.LOST)
    assert content["error"].get("details", {}).get("effect") == ("unknown" if unknown else None)


def test_an_error_of_a_tool_keeps_what_the_tool_and_its_server_say() -> None:
    failed = CallOutcome(CallStatus.TOOL_ERROR, "text", code="session_not_found", suggestion="list them")
    details = tool_answer(failed, "x", whole=False)["error"]["details"]
    assert details == {"mcp_tool_error_content": [{"type": "text", "text": "text"}], "suggestion": "list them"}


@pytest.mark.parametrize("value", [float("inf"), float("nan"), {1, 2}])
def test_a_result_that_is_not_json_is_reported_as_such(value: Any) -> None:
    content = tool_answer(CallOutcome(CallStatus.OK, "x", {"content": value}), "x", whole=True)
    assert content["error"]["code"] == "MCP_INVALID_RESPONSE"


def test_what_was_left_out_of_a_result_is_said() -> None:
    content = tool_answer(CallOutcome(CallStatus.OK, "text", message="not kept: image"), "x", whole=False)
    result = {"content": [{"type": "text", "text": "text"}], "_meta": {"ccswarm/note": "not kept: image"}}
    assert content == {"success": True, "mcp_result": result}


def test_the_card_names_an_address_that_its_readers_take() -> None:
    def url(asked: str) -> str:
        return card_of(Settings(), asked, secured=True)["url"]

    assert url("http://127.0.0.1:41241/a2a") == "http://localhost:41241/a2a"
    assert url("http://[::1]:41241/a2a") == "http://localhost:41241/a2a"
    assert url("https://swarm.example/a2a") == "https://swarm.example/a2a"
    card = card_of(Settings(), "http://localhost/a2a", secured=True)
    assert [one["scheme"] for one in card["authSchemes"]] == ["apiKey", "bearer"]


def test_the_map_alone_says_who_calls_and_takes_nothing_from_whom_a_person_configured() -> None:
    variables = {"MCP_SERVER_MAP": '{"filesystem": "http://127.0.0.1:1"}'}
    alone = with_mapped(Settings(), variables)
    assert [(agent.name, agent.grants) for agent in alone.agents] == [("proxy", ("filesystem.*",))]
    assert caller_of_tools(alone).endswith("call tools as proxy, which may use filesystem.*")
    one = Settings(agents=(AgentSettings(name="ada"),))
    assert with_mapped(one, variables).agents == one.agents
    assert "missing" in caller_of_tools(Settings(agents=(AgentSettings(name="a"), AgentSettings(name="b"))))
