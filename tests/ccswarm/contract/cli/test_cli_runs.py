"""The verbs that look at runs: status, ps, logs, runs, journal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ccswarm.support.runs import BASE, HELD, TWO, RunVerbs, step, task
from tests.conftest import client_environment, environment
from tests.support.bounds import BOUND_SECONDS

OTHER = BASE + TWO.replace('args = { text = "say" }', 'args = { text = "other" }', 1) + task("three", step("more"))
LOOKS = (
    ("status",),
    ("ps",),
    ("logs", "last"),
    ("runs", "list"),
    ("runs", "show", "last"),
    ("runs", "replay", "last"),
    ("journal", "show", "last"),
)


@pytest.fixture(scope="module")
def verbs(shared_home: Path) -> Iterator[RunVerbs]:
    """Where two runs are over: ``first`` of TWO, ``second`` of OTHER."""
    with environment(client_environment(shared_home)):
        made = RunVerbs(shared_home, BASE + TWO)
        made.run("run")
        made.rewrite(OTHER)
        made.run("run")
        yield made


@pytest.fixture(autouse=True)
def at_home(home: Path, verbs: RunVerbs) -> Iterator[None]:
    """Every test's HOME is the one of the runs."""
    with environment(client_environment(verbs.home)):
        yield


@pytest.fixture
def runs(verbs: RunVerbs) -> list[str]:
    """The ids of ``second`` and ``first``."""
    return [row["run"] for row in verbs.json("runs", "list")]


def test_runs_are_listed_the_newest_first(verbs: RunVerbs, runs: list[str]) -> None:
    rows = verbs.run("runs", "list").rows
    assert [row[:2] for row in rows] == [[run, "succeeded"] for run in runs]
    assert [row[-1] for row in rows] == ["3 succeeded", "2 succeeded"]
    assert verbs.json("runs", "list", "--limit", "1")[0]["run"] == runs[0]


def test_a_run_is_named_by_its_beginning_or_as_the_last(verbs: RunVerbs, runs: list[str]) -> None:
    second, first = runs
    assert verbs.json("status")["run"] == verbs.json("status", "last")["run"] == second
    assert verbs.json("status", first[:14])["run"] == verbs.json("status", first[4:14])["run"] == first
    said = verbs.run("status", "run_", code=2)
    assert "error run_not_found: 'run_' is ambiguous: run_" in said.err
    assert "error run_not_found: no run 'nobody'" in verbs.run("status", "nobody", code=2).err


@pytest.mark.parametrize("verb", ["logs", "diff", "runs show", "runs replay", "journal show", "resume"])
def test_without_a_run_the_last_one_is_meant(verbs: RunVerbs, verb: str) -> None:
    code = 2 if verb == "resume" else 0
    named, unnamed = (verbs.run(*verb.split(), *which, code=code) for which in (("last",), ()))
    assert (unnamed.out, unnamed.err) == (named.out, named.err)
    assert named.out or named.err


def test_status_shows_each_task(verbs: RunVerbs, runs: list[str]) -> None:
    said = verbs.run("status", runs[1])
    assert ["status", "succeeded"] in said.rows
    assert [row[:4] for row in said.rows[-2:]] == [["one", "succeeded", "ada", "1"], ["two", "succeeded", "bob", "1"]]


def test_logs_are_the_events_and_the_calls_in_the_order_of_time(verbs: RunVerbs, runs: list[str]) -> None:
    found = verbs.lines("logs", runs[1], "--json")
    assert [(one["event"], one.get("task")) for one in found] == [
        ("run.started", None),
        ("task.started", "one"),
        ("call.begin", "one"),
        ("call.end", "one"),
        ("task.ended", "one"),
        ("task.started", "two"),
        ("call.begin", "two"),
        ("call.end", "two"),
        ("task.ended", "two"),
        ("run.ended", None),
    ]
    assert [one["at"] for one in found] == sorted(one["at"] for one in found)
    reported = verbs.run("logs", runs[1], "--follow", "--task", "two").out.splitlines()
    assert [re.sub(r"^\d\d:\d\d:\d\d\.\d\d\d ", "", re.sub(r"\d\.\d s", "N s", line)) for line in reported] == [
        "two: started by bob",
        "two: bob small.echo",
        "two: bob small.echo → ok (N s)",
        "two: succeeded: 1 step done",
    ]
    assert "the run has no task 'zwei'" in verbs.run("logs", runs[1], "--task", "zwei", code=2).err


def test_a_replay_tells_when_each_thing_happened(verbs: RunVerbs, runs: list[str]) -> None:
    found = verbs.lines("runs", "replay", runs[1], "--json")
    seconds = [one["seconds"] for one in found]
    assert (seconds[0], seconds) == (0.0, sorted(seconds))
    assert [one["event"] for one in found] == [one["event"] for one in verbs.lines("logs", runs[1], "--json")]
    lines = verbs.run("runs", "replay", runs[1]).out.splitlines()
    assert lines[0] == "    0.000 run started: 2 tasks, 2 agents"


def test_show_has_results_usage_and_what_the_journal_has(verbs: RunVerbs, runs: list[str]) -> None:
    facts = verbs.json("runs", "show", runs[1])
    assert facts["tasks"]["one"]["result"]["steps"]["say"]["params"]["arguments"]["text"] == "say"
    assert facts["usage"]["calls"] == facts["journal"]["calls"] == facts["journal"]["ended"] == 2
    said = verbs.run("runs", "show", runs[1])
    assert ["used_calls", "2"] in said.rows
    assert ["journal_refused", "0"] in said.rows
    assert any(row[0].startswith('one: {"steps": {"say": ') for row in said.rows)


def test_two_runs_are_compared_part_by_part(verbs: RunVerbs, runs: list[str]) -> None:
    second, first = runs
    rows = verbs.json("runs", "diff", first, second, code=1)["differences"]
    assert [(row["task"], row["what"], row["a"], row["b"]) for row in rows] == [
        ("one", "result.steps.say.params.arguments.text", "say", "other"),
        ("three", "task", False, True),
    ]
    assert verbs.run("runs", "diff", first, second, code=1).rows[-1] == ["three", "task", "false", "true"]
    assert "are the same run" in verbs.run("runs", "diff", first, first, code=2).err


def test_the_journal_shows_what_was_called(verbs: RunVerbs, runs: list[str]) -> None:
    rows = verbs.run("journal", "show", runs[1]).rows
    assert [row[3:8] for row in rows] == [
        ["call.begin", "one", "ada", "small.echo", ""],
        ["call.end", "one", "ada", "small.echo", "ok"],
        ["call.begin", "two", "bob", "small.echo", ""],
        ["call.end", "two", "bob", "small.echo", "ok"],
    ]


def test_verifying_finds_what_was_changed_and_what_a_server_does_not_have(verbs: RunVerbs, tmp_path: Path) -> None:
    assert verbs.json("journal", "verify")["sound"] is True
    copy = tmp_path / "journal"
    copy.mkdir()
    for file in (verbs.state / "journal").glob("*.jsonl"):
        (copy / file.name).write_bytes(file.read_bytes().replace(b"small.echo", b"small.ecko", 1))
    said = verbs.run("journal", "verify", "--directory", str(copy), code=1)
    assert ["verdict", "changed"] in said.rows
    assert "error journal_broken: verification failed" in said.err
    audit = tmp_path / "audit.jsonl"
    asked = {"event": "tool.start", "call": "call_1", "request": "ccall_1", "actor": {"client": "ccswarm/1"}}
    audit.write_text(json.dumps(asked) + "\n")
    found = verbs.json("journal", "verify", "--audit", str(audit), code=1)
    assert (found["sound"], found["journal"]["broken"], found["audit"]["joined"]) == (False, 0, 0)
    assert "the journal has no record of it" in found["audit"]["problems"][0]["what"]
    assert "there is no audit log" in verbs.run("journal", "verify", "--audit", str(tmp_path / "no"), code=2).err
    assert "there is no journal" in verbs.run("journal", "verify", "--directory", str(tmp_path / "none"), code=2).err


def test_what_goes_on_is_shown_while_it_does(verbs: RunVerbs) -> None:
    verbs.rewrite(BASE + HELD)
    try:
        with verbs.started("run") as verb, verbs.held() as pipe:
            run = verbs.json("status")["run"]
            rows = verbs.run("ps").rows
            assert [row[:3] for row in rows[:2]] == [[run, "running", ""], ["  hold", "running", "bob"]]
            assert rows[2][0] == rows[0][3] == rows[1][3]
            with verbs.started("logs", "last", "-f") as logs:
                assert logs.process.stdout
                assert next(line for line in logs.process.stdout if b"pipe.read" in line).endswith(b"bob pipe.read\n")
                pipe.write("x")
                pipe.close()
                out, _ = logs.process.communicate(timeout=BOUND_SECONDS)
                assert out.splitlines()[-1].endswith(b" run succeeded: 1 succeeded")
            assert logs.process.returncode == verb.process.wait(BOUND_SECONDS) == 0
    finally:
        verbs.rewrite(OTHER)


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_whoever_looks_changes_nothing_and_says_json_alone(verbs: RunVerbs, words: tuple[str, ...]) -> None:
    said = verbs.run(*words, "--json")
    assert said.err == ""
    for line in said.out.splitlines():
        json.loads(line)


def test_where_nothing_ran_there_is_nothing(home: Path) -> None:
    with environment(client_environment(home)):
        empty = RunVerbs(home, BASE + TWO, stored=False)
        assert empty.json("runs", "list") == []
        assert empty.json("ps") == {"going": [], "workers": {}}
        begin = 'Begin one: ccswarm run "list the files"'
        for words, said in ((("runs", "list"), "There are no runs."), (("ps",), "Nothing is running.")):
            reported = empty.run(*words)
            assert (reported.out, reported.err) == ("", f"{said} {begin}\n")
        assert "error run_not_found: there are no runs" in empty.run("status", code=2).err
        assert "there is no journal" in empty.run("journal", "verify", code=2).err
