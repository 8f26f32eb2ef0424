"""The MCP Inspector's command line calls the server, strict about schemas, in each era."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.node import SERVER, Person, program

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOL_ERROR = 5


@pytest.fixture(params=["modern", *(pytest.param(era, marks=pytest.mark.clients) for era in ("legacy", "auto"))])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def front(sharer: Person) -> Iterator[list[str]]:
    """The address of a front before the sharer's daemon."""
    command = [SERVER[0], "mcp-server", "--http", "--no-auth", "--port", "0"]
    serving = subprocess.Popen(command, env=sharer.environment, stdout=subprocess.PIPE, text=True, process_group=0)
    with serving as process:
        assert process.stdout
        yield [process.stdout.readline().split()[-1]]
        process.send_signal(signal.SIGTERM)


def inspect(sharer: Person, era: str, *words: str, server: list[str] | None = None) -> tuple[int, dict[str, Any], str]:
    """Exit status, result and standard error of one run, which is one server process where no other is named."""
    command = [*program("mcp-inspector"), "--cli", "--format", "json", "--protocol-era", era, *(server or SERVER)]
    ran = sharer.run(*command, *words)
    return ran.returncode, json.loads(ran.stdout or "{}").get("result", {}), ran.stderr


def call(sharer: Person, era: str, tool: str, *words: str, **arguments: Any) -> tuple[int, dict[str, Any], str]:
    given = ["--tool-args-json", json.dumps(arguments)]
    return inspect(sharer, era, "--method", "tools/call", "--tool-name", tool, *given, *words)


def test_every_schema_is_portable(sharer: Person, era: str) -> None:
    status, result, complaints = inspect(sharer, era, "--method", "tools/list", "--strict")
    assert (status, complaints) == (0, "")
    assert len(result["tools"]) == 10


@pytest.mark.torture  # test_node_sdk shares one
def test_calls_of_several_runs_share_a_session(sharer: Person, era: str) -> None:
    status, result, _ = call(sharer, era, "create_session", name=f"inspected-{era}")
    assert (status, result["structuredContent"]["name"]) == (0, f"inspected-{era}")
    status, result, _ = call(
        sharer, era, "execute_command", session_id=f"inspected-{era}", command="echo tea; (exit 3)"
    )
    facts = result["structuredContent"]
    assert (status, facts["output"], facts["exit_code"]) == (0, "tea\n", 3)
    assert "exit code 3" in result["content"][0]["text"]


@pytest.mark.torture  # test_node_sdk.py: a caller's mistake is a result
def test_a_tool_s_error_is_the_inspector_s_exit_code(sharer: Person, era: str) -> None:
    status, result, complaints = call(sharer, era, "execute_command", session_id="nowhere", command="true")
    assert status == TOOL_ERROR
    assert json.loads(complaints)["error"]["code"] == "tool_is_error"
    assert "session_not_found" in result["content"][0]["text"]


@pytest.mark.torture  # test_python_api.py has a hundred commands at once
def test_calls_at_once_on_one_connection(sharer: Person, era: str) -> None:
    call(sharer, era, "create_session", name=f"busy-{era}")
    load = ["--load", "--load-requests", "100", "--load-concurrency", "10"]
    status, result, _ = call(sharer, era, "get_session_info", *load, session_id=f"busy-{era}")
    assert (status, result["ok"], result["errors"], result["toolErrors"]) == (0, 100, 0, 0)


@pytest.mark.clients
def test_resources_are_read(sharer: Person, era: str) -> None:
    call(sharer, era, "create_session", name=f"read-{era}")
    status, result, _ = inspect(sharer, era, "--method", "resources/read", "--uri", "session://list")
    (contents,) = result["contents"]
    assert status == 0
    assert f"read-{era}" in [session["name"] for session in json.loads(contents["text"])["sessions"]]


@pytest.mark.clients
def test_the_same_over_http(sharer: Person, front: list[str], era: str) -> None:
    status, result, complaints = inspect(sharer, era, "--method", "tools/list", "--strict", server=front)
    assert (status, complaints) == (0, "")
    assert len(result["tools"]) == 10
    words = ["--method", "tools/call", "--tool-name"]
    made = ["create_session", "--tool-args-json", json.dumps({"name": f"http-{era}"})]
    status, _, _ = inspect(sharer, era, *words, *made, server=front)
    ran = ["execute_command", "--tool-args-json", json.dumps({"session_id": f"http-{era}", "command": "echo tea"})]
    status, result, _ = inspect(sharer, era, *words, *ran, server=front)
    assert (status, result["structuredContent"]["output"]) == (0, "tea\n")
    status, result, _ = inspect(sharer, era, "--method", "resources/read", "--uri", "session://list", server=front)
    assert (status, len(result["contents"])) == (0, 1)
