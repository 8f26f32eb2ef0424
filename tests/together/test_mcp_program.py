"""The client for Python programs, named as the document names it, and the real ai-session."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccswarm.errors import ServerUnavailable, UsageInvalid
from ccswarm.mcp import McpClient, ServerSettings
from tests.ai_session.support.command_line import CommandLine
from tests.conftest import UNBOXED_VARIABLES
from tests.support import forked

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


@pytest.fixture
def daemon(home: Path) -> Iterator[CommandLine]:
    """Ends what the client starts."""
    with CommandLine(home) as line:
        forked.daemon({**line.env, **UNBOXED_VARIABLES})
        yield line


async def test_tools_are_discovered_and_called_by_name(daemon: CommandLine, tmp_path: Path) -> None:
    server = ServerSettings(
        name="ai-session",
        command=f"{sys.executable} -m ai_session mcp-server --stdio",
        env={"PYTHONPATH": str(ROOT), "HOME": str(daemon.home), **UNBOXED_VARIABLES},
    )
    async with McpClient(server, directory=daemon.home, state_directory=tmp_path) as client:
        tools = await client.discover_tools()
        assert {tool.name for tool in tools} >= {"create_session", "execute_command", "get_session_info"}
        assert client.available_tools == tools
        made = await client.invoke_tool("create_session", {"name": "build"})
        assert made.ok, made
        ran = await client.invoke_tool("execute_command", {"session_id": "build", "command": "echo $((6 * 7))"})
        assert ran.structured
        assert (ran.structured["output"], ran.structured["exit_code"]) == ("42\n", 0)
        wrong = await client.invoke_tool("execute_comand")
        assert (wrong.ok, wrong.code) == (False, "unknown_tool")
        assert "execute_command" in wrong.suggestion
        await client.invoke_tool("close_session", {"session_id": "build"})
    (journal,) = (tmp_path / "journal").glob("*.jsonl")
    reported = [json.loads(line) for line in journal.read_text().splitlines()]
    called = [one["facts"]["tool"] for one in reported if one["event"] == "call.begin"]
    assert called == [f"ai-session.{name}" for name in ("create_session", "execute_command", "close_session")]
    with pytest.raises(UsageInvalid):
        await client.discover_tools()


async def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    async with McpClient("/nothing/of/the kind", directory=tmp_path, state_directory=tmp_path) as client:
        with pytest.raises(ServerUnavailable):
            await client.discover_tools()
        assert (await client.invoke_tool("x")).code == "server_unavailable"


def test_an_address_is_one(tmp_path: Path) -> None:
    assert McpClient("https://example.org/mcp", state_directory=tmp_path)
