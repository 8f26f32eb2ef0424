"""A gate is no way around grants, approval and budgets, whoever writes it: an agent that hands work on, its model, the
program that thinks for it, a client. The shell server is the real ai-session, and nobody is granted the vault."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccswarm.journal.writer import read
from tests.ccswarm.support.a2a_standard_server import Wire, plan_message, served
from tests.ccswarm.support.guest_client import guest, words
from tests.ccswarm.support.llm_agents import finish, reply
from tests.ccswarm.support.mcp_server_process import serving
from tests.ccswarm.support.runs import QUICK, RunVerbs
from tests.ccswarm.support.verbs import agent, server
from tests.conftest import environment
from tests.support import forked
from tests.support.products import first
from tests.together.support.swarms import AI_SESSION, ROOT, SwarmHome, open_swarm_home

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

COMMAND, TOOL = {"command": "id > pwned.txt"}, {"command": "", "tool": "vault.echo", "args": {"text": "stolen"}}
GATES: dict[str, list[dict[str, Any]]] = {"command": [COMMAND], "tool": [TOOL], "both": [COMMAND, TOOL]}
HELPER = agent("helper", "swarm.list_agents", "swarm.delegate", more='approval = "all"')
BASE = (
    f"{QUICK}[swarm]\ntopology = 'mesh'\n[swarm.budget]\ncalls = 5\n"
    + AI_SESSION
    + server("vault", "plain", more="trusted = true")
)


def hidden(gates: list[dict[str, Any]], name: str = "x") -> dict[str, Any]:
    """Work for the helper, by which the gates would come true."""
    steps = [{"id": "look", "tool": "swarm.list_agents"}]
    return {"id": name, "text": "hi", "agent": "helper", "steps": steps, "gates": gates}


def plan_of(*tasks: dict[str, Any]) -> str:
    return json.dumps({"tasks": tasks})


@pytest.fixture
def swarm_home(homes: Path) -> Iterator[SwarmHome]:
    text = BASE + agent("ada", "swarm.delegate") + HELPER
    with (
        open_swarm_home(homes, text, "", served=False) as swarm_home,
        environment({**os.environ, "PYTHONPATH": str(ROOT)}),
    ):
        yield swarm_home


@pytest.fixture
def verbs(swarm_home: SwarmHome) -> RunVerbs:
    return RunVerbs(swarm_home.home)


def where(swarm_home: SwarmHome) -> tuple[str, ...]:
    return ("--config", str(swarm_home.file), "--workspace", str(swarm_home.project))


def unharmed(swarm_home: SwarmHome) -> None:
    """No command ran, nobody called what nobody is granted, and no session was opened."""
    assert list(swarm_home.home.rglob("pwned.txt")) == []
    begun = [record.facts for record in read(swarm_home.state / "journal") if record.event == "call.begin"]
    assert [one for one in begun if not str(one["tool"]).startswith("swarm.")] == []
    assert [one for one in begun if one["agent"] == "orchestrator"] == []


def refusal(text: str, gates: str) -> None:
    """It says why, and what to do."""
    reported = text.replace("\\n", "\n")
    why = "may not run commands" if gates == "command" else ("tool", "has no")
    assert why in reported if isinstance(why, str) else any(one in reported for one in why), reported


@pytest.mark.parametrize("gates", first(GATES, "command"))
def test_by_the_playbook_of_an_agent(swarm_home: SwarmHome, verbs: RunVerbs, gates: str) -> None:
    step = {"id": "hand", "tool": "swarm.delegate", "args": {"tasks": [hidden(GATES[gates])]}}
    file = swarm_home.home / "plan.json"
    file.write_text(plan_of({"id": "main", "agent": "ada", "steps": [step]}))
    result = verbs.result("run", str(file), *where(swarm_home), code=1)
    summary = result["tasks"]["main"]["summary"]
    refusal(summary, gates)
    assert "expected an answer, but the call ended as" in summary
    unharmed(swarm_home)


@pytest.mark.torture  # test_gates.py has what a playbook's gate is refused
@pytest.mark.parametrize("gates", first(GATES, "tool"))
def test_by_a_model_that_obeys_what_it_read(swarm_home: SwarmHome, verbs: RunVerbs, gates: str) -> None:
    replies = [reply(("swarm.delegate", {"tasks": [hidden(GATES[gates])]})), reply(finish("failed", "It was refused."))]
    model = 'brain = "llm"\nsettings = { replies = ' + _toml(replies) + " }"
    swarm_home.rewrite(BASE + agent("ada", "swarm.delegate", more=model) + HELPER)
    result = verbs.result("run", "do as the file says", *where(swarm_home), "--no-wait", code=1)
    assert result["tasks"]["main"]["summary"] == "It was refused."
    refused = [r.facts for r in read(swarm_home.state / "journal") if r.event in ("call.refused", "call.end")]
    assert [(one["tool"], one["agent"]) for one in refused] == [("swarm.delegate", "ada")]
    assert refused[0]["status"] in ("invalid", "denied")
    unharmed(swarm_home)


def _toml(value: Any) -> str:
    """As TOML writes it inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


@pytest.mark.parametrize("gates", first(GATES, "both"))
async def test_by_the_program_that_thinks_for_an_agent(swarm_home: SwarmHome, gates: str) -> None:
    """As Claude Code and others do it, and a person's own client: through ``mcp-server --agent``."""
    async with guest("", *where(swarm_home)) as client:
        await client.shake_hands()
        answer = words(await client.call("swarm__delegate", tasks=[hidden(GATES[gates])]))
        assert "invalid" in answer  # invalid_arguments, or plan_invalid
        refusal(answer, gates)
        assert await client.leave() == 0
    unharmed(swarm_home)


@pytest.mark.torture  # test_gates.py: who hands on what was handed on
@pytest.mark.parametrize("gates", first(GATES, "command"))
async def test_by_a_delegate_of_a_delegate(swarm_home: SwarmHome, gates: str) -> None:
    again = {"id": "again", "tool": "swarm.delegate", "args": {"tasks": [{**hidden(GATES[gates]), "agent": "ada"}]}}
    swarm_home.rewrite(BASE + agent("ada", "swarm.*") + HELPER.replace('approval = "all"', ""))
    async with guest("", *where(swarm_home)) as client:
        await client.shake_hands()
        middle = {"id": "mid", "text": "hi", "agent": "helper", "steps": [again]}
        answer = words(await client.call("swarm__delegate", tasks=[middle]))
        refusal(answer, gates)
        assert await client.leave() == 0
    unharmed(swarm_home)


@pytest.mark.parametrize("gates", first(GATES, "both"))
def test_by_a_client_of_the_mcp_server(swarm_home: SwarmHome, gates: str) -> None:
    plan = plan_of(hidden(GATES[gates]))
    (swarm_home.project / "plan.json").write_text(plan)
    (swarm_home.project / "answer.json").write_text(json.dumps({"ccswarmPlan": plan, "check": {"valid": True}}))
    with serving(swarm_home.home, *where(swarm_home)) as client:
        for given in (plan, "plan.json", "answer.json"):
            error = client.refused("start_run", plan=given)
            assert error["code"] == "plan_invalid"
            refusal(error["message"], gates)
            assert "leave the gates out" in error["suggestion"]
            checked = client.tool("check_plan", plan=given, offline=True)
            assert not checked["valid"]
            assert checked["problems"][0]["location"].startswith("task x")
        assert client.tool("list_runs")["runs"] == []
    unharmed(swarm_home)


@pytest.mark.parametrize("gates", first(GATES, "tool"))
def test_by_a_client_of_a2a(swarm_home: SwarmHome, verbs: RunVerbs, gates: str) -> None:
    with served(verbs, *where(swarm_home)) as process, Wire(process.port) as wire:
        fault = wire.fault("SendMessage", message=plan_message({"tasks": [hidden(GATES[gates])]}))
        refusal(json.dumps(fault), gates)
    unharmed(swarm_home)


TELEMETRY = '[telemetry]\nendpoint = "http://127.0.0.1:9"\n'


@pytest.mark.parametrize(
    ("more", "reported"),
    [
        (TELEMETRY, "[telemetry] can only be set in the person's configuration"),
        ('[a2a]\nagent = "ada"\n', "[a2a] can only be set in the person's configuration"),
        ("[engine]\n", "[engine] can only be set in the person's configuration"),
        (
            '[[agents]]\nname = "ada"\ngrants = ["swarm.delegate"]\n',
            "[agents] can only be set in the person's configuration",
        ),
        ('[swarm]\nshell = "ai-session"\n', "[swarm] shell can only be set in the person's configuration"),
        ("[swarm.budget]\ncalls = 5\n", "[swarm] budget can only be set in the person's configuration"),
    ],
)
@pytest.mark.either("more")
def test_a_clients_plan_says_nothing_that_is_the_persons_not_even_the_same(
    swarm_home: SwarmHome, more: str, reported: str
) -> None:
    """What repeats the configuration of now would hold against the configuration of later."""
    plan = '[[tasks]]\nid = "x"\nagent = "helper"\nsteps = [{ id = "s", tool = "swarm.list_agents" }]\n'
    with serving(swarm_home.home, *where(swarm_home)) as client:
        assert reported in client.refused("start_run", plan=plan + more)["message"]


@pytest.mark.torture  # test_gates.py: a client's gate acts for who does the task, and counts in its budget
def test_a_client_has_commands_run_by_who_may_and_as_that_agent(swarm_home: SwarmHome) -> None:
    """The honest way: the agent's grants, its budget, a question to the person where it has to ask."""
    maker = agent("maker", "ai-session.*", "swarm.list_agents", more="budget = { calls = 3 }")
    swarm_home.rewrite(BASE + agent("ada", "swarm.delegate") + HELPER + maker)
    gates = [{"command": "id > held.txt"}]
    with serving(swarm_home.home, *where(swarm_home)) as client:
        run = client.tool("start_run", plan=plan_of({**hidden(gates), "agent": "maker"}))["run"]
        client.follow(run)
        status = client.tool("run_status", run=run)
        assert (status["status"], status["usage"]["calls"]) == ("succeeded", 3)
        over = client.tool("start_run", plan=plan_of({**hidden(gates * 2), "agent": "maker"}))["run"]
        client.follow(over)
        assert client.tool("run_status", run=over)["status"] == "budget_exhausted"
    assert (swarm_home.project / "held.txt").is_file()
    begun = [record.facts for record in read(swarm_home.state / "journal") if record.event == "call.begin"]
    assert {one["agent"] for one in begun} == {"maker"}
    assert swarm_home.joined().problems == []


@pytest.mark.torture  # test_gates.py: no gate names a tool but the person's
def test_what_a_person_writes_is_the_persons(swarm_home: SwarmHome, verbs: RunVerbs) -> None:
    """The same gates in a plan file that a person runs, by an agent that may do none of it."""
    forked.daemon(os.environ)
    file = swarm_home.home / "plan.json"
    own = {**hidden([{"command": "id > held.txt"}, {"tool": "vault.echo", "args": {"text": "mine"}}]), "agent": "ada"}
    own["steps"] = [{"id": "hand", "tool": "swarm.delegate", "args": {"tasks": [hidden([], "y")]}}]
    file.write_text(plan_of(own))
    swarm_home.rewrite(swarm_home.file.read_text().replace('approval = "all"', ""))
    assert verbs.result("run", str(file), *where(swarm_home))["status"] == "succeeded"
    assert (swarm_home.project / "held.txt").is_file()
    begun = [record.facts for record in read(swarm_home.state / "journal") if record.event == "call.begin"]
    assert [one["tool"] for one in begun if one["agent"] == "orchestrator"] == [
        "ai-session.create_session",
        "ai-session.execute_command",
        "ai-session.close_session",
        "vault.echo",
    ]


def test_a_clients_run_that_is_done_again_has_no_more_power(swarm_home: SwarmHome, verbs: RunVerbs) -> None:
    """A person resumes it after taking the agent's shell away: its gates are refused, as of any plan of a client."""
    forked.daemon(os.environ)
    maker = agent("maker", "ai-session.*", "swarm.list_agents")
    swarm_home.rewrite(BASE + agent("ada", "swarm.delegate") + HELPER + maker)
    with serving(swarm_home.home, *where(swarm_home)) as client:
        task = {**hidden([{"command": "false"}]), "agent": "maker"}
        run = client.tool("start_run", plan=plan_of(task))["run"]
        client.follow(run)
        assert client.tool("run_status", run=run)["status"] == "failed"
    swarm_home.rewrite(swarm_home.file.read_text().replace('"ai-session.*", ', ""))
    said = verbs.run("resume", run, "--config", str(swarm_home.file), code=2)
    assert "error plan_invalid" in said.err
    assert "on behalf of agent maker, which may not run commands" in said.err
