"""The official Python client drives the server as a subprocess, in both eras."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from tests.ai_session.support.mcp_client import SERVER, living_in, stop_daemons
from tests.support import forked

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def module_home(shared_home: Path) -> Iterator[Path]:
    forked.daemon(living_in(shared_home))
    yield shared_home
    stop_daemons(shared_home)


@pytest.mark.parametrize("mode", ["legacy", pytest.param("auto", marks=pytest.mark.torture), "2026-07-28"])
async def test_sdk_client_runs_commands(module_home: Path, mode: str) -> None:
    beats: list[float] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        beats.append(value)

    server = StdioServerParameters(command=SERVER[0], args=SERVER[1:], env={"HOME": str(module_home)})
    async with Client(server, mode=mode) as client:
        tools = await client.list_tools()
        assert len(tools.tools) == 10
        assert client.instructions or mode == "2026-07-28"  # a pinned client never asks for them
        await client.call_tool("create_session", {"name": mode, "backend": "pty"})
        result = await client.call_tool(
            "execute_command", {"session_id": mode, "command": "echo $((6*7)); (exit 5)"}, progress_callback=progress
        )
        assert result.structured_content["exit_code"] == 5
        assert result.structured_content["output"].strip() == "42"
        (block,) = result.content
        assert isinstance(block, TextContent)
        assert "exit code 5" in block.text
        failed = await client.call_tool("read_screen", {"session_id": "nowhere"})
        assert failed.is_error
        with pytest.raises(MCPError, match="unknown tool"):
            await client.call_tool("execute_comand", {})
    assert beats == []
