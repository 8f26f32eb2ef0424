"""The swarm's own tools. Implements ``Toolset``."""

from __future__ import annotations

from collections.abc import Mapping

from ccswarm.errors import SwarmError
from ccswarm.servers.mcp.toolsets.base import Answer, Failure, Given, Tool
from ccswarm.servers.mcp.toolsets.swarm.calls import call
from ccswarm.servers.mcp.toolsets.swarm.tools import BY_NAME
from ccswarm.servers.mcp.workbench import Workbench


class SwarmTools:
    """The tools for runs."""

    tools: Mapping[str, Tool] = BY_NAME
    changes_runs = frozenset(("start_run", "resume_run", "cancel_run", "pause_run"))

    async def call(self, workbench: Workbench, name: str, arguments: Given) -> Answer | Failure:
        """Call a tool; of an error, the text names its code and the next step."""
        try:
            return await call(workbench, name, arguments)
        except SwarmError as problem:
            text = f"error {problem.code}: {problem.message}"
            text += f"\nnext: {problem.suggestion}" if problem.suggestion else ""
            error = {"code": problem.code, "message": problem.message, "suggestion": problem.suggestion}
            return Failure(text, error)


PLUGIN = SwarmTools()
