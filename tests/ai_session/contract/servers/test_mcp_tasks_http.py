"""Tasks over HTTP: whose they are, what a token may do with them, and fronts that come and go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai_session.servers.mcp.calls import TASKS
from tests.ai_session.support.http_servers import Here, answer_of, running
from tests.ai_session.support.mcp_client import Message, stop_daemons
from tests.conftest import UNBOXED, new_home

pytestmark = pytest.mark.anyio

KNOWS: Message = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}
LOOKS = 20


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    home = new_home(homes, UNBOXED)
    yield home
    stop_daemons(home)


async def ask(here: Here, method: str, task: Message, token: str = "", header: str = "") -> tuple[int, Message]:
    """Status and answer of one of a task's methods."""
    params = {"taskId": task["taskId"], "inputResponses": {}, "_meta": KNOWS}
    found = await here.modern(method, params, token, **{"Mcp-Name": header or task["taskId"]})
    return found.status_code, answer_of(found)


async def begun(here: Here, daemon_home: Path, name: str, token: str = "") -> tuple[Message, Path]:
    """A task, and the pipe that ends its command."""
    pipe = daemon_home / name
    os.mkfifo(pipe)
    await here.call("create_session", token=token, name=name)
    params = {"name": "execute_command", "arguments": {"session_id": name, "command": f"cat {pipe}"}, "_meta": KNOWS}
    task = answer_of(await here.modern("tools/call", params, token))["result"]
    assert task["resultType"] == "task", task
    return task, pipe


async def ended(here: Here, task: Message, token: str = "") -> Message:
    for _ in range(LOOKS):
        _, answer = await ask(here, "tasks/get", task, token)
        if answer["result"]["status"] != "working":
            return answer["result"]
    raise AssertionError(f"still {answer}")


async def test_a_task_is_its_users_and_outlives_the_front(daemon_home: Path) -> None:
    async with running(daemon_home) as here:
        assert here.tokens
        alice, bob = here.tokens.give("alice"), here.tokens.give("bob")
        task, pipe = await begun(here, daemon_home, "kept", alice)
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            status, answer = await ask(here, method, task, bob)
            assert (status, answer["error"]["code"]) == (400, -32602)
    pipe.write_text("tea\n")
    async with running(daemon_home) as another:
        assert another.tokens
        token = another.tokens.give("alice", client="another")
        done = await ended(another, task, token)
        assert done["result"]["structuredContent"]["output"] == "tea\n"


async def test_a_token_that_only_reads_looks_and_cancels_nothing(daemon_home: Path) -> None:
    async with running(daemon_home) as here:
        assert here.tokens
        carol, reader = here.tokens.give("carol"), here.tokens.give("carol", "sessions:read")
        task, pipe = await begun(here, daemon_home, "read", carol)
        status, answer = await ask(here, "tasks/cancel", task, reader)
        assert (status, answer["error"]["data"]["required_scope"]) == (403, "sessions:write")
        status, answer = await ask(here, "tasks/get", task, reader)
        assert (status, answer["result"]["status"]) == (200, "working")
        pipe.write_text("")
        assert (await ended(here, task, reader))["result"]["structuredContent"]["exit_code"] == 0


async def test_the_header_names_the_task(daemon_home: Path) -> None:
    async with running(daemon_home, signed=False) as here:
        task, pipe = await begun(here, daemon_home, "named")
        status, answer = await ask(here, "tasks/get", task, header="another")
        assert (status, answer["error"]["code"]) == (400, -32020)
        status, answer = await ask(here, "tasks/cancel", task)
        assert (status, answer["result"]["resultType"]) == (200, "complete")
        assert (await ended(here, task))["result"]["structuredContent"]["status"] == "interrupted"
        assert pipe.is_fifo()
