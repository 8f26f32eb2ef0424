"""What the toolbox records: every call and every refusal, once, without secrets, and joined with the servers' logs."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ccswarm.journal.writer import Record, join, read, verify
from ccswarm.models import CallRequest, CallStatus
from tests.ccswarm.support.doubles import Received, ToolFailed, tool
from tests.ccswarm.support.toolboxes import SECRET, ToolboxSetup

pytestmark = pytest.mark.anyio

SWORDFISH = "swordfish"


@pytest.fixture
def tools(tmp_path: Path) -> ToolboxSetup:
    return ToolboxSetup(tmp_path)


def records(tools: ToolboxSetup) -> list[Record]:
    return [record for record in read(tools.where) if record.event.startswith("call.")]


def facts(tools: ToolboxSetup, *names: str) -> list[Any]:
    return [[record.event, *(record.facts.get(name) for name in names)] for record in records(tools)]


async def forever(_: Received) -> str:
    return await asyncio.get_running_loop().create_future()


async def failed(_: Received) -> str:
    raise ToolFailed(SWORDFISH)


async def exits(call: Received) -> Mapping[str, Any]:
    return {"exit_code": call.arguments["code"], "output": SWORDFISH}


async def test_a_call_leaves_a_begin_and_an_end(tmp_path: Path) -> None:
    tools = ToolboxSetup(tmp_path, [tool("exits", exits)])
    outcome = await tools.call(name="one.exits", arguments={"code": 3}, key="k1", attempt=2, approval="ap_1")
    begin, end = records(tools)
    named = {"run": "r1", "task": "t1", "step": "s1", "agent": "free", "tool": "one.exits", "attempt": 2}
    call_id = tools.one.received[0].meta["ai-session/client_call_id"]
    assert (begin.event, end.event) == ("call.begin", "call.end")
    assert begin.facts == {
        **named,
        "call": call_id,
        "key": "k1",
        "approval": "ap_1",
        "args": {"code": {"type": "int"}},
    }
    assert end.facts == {
        **named,
        "call": call_id,
        "status": "ok",
        "seconds": end.facts["seconds"],
        "server_call": outcome.call_id,
        "audit": outcome.audit,
        "answer_chars": len(outcome.text),
        "exit_code": 3,
    }


async def test_every_refusal_leaves_a_record(tools: ToolboxSetup) -> None:
    async def used_up(_: CallRequest) -> str:
        return "calls of task t1"

    tools.two.down = f"last words: {SWORDFISH}"
    await tools.call("nobody")
    await tools.call(name="one.none")
    await tools.call("narrow", "one.look")
    await tools.call(arguments={"text": [SWORDFISH]})
    await tools.call("watched")
    await tools.call(name="one.a.b", claim="another")
    await tools.call(budget=used_up)
    await tools.call(name="two.echo")
    assert facts(tools, "status", "code", "message") == [
        ["call.refused", "denied", "not_granted", "there is no agent 'nobody'"],
        ["call.refused", "invalid", "unknown_tool", "server one has no tool 'none'"],
        ["call.refused", "denied", "not_granted", "agent narrow may not use one.look"],
        [
            "call.refused",
            "invalid",
            "invalid_arguments",
            "the arguments do not match the schema of one.echo: $.text: must be string",
        ],
        ["call.refused", "denied", "approval_needed", "a person must approve one.echo"],
        ["call.refused", "lost", "server_lost", None],
        ["call.refused", "budget_exhausted", "budget_exhausted", "calls of task t1 is used up"],
        ["call.refused", "unavailable", "server_unavailable", None],
    ]
    assert len({record.facts["call"] for record in records(tools)}) == 8
    assert SWORDFISH.encode() not in (tools.where / "w1.jsonl").read_bytes()


async def test_a_call_that_is_given_up_leaves_its_end(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def waits(call: Received) -> str:
        begun.set()
        return await forever(call)

    async def asks(_: CallRequest) -> str:
        begun.set()
        return await asyncio.get_running_loop().create_future()

    tools = ToolboxSetup(tmp_path, [tool("waits", waits)])
    ways: list[dict[str, Any]] = [{"name": "one.waits"}, {"budget": asks}]
    for how in ways:
        call = asyncio.create_task(tools.call(**how))
        await begun.wait()
        begun.clear()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled()
    await tools.call(name="one.waits", timeout_seconds=0.01)
    begun.clear()
    lost = asyncio.create_task(tools.call(name="one.waits"))
    await begun.wait()
    tools.one.die()
    await lost
    assert facts(tools, "status") == [
        ["call.begin", None],
        ["call.end", "cancelled"],
        ["call.refused", "cancelled"],
        ["call.begin", None],
        ["call.end", "timeout"],
        ["call.begin", None],
        ["call.end", "lost"],
    ]
    assert join(tools.where, tools.one.audit).problems == []


async def test_an_end_that_cannot_be_written_costs_nobody_the_outcome(tmp_path: Path) -> None:
    async def closes(_: Received) -> str:
        tools.journal.close()
        return "done"

    tools = ToolboxSetup(tmp_path, [tool("closes", closes)])
    outcome = await tools.call(name="one.closes")
    assert (outcome.status, outcome.text) == (CallStatus.OK, "done")
    (call_id,) = join(tools.where, tools.one.audit).open
    assert call_id == tools.one.received[0].meta["ai-session/client_call_id"]
    assert (await tools.call()).code == "journal_broken"


async def test_contents_of_arguments_and_answers_are_not_written(tmp_path: Path) -> None:
    tools = ToolboxSetup(tmp_path, [tool("failed", failed), tool("exits", exits)])
    inside: dict[str, Any] = {"deep": [{"er": SWORDFISH}], "code": SWORDFISH, "text": SWORDFISH}
    for name in ("one.echo", "one.failed", "one.exits"):
        await tools.call(name=name, arguments=inside)
    assert len(records(tools)) == 6
    await tools.call("nothing", arguments=inside)
    await tools.call(name="one.a.b", arguments={"command": f"login {SECRET} && {'x' * 5000}"})
    written = (tools.where / "w1.jsonl").read_bytes()
    assert SWORDFISH.encode() not in written
    assert SECRET.encode() not in written
    reported = records(tools)[-2].facts["args"]["command"]["text"]
    assert reported.startswith("login [REDACTED:DB_TOKEN] && xxx")
    assert len(reported) == 4096


async def test_many_calls_at_once_join_the_logs_of_both_servers(tmp_path: Path) -> None:
    more = [tool("forever", forever), tool("failed", failed), tool("exits", exits)]
    tools = ToolboxSetup(tmp_path, more, more)
    rng = random.Random(7)

    async def one() -> None:
        agent = rng.choice(["free", "free", "free", "narrow", "careful"])
        name = f"{rng.choice(['one', 'two'])}.{rng.choice(['echo', 'forever', 'failed', 'exits', 'none', 'a.b'])}"
        seconds = rng.choice([0.001, 5])
        call = asyncio.create_task(tools.call(agent, name, timeout_seconds=seconds, arguments={"code": 0}))
        for _ in range(rng.randrange(1, 12)):
            await asyncio.sleep(0)
        if name.endswith("forever") or rng.random() < 0.2:
            call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    for _ in range(10):
        await asyncio.gather(*(one() for _ in range(30)))
        rng.choice([tools.one, tools.two]).die()
    report = join(tools.where, [*tools.one.audit, *tools.two.audit])
    assert report.problems == []
    assert (report.open, report.in_progress) == ([], [])
    assert report.calls + report.refused == 300
    assert report.joined == (len(tools.one.audit) + len(tools.two.audit)) / 2 > 100
    assert {"ok", "tool_error", "cancelled", "denied", "invalid"} <= {
        record.facts.get("status", "") for record in records(tools)
    }
    assert verify(tools.where).sound
    assert not join(tools.where, tools.one.audit).sound
    assert os.stat(tools.where / "w1.jsonl").st_mode & 0o777 == 0o600
