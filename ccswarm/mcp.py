"""The MCP client for Python programs: it calls one server's tools and records the calls as it does for agents.

from ccswarm.mcp import McpClient

async with McpClient("ai-session mcp-server --stdio") as client: for tool in await client.discover_tools():
print(tool.name, tool.description) made = await client.invoke_tool("create_session", {"name": "build"})
"""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ccswarm.config import config
from ccswarm.config.settings import AgentSettings, ServerSettings
from ccswarm.errors import UsageInvalid
from ccswarm.models import CallOutcome, CallRequest, ToolInfo
from ccswarm.toolbox.scope import ToolScope
from ccswarm.toolbox.toolbox import Toolbox
from ccswarm.toolbox.toolboxes import Toolboxes

__all__ = ["CallOutcome", "McpClient", "ServerSettings", "ToolInfo"]

PROGRAM = "program"
"""The caller's name in the journal."""

SERVER = "server"
SCHEMES = ("http://", "https://")


class McpClient:
    """The client of one server, given as a command line, an address (Streamable HTTP) or settings as in a
    configuration.

    The server starts in ``directory`` on first use and ends with the ``async with`` block. If it ends earlier, the next
    call starts it again. ``state_directory`` holds the journal; the default is that of the user.
    """

    def __init__(
        self, server: str | ServerSettings, *, directory: str | Path = ".", state_directory: Path | None = None
    ) -> None:
        if isinstance(server, str):
            where = {"url": server} if server.startswith(SCHEMES) else {"command": server}
            server = ServerSettings.model_validate({"name": SERVER, **where})
        self._server = server
        self._directory = str(Path(directory).resolve())
        self._state = state_directory or config.state_directory()
        self._opened: tuple[Toolboxes, Toolbox] | None = None
        self.available_tools: Sequence[ToolInfo] = ()
        """The tools that the last ``discover_tools`` found."""

    async def __aenter__(self) -> Self:
        name = f"{platform.node() or 'host'}-program-{os.getpid()}-{secrets.token_hex(2)}"
        toolboxes = Toolboxes([self._server], self._state, config.server_environment(), name)
        toolbox = toolboxes.toolbox(ToolScope({PROGRAM: AgentSettings(name=PROGRAM, grants=("*",))}, self._directory))
        self._opened = toolboxes, toolbox
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened:
            toolboxes, _ = self._opened
            self._opened = None
            await toolboxes.close()

    async def discover_tools(self) -> Sequence[ToolInfo]:
        """Return all tools of the server, across all pages, in its order. Raises ServerUnavailable."""
        toolbox = self._toolbox()
        self.available_tools = await toolbox.list_tools(self._server.name)
        return self.available_tools

    async def invoke_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> CallOutcome:
        """Call a tool. The outcome has ``ok``, ``text`` and ``structured``, or ``code`` and ``message``."""
        toolbox, tool = self._toolbox(), f"{self._server.name}.{name}"
        request = CallRequest("", "", "", PROGRAM, tool, arguments or {}, for_user=True)
        return await toolbox.call(request, budget=None, approved=lambda _: False)

    def _toolbox(self) -> Toolbox:
        if not self._opened:
            raise UsageInvalid("the client is not open", suggestion="use it in: async with McpClient(…) as client:")
        return self._opened[1]
