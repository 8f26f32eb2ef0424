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
def house(world: Path) -> Iterator[SwarmHome]:
    with open_swarm_home(world, AI_SESSION + QUICK + BUSY, "") as house:
        yield house


@pytest.fixture(scope="module")
def client(house: SwarmHome) -> Iterator[ServerClient]:
    with serving(house.home, "--config", str(house.file), "--workspace", str(house.project)) as client:
        yield client


def told(client: ServerClient, **arguments: Any) -> Any:
    result = client.call("initialize_project", **arguments)
    return json.loads(result["content"][0]["text"])


def files_in(folder: Path) -> dict[str, str]:
    return {
        str(one.relative_to(folder)): one.read_bytes().decode() for one in sorted(folder.rglob("*")) if one.is_file()
    }


@pytest.mark.parametrize(("template", "inside"), list(zip(ABOUT, ("", "apps/deep", "mine"), strict=True)))
@pytest.mark.either("template")
def test_a_starter_is_written_whole(client: ServerClient, house: SwarmHome, template: str, inside: str) -> None:
    """In the workspace, in folders that are not there yet, and as the folder that is named."""
    name = "mine" if inside == "mine" else "-first-app"
    wanted = 'Quote "this", ${run.id}, $HOME and `that`; ü.\r\n\tSecond line'
    place = house.project / inside
    found = told(client, projectName=name, template=template, projectPath=str(place), requirements=wanted)
    assert found["success"], found
    folder = place if inside == "mine" else place / name
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


def test_what_is_there_is_left_as_it_is(client: ServerClient, house: SwarmHome) -> None:
    place = house.project / "old"
    place.mkdir()
    (place / "README.md").write_text("mine")
    (place / "notes.txt").write_text("mine")
    meant = {"projectName": "old", "template": "cloudflare-hono", "projectPath": str(place)}
    found = told(client, **meant)
    assert (found["code"], found["existingFiles"]) == ("PROJECT_EXISTS", ["README.md"])
    assert files_in(place) == {"README.md": "mine", "notes.txt": "mine"}
    (place / "README.md").unlink()
    assert told(client, **meant)["success"]
    assert files_in(place) == {**files_of("cloudflare-hono", "old"), "notes.txt": "mine"}


def test_every_call_is_in_the_journal_and_in_the_audit_log(client: ServerClient, house: SwarmHome) -> None:
    assert told(client, projectName="in", template="cloudflare-hono", projectPath=str(house.project / "in"))["success"]
    calls = [one.facts for one in house.records() if one.event == "call.begin"]
    assert {"ai-session.create_session", "ai-session.execute_command", "ai-session.close_session"} == {
        one["tool"] for one in calls
    }
    joined = house.joined()
    assert (joined.calls, joined.problems) == (joined.joined, [])


def test_a_person_is_asked_where_the_agent_has_to(world: Path) -> None:
    with open_swarm_home(world, AI_SESSION + QUICK + HELD, "") as house:
        words = ("--config", str(house.file), "--workspace", str(house.project))
        with serving(house.home, *words) as client:
            meant = {"projectName": "held", "template": "react-native-expo", "projectPath": str(house.project)}
            found = told(client, **meant)
            assert found["status"] == "in_progress"
            assert "success" not in found
            run = found["project"]["run"]
            assert "ccswarm approve" in found["nextSteps"][0]
            assert client.tool("run_status", run=run)["status"] == "waiting_approval"
            assert files_in(house.project) == {}
            assert client.tool("cancel_run", run=run)["status"] == "cancelled"


@pytest.mark.torture  # test_swarm_server_end_to_end.py has the official client call the same server
@pytest.mark.anyio
async def test_the_official_client_gets_results_and_errors(house: SwarmHome) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ccswarm", "mcp-server", "--stdio", "--config", str(house.file), "--workspace", str(house.project)],
        env={**client_environment(house.home), "PYTHONPATH": str(ROOT)},
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
