"""AgentVault's client as it is published, against ``ccswarm serve --a2a`` in front of ``ai-session serve --rpc``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.ccswarm.support.a2a_standard_server import served
from tests.ccswarm.support.a2a_vault_server import TEXT
from tests.ccswarm.support.rpc_servers import rpc_server
from tests.ccswarm.support.runs import RunVerbs
from tests.clients.installing import new_environment
from tests.conftest import client_environment
from tests.support.bounds import BOUND_SECONDS
from tests.together.support.tool_servers import tool_server

pytestmark = pytest.mark.clients

ROOT = Path(__file__).parents[2]
# It asks for a Python before 3.12 and works with later ones.
PACKAGES = ("--ignore-requires-python", "agentvault==0.2.1")
TOKEN = "correct-horse-battery"
LARGE = 9007199254740993


class Client:
    """The client's process."""

    def __init__(self, python: Path, port: int, home: Path, variables: Mapping[str, str]) -> None:
        line = [str(python), str(ROOT / "tests/clients/agentvault_drive.py")]
        self.process = subprocess.Popen(
            [*line, f"http://localhost:{port}/agent-card.json"],
            env={**client_environment(home), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str, **more: Any) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def call(self, target: str, tool: str, /, **arguments: Any) -> tuple[str, Any, list[str]]:
        """The state, what was said, the names of the events."""
        reported = self.ask("call", content=content(target, tool, arguments))
        said = reported["task"]["messages"][-1]["parts"][0]["content"]
        (message,) = [data["message"] for name, data in reported["events"] if name == "TaskMessageEvent"]
        assert message["parts"][0]["content"] == said
        return reported["task"]["state"], said, [name for name, _ in reported["events"]]

    def error(self, target: str, tool: str, /, **arguments: Any) -> tuple[str, str]:
        state, said, _ = self.call(target, tool, **arguments)
        assert (state, said["success"]) == ("FAILED", False)
        return said["error"]["source"], said["error"]["code"]


def content(target: str, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"target_mcp_server_id": target, "tool_name": tool, "arguments": dict(arguments)}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agentvault")
    return new_environment(folder / "venv", *PACKAGES, home=folder) / "python"


@contextmanager
def client(python: Path, port: int, home: Path, **variables: str) -> Iterator[Client]:
    one = Client(python, port, home, variables)
    try:
        yield one
    finally:
        one.process.communicate(timeout=BOUND_SECONDS)


def test_it_calls_tools_follows_them_and_is_told_whose_fault_it_is(python: Path, home: Path, tmp_path: Path) -> None:
    verbs = RunVerbs(home, TEXT)
    (tmp_path / "script.py").write_text("print(6 * 7)\n")
    with tool_server(home, tmp_path) as url:
        servers = json.dumps({"filesystem": url, "code": url, "nowhere": "http://127.0.0.1:9"})
        variables = {"MCP_SERVER_MAP": servers, "MCP_CALL_TIMEOUT": "20"}
        with served(verbs, **variables) as server, client(python, server.port, home) as vault:
            state, said, names = vault.call("filesystem", "filesystem.readFile", path="script.py")
            assert (state, said["success"]) == ("COMPLETED", True)
            assert said["mcp_result"]["content"] == [{"type": "text", "text": "print(6 * 7)\n"}]
            assert names[-2:] == ["TaskMessageEvent", "TaskStatusUpdateEvent"]
            _, said, _ = vault.call("code", "code.runPython", code="print(6 * 7)")
            (block,) = said["mcp_result"]["content"]
            assert (block["type"], block["stdout"]) == ("code_output", "42\n")
            _, said, _ = vault.call("small", "echo", text="x", n=LARGE, deep={"z": 1, "a": [LARGE]})
            given = said["mcp_result"]["structuredContent"]["params"]["arguments"]
            assert (given["n"], given["deep"], list(given["deep"])) == (LARGE, {"z": 1, "a": [LARGE]}, ["z", "a"])
            escape = vault.error("filesystem", "filesystem.readFile", path="../../../etc/passwd")
            assert escape == ("MCP_TOOL", "TOOL_EXECUTION_FAILED")
            assert vault.error("filesystem", "filesystem.eatFile", path="x") == ("MCP_PROTOCOL", "-32601")
            assert vault.error("nowhere", "x.y") == ("A2A_PROXY", "MCP_CONNECTION_ERROR")
            assert vault.error("unheard-of", "x") == ("A2A_PROXY", "UNKNOWN_TARGET")
            assert vault.error("small", "leave") == ("MCP_PROTOCOL", "-32601")
        assert server.process.returncode == 0


def test_it_cancels_a_call_and_understands_what_it_cannot_do(python: Path, home: Path, tmp_path: Path) -> None:
    with rpc_server(tmp_path) as files:
        variables = {"MCP_SERVER_MAP": json.dumps({"filesystem": files.url})}
        with served(RunVerbs(home, TEXT), **variables) as server, client(python, server.port, home) as vault:
            task = vault.ask("call", content=content("small", "echo", {}))["task"]["id"]
            again = vault.ask("again", task=task, content=content("small", "echo", {}))
            assert again["error"] == "A2ARemoteAgentError"
            assert "cannot be continued" in again["message"]
            assert vault.ask("get", task="nothing")["error"] == "A2ARemoteAgentError"
            assert "Task not found" in vault.ask("followed", task="nothing")["message"]
            cancelled = vault.ask("cancel", content=content("filesystem", "hold", {}))
            assert (cancelled["cancelled"], cancelled["task"]["state"]) == (True, "CANCELED")
            assert not files.held.is_set() or files.gone.wait(BOUND_SECONDS)


def test_it_shows_its_key(python: Path, home: Path) -> None:
    verbs = RunVerbs(home, TEXT)
    with served(verbs, A2A_AUTH_TOKEN=TOKEN) as server:
        with client(python, server.port, home, AGENTVAULT_KEY_CCSWARM=TOKEN) as vault:
            assert vault.call("small", "echo", text="x")[0] == "COMPLETED"
        with client(python, server.port, home, AGENTVAULT_KEY_CCSWARM="wrong") as vault:
            assert "401" in vault.ask("call", content=content("small", "echo", {}))["message"]
