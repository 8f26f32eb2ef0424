"""A toolbox over two servers in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ccswarm.config.masks import Masks
from ccswarm.config.settings import AgentSettings
from ccswarm.journal.writer import Journal
from ccswarm.models import CallOutcome, CallRequest
from ccswarm.toolbox.toolbox import Toolbox
from tests.ccswarm.support.doubles import MemoryClient, MemoryTool, tool

KEYED = {"text": {"type": "string"}, "call_key": {"type": "string", "maxLength": 200}}

SECRET = "hunter2-hunter2"
"""The value of the environment variable DB_TOKEN."""


def nobody_agrees(_: CallRequest) -> bool:
    return False


async def invoke_tool(toolbox: Toolbox, agent: str, tool: str, arguments: Mapping[str, Any]) -> CallOutcome:
    """Call a tool outside any run, without a person who could approve."""
    return await toolbox.call(CallRequest("", "", "", agent, tool, arguments), budget=None, approved=nobody_agrees)


class ToolboxSetup:
    """A toolbox over two servers, with an agent for each kind of restriction."""

    def __init__(self, where: Path, one: Sequence[MemoryTool] = (), two: Sequence[MemoryTool] = ()) -> None:
        self.one = MemoryClient(
            "one", [tool("echo", properties=KEYED), tool("a.b"), tool("look", read_only=True), *one]
        )
        self.two = MemoryClient("two", [tool("echo"), *two])
        agents = [
            AgentSettings(name="free", grants=("*",)),
            AgentSettings(name="narrow", grants=("one.echo", "one.a.*")),
            AgentSettings(name="nothing"),
            AgentSettings(name="careful", grants=("one.*",), approval="destructive"),
            AgentSettings(name="watched", grants=("one.*",), approval="all"),
        ]
        self.where = where / "journal"
        self.journal = Journal(self.where, "w1")
        self.clients = {"one": self.one, "two": self.two}
        self.agents = {agent.name: agent for agent in agents}
        self.toolbox = Toolbox(
            self.clients, self.agents, self.journal, mask=Masks({"DB_TOKEN": SECRET}), process="this one"
        )

    async def call(self, agent: str = "free", name: str = "one.echo", **more: Any) -> CallOutcome:
        """Call a tool. ``budget``, ``approved`` and ``on_progress`` in ``more`` are passed to the toolbox."""
        how: dict[str, Any] = {"budget": None, "approved": nobody_agrees}
        how |= {key: more.pop(key) for key in ("budget", "approved", "on_progress") if key in more}
        facts: dict[str, Any] = {"run_id": "r1", "task_id": "t1", "step_id": "s1", "arguments": {}, **more}
        return await self.toolbox.call(CallRequest(agent=agent, tool=name, **facts), **how)
