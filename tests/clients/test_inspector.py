"""The MCP Inspector's command line calls the server, strict about schemas, in each era."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.node import SERVER, Person, program

TOOL_ERROR = 5


@pytest.fixture(params=["legacy", "modern", pytest.param("auto", marks=pytest.mark.clients)])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


def inspect(sharer: Person, era: str, *words: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, result and standard error of one run, which is one server process."""
    command = [*program("mcp-inspector"), "--cli", "--format", "json", "--protocol-era", era, *SERVER]
    ran = sharer.run(*command, *words)
    return ran.returncode, json.loads(ran.stdout or "{}").get("result", {}), ran.stderr


def call(sharer: Person, era: str, tool: str, *words: str, **arguments: Any) -> tuple[int, dict[str, Any], str]:
    given = ["--tool-args-json", json.dumps(arguments)]
    return inspect(sharer, era, "--method", "tools/call", "--tool-name", tool, *given, *words)


def test_every_schema_is_portable(sharer: Person, era: str) -> None:
    status, result, complaints = inspect(sharer, era, "--method", "tools/list", "--strict")
    assert (status, complaints) == (0, "")
    assert len(result["tools"]) == 10


def test_calls_of_several_runs_share_a_session(sharer: Person, era: str) -> None:
    status, result, _ = call(sharer, era, "create_session", name=f"inspected-{era}")
    assert (status, result["structuredContent"]["name"]) == (0, f"inspected-{era}")
    status, result, _ = call(
        sharer, era, "execute_command", session_id=f"inspected-{era}", command="echo tea; (exit 3)"
    )
    facts = result["structuredContent"]
    assert (status, facts["output"], facts["exit_code"]) == (0, "tea\n", 3)
    assert "exit code 3" in result["content"][0]["text"]


def test_a_tool_s_error_is_the_inspector_s_exit_code(sharer: Person, era: str) -> None:
    status, result, complaints = call(sharer, era, "execute_command", session_id="nowhere", command="true")
    assert status == TOOL_ERROR
    assert json.loads(complaints)["error"]["code"] == "tool_is_error"
    assert "session_not_found" in result["content"][0]["text"]


def test_calls_at_once_on_one_connection(sharer: Person, era: str) -> None:
    call(sharer, era, "create_session", name=f"busy-{era}")
    load = ["--load", "--load-requests", "100", "--load-concurrency", "10"]
    status, result, _ = call(sharer, era, "get_session_info", *load, session_id=f"busy-{era}")
    assert (status, result["ok"], result["errors"], result["toolErrors"]) == (0, 100, 0, 0)
