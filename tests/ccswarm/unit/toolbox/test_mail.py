"""Messages between agents: the topology is kept, nothing is delivered twice, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ccswarm.config.settings import AgentSettings, EngineSettings, SwarmSettings
from ccswarm.engines.base import RUNS, Engine, Flow
from ccswarm.engines.dbos.engine import DbosEngine
from ccswarm.errors import InvalidArguments, RunNotFound, UnknownTool
from ccswarm.models import Json
from ccswarm.plan.team import Team
from ccswarm.toolbox.mail import Mailboxes
from tests.ccswarm.support.engine_double import MemoryEngine

pytestmark = pytest.mark.anyio
AGENTS = [AgentSettings(name="hub", type="coordinator"), AgentSettings(name="ada"), AgentSettings(name="bob")]


async def nothing(_: Flow, __: Json) -> Json:
    return None


async def opened(engine: Engine) -> Engine:
    engine.define("run", nothing, queue=RUNS)
    await engine.open()
    for run in ("run_1", "run_2"):
        await engine.submit("run", run, None)
    return engine


@pytest.fixture(params=["memory", "dbos"])
async def engine(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[Engine]:
    engines = {
        "memory": MemoryEngine,
        "dbos": lambda: DbosEngine(EngineSettings(), home / "state"),
    }
    made = await opened(engines[request.param]())
    yield made
    await made.close()


def boxes(store: Engine, topology: Any = "star") -> Mailboxes:
    return Mailboxes(store, Team(SwarmSettings(topology=topology), AGENTS), ["ai-session"])


async def ask(mail: Mailboxes, agent: str, tool: str, run: str = "run_1", **given: Any) -> Any:
    answer = await mail.call(tool, given, meta={"ai-session/agent": agent, "ai-session/run": run})
    return answer.structured if not answer.is_error else answer.meta["ai-session/error"]["code"]


async def read(mail: Mailboxes, agent: str, **more: Any) -> list[str]:
    return [f"{one['from']}: {one['text']}" for one in (await ask(mail, agent, "read_messages", **more))["messages"]]


async def test_messages_are_read_once_in_order_by_whom_they_are_for(engine: Engine) -> None:
    mail = boxes(engine)
    for text in ("one", "two"):
        await ask(mail, "ada", "send_message", to="hub", text=text)
    await ask(mail, "bob", "send_message", to="hub", text="three ü\n")
    assert await read(mail, "hub", run="run_2") == []
    assert await read(mail, "ada") == []
    assert await read(boxes(engine), "hub") == ["ada: one", "ada: two", "bob: three ü\n"]
    assert await read(mail, "hub") == []
    await ask(mail, "ada", "send_message", to="hub", text="four")
    assert await read(mail, "hub") == ["ada: four"]


async def test_the_topology_is_kept(engine: Engine) -> None:
    mail = boxes(engine)
    assert (await ask(mail, "ada", "list_agents"))["agents"] == [
        {"name": "hub", "type": "coordinator", "capabilities": []}
    ]
    assert await ask(mail, "ada", "send_message", to="bob", text="psst") == "message_forbidden"
    assert await ask(mail, "ada", "send_message", to="nobody", text="psst") == "message_forbidden"
    assert await read(mail, "bob") == []
    assert (await ask(boxes(engine, "mesh"), "ada", "send_message", to="bob", text="hello"))["sent"]
    assert await read(mail, "bob") == ["ada: hello"]


async def test_the_same_key_sends_and_reads_the_same(engine: Engine) -> None:
    mail = boxes(engine)
    for _ in range(2):
        await ask(mail, "ada", "send_message", to="hub", text="once", call_key="k1")
    assert await read(mail, "hub", call_key="r1") == ["ada: once"]
    await ask(mail, "ada", "send_message", to="hub", text="later", call_key="k2")
    assert await read(mail, "hub", call_key="r1") == ["ada: once"]
    assert await read(mail, "hub", call_key="r2") == ["ada: later"]
    assert await read(mail, "hub", call_key="r3") == []
    await ask(mail, "ada", "send_message", to="hub", text="last")
    assert await read(mail, "hub", call_key="r3") == []
    assert await read(mail, "hub") == ["ada: last"]


async def test_who_sends_and_reads_at_once_loses_nothing_and_reads_nothing_twice(engine: Engine) -> None:
    mail = boxes(engine)
    found: list[str] = []

    async def reading() -> None:
        for _ in range(5):
            found.extend(await read(mail, "hub"))

    sending = (ask(mail, "ada", "send_message", to="hub", text=str(n)) for n in range(30))
    await asyncio.gather(*sending, *(reading() for _ in range(4)))
    found += await read(mail, "hub")
    assert sorted(found) == sorted(f"ada: {n}" for n in range(30))
    assert await read(mail, "hub") == []


async def test_workers_that_share_a_store_reach_each_other(home: Path) -> None:
    one, two = [await opened(DbosEngine(EngineSettings(), home / "state")) for _ in range(2)]
    await ask(boxes(one), "ada", "send_message", to="hub", text="from one")
    assert await read(boxes(two), "hub") == ["ada: from one"]
    assert await read(boxes(one), "hub") == []
    await one.close()
    await two.close()


async def test_it_belongs_to_a_run(engine: Engine) -> None:
    with pytest.raises(InvalidArguments):
        await boxes(engine).call("list_agents", {}, meta={})
    with pytest.raises(UnknownTool):
        await ask(boxes(engine), "ada", "shout")
    with pytest.raises(RunNotFound):
        await ask(boxes(engine), "ada", "send_message", run="run_9", to="hub", text="psst")
    assert await read(boxes(engine), "hub", run="run_9") == []
