"""What only reads is asked for again where the way to its server was lost, also of a server that nobody vouches for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ccswarm.models import RunStatus
from ccswarm.toolbox.terminals import Terminals, scope_for_ending
from ccswarm.toolbox.toolbox import MOST_SENDS
from tests.ccswarm.support.doubles import MemoryClient, Received, tool
from tests.ccswarm.support.llm_agents import ToolboxTaskWorker, finish, recorded, reply
from tests.ccswarm.support.swarms import MemoryWorker, steps

pytestmark = pytest.mark.anyio

GATED = {"id": "gated", "agent": "ann", "steps": steps("look", tool="files.look"), "gates": [{"command": "make test"}]}
WORDS = {"id": "words", "agent": "wim", "text": "echo hello"}
THINKS = {"id": "thinks", "agent": "ada", "text": "Run the tests."}


class Dying(MemoryWorker):
    """A server of terminals whose commands are read once, and which ends at the first ``deaths`` calls of each tool
    that only reads or ends what is there."""

    def __init__(self, where: Path, deaths: int = 1) -> None:
        super().__init__()
        self.deaths = Counter(dict.fromkeys(("read_output", "list_sessions", "close_session"), deaths))
        session = {"session_id": {"type": "string"}}
        keyed = {"call_key": {"type": "string"}}
        tools = [
            tool("create_session", self._opened, properties=keyed),
            tool("execute_command", self._begun, properties=session | keyed),
            tool("read_output", self._read, properties=session),
            tool("list_sessions", self._listed),
            tool("close_session", self._closed, properties=session),
        ]
        self.shell = MemoryClient("ai-session", tools)
        self.task_worker = ToolboxTaskWorker(where, self.shell, MemoryClient("files", [tool("look", self._closed)]))
        self.swarm = type(self.swarm)(self.engine, self.task_worker)
        self.ended: list[str] = []

    async def _opened(self, _: Received) -> Mapping[str, Any]:
        return {"session_id": "s", "working_directory": "/project"}

    async def _begun(self, _: Received) -> Mapping[str, Any]:
        return {"status": "running", "command_id": "c", "output": ""}

    async def _read(self, call: Received) -> Mapping[str, Any]:
        await self._perhaps(call)
        return {"status": "finished", "exit_code": 0, "output": "fine"}

    async def _listed(self, call: Received) -> Mapping[str, Any]:
        await self._perhaps(call)
        return {"sessions": [{"session_id": "s", "name": "s", "owner": "run:r/agent:ada", "working_directory": "/"}]}

    async def _closed(self, call: Received) -> Mapping[str, Any]:
        await self._perhaps(call)
        self.ended.append(call.tool)
        return {}

    async def _perhaps(self, call: Received) -> None:
        if self.deaths[call.tool] > 0:
            self.deaths[call.tool] -= 1
            self.shell.die("ended by SIGKILL")
            await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("task", [GATED, WORDS, THINKS], ids=["gate", "words", "bash"])
async def test_a_command_is_waited_for_although_the_server_was_lost_meanwhile(
    tmp_path: Path, task: Mapping[str, Any]
) -> None:
    thinks = recorded(reply(("bash", {"command": "make test"})), reply(finish(result={"said": "$1.output"})))
    team = [
        {"name": "ann", "grants": ["files.*"]},
        {"name": "wim", "grants": ["ai-session.*"], "settings": {"words": "commands"}},
        {"name": "ada", "brain": "llm", "grants": ["ai-session.*"], "settings": thinks},
    ]
    made = Dying(tmp_path)
    done = await made.run({"agents": team, "tasks": [task]})
    assert done.result["status"] == RunStatus.SUCCEEDED, done.result["tasks"]
    assert made.deaths["read_output"] == 0
    commands = [one for one in made.shell.received if one.tool == "execute_command"]
    assert len(commands) == 1, "what was begun is not begun again"


async def test_terminals_are_ended_although_the_server_was_lost_meanwhile(tmp_path: Path) -> None:
    made = Dying(tmp_path)
    call = await made.task_worker.call(scope_for_ending("ai-session", "/project"))
    assert await Terminals(call, "ai-session", "r").end() == ""
    assert made.ended == ["close_session"]
    made.deaths["list_sessions"] = MOST_SENDS
    assert "ended by SIGKILL" in await Terminals(call, "ai-session", "r").end(), "and not for ever"
