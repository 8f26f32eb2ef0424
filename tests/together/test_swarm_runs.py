"""Whole runs of ccswarm with the real ai-session: who submits, executes, answers and serves are processes apart."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from ccswarm.clients.mcp.plugin import McpToolClient
from ccswarm.journal.writer import Journal, verify
from ccswarm.models import Execution, RunStatus
from ccswarm.plan.origin import Origin
from ccswarm.runs.app import new_run_id
from ccswarm.toolbox.toolbox import Toolbox
from tests.ai_session.support.asking import person
from tests.conftest import UNBOXED
from tests.together.support.swarms import AI_SESSION, DATA, QUICK, SwarmHome, event, git, open_swarm_home, over, submit

pytestmark = pytest.mark.anyio

CREW = """
[[agents]]
name = "maker"
workspace = "clone"
grants = ["ai-session.*"]

[[agents]]
name = "reader"
grants = ["ai-session.create_session", "ai-session.execute_command", "ai-session.close_session"]

[[agents]]
name = "careful"
approval = "all"
grants = ["ai-session.*"]

[[agents]]
name = "outsider"
grants = ["ai-session.read_*", "ai-session.list_sessions"]
"""
OPEN = """
[[tasks.steps]]
id = "open"
tool = "ai-session.create_session"
args = { name = "${run.id}-${task.id}", working_directory = "${workspace}" }
gate = true
"""
CLOSE = """
[[tasks.steps]]
id = "close"
tool = "ai-session.close_session"
args = { session_id = "${steps.open.session_id}" }
"""


def command(name: str, text: str, more: str = "") -> str:
    return f"""
[[tasks.steps]]
id = "{name}"
tool = "ai-session.execute_command"
args = {{ session_id = "${{steps.open.session_id}}", command = '''{text}''' }}
{more}
"""


MAKE = (
    """
[[tasks]]
id = "make"
text = "write made.txt"
agent = "maker"
gates = [{ command = "grep -x 42 made.txt" }, { tool = "ai-session.list_sessions" }]
"""
    + OPEN
    + command("write", "echo $((6 * 7)) > made.txt; pwd")
    + command("commit", "git add made.txt; git -c user.name=M -c user.email=m@m commit -qm Made; echo more > more.txt")
    + command("leave", "date >> beat.txt; (while sleep 0.1; do date >> beat.txt; done) & disown; echo left")
)
BELOW = (
    """
[[tasks]]
id = "below"
text = "work in a part of a repository"
agent = "maker"
gates = [{ command = "test -e made.txt && git log -1 --format=%s | grep -x Made" }]
"""
    + OPEN
    + command("look", "pwd; git rev-parse --show-prefix")
    + command("commit", "touch made.txt; git add made.txt; git -c user.name=M -c user.email=m@m commit -qm Made")
    + command("leave", "touch ../../../escaped; true")
    + CLOSE
    + """
[[tasks.steps]]
id = "named"
tool = "ai-session.create_session"
args = { name = "${run.id}-named" }
"""
)
READ = (
    """
[[tasks]]
id = "read"
agent = "reader"
needs = ["make"]
"""
    + OPEN
    + command(
        "see", "cat made.txt more.txt; echo ${q:needs.make.steps.write.exit_code}", 'expect = { contains = "42" }'
    )
    + CLOSE
)
ASK = """
[[tasks]]
id = "ask"
agent = "careful"

[[tasks.steps]]
id = "open"
tool = "ai-session.create_session"
args = { name = "${run.id}-ask" }
"""
SNEAK = """
[[tasks]]
id = "sneak"
agent = "outsider"

[[tasks.steps]]
id = "force"
tool = "ai-session.execute_command"
args = { session_id = "any", command = "touch sneaked" }

[[tasks]]
id = "look"
agent = "outsider"

[[tasks.steps]]
id = "look"
tool = "ai-session.list_sessions"
"""


def server(name: str, script: str, more: str = "") -> str:
    command = f"{sys.executable} {DATA}/swarm_servers/{script}"
    return f'[[mcp.servers]]\nname = "{name}"\ncommand = "{command}"\n{more}\n'


def single(name: str, tool: str, more: str = "") -> str:
    """A task of one call."""
    return f'[[tasks]]\nid = "{name}"\n[[tasks.steps]]\nid = "call"\ntool = "{tool}"\n{more}\n'


BAD_SERVERS = (
    server("mute", "no_server.py mute", "connect_seconds = 1")
    + server("crash", "no_server.py crash")
    + server("banner", "no_server.py banner")
    + server("dies", "plain.py")
    + server("big", "plain.py")
    + server("many", "strange_lists.py many")
    + server("bad", "strange_lists.py bad")
    + "".join(f'[[agents]]\nname = "a{number}"\ngrants = ["*"]\n' for number in range(3))
)
BAD_TASKS = (
    single("mute", "mute.hello")
    + single("crash", "crash.hello")
    + single("banner", "banner.hello", 'expect = { contains = "hello" }')
    + single("dies", "dies.die", 'args = { code = 3, words = "out of luck" }\nretry = { times = 1, seconds = 0 }')
    + single("big", "big.big", "args = { size = 50_000_000 }")
    + single("many", "many.tool_299", 'expect = { contains = "tool_299" }')
    + single("bad", "bad.also_good", 'expect = { contains = "also_good" }')
    + single("refers", "bad.net_reference")
    + '[[tasks]]\nid = "good"\nneeds = ["banner", "many", "bad"]\n'
    + OPEN
    + command("see", "echo $((6 * 7))", 'expect = { contains = "42" }')
    + CLOSE
)


@pytest.fixture
def swarm_home(homes: Path) -> Iterator[SwarmHome]:
    """As it is where ai-session is not configured: every session is in a box."""
    with open_swarm_home(homes, AI_SESSION + QUICK + CREW, "") as swarm_home:
        yield swarm_home


def statuses(run: Execution) -> dict[str, str]:
    return {name: task["status"] for name, task in run.result["tasks"].items()}


async def test_three_agents_work_and_every_call_stands_in_both_logs(swarm_home: SwarmHome) -> None:
    (swarm_home.project / "README").write_text("A project.\n")
    git(swarm_home.project, "init", "-q", "-b", "main")
    git(swarm_home.project, "add", ".")
    git(swarm_home.project, "commit", "-qm", "Begin")
    git(swarm_home.project, "config", "user.name", "Host")
    git(swarm_home.project, "config", "user.email", "h@h")
    async with swarm_home.client() as app, swarm_home.worker():
        run_id = await submit(app, swarm_home.plan(MAKE + READ + ASK), swarm_home)
        asked = await event(app, f"{run_id}.ask", "approval.asked")
        (question,) = await asyncio.to_thread(swarm_home.answer, "yes", "ann")
        assert (question["id"], question["tool"]) == (asked["id"], "ai-session.create_session")
        answered = await event(app, f"{run_id}.ask", "approval.answered")
        assert (answered["approved"], answered["by"]) == (True, "ann")
        run = await over(app, run_id)
        merge = await event(app, f"{run_id}.make", "merge")
    assert (run.status, statuses(run)) == (RunStatus.SUCCEEDED, dict.fromkeys(("make", "read", "ask"), "succeeded"))
    tasks = run.result["tasks"]
    assert tasks["read"]["result"]["steps"]["see"]["output"] == "42\nmore\n0\n"
    clone = tasks["make"]["result"]["steps"]["write"]["output"].strip()
    assert Path(clone).is_relative_to(swarm_home.state / "workspaces" / run_id)
    assert merge["commits"] == 2
    assert not Path(clone).exists(), "its work is merged"
    assert git(swarm_home.project, "show", "HEAD:beat.txt") == (swarm_home.project / "beat.txt").read_text().strip()
    assert git(swarm_home.project, "log", "--topo-order", "--format=%s", "--no-merges").splitlines() == [
        "make: write made.txt",
        "Made",
        "Begin",
    ]
    report = swarm_home.joined()
    assert (report.problems, report.open, report.in_progress) == ([], [], [])
    calls = 4 + 2 + (3 + 1) + 1  # make, what ends its terminals, its gates, and those of their copy
    calls += 3 + (1 + 2)  # read and ask, and what ends what ask left open
    assert (report.calls, report.joined, report.refused) == (calls, calls, 1)
    assert {record.facts["agent"] for record in swarm_home.records() if "agent" in record.facts} == {
        "maker",
        "reader",
        "careful",
        "orchestrator",
        "cleaner",
    }
    assert verify(swarm_home.state / "journal").sound


@pytest.mark.torture  # test_workspaces.py: in a part of a repository
async def test_git_works_where_the_workspace_is_a_directory_of_a_repository(swarm_home: SwarmHome) -> None:
    """In boxes, of agents and gates; whose terminal names no directory begins there, too."""
    below = swarm_home.project / "parts/one"
    below.mkdir(parents=True)
    (below / "README").write_text("A part.\n")
    git(swarm_home.project, "init", "-q", "-b", "main")
    git(swarm_home.project, "config", "user.name", "Host")
    git(swarm_home.project, "config", "user.email", "h@h")
    git(swarm_home.project, "add", ".")
    git(swarm_home.project, "commit", "-qm", "Begin")
    async with swarm_home.client() as app, swarm_home.worker():
        run_id = new_run_id()
        await app.swarm.submit(swarm_home.plan(BELOW), run_id, str(below), origin=Origin.PERSON)
        run = await over(app, run_id)
    clone = swarm_home.state / "workspaces" / run_id / "below.1"
    below_clone = clone / "parts/one"
    task = run.result["tasks"]["below"]
    assert task["status"] == "succeeded", task
    assert task["result"]["steps"]["look"]["output"] == f"{below_clone}\nparts/one/\n"
    assert task["result"]["steps"]["named"]["working_directory"] == str(below_clone)
    assert (below / "made.txt").exists()
    assert not (clone.parent / "escaped").exists()


@pytest.mark.torture  # test_cli_programs.py, test_cli_run.py
async def test_what_is_not_granted_or_not_agreed_to_is_not_done_and_is_on_record(swarm_home: SwarmHome) -> None:
    problem = "task sneak: step force: agent outsider has no grant for ai-session.execute_command"
    async with swarm_home.client() as app, swarm_home.worker():
        run_id = await submit(app, swarm_home.plan(SNEAK + ASK, problem), swarm_home)
        await event(app, f"{run_id}.ask", "approval.asked")
        assert len(await asyncio.to_thread(swarm_home.answer, "no", "bob")) == 1
        run = await over(app, run_id)
    assert statuses(run) == {"sneak": "failed", "look": "succeeded", "ask": "failed"}
    assert "agent outsider may not use ai-session.execute_command" in run.result["tasks"]["sneak"]["summary"]
    assert "bob said no" in run.result["tasks"]["ask"]["summary"]
    refused = [record.facts for record in swarm_home.records() if record.event == "call.refused"]
    assert {(facts["agent"], facts["code"], facts["status"]) for facts in refused} == {
        ("outsider", "not_granted", "denied"),
        ("careful", "approval_needed", "denied"),
    }
    report = swarm_home.joined()
    assert (report.problems, report.calls, report.joined, report.refused) == ([], 1, 1, 2)


async def test_an_agent_sees_no_tool_that_it_is_not_granted(swarm_home: SwarmHome) -> None:
    agents = {agent.name: agent for agent in swarm_home.settings.agents}
    (server,) = swarm_home.settings.mcp.servers
    client = McpToolClient(server, env=os.environ, era_cache={})
    journal = Journal(swarm_home.home / "other", "w")
    try:
        tools = Toolbox({"ai-session": client}, agents, journal)
        seen = [tool.name for tool in await tools.discover_tools("outsider")]
        assert sorted(seen) == ["list_sessions", "read_output", "read_screen"]
        assert len(await tools.discover_tools("maker")) > 8
    finally:
        await client.close()
        journal.close()


@pytest.mark.torture
async def test_bad_servers_among_good_ones_cost_only_their_own_tasks(homes: Path) -> None:
    with open_swarm_home(homes, AI_SESSION + QUICK + BAD_SERVERS, "") as swarm_home:
        async with swarm_home.client() as app, swarm_home.worker():
            run = await over(app, await submit(app, swarm_home.plan(BAD_TASKS), swarm_home))
        report = swarm_home.joined()
    assert run.result["status"] == "failed"
    assert {name for name, status in statuses(run).items() if status == "succeeded"} == {
        "banner",
        "big",
        "many",
        "bad",
        "good",
    }
    said = {name: task["summary"] for name, task in run.result["tasks"].items()}
    assert "server mute did not answer within 1 s. Its last output:\nthinking" in said["mute"]
    assert "no licence found" in said["crash"]
    assert "ended with exit code 3. Its last output:\nout of luck) (tried 2 times)" in said["dies"]
    assert "server bad has no tool 'net_reference'" in said["refers"]
    big = run.result["tasks"]["big"]["result"]["steps"]["call"]
    assert len(str(big)) < 10_000
    assert (report.problems, report.joined) == ([], 3)


STEPS = ("one", "two", "three", "four")
HELD = "".join(
    f'[[tasks]]\nid = "{name}"\nagent = "reader"\n' + (f'needs = ["{need}"]\n' if need else "") + OPEN + work + CLOSE
    for name, need, work in (
        ("first", "", "".join(command(step, f"echo first {step} >> lines") for step in STEPS)),
        (
            "second",
            "first",
            command("held", "echo second held >> lines; cat pipe") + command("after", "echo second after >> lines"),
        ),
        ("third", "second", "".join(command(step, f"echo third {step} >> lines") for step in STEPS)),
    )
)


@pytest.mark.torture  # contract/test_engine_takeover.py has it without terminals
async def test_a_second_worker_finishes_what_a_killed_one_began_with_every_effect_once(swarm_home: SwarmHome) -> None:
    os.mkfifo(swarm_home.project / "pipe")
    async with swarm_home.client() as app:
        async with swarm_home.worker() as first:
            run_id = await submit(app, swarm_home.plan(HELD), swarm_home)
            pipe = await asyncio.to_thread(open, swarm_home.project / "pipe", "w")
            first.kill()
        async with swarm_home.worker():
            await asyncio.to_thread(write, pipe)
            run = await over(app, run_id)
    assert statuses(run) == dict.fromkeys(("first", "second", "third"), "succeeded")
    expected = [f"first {step}" for step in STEPS] + ["second held", "second after"]
    assert swarm_home.lines("lines") == expected + [f"third {step}" for step in STEPS]
    assert run.result["tasks"]["second"]["result"]["steps"]["held"]["output"] == "go on\n"
    report = swarm_home.joined()
    assert (report.problems, len(report.open), report.joined) == ([], 1, report.calls)
    workers = {record.worker for record in swarm_home.records() if record.event == "call.begin"}
    assert len(workers) == 2


def write(pipe: TextIO) -> None:
    pipe.write("go on\n")
    pipe.close()


RULE = UNBOXED + '\n[[policy.rules]]\nid = "dates"\ndecision = "ask"\ncommands = ["date"]\n'


@pytest.mark.torture
async def test_what_ai_session_asks_itself_is_on_the_list_and_is_answered_there(homes: Path) -> None:
    plan = '[[tasks]]\nid = "tell"\n' + OPEN + command("date", "date +%Y") + CLOSE
    agent = '[[agents]]\nname = "ada"\ngrants = ["ai-session.*"]\n'
    with open_swarm_home(homes, AI_SESSION + QUICK + agent, RULE) as swarm_home:
        async with swarm_home.client() as app, swarm_home.worker():
            run = await submit(app, swarm_home.plan(plan), swarm_home)
            await event(app, f"{run}.tell", "approval.asked")
            (question,) = await app.swarm.approvals()
            typed = question["answer_with"].split()
            await asyncio.to_thread(person, swarm_home.home, *typed[1:])
            done = await over(app, run)
        assert done.result["status"] == RunStatus.SUCCEEDED
        made = [one.facts for one in swarm_home.records() if one.event == "call.end" and one.facts["step"] == "date"]
        assert [one["code"] for one in made[:-1]] == ["consent_needed"] * (len(made) - 1)
        assert made[-1]["exit_code"] == 0
