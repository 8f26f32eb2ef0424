"""Real agents run commands through the server, with a model in memory that does what a script says."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.ai_session.support.mcp_client import daemon_pids
from tests.ccswarm.support.model_servers import Asked, Behaviour, Call, ModelServer, Reply, asides, follow
from tests.clients.agents import Agent, ClaudeCode, Codex, GeminiCli, Seen
from tests.clients.node import SERVER, Person, program

RUN_SECONDS = 180.0
"""One prompt takes 3 to 8 s, and 100 s where thirty others want the same core."""

pytestmark = [pytest.mark.clients, pytest.mark.timeout(3 * RUN_SECONDS + 20)]

AGENTS: list[Agent] = [ClaudeCode(), Codex(), GeminiCli()]
TEXT = "žluť – 漢字 🎉"


def run(session: str, command: str, **arguments: object) -> Call:
    return Call("execute_command", {"session_id": session, "command": command, **arguments})


SCRIPT = [
    Call("create_session", {"name": "agent"}),
    run("agent", f"echo '{TEXT}'; (exit 3)"),
    run("agent", "seq 1 30000"),
    run("agent", "echo begun; sleep 1000", timeout_seconds=0),
    Call("read_output", {"session_id": "agent", "wait_for": "pattern", "pattern": "^begun"}),
    Call("interrupt_command", {"session_id": "agent"}),
    run("nowhere", "true"),
]


@pytest.fixture(params=AGENTS, ids=lambda agent: agent.name)
def agent(request: pytest.FixtureRequest) -> Agent:
    return request.param


SEARCH = "ToolSearch"
"""The tool with which a model of Claude Code's finds those that are not offered from the start."""


def doing(*calls: Call) -> ModelServer:
    """A model that makes these calls, one after the other, and then says what it saw last."""

    def decide(asked: Asked) -> Behaviour:
        seen = results(asked)
        if len(seen) == len(calls):
            return Reply(f"The last thing I saw: {seen[-1:]}")
        call = calls[len(seen)]
        if SEARCH in asked.tools and not any(name.endswith(call.tool) for name in asked.tools):
            return Reply(calls=[(SEARCH, {"query": call.tool.replace("_", " "), "max_results": 5})])
        return Reply(calls=[call])

    return ModelServer(asides(follow(decide)))


def results(asked: Asked) -> list[str]:
    """What the model has read of the calls so far."""
    return [result.text for result in asked.results if result.tool != SEARCH]


def turns(models: ModelServer) -> list[Asked]:
    """What it was asked, without what was asked aside."""
    return [asked for asked in models.asked if asked.tools]


def set_up(agent: Agent, home: Path, models: ModelServer) -> Person:
    """A person with that agent, who has done what the README says and has no daemon yet."""
    loopback = {"HTTP_PROXY": models.url, "HTTPS_PROXY": models.url, "NO_PROXY": "127.0.0.1"}
    loopback |= {name.lower(): value for name, value in loopback.items()}
    person = Person([], {**os.environ, **loopback, **agent.prepare(home, models.url)})
    installed = person.run(SERVER[0], "mcp", "install", "--client", agent.name)
    assert installed.returncode == 0, installed.stderr
    return person


def prompt(agent: Agent, person: Person, *flags: str) -> subprocess.CompletedProcess[str]:
    """Carries out one prompt in a project folder. Later flags win over the agent's own."""
    project = Path(person.environment["HOME"]) / "project"
    project.mkdir(exist_ok=True)
    command = [*program(agent.executable), *agent.arguments(), *flags]
    ran = person.run(*command, cwd=project, seconds=RUN_SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


def test_the_agent_lists_the_server(agent: Agent, home: Path) -> None:
    with doing() as models:
        listed = set_up(agent, home, models).run(*program(agent.executable), "mcp", "list")
    assert listed.returncode == 0, listed.stderr
    (line,) = [line for line in (listed.stdout + listed.stderr).splitlines() if "mcp-server" in line]
    assert "ai-session" in line
    assert agent.healthy in line


def test_the_model_reads_exact_results(agent: Agent, home: Path) -> None:
    with doing(*SCRIPT) as models:
        person = set_up(agent, home, models)
        assert daemon_pids() == []
        ran = prompt(agent, person)
    first = {agent.prefix + name for name in ("create_session", "execute_command", "read_output", "get_session_info")}
    assert first - set(turns(models)[0].tools) == set(), "offered from the start, though nothing of ours was running"
    created, spoken, long, running, begun, interrupted, missing = results(turns(models)[-1])
    assert "ready" in created
    assert agent.seen(spoken) == Seen(f"{TEXT}\n", 3)
    output = agent.seen(long).output
    assert output.startswith("1\n2\n")
    assert output.endswith("29999\n30000\n")
    assert "read_output(command_id=" in long
    assert "running" in running
    assert agent.seen(begun) == Seen("0:begun", None), "offset and line"
    assert agent.seen(interrupted).exit_code == 130
    assert "session_not_found" in missing
    assert "open sessions: 'agent'" in missing
    assert "The last thing I saw" in ran.stdout


def test_codex_knows_the_tools_in_its_first_turn(home: Path) -> None:
    """It waits about a second for its servers, then goes on without the tools and says nothing."""
    with doing(Call("list_sessions")) as models:
        person = set_up(Codex(), home, models)
        assert daemon_pids() == []
        prompt(Codex(), person)
    ours = [name for name in turns(models)[0].tools if name.startswith(Codex().prefix)]
    assert len(ours) == 10
    assert json.loads(results(turns(models)[1])[0].partition("Output:\n")[2])["sessions"] == []


def test_codex_in_a_sandbox_wants_commands_approved(home: Path) -> None:
    codex = Codex("workspace-write")
    approve = ["-c", 'mcp_servers.ai-session.default_tools_approval_mode="approve"']
    with doing(run("agent", "(exit 3)")) as models:
        person = set_up(codex, home, models)
        made = person.run(SERVER[0], "new", "agent", "--json")
        assert made.returncode == 0, made.stderr
        prompt(codex, person)
        prompt(codex, person, *approve)
    (refused,), (done,) = (seen for asked in turns(models) if (seen := results(asked)))
    assert "requires approval" in refused
    assert codex.seen(done).exit_code == 3


def test_a_session_is_handed_from_agent_to_agent(home: Path) -> None:
    commands = ["export tea=green", "tea=$tea-leaf", "echo $tea"]
    seen: list[Seen] = []
    for agent, command in zip(AGENTS, commands, strict=True):
        opening = [] if seen else [Call("create_session", {"name": "shared"})]
        with doing(*opening, run("shared", command)) as models:
            prompt(agent, set_up(agent, home, models))
        seen.append(agent.seen(results(turns(models)[-1])[-1]))
    assert seen == [Seen("", 0), Seen("", 0), Seen("green-leaf\n", 0)]
