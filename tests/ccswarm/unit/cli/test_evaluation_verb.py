"""``ccswarm eval`` before anything is tried: which suite, who, what cannot be; and two reports compared."""

from __future__ import annotations

import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from ccswarm.cli.eval_view import view_of
from ccswarm.evaluation.report import Result, document, rows, write
from tests.ccswarm.support.verbs import Stream, Verbs, agent

SUITE = """
[suite]
name = "mine"

[[cases]]
id = "one"
text = "Do it."
gates = ["true"]
steps = ["true"]

[[cases]]
id = "two"
text = "Do it."
gates = ["true"]
"""
AGENTS = agent("ada", "x.*") + agent("cyd", "swarm.*") + agent("bob", "x.*", more='approval = "all"')


@pytest.fixture
def verbs(home: Path) -> Verbs:
    verbs = Verbs(home, AGENTS)
    (home / "config/suites").mkdir(parents=True)
    (home / "config/suites/mine.toml").write_text(SUITE)
    return verbs


def error(verbs: Verbs, *words: str) -> dict[str, Any]:
    return verbs.json("eval", *words, code=2)["error"]


def test_a_suite_is_a_file_or_a_name(verbs: Verbs) -> None:
    assert error(verbs)["suggestion"] == "ccswarm eval SUITE; there are: basics, mine, repositories"
    wrong = error(verbs, "yours")
    assert (wrong["message"], wrong["suggestion"]) == (
        "there is no suite 'yours'",
        "give the path of a suite; there are: basics, mine, repositories",
    )
    for name in ("mine", "config/suites/mine.toml"):
        wrong = error(verbs, name, "--only", "on")
        assert (wrong["message"], wrong["suggestion"]) == ("there is no case 'on'", "use one of: one, two")
    (verbs.home / "bad.toml").write_text(SUITE + "gatez = []\n")
    assert "[cases.two] gatez is not known (did you mean gates?)" in error(verbs, "bad.toml")["message"]


def test_who_cannot_be_tried_is_told(verbs: Verbs) -> None:
    wrong = error(verbs, "mine", "--agent", "eve")
    assert (wrong["message"], wrong["suggestion"]) == ("there is no agent 'eve'", "use one of: ada, cyd, bob")
    assert error(verbs, "mine", "--agent", "bob")["message"].startswith("bob would ask a person")
    assert error(verbs, "mine", "--agent", "cyd")["message"].startswith("bob would ask a person")
    assert error(verbs, "mine", "--brain", "no/brain")["message"] == "'no/brain' is not a brain"
    assert "nothing to evaluate: the case has no steps" in error(verbs, "mine", "--only", "two")["message"]
    wrong = error(verbs, "mine", "--brain", "llm")
    assert wrong["message"] == "nothing to evaluate: the case has no replies"
    verbs.rewrite(agent("ada", "x.*", more='brain = "llm"\nsettings = { model = "openay:x" }'))
    wrong = error(verbs, "mine", "--agent", "ada")
    assert wrong["code"] == "config_invalid"
    assert wrong["message"].startswith("ada: ")
    assert "openay:x" in wrong["message"]


def report(verbs: Verbs, name: str, *results: Result) -> str:
    write(verbs.home / name, document({"suite": "mine"}, results, complete=True))
    return name


def test_reports_are_compared(verbs: Verbs) -> None:
    one = Result("one", "ada", 1, True, calls=4, seconds=2.0)
    two = Result("two", "ada", 1, False, calls=9)
    better = report(verbs, "b.json", Result("one", "bob", 1, True, calls=3, seconds=1.0), Result("two", "bob", 1, True))
    before = report(verbs, "a.json", one, two)
    said = verbs.run("eval", "--compare", before, better)
    assert said.rows == [
        ["one", "", "same", "1/1", "1/1", "-1", "", "", "-1"],
        ["two", "", "fixed", "0/1", "1/1", "-9", "", "", ""],
    ]
    found = verbs.json("eval", "--compare", better, before, code=1)
    assert ([row["change"] for row in found["cases"]], found["broken"]) == (["same", "broken"], 1)
    assert [one["passed"] for one in found["totals"]] == [2, 1]
    (verbs.home / "none.json").write_text(json.dumps({"report": 1}))
    assert (
        "none.json is not a report" in verbs.json("eval", "--compare", before, "none.json", code=2)["error"]["message"]
    )
    assert "ENTRANT" in verbs.run("eval", "--compare", before, better, terminal=True).out


def shown(*results: Result, terminal: bool = False, as_json: bool = False, left_out: int = 0) -> tuple[str, str]:
    """What is said, on standard output and on standard error."""
    out, err = Stream(terminal=terminal), Stream(terminal=False)
    with redirect_stdout(out), redirect_stderr(err):
        view = view_of("mine", len(results), as_json=as_json)
        with view.shown():
            for one in results:
                facts = {"case": one.case, "entrant": one.entrant, "attempt": one.attempt}
                view.tell("case.started", facts)
                view.tell("case.ended", {**facts, "result": one})
        why = [{"case": f"c{at}", "entrant": "ada", "why": "the case has no steps"} for at in range(left_out)]
        made = document({"left_out": why}, results, complete=True)
        view.end({**made, "path": "/there/report.json"}, rows(results))
    return out.said, err.said


BAD = "gate `sh check`: expected exit code 0, got 1 (status finished); its answer: …\nmore\x1b[31m\nlast\tline\n"


def test_a_pipe_gets_a_line_for_each_attempt() -> None:
    good = Result("one", "ada", 1, True, calls=3, tokens=5, dollars=0.125, seconds=1.005)
    out, err = shown(good, Result("two", "ada", 1, False, why=BAD), left_out=2)
    assert [line.split("\t") for line in out.splitlines()] == [
        ["one", "ada", "passed", "3", "5", "0.125", "1.00", ""],
        ["two", "ada", "failed", "0", "0", "0", "0.00", "gate `sh check`: expected exit code 0 … last\\tline"],
    ]
    assert err.splitlines() == [
        "ada: 1 of 2 passed, 3 calls, 1.0 s, 5 tokens, $0.1250",
        "left out for ada: the case has no steps: c0, c1",
        "report: /there/report.json",
    ]


def test_programs_get_documents() -> None:
    out, err = shown(Result("one", "ada", 1, True), as_json=True)
    documents = [json.loads(line) for line in out.splitlines()]
    assert [one["event"] for one in documents] == ["case.started", "case.ended", "result"]
    assert (documents[1]["result"]["passed"], documents[2]["path"], err) == (True, "/there/report.json", "")


def test_a_terminal_gets_what_was_to_be_refused_and_tables() -> None:
    again = [Result("one", "ada", at, at < 3, why=BAD) for at in (1, 2, 3)]
    out, _ = shown(*again, Result("one", "wrong", 1, True, expected=False), terminal=True)
    words = " ".join(out.split())
    assert "2/3" in words
    assert "67%" in words
    assert "held" in words
    assert "mine 0 s 0 of 4" in words
