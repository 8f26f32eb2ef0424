"""The toolbox: who sees what, in which order a call is judged, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ccswarm.errors import ConfigInvalid, EngineUnavailable, ServerUnavailable, UnknownTool, UsageInvalid
from ccswarm.journal.writer import join
from ccswarm.models import CallOutcome, CallRequest, CallStatus, ServerAnswer, ToolInfo
from ccswarm.toolbox.toolbox import MOST_SENDS, MOST_TEXT_CHARS, Toolbox
from tests.ccswarm.support.doubles import MemoryClient, Received, ToolFailed, tool
from tests.ccswarm.support.toolboxes import ToolboxSetup, invoke_tool

pytestmark = pytest.mark.anyio

KEYED = {"text": {"type": "string"}, "call_key": {"type": "string", "maxLength": 200}}


@pytest.fixture
def tools(tmp_path: Path) -> ToolboxSetup:
    return ToolboxSetup(tmp_path)


def names(tools: Sequence[ToolInfo]) -> list[str]:
    return [info.full_name for info in tools]


async def unlimited(_: CallRequest) -> str:
    return ""


async def test_an_agent_sees_what_it_is_granted(tools: ToolboxSetup) -> None:
    everything = ["one.echo", "one.a.b", "one.look", "two.echo"]
    assert names(await tools.toolbox.discover_tools("free")) == everything
    assert names(await tools.toolbox.discover_tools("narrow")) == ["one.echo", "one.a.b"]
    assert names(await tools.toolbox.discover_tools("careful")) == everything[:3]
    assert await tools.toolbox.discover_tools("nothing") == []
    with pytest.raises(UsageInvalid, match="there is no agent 'x'"):
        await tools.toolbox.discover_tools("x")


async def test_servers_nobody_may_use_are_not_started(tools: ToolboxSetup) -> None:
    await tools.toolbox.discover_tools("narrow")
    await tools.call("narrow")
    assert (tools.one.starts, tools.two.starts) == (1, 0)


async def test_a_server_that_is_down_is_left_out_and_named(tools: ToolboxSetup) -> None:
    tools.two.down = "exited 3: no such file"
    assert names(await tools.toolbox.discover_tools("free")) == ["one.echo", "one.a.b", "one.look"]
    assert list(tools.toolbox.problems()) == ["two"]
    assert "exited 3: no such file" in tools.toolbox.problems()["two"]
    with pytest.raises(ServerUnavailable):
        await tools.toolbox.find("two.echo")
    tools.two.down = ""
    assert "two.echo" in names(await tools.toolbox.discover_tools("free"))
    assert tools.toolbox.problems() == {}


async def test_a_server_that_lists_nonsense_costs_the_others_nothing(tmp_path: Path) -> None:
    class Odd(MemoryClient):
        async def list_tools(self, *, fresh: bool = False) -> Sequence[ToolInfo]:
            raise KeyError("name")

    tools = ToolboxSetup(tmp_path)
    tools.clients["two"] = Odd("two")
    assert len(await tools.toolbox.discover_tools("free")) == 3
    assert tools.toolbox.problems() == {"two": "KeyError: 'name'"}
    assert (await tools.call(name="two.echo")).status is CallStatus.UNAVAILABLE


async def test_a_name_is_one_tool(tmp_path: Path) -> None:
    class Twice(MemoryClient):
        async def list_tools(self, *, fresh: bool = False) -> Sequence[ToolInfo]:
            (only,) = await super().list_tools(fresh=fresh)
            return [only, replace(only, description="the other"), replace(only, name="b", server="one")]

    tools = ToolboxSetup(tmp_path)
    tools.clients["two"] = Twice("two", [tool("a", description="the first")])
    found = [info for info in await tools.toolbox.discover_tools("free") if info.server == "two"]
    assert [(info.full_name, info.description) for info in found] == [("two.a", "the first"), ("two.b", "the first")]
    assert list(tools.toolbox.problems()) == ["two.a"]
    assert (await tools.toolbox.find("one.a.b")).name == "a.b"
    with pytest.raises(ConfigInvalid, match=r"a server cannot be named 'one\.a'"):
        Toolbox({"one.a": tools.one}, {}, tools.journal)


async def test_tools_that_came_later_are_found(tools: ToolboxSetup) -> None:
    with pytest.raises(UnknownTool, match="server one has no tool 'late'"):
        await tools.toolbox.find("one.late")
    tools.one.change([tool("late")], reported=False)
    assert (await tools.call(name="one.late")).ok
    assert (await tools.call(name="one.echo")).code == "unknown_tool"
    for name in ("none.late", "late", "", "."):
        with pytest.raises(UnknownTool):
            await tools.toolbox.find(name)


async def test_a_call_is_judged_in_this_order(tools: ToolboxSetup) -> None:
    asked: list[str] = []

    async def used_up(_: CallRequest) -> str:
        asked.append("budget")
        return "calls of the run"

    def approved(_: CallRequest) -> bool:
        asked.append("approval")
        return True

    bad: dict[str, Any] = {"arguments": {"text": 5}, "claim": "another process"}
    seen: list[str] = []
    steps: list[dict[str, Any]] = [
        {**bad, "agent": "x", "name": "one.x", "budget": used_up},
        {**bad, "agent": "nothing", "name": "one.x", "budget": used_up},
        {**bad, "agent": "nothing", "budget": used_up},
        {**bad, "agent": "watched", "budget": used_up},
        {"agent": "watched", "claim": "another process", "budget": used_up},
        {"agent": "watched", "claim": "another process", "budget": used_up, "approved": approved},
        {"agent": "watched", "claim": "this one", "budget": used_up, "approved": approved},
    ]
    for step in steps:
        outcome = await tools.call(**step)
        assert outcome.status is not CallStatus.OK
        seen.append(outcome.code)
    assert seen == [
        *("not_granted", "unknown_tool", "not_granted", "invalid_arguments", "approval_needed", "server_lost"),
        "budget_exhausted",
    ]
    assert asked == ["approval", "approval", "budget"]
    assert tools.one.received == []
    tools.journal.close()
    assert (await tools.call("watched", budget=unlimited, approved=approved)).code == "journal_broken"
    assert tools.one.received == []


async def test_a_forced_call_of_what_is_not_granted_is_denied(tools: ToolboxSetup) -> None:
    await tools.toolbox.discover_tools("free")
    outcome = await tools.call("narrow", "two.echo")
    assert (outcome.status, outcome.code) == (CallStatus.DENIED, "not_granted")
    assert outcome.message == "agent narrow may not use two.echo"
    assert tools.two.received == []
    lost = await tools.call("narrow", "one.ecko")
    assert lost.suggestion == "did you mean one.echo?"
    assert (await tools.call("nothing", "one.ecko")).suggestion == "use a tool from the agent's list"


async def test_who_needs_a_persons_word(tools: ToolboxSetup) -> None:
    echo, look = await tools.toolbox.find("one.echo"), await tools.toolbox.find("one.look")
    needed = {
        agent: (tools.toolbox.needs_approval(agent, echo), tools.toolbox.needs_approval(agent, look))
        for agent in ("free", "careful", "watched")
    }
    assert needed == {"free": (False, False), "careful": (True, False), "watched": (True, True)}
    with pytest.raises(UsageInvalid):
        tools.toolbox.needs_approval("x", echo)
    outcome = await tools.call("careful")
    assert (outcome.status, outcome.code) == (CallStatus.DENIED, "approval_needed")
    assert (await tools.call("careful", "one.look")).ok

    def approved(request: CallRequest) -> bool:
        return request.approval == "ap_1"

    assert (await tools.call("careful", approval="ap_1", approved=approved)).ok
    assert not (await tools.call("careful", approval="ap_2", approved=approved)).ok


async def test_what_a_server_is_told_and_says(tools: ToolboxSetup) -> None:
    outcome = await tools.call(arguments={"text": "hello"}, key="run.t1.s1")
    (received,) = tools.one.received
    assert received.arguments == {"text": "hello", "call_key": "run.t1.s1"}
    assert {k: v for k, v in received.meta.items() if k != "ai-session/client_call_id"} == {
        "ai-session/agent": "free",
        "ai-session/run": "r1",
    }
    assert received.meta["ai-session/client_call_id"].startswith("ccall_")
    assert (outcome.status, outcome.structured) == (CallStatus.OK, {"text": "hello", "call_key": "run.t1.s1"})
    assert outcome.call_id.startswith("call_")
    assert outcome.audit == {"seq": 2, "head": f"{2:064x}"}
    assert outcome.duration_seconds > 0
    assert CallOutcome.from_json(outcome.to_json()) == outcome


async def test_a_key_is_added_where_it_is_taken(tools: ToolboxSetup) -> None:
    await tools.call(arguments={"call_key": "mine"}, key="k")
    await tools.call(name="one.look", key="k")
    await tools.call()
    assert [received.arguments for received in tools.one.received] == [{"call_key": "mine"}, {}, {}]
    too_long = await tools.call(key="k" * 300)
    assert (too_long.code, "call_key: must match maxLength 200" in too_long.message) == ("invalid_arguments", True)


async def test_what_another_process_may_have_done_is_done_again_only_where_that_is_the_same(tmp_path: Path) -> None:
    tools = ToolboxSetup(tmp_path, [tool("same", idempotent=True)])
    once = await tools.call(name="one.a.b", claim="there", key="k")
    assert (once.status, once.code) == (CallStatus.LOST, "server_lost")
    for name in ("one.echo", "one.look", "one.same"):
        assert (await tools.call(name=name, claim="there", key="k")).ok
    assert (await tools.call(name="one.echo", claim="there")).status is CallStatus.LOST
    assert (await tools.call(name="one.a.b", claim="this one")).ok


async def test_arguments_are_checked_without_telling_them(tools: ToolboxSetup) -> None:
    outcome = await tools.call(arguments={"text": ["swordfish"]})
    assert (outcome.status, outcome.code) == (CallStatus.INVALID, "invalid_arguments")
    assert "$.text: must be string" in outcome.message
    unfit: list[Any] = [{"text": float("inf")}, {"x": b""}, {1: 2}, [], None, "text"]
    for arguments in unfit:
        assert (await tools.call(arguments=arguments)).code == "invalid_arguments"
    assert tools.one.received == []


async def test_a_schema_is_the_newest_one_and_a_bad_one_is_named(tools: ToolboxSetup) -> None:
    assert (await tools.call(arguments={"text": 5})).code == "invalid_arguments"
    tools.one.change(
        [tool("echo", properties={"text": {"type": "integer"}}), tool("bad", input_schema={"properties": 5})]
    )
    assert (await tools.call(arguments={"text": 5})).ok
    assert (await tools.call(name="one.bad", arguments={"text": 5})).ok
    assert list(tools.toolbox.problems()) == ["one.bad"]


Fails = Callable[[Received], Awaitable[ServerAnswer | Mapping[str, Any] | str]]


async def denied(_: Received) -> ServerAnswer:
    error = {"code": "policy_denied", "message": "not here", "suggestion": "elsewhere", "more": 1}
    return ServerAnswer("denied: not here", is_error=True, meta={"ai-session/error": error})


async def failed(_: Received) -> str:
    raise ToolFailed("it broke")


async def refuses(_: Received) -> str:
    raise UnknownTool("gone", suggestion="look again")


async def breaks(_: Received) -> str:
    raise KeyError("a fault of the client")


@pytest.mark.parametrize(
    ("run", "status", "code", "message"),
    [
        (denied, CallStatus.TOOL_ERROR, "policy_denied", "not here"),
        (failed, CallStatus.TOOL_ERROR, "", ""),
        (refuses, CallStatus.INVALID, "unknown_tool", "gone"),
        (breaks, CallStatus.LOST, "internal_error", "KeyError: 'a fault of the client'"),
    ],
)
async def test_what_a_call_came_to(tmp_path: Path, run: Fails, status: CallStatus, code: str, message: str) -> None:
    outcome = await ToolboxSetup(tmp_path, [tool("t", run)]).call(name="one.t")
    assert (outcome.status, outcome.code, outcome.message) == (status, code, message)
    assert not outcome.ok
    assert bool(outcome.call_id) == (status is CallStatus.TOOL_ERROR)


async def test_a_budget_or_an_approval_that_fails_sends_nothing(tools: ToolboxSetup) -> None:
    async def no_store(_: CallRequest) -> str:
        raise EngineUnavailable("the store is gone")

    def fault(_: CallRequest) -> bool:
        raise ZeroDivisionError

    first = await tools.call(budget=no_store)
    second = await tools.call("watched", approved=fault)
    assert (first.status, first.code) == (CallStatus.UNAVAILABLE, "engine_unavailable")
    assert (second.status, second.code) == (CallStatus.UNAVAILABLE, "internal_error")
    assert tools.one.received == []


async def test_a_call_that_waits_is_timed_out_lost_or_cancelled(tmp_path: Path) -> None:
    waiting = asyncio.Event()

    async def wait(call: Received) -> str:
        call.progress(1, 2, "waiting")
        waiting.set()
        return await asyncio.get_running_loop().create_future()

    tools = ToolboxSetup(tmp_path, [tool("wait", wait)])
    shown: list[tuple[float, float | None, str]] = []

    def progress(done: float, total: float | None, message: str) -> None:
        shown.append((done, total, message))

    late = await tools.call(name="one.wait", timeout_seconds=0.01, on_progress=progress)
    assert (late.status, late.code) == (CallStatus.TIMEOUT, "call_timed_out")
    assert shown == [(1, 2, "waiting")]

    waiting.clear()
    lost = asyncio.create_task(tools.call(name="one.wait"))
    await waiting.wait()
    tools.one.die("exited 9")
    assert (await lost).status is CallStatus.LOST
    assert "exited 9" in (await lost).message

    waiting.clear()
    cancelled = asyncio.create_task(tools.call(name="one.wait"))
    await waiting.wait()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert len(tools.one.given_up) == 2

    tools.one.down = "no such file"
    assert (await tools.call()).status is CallStatus.UNAVAILABLE


async def test_what_is_lost_with_its_server_is_sent_again_where_that_is_the_same_as_once(tmp_path: Path) -> None:
    deaths = 0

    async def die(call: Received) -> str:
        nonlocal deaths
        if deaths:
            deaths -= 1
            tools.one.die("exited 9")
            await asyncio.get_running_loop().create_future()
        return str(call.arguments.get("call_key"))

    async def pay(_: CallRequest) -> str:
        paid.append("call")
        return ""

    paid: list[str] = []
    tools = ToolboxSetup(
        tmp_path, [tool("die", die, properties=KEYED), tool("look2", die, read_only=True), tool("do", die)]
    )
    for name, key, times, status, sent in (
        ("die", "k", MOST_SENDS - 1, CallStatus.OK, MOST_SENDS),
        ("die", "k2", MOST_SENDS, CallStatus.LOST, MOST_SENDS),
        ("die", "", 1, CallStatus.LOST, 1),
        ("look2", "", 1, CallStatus.OK, 2),
        ("do", "k", 1, CallStatus.LOST, 1),
    ):
        deaths = times
        tools.one.received.clear()
        outcome = await tools.call(name=f"one.{name}", key=key, budget=pay)
        assert (outcome.status, len(tools.one.received)) == (status, sent), name
        assert len({received.meta["ai-session/client_call_id"] for received in tools.one.received}) == sent
    assert len(paid) == 5
    report = join(tools.where, tools.one.audit)
    assert (report.problems, report.calls, report.joined) == ([], 10, 10)


async def test_what_is_lost_stays_lost_where_the_server_does_not_come_back(tmp_path: Path) -> None:
    async def die(_: Received) -> str:
        tools.one.down = "no such file"
        tools.one.die("exited 9")
        return await asyncio.get_running_loop().create_future()

    tools = ToolboxSetup(tmp_path, [tool("die", die, properties=KEYED)])
    outcome = await tools.call(name="one.die", key="k")
    assert (outcome.status, outcome.code) == (CallStatus.LOST, "server_lost")


async def test_what_is_too_much_to_keep_is_left_out_and_said(tmp_path: Path) -> None:
    async def much(_: Received) -> ServerAnswer:
        other = [{"type": "image", "data": "…"}, {"type": "audio"}, {"type": "image"}]
        return ServerAnswer("x" * 3 * MOST_TEXT_CHARS, {"y": "y" * MOST_TEXT_CHARS}, other_content=other)

    outcome = await ToolboxSetup(tmp_path, [tool("much", much)]).call(name="one.much")
    assert (len(outcome.text), outcome.structured) == (MOST_TEXT_CHARS, None)
    assert outcome.message == (
        f"the answer had {3 * MOST_TEXT_CHARS} characters; only the first are kept; "
        "the structured answer is too long, and is not kept; not kept: audio, image"
    )


async def test_a_number_that_json_readers_do_not_take_is_not_handed_on(tmp_path: Path) -> None:
    async def much(_: Received) -> ServerAnswer:
        return ServerAnswer("1e999", {"n": [float("inf")]})

    outcome = await ToolboxSetup(tmp_path, [tool("much", much)]).call(name="one.much")
    assert (outcome.ok, outcome.text, outcome.structured) == (True, "1e999", None)
    assert outcome.message == "the structured answer has a number that is too large or not finite, and is not kept"


async def test_a_call_outside_any_run_names_none(tools: ToolboxSetup) -> None:
    assert (await invoke_tool(tools.toolbox, "free", "one.echo", {"text": "x"})).structured == {"text": "x"}
    assert (await invoke_tool(tools.toolbox, "watched", "one.echo", {})).code == "approval_needed"
    assert set(tools.one.received[0].meta) == {"ai-session/agent", "ai-session/client_call_id"}
