"""What agents hand on and what others say of their work, in the verbs that look at runs and answer questions."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ccswarm.support.runs import QUICK, SERVERS, RunVerbs
from tests.ccswarm.support.verbs import agent
from tests.conftest import client_environment, environment
from tests.support.bounds import BOUND_SECONDS

CREW = (
    agent("cleo", "swarm.*", "small.*", more='type = "coordinator"') + agent("ada", "small.*") + agent("bob", "small.*")
)
BASE = f'{QUICK}[swarm]\ntopology = "star"\n{SERVERS}'


def part(name: str, who: str, tool: str = "small.echo", needs: str = "[]", **args: str) -> str:
    """A task that is handed on, as a plan has it."""
    given = ", ".join(f"{key} = {json.dumps(value)}" for key, value in args.items())
    steps = f'[{{ id = "s", tool = "{tool}", args = {{ {given} }} }}]'
    return f'{{ id = "{name}", text = "do {name}", agent = "{who}", needs = {needs}, steps = {steps} }}'


def hand(name: str, *parts: str, more: str = "") -> str:
    """A task whose agent hands these on."""
    step = f'[[tasks.steps]]\nid = "hand"\ntool = "swarm.delegate"\n[tasks.steps.args]\ntasks = [{", ".join(parts)}]\n'
    return f'[[tasks]]\nid = "{name}"\nagent = "cleo"\n{step}{more}\n'


REVIEW = (
    '[tasks.review]\nby = ["bob"]\n[[tasks.review.steps]]\nid = "look"\ntool = "small.echo"\nargs = { text = "fine" }\n'
)
GOOD = hand(
    "main", part("count", "ada", text="count"), part("tell", "bob", text="tell", needs='["count"]'), more=REVIEW
)
BAD = hand("other", part("bad", "ada", "small.fail"), part("after", "bob", needs='["bad"]')).replace(
    'agent = "cleo"', 'agent = "cleo"\nneeds = ["main"]'
)
LEFT = "expected an answer, but the call ended as tool_error (work_not_done: bad is failed, after is skipped)"
WAITS = part("held", "cy", "pipe.read", path="$${workspace}/pipe")
ROWS = ["main", "main.hand.count", "main.hand.tell", "main.review1.bob", "other", "other.hand.bad", "other.hand.after"]


@pytest.fixture(scope="module")
def over(shared_home: Path) -> Iterator[tuple[RunVerbs, list[str]]]:
    """Where one run is over, and the lines it said."""
    with environment(client_environment(shared_home)):
        made = RunVerbs(shared_home, BASE + CREW + GOOD + BAD)
        said = made.run("run", code=1)
        yield made, said.out.splitlines()


@pytest.fixture
def verbs(home: Path, over: tuple[RunVerbs, list[str]]) -> Iterator[RunVerbs]:
    """Every test's HOME is the one of the run."""
    with environment(client_environment(over[0].home)):
        yield over[0]


def test_runs_are_listed_without_what_was_handed_on_in_them(verbs: RunVerbs) -> None:
    [row] = verbs.json("runs", "list")
    assert (row["status"], row["tasks"]) == ("failed", "1 succeeded, 1 failed")
    assert verbs.json("status", row["run"][:12])["run"] == row["run"]
    assert "no run" in verbs.run("status", f"{row['run']}.main", code=2).err


def test_the_lines_of_a_run_have_those_of_its_parts(over: tuple[RunVerbs, list[str]]) -> None:
    assert over[1][1:-8] == [
        "run started: 2 tasks, 3 agents",
        "main: started by cleo",
        "main: cleo delegates 2 tasks: count, tell",
        "main.hand.count: started by ada",
        "main.hand.count: succeeded: 1 step done",
        "main.hand.tell: started by bob",
        "main.hand.tell: succeeded: 1 step done",
        "main: the delegated work is succeeded",
        "main: to be reviewed by bob",
        "main: bob accepts it: 1 step done",
        "main: succeeded: 1 step done",
        "other: started by cleo",
        "other: cleo delegates 2 tasks: bad, after",
        "other.hand.bad: started by ada",
        "other.hand.bad: failed: s: expected an answer, but the call ended as tool_error (it did not work)",
        "other: the delegated work is failed",
        f"other: failed: hand: {LEFT}",
        "run failed: 1 succeeded, 1 failed",
    ]
    assert [line.split("\t")[0] for line in over[1][-8:-1]] == ROWS


def test_each_task_is_followed_by_its_parts(verbs: RunVerbs) -> None:
    facts = verbs.json("runs", "show", "last")
    assert {name: (task["status"], task["agent"], task["attempts"]) for name, task in facts["tasks"].items()} == {
        "main": ("succeeded", "cleo", 1),
        "main.hand.count": ("succeeded", "ada", 1),
        "main.hand.tell": ("succeeded", "bob", 1),
        "main.review1.bob": ("succeeded", "bob", 1),
        "other": ("failed", "cleo", 1),
        "other.hand.bad": ("failed", "ada", 1),
        "other.hand.after": ("skipped", "", 0),
    }
    assert list(facts["tasks"]) == ROWS
    assert facts["tasks"]["main.hand.tell"]["result"]["steps"]["s"]["params"]["arguments"]["text"] == "tell"
    assert "it needs 'bad', which is failed" in facts["tasks"]["other.hand.after"]["summary"]
    assert facts["usage"]["calls"] == facts["journal"]["calls"] == facts["journal"]["ended"] == 6
    assert [row[0] for row in verbs.run("status").rows[-7:]] == ROWS


def test_logs_and_replay_have_what_was_done_in_parts(verbs: RunVerbs) -> None:
    found = verbs.lines("logs", "last", "--json")
    calls = [(one["task"], one["agent"], one["tool"]) for one in found if one["event"] == "call.begin"]
    assert calls == [
        ("main", "cleo", "swarm.delegate"),
        ("main.hand.count", "ada", "small.echo"),
        ("main.hand.tell", "bob", "small.echo"),
        ("main.review1.bob", "bob", "small.echo"),
        ("other", "cleo", "swarm.delegate"),
        ("other.hand.bad", "ada", "small.fail"),
    ]
    assert {one["run"] for one in found} == {verbs.json("runs", "list")[0]["run"]}
    [handed, _] = [one for one in found if one["event"] == "work.handed_on"]
    assert (handed["task"], handed["execution"]) == ("main", f"{handed['run']}.main.hand")
    assert [one["event"] for one in found] == [one["event"] for one in verbs.lines("runs", "replay", "last", "--json")]
    of_part = verbs.run("logs", "last", "--task", "main.hand").out.splitlines()
    assert [line.split()[1] for line in of_part] == ["main.hand.count:"] * 4 + ["main.hand.tell:"] * 4
    assert len(verbs.run("logs", "last", "--task", "main").out.splitlines()) == 18
    assert "the run has no task 'hand'" in verbs.run("logs", "last", "--task", "hand", code=2).err


@pytest.mark.torture  # test_cli_runs.py compares runs; names of parts are above
def test_runs_are_compared_part_by_part(home: Path) -> None:
    with environment(client_environment(home)):
        verbs = RunVerbs(home, BASE + CREW + GOOD)
        verbs.run("run")
        verbs.rewrite(BASE + CREW + GOOD.replace('text = "tell"', 'text = "told"'))
        verbs.run("run")
        first, second = (row["run"] for row in verbs.json("runs", "list"))
        rows = verbs.json("runs", "diff", second, first, code=1)["differences"]
    assert {(row["task"], row["a"], row["b"]) for row in rows} == {
        ("main", "tell", "told"),
        ("main.hand.tell", "tell", "told"),
    }


@pytest.mark.torture  # test_cli_approvals.py answers; parts are listed above
def test_what_is_asked_in_parts_is_listed_and_answered(home: Path) -> None:
    """A question each in what was handed on and in a review."""
    careful = CREW.replace('name = "bob"', 'name = "bob"\napproval = "all"')
    with environment(client_environment(home)):
        verbs = RunVerbs(home, BASE + careful + GOOD)
        result = verbs.result("run", "--no-wait", code=3)
        run = result["run"]
        assert {name: task["status"] for name, task in result["tasks"].items()} == {
            "main": "waiting_approval",
            "main.hand.count": "succeeded",
            "main.hand.tell": "waiting_approval",
        }
        assert [row[:3] for row in verbs.run("ps").rows] == [
            [run, "waiting_approval", ""],
            ["  main", "waiting_approval", "cleo"],
            ["    main.hand.tell", "waiting_approval", "bob"],
        ]
        assert verbs.json("runs", "list")[0]["status"] == "waiting_approval"
        [question] = verbs.json("approvals")["approvals"]
        assert (question["task_id"], question["agent"]) == (f"{run}.main.hand.tell", "bob")
        said = verbs.run("approve", question["id"])
        assert f"for bob in {run}.main.hand.tell" in said.err
        assert f"ccswarm resume {run}, or ccswarm worker" in said.err
        verbs.run("resume", run, "--no-wait", code=3)
        [question] = verbs.json("approvals")["approvals"]
        assert question["task_id"] == f"{run}.main.review1.bob"
        verbs.run("approve", question["id"])
        assert verbs.result("resume", run)["status"] == "succeeded"


@pytest.mark.torture  # test_cli_run.py draws a run, unit/cli/test_board.py parts
def test_on_a_terminal_parts_stand_under_who_handed_them_on(home: Path) -> None:
    careful = CREW.replace('name = "bob"', 'name = "bob"\napproval = "all"')
    with environment(client_environment(home)):
        verbs = RunVerbs(home, BASE + careful + GOOD)
        with verbs.terminal("run") as (terminal, verb):
            terminal.expect(
                r"main +cleo .*\r\n +hand\.count +ada .*succeeded.*\r\n +hand\.tell +bob .*waiting approval"
            )
            terminal.expect_exact("y: approve, n: reject")
            terminal.send("y")
            terminal.expect(r"\r\n +review1\.bob +bob .*waiting approval")
            terminal.expect_exact("y: approve, n: reject")
            terminal.send("y")
            terminal.expect_exact("more: ccswarm runs show")
            assert verb.wait(BOUND_SECONDS) == 0


@pytest.mark.torture  # test_cli_runs.py without parts; ps shows them above
def test_what_goes_on_in_parts_is_shown_while_it_does(home: Path) -> None:
    with environment(client_environment(home)):
        verbs = RunVerbs(home, BASE + CREW + agent("cy", "pipe.*") + hand("main", WAITS))
        with verbs.started("run") as verb, verbs.held() as pipe:
            run = verbs.json("status")["run"]
            rows = verbs.run("ps").rows
            assert [row[:3] for row in rows[:3]] == [
                [run, "running", ""],
                ["  main", "running", "cleo"],
                ["    main.hand.held", "running", "cy"],
            ]
            with verbs.started("logs", "last", "-f") as logs:
                assert logs.process.stdout
                line = next(line for line in logs.process.stdout if b"pipe.read" in line)
                assert line.endswith(b" main.hand.held: cy pipe.read\n")
                pipe.write("x")
                pipe.close()
                out, _ = logs.process.communicate(timeout=BOUND_SECONDS)
                assert b" main.hand.held: succeeded: 1 step done" in out
                assert out.splitlines()[-1].endswith(b" run succeeded: 1 succeeded")
            assert verb.process.wait(BOUND_SECONDS) == 0


@pytest.mark.torture  # unit/swarm/test_handing_on.py; without parts in test_cli_run.py
@pytest.mark.parametrize("how", ["pause", "cancel", "kill"])
def test_a_run_with_parts_is_stopped_and_resumed(home: Path, how: str) -> None:
    with environment(client_environment(home)):
        verbs = RunVerbs(home, BASE + CREW + agent("cy", "pipe.*") + hand("main", WAITS))
        with verbs.started("run") as verb, verbs.held():
            if how == "kill":
                verb.process.kill()
                assert verb.process.wait(BOUND_SECONDS) == -signal.SIGKILL
                stopped = "running"
            else:
                stopped = verbs.json(how, "last")["status"]
                assert verb.process.wait(BOUND_SECONDS) == {"pause": 3, "cancel": 1}[how]
        facts = verbs.json("status")
        assert {name: task["status"] for name, task in facts["tasks"].items()} == dict.fromkeys(
            ("main", "main.hand.held"), stopped
        )
        with verbs.answering("x"):
            result = verbs.result("resume", "last")
        assert (result["run"], result["status"]) == (facts["run"], "succeeded")
        calls = [one["facts"]["task"] for one in verbs.json("journal", "show", "last") if one["event"] == "call.begin"]
        assert [name.partition(".")[2] for name in calls] == ["main", "main.hand.held", "main.hand.held"]
