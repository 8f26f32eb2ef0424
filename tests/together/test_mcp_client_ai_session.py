"""The MCP client and the real ai-session, which do not know each other."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from ccswarm.clients.mcp.plugin import McpToolClient
from ccswarm.config.settings import AgentSettings, ServerSettings
from ccswarm.journal.writer import Journal
from ccswarm.toolbox.toolbox import Toolbox
from tests.ai_session.support.command_line import CommandLine
from tests.conftest import UNBOXED_VARIABLES
from tests.support import forked

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
SERVER = f"{sys.executable} -m ai_session mcp-server --stdio"


class Known(dict[str, str]):
    """An era cache that says the same of every server."""

    def __init__(self, era: str) -> None:
        super().__init__()
        self._era = era

    def get(self, *_: Any) -> Any:
        return self._era


@pytest.fixture
def daemon(home: Path) -> Iterator[CommandLine]:
    """Ends what the client starts."""
    with CommandLine(home) as line:
        forked.daemon({**line.env, **UNBOXED_VARIABLES})
        yield line


@pytest.fixture(params=["modern", "legacy"])
async def client(request: pytest.FixtureRequest, daemon: CommandLine) -> AsyncIterator[McpToolClient]:
    env = {"PYTHONPATH": str(ROOT), **UNBOXED_VARIABLES}
    settings = ServerSettings(name="shell", command=SERVER, env=env, cwd=str(daemon.home), trusted=True)
    client = McpToolClient(settings, env=os.environ, era_cache=Known(request.param))
    yield client
    await client.close()


@pytest.mark.either("client")
async def test_a_command_in_a_session(client: McpToolClient, tmp_path: Path) -> None:
    tools = {tool.name: tool for tool in await client.list_tools()}
    careful = AgentSettings(name="careful", grants=("shell.*",), approval="destructive")
    toolbox = Toolbox({"shell": client}, {"careful": careful}, Journal(tmp_path / "journal", "w1"))
    asked = {name for name, tool in tools.items() if toolbox.needs_approval("careful", tool)}
    looking = {"list_sessions", "get_session_info", "read_output", "read_screen"}
    assert looking == {name for name, tool in tools.items() if tool.read_only}
    assert asked == set(tools) - looking
    assert tools["execute_command"].keyed
    assert tools["list_sessions"].read_only
    assert not client.notes
    made = await client.call("create_session", {"name": "a"}, meta={})
    assert made.structured is not None
    session = made.structured["session_id"]
    arguments = {"session_id": session, "command": "echo $((6 * 7)); false", "call_key": "one"}
    first = await client.call("execute_command", arguments, meta={"run": "r1"})
    again = await client.call("execute_command", arguments, meta={"run": "r1"})
    assert first.structured is not None
    assert (first.structured["exit_code"], first.is_error, "42" in first.text) == (1, False, True)
    assert again.structured == first.structured
    assert "ccswarm/problem" not in first.meta
    wrong = await client.call("execute_command", {"session_id": session}, meta={})
    assert wrong.is_error
    assert "command" in wrong.text
