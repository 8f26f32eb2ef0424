"""Starters are written by agents in real terminals, in boxes: whole, journalled, never over anything; and the official
client gets Orchestre's answers in each era."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from ccswarm.servers.mcp.toolsets.orchestre.starters import ABOUT, files_of
from tests.ccswarm.support.mcp_server_process import ServerClient, serving
from tests.conftest import client_environment
from tests.together.support.swarms import AI_SESSION, QUICK, ROOT, SwarmHome, open_swarm_home

BUSY = """
[[agents]]
name = "thinker"
brain = "llm"
grants = ["ai-session.create_*", "ai-session.execute_*", "ai-session.read_*", "ai-session.close_*"]
settings = { model = "openai:none" }
"""
HELD = """
[[agents]]
name = "cloned"
workspace = "clone"
grants = ["ai-session.*"]

[[agents]]
name = "poor"
grants = ["ai-session.list_sessions"]

[[agents]]
name = "careful"
approval = "all"
grants = ["ai-session.*"]
"""


@pytest.fixture(scope="module")
def swarm_home(homes: Path) -> Iterator[SwarmHome]:
    with open_swarm_home(homes, AI_SESSION + QUICK + BUSY, "") as swarm_home:
        yield swarm_home


@pytest.fixture(scope="module")
def client(swarm_home: SwarmHome) -> Iterator[ServerClient]:
    with serving(swarm_home.home, "--config", str(swarm_home.file), "--workspace", str(swarm_home.project)) as client:
        yield client


def reported(client: ServerClient, **arguments: Any) -> Any:
    result = client.call("initialize_project", **arguments)
    return json.loads(result["content"][0]["text"])


def files_in(folder: Path) -> dict[str, str]:
    return {
        str(one.relative_to(folder)): one.read_bytes().decode() for one in sorted(folder.rglob("*")) if one.is_file()
    }


@pytest.mark.parametrize(("template", "inside"), list(zip(ABOUT, ("", "apps/deep", "mine"), strict=True)))
@pytest.mark.either("template")
def test_a_starter_is_written_whole(client: ServerClient, swarm_home: SwarmHome, template: str, inside: str) -> None:
    """In the workspace, in folders that are not there yet, and as the folder that is named; by calls in both logs."""
    name = "mine" if inside == "mine" else "-first-app"
    wanted = 'Quote "this", ${run.id}, $HOME and `that`; ü.\r\n\tSecond line'
    location = swarm_home.project / inside
    found = reported(client, projectName=name, template=template, projectPath=str(location), requirements=wanted)
    assert found["success"], found
    folder = location if inside == "mine" else location / name
    files = files_of(template, name, wanted)
    assert files_in(folder) == files
    assert found["project"] == {
        "projectName": name,
        "template": template,
        "projectPath": str(folder),
        "run": found["project"]["run"],
        "files": list(files),
    }
    status = client.tool("run_status", run=found["project"]["run"])
    assert (status["status"], status["name"], status["tasks"][0]["agent"]) == ("succeeded", name.strip("-"), "thinker")
    assert f"cd {folder}" == found["nextSteps"][0]
    calls = [one.facts for one in swarm_home.records() if one.event == "call.begin"]
    assert {"ai-session.create_session", "ai-session.execute_command", "ai-session.close_session"} == {
        one["tool"] for one in calls
    }
    joined = swarm_home.joined()
    assert (joined.calls, joined.problems) == (joined.joined, [])


@pytest.mark.torture  # test_orchestre.py: where nothing may or can be written
def test_what_is_there_is_left_as_it_is(client: ServerClient, swarm_home: SwarmHome) -> None:
    location = swarm_home.project / "old"
    location.mkdir()
    (location / "README.md").write_text("mine")
    (location / "notes.txt").write_text("mine")
    meant = {"projectName": "old", "template": "cloudflare-hono", "projectPath": str(location)}
    found = reported(client, **meant)
    assert (found["code"], found["existingFiles"]) == ("PROJECT_EXISTS", ["README.md"])
    assert files_in(location) == {"README.md": "mine", "notes.txt": "mine"}
    (location / "README.md").unlink()
    assert reported(client, **meant)["success"]
    assert files_in(location) == {**files_of("cloudflare-hono", "old"), "notes.txt": "mine"}


@pytest.mark.torture  # test_swarm_runs.py has a person asked
def test_a_person_is_asked_where_the_agent_has_to(homes: Path) -> None:
    with open_swarm_home(homes, AI_SESSION + QUICK + HELD, "") as swarm_home:
        words = ("--config", str(swarm_home.file), "--workspace", str(swarm_home.project))
        with serving(swarm_home.home, *words) as client:
            meant = {"projectName": "held", "template": "react-native-expo", "projectPath": str(swarm_home.project)}
            found = reported(client, **meant)
            assert found["status"] == "in_progress"
            assert "success" not in found
            run = found["project"]["run"]
            assert "ccswarm approve" in found["nextSteps"][0]
            assert client.tool("run_status", run=run)["status"] == "waiting_approval"
            assert files_in(swarm_home.project) == {}
            assert client.tool("cancel_run", run=run)["status"] == "cancelled"


@pytest.mark.torture  # test_swarm_server_end_to_end.py has the official client call the same server
@pytest.mark.anyio
async def test_the_official_client_gets_results_and_errors(swarm_home: SwarmHome) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=[
            "-m",
            "ccswarm",
            "mcp-server",
            "--stdio",
            "--config",
            str(swarm_home.file),
            "--workspace",
            str(swarm_home.project),
        ],
        env={**client_environment(swarm_home.home), "PYTHONPATH": str(ROOT)},
    )
    for mode in ("legacy", "2026-07-28"):
        async with Client(server, mode=mode) as client:
            listed = {one.name: one for one in (await client.list_tools()).tools}
            assert listed["generate_plan"].input_schema["required"] == ["requirements"]
            kept = await client.call_tool("set_context", {"key": "stack", "value": ["hono"]})
            (content,) = kept.content
            assert isinstance(content, TextContent)
            assert json.loads(content.text) == kept.structured_content
            got = await client.call_tool("get_context", {"key": "stack"})
            assert got.structured_content
            assert got.structured_content["value"] == ["hono"]
            empty = await client.call_tool("analyze_project", {"requirements": ""})
            assert empty.is_error
            with pytest.raises(MCPError) as found:
                await client.call_tool("analyze_project", {})
            assert found.value.error.data == {"details": "Missing required field: requirements"}
