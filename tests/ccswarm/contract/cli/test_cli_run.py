"""The verbs run, resume, pause and cancel, with real servers: what they say, their exit codes, what is there after."""

from __future__ import annotations

import getpass
import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.ccswarm.support.runs import BASE, HELD, TWO, RunVerbs, step, task
from tests.ccswarm.support.verbs import agent, server
from tests.support.bounds import BOUND_SECONDS

FAIL = '[[tasks.steps]]\nid = "fail"\ntool = "small.fail"\ngate = true\n'
DEAD = task("a", step("x", "dead.do"), more='agent = "eve"')


@pytest.fixture
def verbs(home: Path) -> RunVerbs:
    return RunVerbs(home, BASE + TWO)


def test_in_a_pipe_each_event_is_a_line_and_the_tasks_follow(verbs: RunVerbs) -> None:
    said = verbs.run("run")
    first, *lines = said.out.splitlines()
    assert first.startswith("run_")
    assert lines[:-3] == [
        "run started: 2 tasks, 2 agents",
        "one: started by ada",
        "one: succeeded: 1 step done",
        "two: started by bob",
        "two: succeeded: 1 step done",
        "run succeeded: 2 succeeded",
    ]
    assert [row[:4] for row in said.rows[-3:-1]] == [["one", "succeeded", "ada", "1"], ["two", "succeeded", "bob", "1"]]
    assert said.err == ""


def test_with_json_each_event_is_a_document_and_the_last_is_the_result(verbs: RunVerbs, tmp_path: Path) -> None:
    """Of a plan, over the configuration, in the workspace that is named."""
    verbs.rewrite((BASE + TWO).replace('name = "bob"', 'name = "bob"\nprompt = "Be brief, Bob."'))
    (verbs.home / "plan.toml").write_text(TWO.replace('"small.echo"\nargs = { text = "say" }', '"small.facts"', 1))
    said = verbs.run("run", "plan.toml", "--json", "--name", "mine", "--workspace", str(tmp_path))
    *events, result = [json.loads(line) for line in said.out.splitlines()]
    assert [event["event"] for event in events] == [
        "run.started",
        "task.started",
        "task.ended",
        "task.started",
        "task.ended",
        "run.ended",
    ]
    assert sorted(event["at"] for event in events) == [event["at"] for event in events]
    assert (result["event"], result["status"], result["name"], result["exit_code"]) == (
        "result",
        "succeeded",
        "mine",
        0,
    )
    assert result["tasks"]["two"]["result"]["steps"]["say"]["params"]["arguments"]["text"] == "say"
    assert result["usage"]["calls"] == 2
    assert result["workspace"] == result["tasks"]["one"]["result"]["steps"]["say"]["directory"] == str(tmp_path)
    assert said.err == ""
    with closing(sqlite3.connect(verbs.state / "engine.db")) as store:
        assert sum(row.count("Be brief, Bob.") for row in store.iterdump()) == 1, "agents are kept once for a run"


@pytest.mark.torture  # above, with --json
def test_a_plan_is_carried_out_over_the_configuration_in_the_workspace_named(verbs: RunVerbs, tmp_path: Path) -> None:
    (verbs.home / "plan.toml").write_text('[[steps]]\nid = "where"\ntool = "small.facts"\n')
    result = verbs.result("run", "plan.toml", "--workspace", str(tmp_path))
    assert list(result["tasks"]) == ["main"]
    assert result["workspace"] == str(tmp_path)
    assert result["tasks"]["main"]["result"]["steps"]["where"]["directory"] == str(tmp_path)


def test_a_failure_is_reported_with_exit_code_1(verbs: RunVerbs) -> None:
    verbs.rewrite(BASE + task("bad", FAIL) + TWO)
    said = verbs.run("run", code=1)
    assert "\nbad: failed: " in said.out
    assert "it did not work" in said.out
    *_, bad, one, two, _end = said.out.rstrip().splitlines()
    assert [row.split("\t")[1] for row in (bad, one, two)] == ["failed", "succeeded", "succeeded"]
    assert _end == "it did not work", "what a person wants to read is there without another command"


@pytest.mark.torture  # test_cli_again.py
def test_what_failed_is_done_again_as_the_plan_says_it_now(verbs: RunVerbs) -> None:
    verbs.rewrite(BASE + TWO + task("bad", FAIL))
    first = verbs.result("run", code=1)["run"]
    verbs.rewrite(BASE + TWO + task("bad", step("mended")))
    said = verbs.run("resume", first)
    assert f"\nrun started: 3 tasks, 2 agents, 2 done in {first}\nbad: started by " in said.out
    assert [row[:2] for row in said.rows[-4:-1]] == [["one", "succeeded"], ["two", "succeeded"], ["bad", "succeeded"]]
    assert said.err.startswith(f"{first[:12]} is over; run_")
    assert verbs.json("status")["continues"] == first


@pytest.mark.torture  # unit/engines/test_budgets.py has each budget
def test_a_used_up_budget_is_exit_code_4(verbs: RunVerbs) -> None:
    verbs.rewrite(BASE + "[swarm]\nbudget = { calls = 1 }\n" + TWO)
    result = verbs.result("run", code=4)
    assert (result["status"], result["tasks"]["one"]["status"]) == ("budget_exhausted", "succeeded")


def test_every_problem_of_a_plan_is_reported_before_anything_starts(home: Path) -> None:
    verbs = RunVerbs(home, BASE + TWO, stored=False)
    verbs.rewrite(BASE + task("a", step("x", "nobody.do"), more='needs = ["z"]') + task("b", more='agent = "c"'))
    said = verbs.run("run", code=2)
    assert said.out == ""
    assert said.err.splitlines() == [
        "error plan_invalid: task a: needs z, which does not exist",
        "  task a: step x: server nobody, which does not exist",
        "  task b: is for agent c, which does not exist",
        "next: fix the problems listed above",
    ]
    assert [one.name for one in verbs.state.iterdir()] == ["trust"], "where it is recorded what was read"


def test_a_tool_that_the_server_lacks_is_reported_before_anything_starts(verbs: RunVerbs) -> None:
    verbs.rewrite(BASE + task("a", step("x", "small.ecko")))
    said = verbs.run("run", code=2)
    assert "step x: tool small.ecko, which does not exist (did you mean small.echo?)" in said.err
    assert verbs.json("runs", "list") == []


@pytest.mark.parametrize("required", [True, pytest.param(False, marks=pytest.mark.torture)])
def test_a_server_that_does_not_start_is_reported_with_its_output(verbs: RunVerbs, required: bool) -> None:
    if not required:
        verbs.rewrite(BASE + server("dead", "no_server") + TWO)
        assert "warning: dead: " in verbs.run("run").err
        return
    verbs.rewrite(BASE + server("dead", "no_server") + agent("eve", "dead.*") + DEAD)
    said = verbs.run("run", code=1)
    assert said.err.startswith("error server_unavailable: server dead: ")


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["make it so"], "needs an agent that takes words"),
        (["absent.toml"], "there is no file absent.toml"),
        (["ccswarm.tml"], "there is no file ccswarm.tml\nnext: did you mean ccswarm.toml?"),
        (["--workspace", "/absent"], "the workspace /absent is not a directory"),
        (["--name", "not a name"], "is not a valid run name"),
    ],
)
def test_what_makes_no_sense_is_exit_code_2(verbs: RunVerbs, words: list[str], reported: str) -> None:
    error = json.loads(verbs.run("run", "--json", *words, code=2).out)["error"]
    assert reported in f"{error['message']}\nnext: {error['suggestion']}"
    assert error["suggestion"]


def test_without_tasks_it_says_what_to_do(home: Path) -> None:
    said = RunVerbs(home).run("run", code=2)
    assert "there are no tasks" in said.err
    assert "next: ccswarm init" in said.err


def test_a_dry_run_shows_the_plan_and_touches_nothing(home: Path) -> None:
    verbs = RunVerbs(home, BASE + TWO, stored=False)
    assert [row[:2] for row in verbs.run("run", "--dry-run").rows] == [["1", "one"], ["2", "two"]]
    assert verbs.json("run", "--dry-run")["stages"] == [["one"], ["two"]]
    assert not verbs.state.exists()


@pytest.mark.torture  # test_cli_trust.py: a worker takes one over
def test_a_detached_run_waits_for_whoever_executes_it(verbs: RunVerbs) -> None:
    run = verbs.run("run", "--detach").out.strip()
    assert verbs.json("status", run)["status"] == "queued"
    assert verbs.result("resume", run[:12])["status"] == "succeeded"
    said = verbs.run("resume", run, code=2)
    assert f"error usage_invalid: {run} is over: succeeded" in said.err


@pytest.mark.torture  # test_cli_merge.py, test_cli_handed_on.py
def test_without_waiting_for_people_it_leaves_and_can_be_gone_on_with(verbs: RunVerbs) -> None:
    verbs.rewrite(BASE.replace("[[agents]]", '[[agents]]\napproval = "all"') + TWO)
    result = verbs.result("run", "--no-wait", code=3)
    assert (result["status"], result["tasks"]["one"]["status"]) == ("waiting_approval", "waiting_approval")
    [question] = result["approvals"]
    assert (question["agent"], question["tool"], question["arguments"]) == ("ada", "small.echo", {"text": "say"})
    said = verbs.run("resume", "last", "--no-wait", code=3)
    assert f"waits for approval: ccswarm approve {question['id']}" in said.err
    verbs.run("approve", question["id"])
    again = verbs.result("resume", result["run"], "--no-wait", code=3)
    assert [task["status"] for task in again["tasks"].values()] == ["succeeded", "waiting_approval"]
    verbs.run("reject", again["approvals"][0]["id"], "--reason", "no")
    end = verbs.result("resume", result["run"], code=1)
    assert [task["status"] for task in end["tasks"].values()] == ["succeeded", "failed"]
    assert "a person rejected small.echo: no" in end["tasks"]["two"]["summary"]


def test_ctrl_c_pauses_and_resume_goes_on_even_where_it_was_cancelled_since(verbs: RunVerbs) -> None:
    verbs.rewrite(BASE + HELD)
    with verbs.started("run", "--json") as verb, verbs.held():
        verb.process.send_signal(signal.SIGINT)
        out, _ = verb.process.communicate(timeout=BOUND_SECONDS)
    result = json.loads(out.splitlines()[-1])
    assert (verb.process.returncode, result["event"], result["status"]) == (130, "result", "paused")
    assert result["exit_code"] == 130
    assert verbs.json("cancel", result["run"])["status"] == "cancelled"
    assert f"{result['run']} is over: cancelled" in verbs.run("pause", result["run"], code=2).err
    with verbs.answering("at last"):
        events = verbs.lines("resume", result["run"], "--json")
    assert [event["event"] for event in events] == ["task.ended", "run.ended", "result"]
    assert events[-1]["status"] == "succeeded"
    assert events[-1]["tasks"]["hold"]["result"]["steps"]["wait"]["text"] == "at last"
    calls = verbs.json("journal", "show", "last")
    assert [c["facts"]["step"] for c in calls if c["event"] == "call.begin"] == ["before", "wait", "wait", "after"]


@pytest.mark.parametrize("how", ["twice", "kill"])
@pytest.mark.either("how")
def test_a_process_that_ended_immediately_is_not_waited_for(verbs: RunVerbs, how: str) -> None:
    verbs.rewrite(BASE + HELD)
    with verbs.started("run") as verb, verbs.held():
        if how == "kill":
            verb.process.kill()
            assert verb.process.wait(BOUND_SECONDS) == -signal.SIGKILL
        else:
            with verbs.store_held():
                verb.process.send_signal(signal.SIGINT)
                verb.until("Ctrl-C again ends at once")
                verb.process.send_signal(signal.SIGINT)
                assert verb.process.wait(BOUND_SECONDS) == 130
    with verbs.answering("x"):
        assert verbs.result("resume", "last")["status"] == "succeeded"


def test_a_call_that_may_have_been_made_is_lost_and_resuming_once_more_begins_its_task_anew(verbs: RunVerbs) -> None:
    """As README.md says; a server that is not trusted is not believed that a call is harmless."""
    verbs.rewrite(BASE.replace("trusted = true", "") + HELD)

    def begun(run: str) -> list[str]:
        return [one["facts"]["step"] for one in verbs.json("journal", "show", run) if one["event"] == "call.begin"]

    with verbs.started("run") as verb, verbs.held():
        verb.process.kill()
        assert verb.process.wait(BOUND_SECONDS) == -signal.SIGKILL
    lost = verbs.result("resume", "last", code=1)
    assert "lost" in lost["tasks"]["hold"]["summary"]
    assert begun(lost["run"]) == ["before", "wait"]
    with verbs.answering("x"):
        again = verbs.result("resume", "last")
    assert (again["status"], begun(again["run"])) == ("succeeded", ["before", "wait", "after"])


def test_on_a_terminal_it_is_drawn_and_keys_answer_what_agents_ask(verbs: RunVerbs) -> None:
    verbs.rewrite(BASE.replace("[[agents]]", '[[agents]]\napproval = "all"') + TWO)
    with verbs.terminal("run") as (terminal, verb):
        terminal.send("y")  # before anything was asked
        terminal.expect_exact("ada asks for small.echo text=say")
        terminal.expect_exact("y: approve, n: reject")
        assert len(verbs.json("approvals")["approvals"]) == 1
        terminal.send("y")
        terminal.expect_exact("bob asks for small.echo text=say")
        terminal.expect_exact("y: approve, n: reject")
        terminal.send("n")
        terminal.expect(r"one +.*succeeded.* ada +1 .*\r\n.*two +.*failed.* bob +1 ")
        terminal.expect(r"more: ccswarm runs show run_[0-9a-f]{8}, ccswarm logs run_[0-9a-f]{8}\r\n")
        assert verb.wait(BOUND_SECONDS) == 1
    answers = [one for one in verbs.lines("logs", "last", "--json") if one["event"] == "approval.answered"]
    assert [(one["task"], one["approved"], one["by"]) for one in answers] == [
        ("one", True, getpass.getuser()),
        ("two", False, getpass.getuser()),
    ]


def test_a_run_that_nobody_reads_of_any_longer_is_paused(verbs: RunVerbs) -> None:
    again = task("again", step("wait", "pipe.read", path="${workspace}/pipe"), more='needs = ["hold"]')
    verbs.rewrite(BASE + HELD + again)
    with verbs.started("run") as verb:
        with verbs.held():
            assert verb.process.stdout
            verb.process.stdout.close()
        assert verb.process.wait(BOUND_SECONDS) == 1
    said = verbs.json("status")
    assert (said["status"], said["tasks"]["hold"]["status"]) == ("paused", "succeeded")
    assert said["tasks"]["again"]["status"] in ("queued", "paused")  # it may have been let go already


def test_watchers_of_a_paused_run_are_notified(verbs: RunVerbs) -> None:
    verbs.rewrite(BASE + HELD)
    with verbs.started("run") as verb, verbs.held():
        assert verbs.json("pause", "last")["status"] == "paused"
        out, err = verb.process.communicate(timeout=BOUND_SECONDS)
    run = out.split()[0].decode()
    assert (verb.process.returncode, err.decode()) == (3, f"next: ccswarm resume {run[:12]}\n")
