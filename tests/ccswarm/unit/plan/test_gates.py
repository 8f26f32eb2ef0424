"""For whom gates act: the person's are the orchestrator's, all others are an agent's own commands."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ccswarm.models import Execution
from ccswarm.plan.origin import Author, Origin
from tests.ccswarm.support.cli_swarms import CliWorker
from tests.ccswarm.support.doubles import MemoryClient, Received, tool
from tests.ccswarm.support.engine_double import MemoryStore
from tests.ccswarm.support.guest_terminals import Terminals
from tests.ccswarm.support.llm_agents import ToolboxTaskWorker
from tests.ccswarm.support.swarms import MemoryWorker, settings, steps
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

CALLS = ("create_session", "execute_command", "close_session")
SHELL = [f"ai-session.{name}" for name in (*CALLS, "read_output")]
GATE = {"command": "make test"}
SCRIPTED = Path(__file__).parents[3] / "data/scripted_agent.py"


class Shell(MemoryWorker):
    """A shell server whose commands end with ``codes``, a vault nobody is granted, and a toolbox that judges."""

    def __init__(
        self,
        where: Path,
        codes: Iterable[int] = (),
        hang: bool = False,
        store: MemoryStore | None = None,
        process: str = "one",
    ) -> None:
        super().__init__(store, process)
        self.codes = iter(codes)
        self.hangs = asyncio.Event()

        async def execute(_: Received) -> Mapping[str, Any]:
            if hang:
                self.hangs.set()
                await asyncio.Event().wait()
            return {"status": "finished", "exit_code": next(self.codes, 0), "output": ""}

        async def done(_: Received) -> Mapping[str, Any]:
            return {"status": "ok"}

        names = ("create_session", "read_output", "close_session")
        keyed = {"call_key": {"type": "string"}}
        shell = [tool(name, done, properties=keyed) for name in names]
        shell.append(tool("execute_command", execute, properties=keyed))
        self.shell = MemoryClient("ai-session", shell)
        self.vault = MemoryClient("vault", [tool("ping", done)])
        self.files = MemoryClient("files", [tool("look", done, read_only=True)])
        self.task_worker = self.toolboxes = ToolboxTaskWorker(
            where, self.shell, self.vault, self.files, process=process
        )
        self.swarm = type(self.swarm)(self.engine, self.task_worker)

    def made(self) -> list[tuple[str, str]]:
        """Who called what at a server, in order."""
        return [(agent, name) for event, agent, name, _ in self.toolboxes.journalled() if event == "call.begin"]

    def by(self, agent: str) -> list[str]:
        return [name.partition(".")[2] for who, name in self.made() if who == agent and name.startswith("ai-session.")]


def agents(**more: Mapping[str, Any]) -> list[dict[str, Any]]:
    """cleo, who hands work on, and ada and bob, who do it; ``more`` is by name."""
    grants = {"cleo": ["swarm.*", *SHELL], "ada": ["files.*", "swarm.*"], "bob": ["files.*"]}
    kinds = {"cleo": "coordinator"}
    return [
        {"name": name, "type": kinds.get(name, "coder"), "grants": own, **more.get(name, {})}
        for name, own in grants.items()
    ]


def handed_on(*tasks: Mapping[str, Any], agent: str = "cleo", **more: Any) -> dict[str, Any]:
    """A plan in which an agent hands these on."""
    step = {"id": "hand", "tool": "swarm.delegate", "args": {"tasks": list(tasks)}}
    return {
        "swarm": {"topology": "mesh"},
        "agents": agents(),
        "tasks": [{"id": "main", "agent": agent, "steps": [step]}],
        **more,
    }


def part(*gates: Mapping[str, Any], name: str = "x", agent: str = "bob", **more: Any) -> dict[str, Any]:
    """Work for another agent, with these gates."""
    own = {"id": name, "text": "hi", "agent": agent, "steps": steps("look", tool="files.look"), **more}
    return {**own, "gates": list(gates)} if gates else own


def summary(run: Execution) -> str:
    return str(run.result["tasks"]["main"]["summary"])


async def test_a_gate_of_a_delegation_acts_for_who_hands_the_work_on(tmp_path: Path) -> None:
    worker = Shell(tmp_path, codes=[1, 0])
    run = await worker.run(handed_on(part(GATE, rounds=2)))
    assert run.result["status"] == "succeeded", run.result
    assert worker.by("cleo") == [*CALLS, *CALLS]
    assert worker.by("orchestrator") == worker.by("bob") == []
    (one, *_) = [received for received in worker.shell.received if received.tool == "execute_command"]
    assert one.meta["ai-session/agent"] == "cleo"
    assert one.arguments["command"] == "make test"
    assert run.result["usage"]["calls"] == 1 + 2 + 2 * 2, "handed on, looked twice, and each gate opened and run"


async def test_the_agent_whose_work_a_gate_checks_cannot_know_the_name_of_its_session(tmp_path: Path) -> None:
    team = agents(bob={"grants": ["files.*", "ai-session.*"]})
    names: set[str] = set()
    for number in range(2):
        worker = Shell(tmp_path / str(number))
        plan = {"agents": team, "tasks": [{**part(GATE), "id": "main"}]}
        run = await worker.run(plan, origin=Origin.CLIENT)
        assert (run.result["status"], worker.by("bob")) == ("succeeded", list(CALLS))
        opened, ran, closed = (received.arguments for received in worker.shell.received)
        assert opened["name"] == ran["session_id"] == closed["session_id"]
        names.add(opened["name"])
    assert len(names) == 2


@pytest.mark.parametrize("where", ["delegation", "client"])
async def test_a_gate_without_the_grants_is_refused_before_anything_runs(tmp_path: Path, where: str) -> None:
    worker = Shell(tmp_path)
    if where == "delegation":
        team = agents(cleo={"grants": ["swarm.delegate"]}, bob={"grants": ["files.*", "ai-session.*"]})
        run = await worker.run({**handed_on(part(GATE)), "agents": team})
    else:
        run = await worker.run({"agents": agents(), "tasks": [{**part(GATE), "id": "main"}]}, origin=Origin.CLIENT)
    assert run.result["status"] == "failed"
    assert "may not run commands" in summary(run)
    assert "ai-session.execute_command" in summary(run)
    assert [name for _, name in worker.made() if not name.startswith("swarm.")] == []
    assert worker.shell.received == []


@pytest.mark.parametrize(
    "gate", [{"command": "", "tool": "vault.ping"}, {"tool": "vault.ping", "args": {"n": "stolen"}}]
)
async def test_no_gate_names_a_tool_but_the_persons(tmp_path: Path, gate: Mapping[str, Any]) -> None:
    worker = Shell(tmp_path)
    everything = agents(cleo={"grants": ["*"]}, bob={"grants": ["*"]})
    handed = await worker.run({**handed_on(part(GATE, gate)), "agents": everything})
    assert "may not be set by a delegation" in summary(handed) or "has no 'tool'" in summary(handed)
    own = {"agents": everything, "tasks": [{**part(gate), "id": "main"}]}
    for number, origin in enumerate((Origin.CLIENT, Origin.SERVER)):
        asked = await worker.run(own, f"run_{number + 2}", origin=origin)
        assert "only the person's configuration and plan files may use a tool" in summary(asked)
    assert worker.vault.received == []
    persons = await worker.run(own, "run_4", origin=Origin.PERSON)
    assert persons.result["status"] == "succeeded"
    assert [received.meta["ai-session/agent"] for received in worker.vault.received] == ["orchestrator"]


async def test_a_clients_gate_acts_for_who_does_the_task(tmp_path: Path) -> None:
    worker = Shell(tmp_path)
    team = agents(bob={"grants": ["files.*", "ai-session.*"]})
    plan = {"agents": team, "tasks": [{**part(GATE), "id": "main"}]}
    run = await worker.run(plan, origin=Origin.CLIENT)
    assert run.result["status"] == "succeeded", run.result
    assert worker.by("bob") == [*CALLS]
    assert run.result["usage"]["calls"] == 3
    persons = await worker.run(plan, "run_2")
    assert persons.result["usage"]["calls"] == 1
    assert worker.by("orchestrator") == [*CALLS]


async def test_gates_count_in_the_budgets_of_whom_they_act_for(tmp_path: Path) -> None:
    for number, (budgets, scope) in enumerate(
        (({"agents": agents(cleo={"budget": {"calls": 2}})}, "agent"), ({"swarm": {"budget": {"calls": 3}}}, "run"))
    ):
        worker = Shell(tmp_path / str(number))
        given = handed_on(part(GATE))
        given["swarm"] |= budgets.get("swarm", {})
        run = await worker.run({**given, **{key: one for key, one in budgets.items() if key != "swarm"}})
        inner = await worker.engine.status("run_1.main.hand.x")
        assert (inner.result["status"], inner.result["scope"]) == ("budget_exhausted", scope)
        assert "calls are used up, before gate1.0.run" in inner.result["summary"]
        assert worker.by("cleo") == ["create_session", "close_session"], "what was opened is closed all the same"
        assert run.result["status"] in ("failed", "budget_exhausted")
        assert run.result["usage"]["calls"] == 3


async def test_a_person_is_asked_once_for_each_gate_and_shown_its_command(tmp_path: Path) -> None:
    worker = Shell(tmp_path)
    team = agents(bob={"grants": ["files.*", "ai-session.*"], "approval": "all"})
    gates = [{"command": "make test"}, {"command": "make lint"}]
    plan = {"agents": team, "tasks": [{**part(*gates), "id": "main", "rounds": 1}]}
    asked: list[Mapping[str, Any]] = []
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(settings(plan), "run_1", "/project")
        for _ in range(3):
            while not (open_ := [one for one in await worker.swarm.approvals() if "answer" not in one]):
                await worker.engine.store.change()
            assert len(open_) == 1
            asked += open_
            await worker.swarm.answer(open_[0]["id"], approved=True, by="me")
        run = await worker.engine.wait("run_1")
    assert run.result["status"] == "succeeded", run.result
    assert [(one["agent"], one["tool"]) for one in asked] == [
        ("bob", "files.look"),
        ("bob", "ai-session.execute_command"),
        ("bob", "ai-session.execute_command"),
    ]
    assert [one["arguments"] for one in asked[1:]] == [
        {"command": "make test", "working_directory": "/project"},
        {"command": "make lint", "working_directory": "/project"},
    ]
    assert worker.by("bob") == [*CALLS, *CALLS]


async def test_a_gate_that_a_person_refuses_does_not_hold_and_nothing_of_it_runs(tmp_path: Path) -> None:
    worker = Shell(tmp_path)
    given = handed_on(part(GATE), agents=agents(cleo={"approval": "destructive"}))
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(settings(given), "run_1", "/project", origin=Origin.PERSON)
        for agreed in (True, False):  # to the handing on, and not to the gate
            while not (asked := [one for one in await worker.swarm.approvals() if "answer" not in one]):
                await worker.engine.store.change()
            await worker.swarm.answer(asked[0]["id"], approved=agreed, by="me", reason="not that")
        await worker.engine.wait("run_1")
    inner = await worker.engine.status("run_1.main.hand.x")
    reported = "gate `make test`: rejected: a person rejected ai-session.execute_command: not that"
    assert (inner.result["status"], inner.result["summary"]) == ("failed", reported)
    assert worker.shell.received == []


async def test_who_hands_on_what_was_handed_on_gains_nothing(tmp_path: Path) -> None:
    """ada may hand work on and runs no commands; cleo, who may, has her do it, and ada has cleo do something."""
    worker = Shell(tmp_path)

    def nested(*gates: Mapping[str, Any], who: str) -> dict[str, Any]:
        again = {"id": "again", "tool": "swarm.delegate", "args": {"tasks": [part(*gates, name="deep", agent=who)]}}
        return handed_on(part(name="mid", agent="ada", steps=[again]))

    for number, plan in enumerate((nested(GATE, who="bob"), nested(GATE, who="cleo"), nested(who="bob"))):
        run = await worker.run(plan, f"run_{number}")
        inner = await worker.engine.status(f"run_{number}.main.hand.mid")
        if number < 2:
            assert run.result["status"] == "failed"
            assert "on behalf of agent ada, which may not run commands" in inner.result["summary"]
        else:
            assert run.result["status"] == "succeeded", run.result
    assert worker.shell.received == []


async def test_steps_that_are_handed_on_use_the_tools_of_who_does_them(tmp_path: Path) -> None:
    worker = Shell(tmp_path)
    team = agents(cleo={"grants": ["*"]})
    for number, wanted in enumerate(("vault.ping", "ai-session.execute_command")):
        plan = handed_on(part(steps=steps("s", tool=wanted)), agents=team)
        run = await worker.run(plan, f"run_{number}")
        assert run.result["status"] == "failed"
        assert f"agent bob has no grant for {wanted}" in summary(run)
    assert worker.vault.received == worker.shell.received == []


async def test_a_task_that_is_stopped_while_its_gate_runs_is_not_done_again(tmp_path: Path) -> None:
    worker = Shell(tmp_path, hang=True)
    plan = handed_on(part(GATE, rounds=3))
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(settings(plan), "run_1", "/project", origin=Origin.PERSON)
        await worker.hangs.wait()
        await worker.swarm.call_off("run_1", "enough")
        await worker.engine.wait("run_1")
    inner = await worker.engine.status("run_1.main.hand.x")
    assert (inner.result["status"], inner.result["summary"]) == ("failed", "stopped: enough")
    assert worker.by("cleo") == [*CALLS]


async def test_a_gate_goes_on_where_another_process_was_killed(tmp_path: Path) -> None:
    """With the answer of the person, who is not asked again."""
    one = Shell(tmp_path, hang=True)
    team = agents(bob={"grants": ["files.*", "ai-session.*"], "approval": "all"})
    plan = {"agents": team, "tasks": [{**part(GATE), "id": "main"}]}
    async with one.working(), asyncio.timeout(BOUND_SECONDS):
        await one.swarm.submit(settings(plan), "run_1", "/project")
        for _ in range(2):
            while not (asked := [each for each in await one.swarm.approvals() if "answer" not in each]):
                await one.engine.store.change()
            await one.swarm.answer(asked[0]["id"], approved=True, by="me")
        await one.hangs.wait()
        one.engine.kill()
    other = Shell(tmp_path, store=one.engine.store, process="two")
    async with other.working("other"), asyncio.timeout(BOUND_SECONDS):
        await other.engine.recover("worker")
        run = await other.engine.wait("run_1")
    assert run.result["status"] == "succeeded", run.result
    assert [received.tool for received in other.shell.received] == [*CALLS[1:]]


async def test_a_program_that_hands_work_on_gains_nothing(home: Path) -> None:
    """As above, by the program that thinks for an agent: it is told, and nothing is handed on."""
    terminals = Terminals()
    cli = CliWorker(home, terminals)
    cli.worker.task_worker.own.add("swarm.delegate")
    tasks = [part(GATE), part({"command": "", "tool": "vault.ping"}), part(GATE, review={"by": ["ada"]})]
    calls = [f"call:swarm__delegate:{json.dumps({'tasks': [one]})}" for one in tasks]
    words = [sys.executable, str(SCRIPTED), "{mcp_config}", *calls, "finish:succeeded:it was refused"]
    brain = {"brain": "cli", "settings": {"program": "scripted", "command": words}}
    team = agents(cleo={**brain, "grants": ["swarm.delegate"]})
    main = {"id": "main", "text": "hand it on", "agent": "cleo"}
    try:
        task = await cli.run({"swarm": {"topology": "mesh"}, "agents": team, "tasks": [main]})
    finally:
        await terminals.close()
    assert (task["status"], task["summary"]) == ("succeeded", "it was refused")
    by_agents = [call for call in cli.worker.task_worker.calls if call.agent != "orchestrator"]
    assert [(call.agent, call.tool) for call in by_agents] == [("cleo", "swarm.delegate")] * 3
    assert await cli.events("work.handed_on") == []


def test_what_nobody_says_the_origin_of_has_the_least_power() -> None:
    assert Author.of({}) == Author(Origin.CLIENT)
    assert Author(Origin.CLIENT).gates_act_for("bob") == Author(Origin.SERVER).gates_act_for("bob") == "bob"
    assert Author(Origin.AGENT, "cleo").gates_act_for("bob") == "cleo"
    assert Author(Origin.AGENT).gates_act_for("bob") == "bob"
    assert Author(Origin.PERSON).gates_act_for("bob") == ""
    for author in (Author(Origin.AGENT, "cleo"), Author(Origin.PERSON)):
        assert Author.of({"author": author.to_json()}) == author
