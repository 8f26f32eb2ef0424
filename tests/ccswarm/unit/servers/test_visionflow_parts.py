"""The parts of VisionFlow that need no server: who is picked, which plan comes of it, how long a connection stays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccswarm.config.settings import AgentSettings, Settings, Topology
from ccswarm.errors import ConfigInvalid, PlanInvalid, UsageInvalid
from ccswarm.plan.check import plan_problems
from ccswarm.runs import service
from ccswarm.servers._rate_limit import Rates
from ccswarm.servers.base import Admission
from ccswarm.servers.visionflow.errors import Fault
from ccswarm.servers.visionflow.first_lines import LineJoiner
from ccswarm.servers.visionflow.params import Param, checked
from ccswarm.servers.visionflow.plans import agent_of, choose, handle_of, links_of, plan_of
from ccswarm.servers.visionflow.plugin import VisionFlowConnection
from ccswarm.servers.visionflow.store import Assigned, Member, StoredSwarm
from ccswarm.servers.visionflow.swarms import Swarms
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio
IDLE_SECONDS = 0.2
STEPS = {"steps": [{"id": "say", "tool": "swarm.list_agents"}]}
TOPOLOGIES: list[Topology] = ["hierarchical", "mesh", "ring", "star"]


def kept(topology: Topology = "mesh", **more: Any) -> StoredSwarm:
    return StoredSwarm(
        id="swarm-1", topology=topology, most=10, directory="/", created=1, **{"strategy": "adaptive", **more}
    )


def member(name: str, kind: str = "coder", *capabilities: str) -> Member:
    return Member(
        id=f"agent-{name}", name=name, handle=name, type=kind, template=name, capabilities=[*capabilities], spawned=1
    )


def agents(*names: str, brain: str = "playbook") -> list[AgentSettings]:
    kinds = {"hub": "coordinator"}
    return [
        AgentSettings(name=name, type=kinds.get(name, "coder"), brain=brain, grants=("swarm.*",), settings=STEPS)
        for name in names
    ]


def needs(
    topology: Topology, *names: str, brain: str = "playbook", strategy: str = "parallel"
) -> dict[str, tuple[str, ...]]:
    plan = plan_of(Settings(), kept(topology), agents(*names, brain=brain), "go", strategy, "high")
    assert plan_problems(plan, None) == []
    assert {task.priority for task in plan.tasks} == {"high"}
    assert (plan.swarm.topology, plan.swarm.max_agents, plan.swarm.strategy) == (topology, len(names), strategy)
    return {task.id: task.needs for task in plan.tasks}


def test_the_order_of_the_work_is_that_of_the_topology() -> None:
    assert needs("mesh", "a", "b", "hub") == {"a": (), "b": (), "hub": ()}
    assert needs("mesh", "b", "a", strategy="sequential") == {"b": (), "a": ()}
    assert needs("ring", "b", "a", "c") == {"b": (), "a": ("b",), "c": ("a",)}
    for topology in ("star", "hierarchical"):
        assert needs(topology, "a", "hub", "b") == {"a": ("hub",), "hub": (), "b": ("hub",)}
        assert needs(topology, "a", "b") == {"a": (), "b": ("a",)}
        assert needs(topology, "a") == {"a": ()}
        thinking = needs(topology, "a", "hub", "b", brain="llm")
        assert thinking == {"a": ("hub",), "hub": (), "b": ("hub",), "collect": ("a", "b")}


def test_who_thinks_is_told_who_else_is_at_it_and_a_playbook_gets_the_words_alone() -> None:
    plan = plan_of(Settings(), kept("star"), agents("hub", "a", brain="llm"), "count ${HOME}", "parallel", "low")
    first, second, last = (task.text for task in plan.tasks)
    assert first.startswith("count ${HOME}\n\n(You are hub, one of 2 agents on this task: hub, a. You coordinate")
    assert "You are a, one of 2" in second
    assert "combine them" in last
    plan = plan_of(Settings(), kept("star"), agents("hub", "a"), "count ${HOME}", "parallel", "low")
    assert {task.text for task in plan.tasks} == {"count ${HOME}"}


def test_an_agent_is_the_configured_one_with_no_more_than_it_has() -> None:
    base = Settings(agents=(AgentSettings(name="ada", capabilities=("x", "y"), grants=("a.*",), approval="all"),))
    found = agent_of(base, member("ada", "coder", "y", "z"))
    assert (found.name, found.capabilities, found.grants, found.approval) == ("ada", ("y",), ("a.*",), "all")
    with pytest.raises(PlanInvalid, match="the configured agent bob, which no longer exists"):
        agent_of(base, member("bob"))


def test_steps_that_are_none_are_named() -> None:
    wrong = AgentSettings(name="ada", settings={"steps": [{"tool": "a.b"}]})
    with pytest.raises(ConfigInvalid, match=r"agent ada: settings\.steps\.0\.id: is missing"):
        plan_of(Settings(), kept(), [wrong], "go", "parallel", "low")


def test_a_task_in_words_goes_to_who_has_steps_of_its_own_for_it() -> None:
    plain, able = AgentSettings(name="bob"), agents("ada")[0]
    plan = service.with_task("go", Settings(agents=(plain, able)))
    (only,) = plan.tasks
    assert (only.agent, only.text, [step.id for step in only.steps]) == ("ada", "go", ["say"])
    with pytest.raises(UsageInvalid, match="all agents here only follow the steps"):
        service.with_task("go", Settings(agents=(plain,)))


def task(number: int, *members: str) -> Assigned:
    ids = [f"agent-{name}" for name in members]
    return Assigned(
        id=f"task-{number}", text="", strategy="parallel", priority="low", members=ids, runs=["run_1"], created=1
    )


def test_who_is_picked_depends_on_the_strategy_and_a_hub_is_always_there() -> None:
    a, b, c, hub = member("a"), member("b"), member("c", "analyst", "graphs"), member("hub", "coordinator")
    free = {one.id: 0 for one in (a, b, c, hub)}
    had = {f"task-{number}": task(number, "a") for number in range(3)}
    assert choose(kept(), [a, b, c], 5, "", free) == [a, b, c]
    assert choose(kept(), [a, b, c], 2, "", {**free, a.id: 1}) == [b, c]
    assert choose(kept(tasks=had), [a, b, c], 2, "", free) == [a, b]
    assert choose(kept(tasks=had, strategy="balanced"), [a, b, c], 2, "", free) == [b, c]
    assert choose(kept(strategy="specialized"), [a, b, c], 1, "Draw GRAPHS", free) == [c]
    assert choose(kept(strategy="specialized"), [a, b, c], 1, "an analyst's work", free) == [c]
    assert choose(kept("star"), [a, b, c, hub], 2, "", {**free, hub.id: 9}) == [a, hub]
    assert choose(kept("hierarchical"), [a, b, c, hub], 1, "", free) == [hub]


def test_whom_agents_are_told_to_reach_is_whom_they_may_write_to() -> None:
    three = [member("a"), member("b", "analyst"), member("hub", "coordinator")]
    ids = [one.id for one in three]
    assert links_of(kept("star"), three) == ({ids[0]: [ids[2]], ids[1]: [ids[2]], ids[2]: ids[:2]}, ids[2])
    assert links_of(kept("ring"), three) == ({ids[0]: [ids[1]], ids[1]: [ids[2]], ids[2]: [ids[0]]}, "")
    assert links_of(kept("star"), three[:1]) == ({ids[0]: []}, "")
    assert links_of(kept("star"), []) == ({}, "")


@given(st.lists(st.text(), max_size=12), st.sampled_from(TOPOLOGIES))
def test_any_names_make_a_sound_plan(names: list[str], topology: Topology) -> None:
    handles: list[str] = []
    for name in names:
        handles.append(handle_of(name, handles))
    assert len(set(handles)) == len(names)
    if handles:
        assert list(needs(topology, *handles)) == handles
        order = list(needs("ring", *handles).values())
        assert order == [(), *((before,) for before, _ in pairwise(handles))]


def test_invalid_parameters_are_reported_with_their_problem() -> None:
    params = {"kind": Param("string", required=True, choices=("a", "b")), "count": Param("integer", default=3)}
    assert checked(params, {"kind": "a", "count": None, "more": 1}, lambda _: ()) == {"kind": "a", "count": 3}
    assert checked(params, {"kind": "c"}, lambda _: ("a", "b", "c"))["kind"] == "c"
    with pytest.raises(Fault, match="Must be one of: a, b, c"):
        checked(params, {"kind": "d"}, lambda _: ("a", "b", "c"))
    with pytest.raises(Fault, match="Required"):
        checked(params, {"kind": None}, lambda _: ())


def test_an_address_has_as_many_requests_as_time_gives_it() -> None:
    rates = Rates(2.0)
    assert [rates.take("a", 0.0) for _ in range(5)] == [True] * 4 + [False]
    assert rates.take("b", 0.0)
    assert [rates.take("a", 1.0) for _ in range(3)] == [True, True, False]
    assert [rates.take("a", 100.0) for _ in range(5)] == [True] * 4 + [False]
    assert all(Rates(0).take("a", 0.0) for _ in range(1000))


class Patient:
    """Swarms in which nothing ends but when it is told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def terminate(self, agent_id: str) -> Member:
        self.asked.set()
        await self.go.wait()
        return member(agent_id)


@asynccontextmanager
async def talking(swarms: Patient) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await VisionFlowConnection(cast("Swarms", swarms), Rates(0), Admission(), reader, writer, IDLE_SECONDS).run()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, asyncio.timeout(BOUND_SECONDS):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            yield reader, writer
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def test_who_is_idle_is_let_go_and_who_is_busy_is_not() -> None:
    swarms, loop = Patient(), asyncio.get_running_loop()
    async with talking(swarms) as (reader, writer):
        params = {"agentId": "x"}
        line = {"jsonrpc": "2.0", "id": "1", "method": "agent_terminate", "params": params}
        writer.write(json.dumps(line).encode() + b"\n")
        await swarms.asked.wait()
        loop.call_later(3 * IDLE_SECONDS, swarms.go.set)  # longer than anybody may be idle
        assert json.loads(await reader.readline())["result"]["status"] == "terminated"
        began = loop.time()
        assert await reader.read() == b""
        assert loop.time() - began >= IDLE_SECONDS * 0.9


async def test_half_a_line_is_no_sign_of_life() -> None:
    async with talking(Patient()) as (reader, writer):
        writer.write(b'{"jsonrpc":')
        assert await reader.read() == b""


PRINTED = b"""{
  "jsonrpc": "2.0",
  "id": "3",
  "method": "task_orchestrate",
  "params": {
    "task": "a } brace, and \\"{\\"",
    "list": [
      1
    ]
  }
}"""


def test_a_message_that_is_printed_over_lines_is_one() -> None:
    spread = LineJoiner(1 << 20)
    joined = list(spread.joined(PRINTED.split(b"\n")))
    assert [json.loads(one)["id"] for one in joined if isinstance(one, bytes)] == ["3"]
    assert spread.rest() == []


def test_what_was_begun_costs_no_message_behind_it() -> None:
    spread, whole = LineJoiner(1 << 20), b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    assert list(spread.joined([b"{", b'  "id": 7,', whole])) == [b'{\n  "id": 7,', whole]
    assert list(spread.joined([b'{"id": 8', whole])) == [b'{"id": 8', whole]
    assert list(LineJoiner(20).joined([b"{", b'"a": "' + b"x" * 30])) == [b"{", b'"a": "' + b"x" * 30]
    assert list(spread.joined([b"{", b'"id": 9,'])) == []
    assert spread.rest() == [b'{\n"id": 9,']


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_message_comes_whole_out_of_its_lines(params: Any) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "x", "params": params}
    lines = json.dumps(message, indent=2, ensure_ascii=False).encode().split(b"\n")
    assert [json.loads(cast("bytes", one)) for one in LineJoiner(1 << 20).joined(lines)] == [message]
