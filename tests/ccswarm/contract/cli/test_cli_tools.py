"""The verbs tools, call, agents, tasks and plan, with small real servers."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccswarm.journal.writer import Journal, Record, read
from tests.ccswarm.support.runs import step, task
from tests.ccswarm.support.verbs import ROOT, Verbs, agent, server

CRASH = server("broken", "no_server", "crash")
SMALL = server("small", "plain", "legacy", more="trusted = true")
AGENTS = agent("ada", "small.e*", "small.d*", "broken.*", more='approval = "destructive"') + agent("bob")
PLAN = """
[[tasks]]
id = "look"
text = "Look at it."
agent = "ada"
priority = "high"
steps = [
    { id = "one", tool = "small.echo", args = { text = "1" } },
    { id = "two", tool = "small.echo", for_each = [1, 2], when = "${steps.one.text} != x" },
]
gates = [{ tool = "small.echo" }]

[[tasks]]
id = "first"
agent = "ada"
priority = "critical"
steps = [{ id = "s", tool = "small.echo" }]

[[tasks]]
id = "tell"
agent = "ada"
needs = ["look", "first"]
steps = [{ id = "s", tool = "small.die" }]
"""


@pytest.fixture
def verbs(home: Path) -> Verbs:
    return Verbs(home, SMALL + AGENTS + PLAN)


def records(verbs: Verbs, event: str) -> Iterator[Record]:
    return (record for record in read(verbs.state / "journal") if record.event == event)


def test_tools_of_all_servers_and_why_one_has_none(verbs: Verbs) -> None:
    verbs.rewrite(CRASH + SMALL)
    said = verbs.run("tools")
    rows = {row[0]: row[1:] for row in said.rows}
    assert rows["small.echo"] == ["read-only, keyed", "Does echo."]
    assert rows["small.die"] == ["may destroy", "Does die."]
    assert said.err.startswith("warning: server broken ended with exit code 3. Its last output:")
    reported = verbs.json("tools")
    broken, small = reported["servers"]
    assert (broken["server"], broken["tools"]) == ("broken", 0)
    assert broken["problem"].startswith("server broken ended with exit code 3")
    assert small["tools"] == len(reported["tools"]) == len(rows)
    echo = next(tool for tool in reported["tools"] if tool["full_name"] == "small.echo")
    assert echo["input_schema"]["properties"]["text"] == {"type": "string"}


def test_tools_fail_only_when_no_server_works(verbs: Verbs) -> None:
    verbs.rewrite(CRASH)
    said = verbs.run("tools", code=1)
    assert said.out == ""
    assert "no licence found" in said.err
    assert verbs.json("tools", code=1)["tools"] == []
    verbs.rewrite("")
    assert "no server is configured" in verbs.run("tools", code=2).err


def test_tools_of_one_agent_and_of_one_server(verbs: Verbs) -> None:
    with verbs.file.open("a") as file:
        file.write(CRASH)
    rows = {row[0]: row[1] for row in verbs.run("tools", "--agent", "ada", "--server", "small").rows}
    assert rows["small.echo"] == "read-only, keyed"
    assert rows["small.die"] == "may destroy, asks a person"
    assert {name.partition(".")[2][0] for name in rows} == {"d", "e"}
    assert verbs.run("tools", "-a", "bob", "-s", "small").out == ""
    assert "did you mean ada?" in verbs.run("tools", "--agent", "adda", code=2).err
    assert "there is no server 'x'" in verbs.run("tools", "--server", "x", code=2).err


def test_tools_of_the_swarm_itself(verbs: Verbs) -> None:
    verbs.rewrite(agent("ada", "swarm.*") + agent("bob", "swarm.list_agents"))
    names = [row[0] for row in verbs.run("tools").rows]
    assert names == ["swarm.list_agents", "swarm.read_messages", "swarm.send_message", "swarm.delegate"]
    assert [row[:2] for row in verbs.run("tools", "-a", "bob", "-s", "swarm").rows] == [[names[0], "read-only"]]
    plan = verbs.home / "plan.toml"
    plan.write_text('[[tasks]]\nid = "t"\nagent = "ada"\nsteps = [{ id = "s", tool = "swarm.send_message" }]')
    assert "swarm.send_message needs to, text" in verbs.run("plan", "check", "plan.toml", code=2).err


def test_a_table_for_people(verbs: Verbs) -> None:
    said = verbs.run("tools", "--agent", "ada", terminal=True).out
    assert "TOOL" in said
    assert "small.echo" in said
    assert "bob is granted none" in verbs.run("tools", "--agent", "bob", terminal=True).out


def test_a_call_answers_and_is_on_record(verbs: Verbs) -> None:
    assert verbs.run("call", "small.echo", '{"text": "hello\\tyou"}').out == "hello\tyou\n"
    begin, end = next(records(verbs, "call.begin")), next(records(verbs, "call.end"))
    assert (begin.facts["agent"], begin.facts["tool"]) == ("person", "small.echo")
    assert (end.facts["call"], end.facts["status"]) == (begin.facts["call"], "ok")
    reported = verbs.json("call", "small.echo", "text=again", "--agent", "ada")
    assert (reported["tool"], reported["status"], reported["text"]) == ("small.echo", "ok", "again")
    assert reported["structured"]["params"]["arguments"] == {"text": "again"}
    assert len(list((verbs.state / "journal").iterdir())) == 1, "all calls of a machine are in one file"


def test_members_are_json_but_where_the_tool_takes_text(verbs: Verbs) -> None:
    words = ["text=5", "count=5", 'list=[1, "a"]', "plain=a=b", "empty=", "yes=true"]
    arguments = verbs.json("call", "small.echo", *words)["structured"]["params"]["arguments"]
    assert arguments == {"text": "5", "count": 5, "list": [1, "a"], "plain": "a=b", "empty": "", "yes": True}


def test_a_terminal_is_not_steered_by_an_answer(verbs: Verbs) -> None:
    assert verbs.run("call", "small.echo", "text=a\x1b[2Jb\nc", terminal=True).out == "a\\x1b[2Jb\nc\n"
    assert verbs.run("call", "small.echo", "text=a\x1b[2Jb").out == "a\x1b[2Jb\n"


def test_a_tool_that_reports_an_error(verbs: Verbs) -> None:
    said = verbs.run("call", "small.fail", code=1)
    assert said.out == "it did not work\n"
    assert said.err == "error tool_error: the tool reports an error\n"
    assert verbs.json("call", "small.die", "code=9", code=1)["status"] == "lost"
    verbs.rewrite(CRASH)
    assert verbs.json("call", "broken.x", code=1)["code"] == "server_unavailable"


def test_calls_at_the_same_time_are_in_files_of_their_own(verbs: Verbs) -> None:
    verbs.state.mkdir(parents=True, mode=0o700)
    other = Journal(verbs.state / "journal", f"{platform.node()}-call")
    verbs.run("call", "small.echo", "text=a")
    other.close()
    assert {record.worker for record in records(verbs, "call.end")} == {f"{other.worker_id}-{os.getpid()}"}


def test_a_call_that_takes_too_long(verbs: Verbs) -> None:
    said = verbs.run("call", "small.hold", "name=a", "--timeout", "0.1", code=1)
    assert said.err.startswith("error call_timed_out: server small did not answer hold within 0.1 s")


def test_ctrl_c_cancels_a_call_and_that_is_on_record(verbs: Verbs) -> None:
    def interrupt() -> None:
        while not any(records(verbs, "call.begin")):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    verbs.run("call", "small.hold", "name=a", code=130)
    thread.join()
    assert next(records(verbs, "call.end")).facts["status"] == "cancelled"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["echo"], "'echo' is not SERVER.TOOL"),
        (["swarm.send_message"], "call swarm.send_message in a step of a plan"),
        (["smal.echo"], "did you mean small?"),
        (["small.ecko"], "server small has no tool 'ecko'"),
        (["small.echo", "{"], "the arguments are not JSON"),
        (["small.echo", "text"], "'text' is not NAME=VALUE"),
        (["small.echo", "a=1", "a=2"], "a is given twice"),
        (["small.echo", '{"text": 5}'], "do not match the schema of small.echo"),
        (["small.echo", "--agent", "eve"], "there is no agent 'eve'"),
        (["small.echo", "--timeout", "0"], "0"),
    ],
)
def test_a_call_that_makes_no_sense(verbs: Verbs, words: list[str], problem: str) -> None:
    said = verbs.run("call", *words, code=2)
    assert said.out == ""
    assert problem in said.err


def test_a_call_as_an_agent_is_judged_as_its_calls_are(verbs: Verbs) -> None:
    assert verbs.json("call", "small.echo", "--agent", "bob", code=1)["code"] == "not_granted"
    said = verbs.run("call", "small.elicit", "--agent", "ada", code=1)
    assert said.err.startswith("error approval_needed: a person must approve small.elicit")
    assert "--yes" in said.err
    refused = [record.facts["code"] for record in records(verbs, "call.refused")]
    assert refused == ["not_granted", "approval_needed"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AI_SESSION_ID", "s1")
        said = verbs.run("call", "small.elicit", "--agent", "ada", "--yes", code=3)
        assert "inside a session of ai-session a person's agreement or message is not accepted" in said.err
    assert verbs.json("call", "small.elicit", "--agent", "ada", "--yes")["status"] == "ok"
    assert next(records(verbs, "call.begin")).facts["approval"].startswith("by ")


def test_agents(verbs: Verbs) -> None:
    ada, bob = verbs.run("agents").rows
    assert ada == ["ada", "coder", "", "playbook", "small.e*, small.d*, broken.*", "destructive", "shared"]
    assert bob[:2] == ["bob", "coder"]
    assert [one["name"] for one in verbs.json("agents")["agents"]] == ["ada", "bob"]
    verbs.rewrite("[swarm]\nmax_agents = 1\n" + AGENTS)
    assert "swarm.max_agents is 1" in verbs.run("agents", terminal=True).out


def test_tasks_in_the_order_they_go_on(verbs: Verbs) -> None:
    rows = [row[:6] for row in verbs.run("tasks").rows]
    assert rows == [
        ["1", "first", "ada", "critical", "", "1"],
        ["1", "look", "ada", "high", "", "2"],
        ["2", "tell", "ada", "medium", "look, first", "1"],
    ]
    assert verbs.json("tasks")["tasks"][1]["text"] == "Look at it."
    (verbs.home / "plan.toml").write_text('steps = [{ id = "s", tool = "small.echo" }]')
    assert [row[1:3] for row in verbs.run("tasks", "plan.toml").rows] == [["main", "ada, bob"]]


def test_a_plan_is_checked_with_the_servers_it_calls(verbs: Verbs) -> None:
    with verbs.file.open("a") as file:
        file.write(CRASH)  # no step calls it
    assert verbs.json("plan", "check") == {
        "valid": True,
        "plan": str(verbs.file),
        "tasks": 3,
        "steps": 4,
        "agents": 2,
        "servers_asked": True,
    }
    plan = verbs.home / "plan.toml"
    plan.write_text('[[tasks]]\nid = "t"\nagent = "ada"\nsteps = [{ id = "s", tool = "small.ecko" }]')
    error = verbs.json("plan", "check", "plan.toml", code=2)["error"]
    assert error["code"] == "plan_invalid"
    assert "task t: step s: tool small.ecko" in error["message"]
    assert verbs.json("plan", "check", "plan.toml", "--offline")["servers_asked"] is False


def test_a_plan_that_is_not_there_is_reported_as_by_run(verbs: Verbs) -> None:
    (verbs.home / "plan.toml").write_text("")
    ran = verbs.json("run", "plam.toml", code=2)
    assert ran["error"]["suggestion"] == "did you mean plan.toml?"
    for words in (("plan", "check"), ("plan", "check", "--offline"), ("plan", "show"), ("tasks",)):
        assert verbs.json(*words, "plam.toml", code=2) == ran


def test_a_workspace_that_is_not_there_is_no_fault_of_a_server(verbs: Verbs) -> None:
    verbs.rewrite(
        SMALL + agent("ada", "small.*") + '[swarm]\nworkspace = "/nowhere"\n' + task("t", step("s", "small.echo"))
    )
    assert verbs.json("plan", "check", code=2)["error"] == {
        "code": "usage_invalid",
        "message": "the workspace /nowhere is not a directory",
        "suggestion": "create it, or correct swarm.workspace",
    }
    assert "the workspace /nowhere is not a directory" in verbs.run("tools", code=2).err
    assert "the workspace /nowhere is not a directory" in verbs.run("doctor", code=1).out


def test_a_plan_whose_server_does_not_work(verbs: Verbs) -> None:
    with verbs.file.open("a") as file:
        file.write(CRASH)
    plan = verbs.home / "plan.toml"
    plan.write_text('[[tasks]]\nid = "t"\nagent = "ada"\nsteps = [{ id = "s", tool = "broken.x" }]')
    said = verbs.run("plan", "check", "plan.toml", code=1)
    assert said.err.startswith("error server_unavailable: server broken ended with exit code 3")
    assert "--offline" in said.err
    verbs.run("plan", "check", "plan.toml", "--offline")


def test_a_plan_is_checked_with_the_servers_that_only_reviewers_use(verbs: Verbs) -> None:
    """A terminal of bob's, which no task calls, could change what he is to judge."""
    bob = agent("bob", "more.*", more='brain = "llm"')
    reviewed = task("t", step("s", "small.echo"), more='agent = "ada"\nreview = { by = ["bob"] }')
    verbs.rewrite(SMALL + server("more", "plain", "legacy", more="trusted = true") + agent("ada", "small.*") + bob)
    (verbs.home / "plan.toml").write_text(reviewed)
    message = verbs.json("plan", "check", "plan.toml", code=2)["error"]["message"]
    assert "task t: review: bob could change the work in the shared workspace with more." in message
    verbs.run("plan", "check", "plan.toml", "--offline")


def test_a_plan_is_shown_step_by_step(verbs: Verbs) -> None:
    rows = verbs.run("plan", "show").rows
    assert [row[:5] for row in rows] == [
        ["1", "first", "ada", "s", "small.echo"],
        ["1", "look", "ada", "one", "small.echo"],
        ["1", "look", "ada", "two", "small.echo"],
        ["1", "look", "ada", "gate", "small.echo"],
        ["2", "tell", "ada", "s", "small.die"],
    ]
    assert rows[2][5:] == ["one", "${steps.one.text} != x, for each of [1, 2]"]
    assert verbs.json("plan", "show")["stages"] == [["first", "look"], ["tell"]]


def test_a_plan_that_goes_in_circles(verbs: Verbs) -> None:
    plan = verbs.home / "plan.toml"
    plan.write_text('tasks = [{ id = "a", needs = ["b"] }, { id = "b", needs = ["a"] }]')
    for verb in (["plan", "show"], ["tasks"]):
        assert json.loads(verbs.run(*verb, "plan.toml", "--json", code=2).out)["error"]["code"] == "plan_invalid"
    plan.write_text("")
    verbs.rewrite(SMALL)
    assert "there are no tasks" in verbs.run("plan", "check", "plan.toml", code=2).err


def test_a_plan_is_asked_for_brains_grants_and_clones_before_anything_costs(verbs: Verbs) -> None:
    thinking = (
        agent("kim", "smal.*", "small.ecko", "small.*", more='brain = "gpt"')
        + agent("lee", "small.*", more='brain = "llm"\nworkspace = "clone"')
        + agent("max", "small.*", more='brain = "cli"\nsettings = { program = "other", command = ["no-such-program"] }')
        + "".join(f'[[tasks]]\nid = "{name}"\nagent = "{name}"\ntext = "Do it."\n' for name in ("kim", "lee", "max"))
    )
    verbs.rewrite(SMALL + thinking)
    message = verbs.json("plan", "check", code=2)["error"]["message"]
    for problem in (
        "agent kim: grant smal.*: server smal, which does not exist (did you mean small?)",
        "agent kim: grant small.ecko, which does not exist (did you mean small.echo?)",
        "brain",
        "agent lee: settings: ",
        "agent max: no-such-program is not installed",
        f"agent lee: works in a clone, and {verbs.home} is not a git repository with a commit (git init && git add",
    ):
        assert problem in message
    assert "gpt" in message
    verbs.run("plan", "check", "--offline")
    for words in (["init", "-q"], ["add", "ccswarm.toml"], ["commit", "-q", "-m", "all"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=verbs.home, check=True)
    message = verbs.json("plan", "check", code=2)["error"]["message"]
    assert f"agent lee: works in a clone: git has no author for commits in {verbs.home}" in message
    for setting in (("user.name", "a"), ("user.email", "a@b")):
        subprocess.run(["git", "config", *setting], cwd=verbs.home, check=True)
    assert "works in a clone" not in verbs.json("plan", "check", code=2)["error"]["message"]
    with verbs.file.open("a") as file:
        file.write("\n")
    verbs.run("trust", "--yes", "ccswarm.toml")
    uncommitted = f"agent lee: works in a clone: {verbs.home} has uncommitted changes"
    assert uncommitted in verbs.json("plan", "check", code=2)["error"]["message"]


def test_what_a_trusted_server_says_of_its_tools_is_told(verbs: Verbs) -> None:
    assert "believed" not in verbs.run("tools").err
    assert [one["trusted"] for one in verbs.json("tools")["servers"]] == [True, True]
    verbs.rewrite(server("small", "plain", "legacy") + agent("ada", "small.*"))
    said = verbs.run("tools", "--server", "small")
    assert "small is not trusted about what its tools do" in said.err
    assert {row[1].partition(",")[0] for row in said.rows} == {"may destroy"}
    assert [one["trusted"] for one in verbs.json("tools", "-s", "small")["servers"]] == [False]


def test_ai_session_is_trusted_in_every_configuration_that_is_shipped_or_told() -> None:
    reported = [*ROOT.glob("config/*.toml"), ROOT / "ccswarm/config/starter.toml", *ROOT.glob("docs/**/*.md")]
    for file in reported:
        lines = file.read_text().splitlines()
        for number, line in enumerate(lines):
            if re.search(r'command = "ai-session mcp-server', line):
                beside = line if line.lstrip()[0] in "{s" else "\n".join(lines[number - 3 : number + 4])
                assert "trusted = true" in beside, f"{file}:{number + 1}"
