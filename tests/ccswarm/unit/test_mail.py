"""Messages between agents: the topology is kept, nothing is delivered twice, nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ccswarm.config.settings import AgentSettings, SwarmSettings
from ccswarm.errors import InvalidArguments, UnknownTool
from ccswarm.plan.team import Team
from ccswarm.toolbox.mail import Mailboxes

pytestmark = pytest.mark.anyio
AGENTS = [AgentSettings(name="hub", type="coordinator"), AgentSettings(name="ada"), AgentSettings(name="bob")]


def boxes(directory: Path, topology: Any = "star") -> Mailboxes:
    return Mailboxes(directory, Team(SwarmSettings(topology=topology), AGENTS), ["ai-session"])


async def ask(mail: Mailboxes, agent: str, tool: str, run: str = "run_1", **given: Any) -> Any:
    answer = await mail.call(tool, given, meta={"ai-session/agent": agent, "ai-session/run": run})
    return answer.structured if not answer.is_error else answer.meta["ai-session/error"]["code"]


async def read(mail: Mailboxes, agent: str, **more: Any) -> list[str]:
    return [f"{one['from']}: {one['text']}" for one in (await ask(mail, agent, "read_messages", **more))["messages"]]


async def test_messages_are_read_once_in_order_by_whom_they_are_for(tmp_path: Path) -> None:
    mail = boxes(tmp_path)
    for text in ("one", "two"):
        await ask(mail, "ada", "send_message", to="hub", text=text)
    await ask(mail, "bob", "send_message", to="hub", text="three ü\n")
    assert await read(mail, "hub", run="run_2") == []
    assert await read(mail, "ada") == []
    assert await read(boxes(tmp_path), "hub") == ["ada: one", "ada: two", "bob: three ü\n"]
    assert await read(mail, "hub") == []
    await ask(mail, "ada", "send_message", to="hub", text="four")
    assert await read(mail, "hub") == ["ada: four"]


async def test_the_topology_is_kept(tmp_path: Path) -> None:
    mail = boxes(tmp_path)
    assert (await ask(mail, "ada", "list_agents"))["agents"] == [
        {"name": "hub", "type": "coordinator", "capabilities": []}
    ]
    assert await ask(mail, "ada", "send_message", to="bob", text="psst") == "message_forbidden"
    assert await ask(mail, "ada", "send_message", to="nobody", text="psst") == "message_forbidden"
    assert await read(mail, "bob") == []
    assert (await ask(boxes(tmp_path, "mesh"), "ada", "send_message", to="bob", text="hello"))["sent"]
    assert await read(mail, "bob") == ["ada: hello"]


async def test_the_same_key_sends_and_reads_the_same(tmp_path: Path) -> None:
    mail = boxes(tmp_path)
    for _ in range(2):
        await ask(mail, "ada", "send_message", to="hub", text="once", call_key="k1")
    assert await read(mail, "hub", call_key="r1") == ["ada: once"]
    await ask(mail, "ada", "send_message", to="hub", text="later", call_key="k2")
    assert await read(mail, "hub", call_key="r1") == ["ada: once"]
    assert await read(mail, "hub", call_key="r2") == ["ada: later"]


async def test_many_at_once_lose_nothing(tmp_path: Path) -> None:
    mail = boxes(tmp_path)
    await asyncio.gather(*(ask(mail, "ada", "send_message", to="hub", text=str(n)) for n in range(50)))
    assert sorted(await read(mail, "hub"), key=len) != []
    assert await read(mail, "hub") == []


async def test_a_message_that_was_cut_short_is_not_read(tmp_path: Path) -> None:
    mail = boxes(tmp_path)
    await ask(mail, "ada", "send_message", to="hub", text="whole")
    with (tmp_path / "run_1/hub.jsonl").open("ab") as file:
        file.write(b'{"from": "ada", "te')
    await ask(mail, "bob", "send_message", to="hub", text="after")
    assert await read(mail, "hub") == ["ada: whole", "bob: after"]


async def test_it_belongs_to_a_run(tmp_path: Path) -> None:
    with pytest.raises(InvalidArguments):
        await boxes(tmp_path).call("list_agents", {}, meta={})
    with pytest.raises(UnknownTool):
        await ask(boxes(tmp_path), "ada", "shout")
