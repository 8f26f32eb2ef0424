"""The plans that ccswarm ships are carried out by the playbook in real terminals of ai-session, in their boxes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from ccswarm import config, plan
from ccswarm.brains.base import CallTool
from ccswarm.models import CallOutcome, CallStatus, ToolInfo
from ccswarm.settings import Settings
from tests.ccswarm.playbook_drive import Drive, drive
from tests.conftest import client_environment, end_leftovers, environment, new_home

ROOT = Path(__file__).parents[2]
BOUND_SECONDS = 50.0


@pytest.fixture
def project(world: Path, tmp_path: Path):
    """A git repository in a home of its own, with a daemon that is ended afterwards."""
    home = new_home(world, "")
    folder = home / "project"
    folder.mkdir()
    (folder / "one.py").write_text("x = 1  # TODO: more\ny = 2\n")
    (folder / "two words.py").write_text("z = 3\n")
    (folder / "run.sh").write_text("echo $((1 + 1))\n")
    (folder / "README").write_text("A project.\n")
    with environment(client_environment(home) | {"PYTHONPATH": str(ROOT)}):
        git = "git -c init.defaultBranch=main init -q; git add .; git -c user.name=A -c user.email=a@b commit -qm Begin"
        subprocess.run(git, shell=True, cwd=folder, check=True)
        yield folder
        stop = [sys.executable, "-m", "ai_session", "daemon", "stop", "--yes"]
        subprocess.run(stop, check=True, capture_output=True, timeout=BOUND_SECONDS)
    assert not end_leftovers(home)


class Server:
    """The server, reached as plans reach it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def tools(self) -> Mapping[str, ToolInfo]:
        listed = (await self.client.list_tools()).tools
        tools = [ToolInfo("ai-session", tool.name, input_schema=tool.input_schema) for tool in listed]
        return {tool.full_name: tool for tool in tools}

    async def call(self, step: CallTool) -> CallOutcome:
        result = await self.client.call_tool(step.tool.removeprefix("ai-session."), dict(step.arguments))
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        status = CallStatus.TOOL_ERROR if result.is_error else CallStatus.OK
        return CallOutcome(status, text, result.structured_content)


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[Server]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ai_session", "mcp-server", "--stdio"],
        env=config.server_environment(os.environ),
        cwd=str(folder),
    )
    async with asyncio.timeout(BOUND_SECONDS), Client(server) as client:
        yield Server(client)


async def carry_out(settings: Settings, folder: Path) -> Mapping[str, Drive]:
    """Every task in the order of the plan, which must be right for the tools there are."""
    results: dict[str, Any] = {}
    ends: dict[str, Drive] = {}
    async with served(folder) as server:
        assert plan.check(settings, await server.tools()) == []
        for facts in plan.describe(settings)["tasks"]:
            task = next(task for task in settings.tasks if task.id == facts["id"])
            inputs = {need: results[need] for need in task.needs}
            end = await drive(task.model_dump(mode="json"), server.call, inputs=inputs, workspace=str(folder))
            assert end.finish.status == "succeeded", end.finish.summary
            ends[task.id] = end
            results[task.id] = end.finish.result
        left = await server.call(CallTool("left", "ai-session.list_sessions", {}))
        assert left.structured == {"sessions": []}
    return ends


def test_the_shipped_configuration_surveys_a_repository(project: Path) -> None:
    settings = config.load(ROOT / "config/ccswarm.toml").settings
    assert len({agent.name for agent in settings.agents}) >= 3
    ends = asyncio.run(carry_out(settings, project))
    report = (project / "ccswarm-report.md").read_text()
    lines = [line.strip() for line in report.splitlines()]
    assert "3 lines in    2 files: py" in lines
    assert {"2 Python files parse", "1 shell scripts parse", "git: every object is there"} <= set(lines)
    assert "TODO 1" in lines
    assert ends["notes"].steps["where"]["output"].startswith("one.py:1:x = 1  # TODO")
    assert list(ends)[-1] == "report"


def test_the_starter_runs_as_it_is(project: Path) -> None:
    settings = config.parse(config.starter())
    assert len(settings.agents) == 3
    ends = asyncio.run(carry_out(settings, project))
    told = ends["tell"].steps["tell"]["output"].splitlines()
    assert "files: 4" in told
    assert ends["look"].steps["commits"]["output"].endswith("Begin\n")
