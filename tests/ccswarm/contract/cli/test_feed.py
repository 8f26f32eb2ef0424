"""Runs as a program is told of them that shows them to a person, and what the person decides there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentwire.system.user import user_name
from tests.ccswarm.contract.cli.test_cli_merge import CONFIG, WRITE, Project
from tests.ccswarm.support.feed_client import Feed, feed
from tests.ccswarm.support.runs import BASE, HELD, RunVerbs, step, task
from tests.ccswarm.support.verbs import agent


@pytest.fixture
def asked(home: Path) -> Project:
    """One at which the work of t waits for a word, by a run that was left."""
    gate = 'gates = [{ tool = "small.echo", args = { text = "fine" }, expect = { contains = "fine" } }]'
    small = CONFIG.split("[[agents]]")[0]
    text = CONFIG.replace(small, small + BASE[BASE.index("[[mcp.servers]]") : BASE.index("[[agents]]")])
    text = text.replace('merge = "ask"', 'merge = "ask"\nbudget = { calls = 40 }')
    verbs = Project(home, text + task("t", WRITE, more=f'agent = "ada"\ntext = "write"\n{gate}'))
    assert "asks: merge 1 file" in verbs.run("run", "--no-wait", code=3).out
    return verbs


def code(answer: dict[str, dict[str, str]]) -> str:
    return answer["error"]["code"]


@pytest.mark.torture  # the console reads and accepts by the feed in test_console_runs_page
def test_a_run_is_reported_and_its_work_accepted_as_by_the_verbs(asked: Project) -> None:
    with feed(asked.home, AI_SESSION_ID="s_1") as run_feed:
        assert code(run_feed.ask("accept", run="last", task="t")) == "approval_needed", "no agent agrees"
    with feed(asked.home) as run_feed:
        assert (run_feed.hello["runs"], run_feed.hello["program"]) == (1, "ccswarm")
        (row,) = run_feed.ask("list")["runs"]
        assert (row["status"], row["name"], row["workspace"]) == ("waiting_approval", "swarm", str(asked.project))
        (question,) = run_feed.ask("questions")["questions"]
        assert (question["task"], question["merges"], question["answers"]) == ("t", True, ["once", "return"])
        assert question["asked_at"] > row["begun_at"] > 0

        run = run_feed.ask("run", run=row["run"])
        (one,) = run["tasks"]
        assert (one["text"], one["needs"], one["gates"], one["agent"]) == ("write", [], ["small.echo"], "ada")
        (attempt,) = one["attempts"]
        assert [wait["question"] for wait in attempt["waits"]] == [question["id"]]
        assert attempt["waits"][0]["ended"] == 0
        assert "gates.held" in [event["event"] for event in attempt["happened"]]
        assert {budget["name"]: budget["most"] for budget in run["budgets"]}["calls"] == 40
        assert next(budget["used"] for budget in run["budgets"] if budget["name"] == "calls") >= 1
        assert attempt["owner"] == f"run:{question['execution']}"
        (work,) = run_feed.ask("diff", run=row["run"], task="t")["tasks"]
        assert work["diff"] == asked.json("diff", "last")["tasks"][0]["diff"]
        assert run_feed.ask("transcript", run=row["run"])["attempts"][0]["task"] == "t"

        refusals(run_feed, row["run"])
        before = asked.run("approvals").out
        assert run_feed.ask("accept", run=row["run"], task="t") == {
            "question": question["id"],
            "next": f"ccswarm resume {row['run'][:12]}, or ccswarm worker",
        }
        run_feed.changed()
        assert "answered:" not in before
        assert "answered:" in asked.run("approvals").out
        assert code(run_feed.ask("accept", run=row["run"], task="t")) == "answered_already"
        (question,) = run_feed.ask("questions")["questions"]
        assert (question["answers"], question["answer"]["approved"]) == ([], True)
        assert asked.result("resume", "last")["tasks"]["t"]["status"] == "succeeded"
        run_feed.changed()
        assert run_feed.ask("list")["runs"][0]["status"] == "succeeded"
        assert run_feed.ask("questions") == {"questions": []}
        wait = run_feed.ask("run", run=row["run"])["tasks"][0]["attempts"][-1]["waits"][0]
        assert wait["ended"] >= wait["began"] > 0
        assert code(run_feed.ask("cancel", run=row["run"])) == "usage_invalid"
        assert run_feed.end() == 0


def refusals(run_feed: Feed, run: str) -> None:
    """What makes no sense is answered, and decides nothing."""
    assert code(run_feed.write(b"{")) == "usage_invalid"
    assert code(run_feed.write(b'{"id": 3, "method": "list", "params": 5}')) == "usage_invalid"
    for method, params in (
        ("nothing", {}),
        ("run", {}),
        ("list", {"limit": 0}),
        ("answer", {"question": "ap_x"}),
        ("answer", {"question": "ap_x", "approved": True, "scope": "everything"}),
        ("return", {"run": run, "task": "t", "comment": " "}),
        ("accept", {"run": run, "task": "x"}),
        ("compare", {"one": run, "other": run}),
    ):
        assert code(run_feed.ask(method, **params)) == "usage_invalid", method
    assert code(run_feed.ask("run", run="run_none")) == "run_not_found"
    assert code(run_feed.ask("answer", question="ap_none", approved=False, reason="no")) == "question_not_found"


@pytest.mark.torture  # test_cli_merge.py gives it back with the verb
def test_work_is_given_back_with_a_comment(asked: Project) -> None:
    with feed(asked.home) as run_feed:
        run_feed.ask("return", run="last", task="t", comment="once more")
    said = asked.run("resume", "last", "--no-wait", code=3)
    assert "returned for more work by" in said.out


@pytest.mark.parametrize("goes_on", [False, pytest.param(True, marks=pytest.mark.torture)])
def test_a_yes_may_count_for_more_and_a_run_is_cancelled(home: Path, goes_on: bool) -> None:
    steps = (step("a", text="one"), step("b", text="one"), step("c", text="\u202etwo"))
    careful = BASE.replace(agent("ada", "small.*", "pipe.*"), agent("ada", "small.*", more='approval = "all"'))
    verbs = RunVerbs(home, careful + task("t", *steps, more='agent = "ada"'))
    verbs.run("run", "--no-wait", code=3)
    with feed(home) as run_feed:
        (question,) = run_feed.ask("questions")["questions"]
        assert question["arguments"] == [{"name": "text", "value": "one"}]
        assert question["answers"] == ["once", "command", "tool", "run"]
        run_feed.ask("answer", question=question["id"], approved=True, scope="command")
        if goes_on:
            assert "two" in verbs.run("resume", "last", "--no-wait", code=3).out, "nor was the same call asked about"
            (question,) = run_feed.ask("questions")["questions"]
            assert question["arguments"] == [{"name": "text", "value": "\u202etwo"}]
        (row,) = run_feed.ask("list")["runs"]
        assert run_feed.ask("cancel", run=row["run"]) == {"run": row["run"]}
        assert run_feed.ask("list")["runs"][0]["status"] == "cancelled"


def test_a_run_is_checked_and_begun_and_goes_on_by_itself(home: Path) -> None:
    """Of the configuration's tasks; the one who began it is on record."""
    verbs = RunVerbs(home, BASE + task("t", step("say"), more='agent = "ada"'))
    plans(home)
    with feed(home) as run_feed:
        there = run_feed.ask("beginnings")
        assert (there["configuration"], there["tasks"], there["takes_words"]) == (str(verbs.file), 1, False)
        assert there["plans"] == [{"file": "plans/hold.toml", "tasks": 1}]
        for wrong in ({"file": "../two.toml"}, {"words": 3}, {"words": "a", "file": "plans/hold.toml"}, {"words": "a"}):
            assert code(run_feed.ask("check", **wrong)) == "usage_invalid", wrong
        shown = run_feed.ask("check")
        assert [(one["task"], one["agents"], one["steps"]) for one in shown["tasks"]] == [("t", ["ada"], 1)]
        assert (shown["problems"], shown["workspace"]) == ([], str(home))
        assert "is used for the first time: it starts" in shown["notes"][0]
        assert code(run_feed.ask("start", digest="other")) == "usage_invalid"
        assert run_feed.ask("list")["runs"] == [], "nothing was begun"

        run = run_feed.ask("start", digest=shown["digest"], name="first")["run"]
        found = over(run_feed, run, "succeeded")
        assert (found["name"], found["begun_by"]) == ("first", user_name())

        verbs.file.write_text(verbs.file.read_text().replace('text = "say"', 'text = "more"'))
        changed = run_feed.ask("check")
        assert "ccswarm trust" in changed["problems"][-1]
        assert code(run_feed.ask("start", digest=changed["digest"])) == "config_changed"
        left(run_feed)


@pytest.mark.torture
def test_a_plan_is_started_paused_and_resumed(home: Path) -> None:
    verbs = RunVerbs(home, BASE + task("t", step("say"), more='agent = "ada"'))
    plans(home)
    with feed(home, AI_SESSION_ID="s_1") as run_feed:
        digest = run_feed.ask("check")["digest"]
        assert code(run_feed.ask("start", digest=digest)) == "approval_needed"
    with feed(home) as run_feed:
        shown = run_feed.ask("check", file="plans/hold.toml")
        assert [one["task"] for one in shown["tasks"]] == ["hold"]
        run = run_feed.ask("start", file="plans/hold.toml", digest=shown["digest"])["run"]
        with verbs.held():
            run_feed.ask("pause", run=run)
        over(run_feed, run, "paused")
        left(run_feed)
        assert run_feed.ask("resume", run=run) == {"run": run}
        with verbs.held() as pipe:
            pipe.write("now")
        over(run_feed, run, "succeeded")
        assert code(run_feed.ask("resume", run=run)) == "usage_invalid"
        left(run_feed)


def plans(home: Path) -> None:
    """One that lies here, and a file of another program."""
    (home / "plans").mkdir()
    (home / "plans/hold.toml").write_text(HELD.replace('id = "hold"', 'id = "hold"\nagent = "ada"'))
    (home / "plans/other.toml").write_text("[tool]\nname = 'x'\n")


def over(run_feed: Feed, run: str, status: str) -> dict[str, Any]:
    """The run, once it has that status."""
    while (found := run_feed.ask("run", run=run))["status"] != status:
        run_feed.changed()
    return found


def left(run_feed: Feed) -> None:
    """Returns when nobody executes any more."""
    while run_feed.ask("list")["workers"]:
        run_feed.changed()
