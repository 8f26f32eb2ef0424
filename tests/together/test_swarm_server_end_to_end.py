"""The swarm as an MCP server, with the official client in each era, the program as it is started by clients, and agents
that work in real ai-sessions."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import TextResourceContents

from tests.ccswarm.support.llm_agents import KEY, SECRET, finish
from tests.ccswarm.support.mcp_server_process import serving
from tests.ccswarm.support.model_servers import ModelServer, Reply, plays
from tests.conftest import client_environment
from tests.together.support.swarms import AI_SESSION, QUICK, ROOT, SwarmHome, open_swarm_home

pytestmark = pytest.mark.anyio

CREW = """
[[agents]]
name = "maker"
grants = ["ai-session.*"]

[[agents]]
name = "careful"
approval = "all"
grants = ["ai-session.*"]
"""
PLAN = """
[[tasks]]
id = "count"
agent = "{agent}"
[[tasks.steps]]
id = "open"
tool = "ai-session.create_session"
args = {{ name = "${{run.id}}", working_directory = "${{workspace}}" }}
gate = true
[[tasks.steps]]
id = "work"
tool = "ai-session.execute_command"
args = {{ session_id = "${{steps.open.session_id}}", command = '''{command}''' }}
[[tasks.steps]]
id = "close"
tool = "ai-session.close_session"
args = {{ session_id = "${{steps.open.session_id}}" }}
"""
ADA = """
[[agents]]
name = "ada"
brain = "llm"
grants = ["ai-session.*"]
settings = {{ model = "openai:big", base_url = "{url}/v1", key = "{key}" }}
"""


@pytest.fixture
def swarm_home(homes: Path) -> Iterator[SwarmHome]:
    with open_swarm_home(homes, AI_SESSION + QUICK + CREW, "") as swarm_home:
        yield swarm_home


def words(swarm_home: SwarmHome) -> list[str]:
    return ["--config", str(swarm_home.file), "--workspace", str(swarm_home.project)]


@asynccontextmanager
async def connected(swarm_home: SwarmHome, mode: str, **more: str) -> AsyncGenerator[Client]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ccswarm", "mcp-server", "--stdio", *words(swarm_home)],
        env={**client_environment(swarm_home.home), "PYTHONPATH": str(ROOT), **more},
    )
    async with Client(server, mode=mode) as client:
        yield client


async def tool(client: Client, name: str, /, **arguments: Any) -> Any:
    """The facts a tool answers, which the client has held against its schema."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    return result.structured_content


async def followed(client: Client, run: str) -> list[str]:
    """What happened in a run, to its end, in words."""
    reported: list[str] = []
    cursor, over = "", False
    while not over:
        answer = await tool(client, "run_events", run=run, cursor=cursor, wait_seconds=45)
        reported += [one["sentence"] for one in answer["events"]]
        cursor, over = answer["cursor"], answer["over"]
    return reported


@pytest.mark.torture  # test_orchestre_projects.py has agents work in terminals, test_swarm_server.py the same tools
@pytest.mark.parametrize("mode", ["2026-07-28", "legacy", "auto"])
async def test_the_official_client_has_agents_work_in_every_era(swarm_home: SwarmHome, mode: str) -> None:
    async with connected(swarm_home, mode) as client:
        names = [one.name for one in (await client.list_tools()).tools]
        assert len(names) == 18
        plan = PLAN.format(agent="maker", command="echo $((6 * 7)) > made; cat made")
        assert (await tool(client, "check_plan", plan=plan))["valid"]
        run = (await tool(client, "start_run", plan=plan))["run"]
        assert (await followed(client, run))[-1] == "run succeeded: 1 succeeded"
        (content,) = (await client.read_resource(f"run://{run}/result")).contents
        assert isinstance(content, TextResourceContents)
        steps = json.loads(content.text)["tasks"]["count"]["result"]["steps"]
        assert steps["work"]["output"] == "42\n"
        listed = await client.list_resources()
        assert f"run://{run}/journal" in [str(one.uri) for one in listed.resources]
    assert swarm_home.lines("made") == ["42"]
    report = swarm_home.joined()
    assert (report.problems, report.calls, report.joined) == ([], 3, 3)


@pytest.mark.torture
async def test_what_an_agent_asks_is_shown_and_only_a_person_answers(swarm_home: SwarmHome) -> None:
    async with connected(swarm_home, "auto") as client:
        plan = PLAN.format(agent="careful", command="echo done > asked")
        run = (await tool(client, "start_run", plan=plan))["run"]
        approvals: list[Any] = []
        cursor = ""
        for step in ("create_session", "execute_command", "close_session"):
            while not approvals:
                answer = await tool(client, "run_events", run=run, cursor=cursor, wait_seconds=45)
                cursor, approvals = answer["cursor"], answer["approvals"]
            (asked,) = approvals
            assert asked["tool"] == f"ai-session.{step}"
            assert swarm_home.lines("asked") == ([] if step != "close_session" else ["done"])
            for name in ("approve", "answer_approval", "swarm.answer"):
                with pytest.raises(MCPError, match="there is no tool"):
                    await client.call_tool(name, {"id": asked["id"], "approved": True})
            assert (await tool(client, "list_approvals", run=run))["approvals"] == approvals
            swarm_home.answer("yes", "ann")
            while approvals and approvals[0]["id"] == asked["id"]:
                answer = await tool(client, "run_events", run=run, cursor=cursor, wait_seconds=45)
                cursor, approvals = answer["cursor"], answer["approvals"]
        await followed(client, run)
        assert (await tool(client, "run_status", run=run))["status"] == "succeeded"


@pytest.mark.torture
def test_killed_in_a_run_the_next_server_goes_on_and_every_effect_is_there_once(swarm_home: SwarmHome) -> None:
    os.mkfifo(swarm_home.project / "pipe")
    plan = PLAN.format(agent="maker", command="echo begun >> effects; cat pipe >> effects")
    with serving(swarm_home.home, *words(swarm_home), new=True) as client:
        run = client.tool("start_run", plan=plan)["run"]
        with (swarm_home.project / "pipe").open("w") as pipe:
            client.kill()
            with serving(swarm_home.home, *words(swarm_home), new=True) as second:
                assert second.tool("run_status", run=run)["status"] == "interrupted"
                assert second.tool("resume_run", run=run)["run"] == run
                pipe.write("went on\n")
                pipe.close()
                assert second.follow(run)[-1]["status"] == "succeeded"
                assert second.tool("run_status", run="last")["usage"]["calls"] == 3
    assert swarm_home.lines("effects") == ["begun", "went on"]
    report = swarm_home.joined()
    assert (report.problems, report.joined) == ([], report.calls)


@pytest.mark.torture
async def test_a_task_in_words_goes_to_an_agent_that_thinks(swarm_home: SwarmHome) -> None:
    location = {"name": "work", "working_directory": str(swarm_home.project)}
    command = {"session_id": "work", "command": "echo hello > greeting"}
    turns = [
        Reply("I open.", [("ai-session.create_session", location)]),
        Reply("I write.", [("ai-session.execute_command", command)]),
        Reply("I end.", [finish()]),
    ]
    async with ModelServer(plays(turns), key=SECRET) as server:
        swarm_home.add(ADA.format(url=server.url, key=KEY))
        async with connected(swarm_home, "auto", **{KEY: SECRET}) as client:
            run = (await tool(client, "start_run", task="greet in a file"))["run"]
            reported = await followed(client, run)
            assert "main: started by ada" in reported
            assert any(line.startswith("main: says: I write.") for line in reported)
            assert (await tool(client, "run_status", run=run))["status"] == "succeeded"
    assert swarm_home.lines("greeting") == ["hello"]
