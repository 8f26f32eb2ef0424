"""Suites tried in real terminals, in boxes: by playbooks and recorded models; nothing leaks, nothing can be forged."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ccswarm.support.runs import RunVerbs
from tests.ccswarm.support.verbs import BOUND_SECONDS, agent
from tests.conftest import UNBOXED, client_environment, environment, new_home

ROOT = Path(__file__).parents[2]
BASICS = str(ROOT / "ccswarm/evaluation/suites/basics.toml")
REPOSITORIES = str(ROOT / "ccswarm/evaluation/suites/repositories.toml")
CONFIG = f"""
[[mcp.servers]]
name = "ai-session"
command = "{sys.executable} -m ai_session mcp-server --stdio"
env = {{ PYTHONPATH = "{ROOT}" }}
"""
END = "echo two > file"
SESSION = 'session_id = "${steps.terminal.session_id}"'


@pytest.fixture
def verbs(homes: Path) -> Iterator[RunVerbs]:
    """In a home where nothing of ai-session is configured: sessions have boxes."""
    home = new_home(homes, "")
    with environment(client_environment(home)):
        made = RunVerbs(home)
        made.rewrite(CONFIG)
        yield made


def case(name: str, gate: str, more: str = "", check: str = "") -> str:
    hidden = f"[cases.gate_files]\n'.gate/check' = '''{check}'''\n" if check else ""
    return f"[[cases]]\nid = '{name}'\ntext = 'Do it.'\ngates = ['''{gate}''']\n{more}\n{hidden}"


def suite(verbs: RunVerbs, *cases: str) -> str:
    file = verbs.home / "mine.toml"
    verbs.rewrite("[suite]\nname = 'mine'\n" + "".join(cases), file)
    return str(file)


def results(verbs: RunVerbs, *words: str, code: int = 0) -> dict[str, Any]:
    """By case, and the whole report as ``""``."""
    said = verbs.run("eval", *words, "--json", code=code)
    documents = [json.loads(line) for line in said.out.splitlines()]
    report = documents[-1]
    assert (report["event"], report["exit_code"]) == ("result", code)
    started = [one["case"] for one in documents if one["event"] == "case.started"]
    ended = [one["result"]["case"] for one in documents if one["event"] == "case.ended"]
    assert sorted(started) == sorted(ended) == sorted(one["case"] for one in report["results"])
    assert json.loads(Path(report["path"]).read_text())["results"] == report["results"]
    return {"": report, **{one["case"]: one for one in report["results"]}}


def test_a_shipped_case_is_solved_in_a_real_terminal(verbs: RunVerbs) -> None:
    found = results(verbs, BASICS, "--brain", "playbook", "--brain", "llm", "--only", "interrupt", "--report", "r.json")
    ends = [(one["entrant"], one["passed"], one["status"]) for one in found[""]["results"]]
    assert ends == [("playbook", True, "succeeded")]
    assert found[""]["left_out"] == [{"case": "interrupt", "entrant": "llm", "why": "the case has no replies"}]
    assert found[""]["path"] == str(verbs.home / "r.json")
    assert not (verbs.state / "engine.db").exists(), "an evaluation's runs are none of the user's"


@pytest.mark.torture
def test_shipped_cases_are_solved_in_real_terminals_by_playbooks_and_recorded_models(verbs: RunVerbs) -> None:
    only = ("--only", "wizard", "--only", "interrupt")
    found = results(
        verbs, BASICS, "--brain", "playbook", "--brain", "llm", *only, "--report", "r.json", "--at-once", "2"
    )
    ends = {(one["case"], one["entrant"]): one for one in found[""]["results"]}
    assert len(ends) == 3
    assert [one for one in ends.values() if not one["passed"] or one["status"] != "succeeded"] == []
    assert ends["wizard", "llm"]["tokens"] > 10_000 > ends["wizard", "playbook"]["calls"] >= 10
    totals = {one["entrant"]: (one["passed"], one["attempts"], one["rate"]) for one in found[""]["totals"]}
    assert totals == {"playbook": (2, 2, 1.0), "llm": (1, 1, 1.0)}
    assert found[""]["left_out"] == [{"case": "interrupt", "entrant": "llm", "why": "the case has no replies"}]
    assert found[""]["path"] == str(verbs.home / "r.json")
    assert not (verbs.state / "engine.db").exists(), "an evaluation's runs are none of the user's"


def alone(verbs: RunVerbs) -> str:
    """Looks for what it must not see, while another one does the same, and that one's session is open."""
    count = "python3 -c 'import json, sys; assert len(json.load(sys.stdin)) == 1'"
    return f"""steps = [
        "test ! -e .gate && test ! -e {verbs.home / "mine.toml"} && test ! -e {verbs.state} && sleep 0.4",
        {{ id = "list", tool = "ai-session.list_sessions" }},
        {{ id = "one", tool = "ai-session.execute_command",
           args = {{ {SESSION}, command = '''{count}''', stdin = " ${{steps.list.sessions}}" }} }},
        "sleep 0.4 && touch looked",
    ]""".replace("\n           args", " args")


@pytest.mark.torture
def test_nothing_leaks_nothing_an_agent_leaves_counts_and_gates_decide(verbs: RunVerbs) -> None:
    outside = verbs.home / "outside"
    outside.mkdir()
    forging = """steps = [
        "mkdir .gate && echo true > .gate/check",
        "(setsid sh -c 'while :; do mkdir -p .gate; echo true > .gate/check; done' > /dev/null 2>&1 &)",
        "false",
    ]"""
    # A playbook that fails leaves its session open.
    closed = "steps = ['mkdir -p .gate/check/deep && chmod 0 .gate/check && chmod 500 .gate', 'touch done']"
    looks, check = alone(verbs), "test -e done"
    cases = (
        case("one", "test -e looked && sh .gate/check", looks, "test -e .gate/check"),
        case("two", "test -e looked && sh .gate/check", looks, "test -e .gate/check"),
        case("forging", "sh .gate/check", forging, check),
        case("linked", "sh .gate/check", f"steps = ['ln -s {outside} .gate', 'touch done']", check),
        case("closed", "sh .gate/check", closed, check),
        case("after", "test ! -e .gate && test ! -e done && test ! -L .gate", "steps = ['ls -A']"),
        case("late", "test -e done", "timeout_seconds = 4\nsteps = ['touch done', 'sleep 60']"),
        case("claims", "pwd; test -e done", "steps = ['true']"),
        case("broken", "true", "setup = ['echo no such luck; false']\nsteps = ['true']"),
        case("slow-gate", "sleep 30", "gate_seconds = 0.5\nsteps = ['true']"),
    )
    found = results(verbs, suite(verbs, *cases), "--at-once", "2", code=1)
    passed = {name for name, one in found.items() if name and one["passed"]}
    assert passed == {"one", "two", "linked", "closed", "after", "late"}, found
    assert {name for name, one in found.items() if name and one["status"] == "failed"} == {"late", "forging"}, found
    assert list(outside.iterdir()) == []
    assert found["late"]["summary"] == "not done within 4 s"
    assert found["slow-gate"]["why"].endswith("not done within 0.5 s")
    assert found["broken"]["calls"] == 0
    assert re.search("^setup: .*no such luck", found["broken"]["why"])
    location = re.search(r"^/\S*/ccswarm-eval-\w+/\d$", found["claims"]["why"], re.MULTILINE)
    assert location, found["claims"]["why"]
    assert not Path(location[0]).parent.exists()


@pytest.mark.torture
def test_agents_of_the_configuration_are_tried_whatever_thinks_for_them(homes: Path) -> None:
    home = new_home(homes, UNBOXED)
    command = json.dumps({"session_id": "work", "command": END})
    actions = ['call:ai-session__create_session:{"name":"work"}', f"call:ai-session__execute_command:{command}"]
    words = [
        sys.executable,
        str(ROOT / "tests/data/scripted_agent.py"),
        "{mcp_config}",
        *actions,
        "finish:succeeded:so",
    ]
    program = f'brain = "cli"\nsettings = {{ program = "scripted", command = {json.dumps(words)} }}'
    model = 'brain = "llm"\nworkspace = "clone"\nsettings = { model = "recorded:" }'
    calls = ['{ tool = "ai-session.create_session", arguments = { name = "work" } }']
    calls += [f"{{ tool = 'ai-session.execute_command', arguments = {{ session_id = 'work', command = '{END}' }} }}"]
    calls += ['{ tool = "finish", arguments = { status = "succeeded", summary = "Done." } }']
    replies = ", ".join(f"{{ calls = [{call}] }}" for call in calls)
    mine = case("two", "grep -qx two file", f"replies = [{replies}]")
    with environment(client_environment(home)):
        agents = agent("ada", "ai-session.*", more=model) + agent("bob", "ai-session.*", more=program)
        verbs = RunVerbs(home)
        verbs.rewrite(CONFIG + agents)
        said = results(verbs, suite(verbs, mine), "--agent", "ada", "--agent", "bob", "--at-once", "1")
    ends = {one["entrant"]: one for one in said[""]["results"]}
    assert [(name, one["passed"], one["status"]) for name, one in ends.items()] == [
        ("ada", True, "succeeded"),
        ("bob", True, "succeeded"),
    ], ends
    assert (ends["bob"]["summary"], ends["bob"]["dollars"]) == ("so", 0.25)


@pytest.mark.torture
def test_suites_are_proven_and_repositories_kept(verbs: RunVerbs) -> None:
    weak = case("weak", "test -e file", "steps = ['echo two > file']\nwrong = ['echo one > file']")
    said = verbs.run("eval", suite(verbs, weak), "--prove", "--keep", "--at-once", "1", code=1)
    rows = {row[1]: row[2] for row in said.rows}
    assert rows == {"solution": "passed", "nothing": "refused", "wrong": "held"}
    kept = re.search(r"^kept: (\S+)$", said.err, re.MULTILINE)
    assert kept
    assert (Path(kept[1]) / "kept/wrong/weak-1/file").read_text() == "one\n"
    assert (Path(kept[1]) / "state/engine.db").exists()
    shutil.rmtree(kept[1])


@pytest.mark.torture  # test_cli_run.py has it of a run
def test_what_the_tools_make_impossible_is_told_before_anything_starts(verbs: RunVerbs) -> None:
    text = case("one", "true", 'steps = [{ id = "a", tool = "ai-session.execute_comand" }]')
    error = verbs.json("eval", suite(verbs, text), code=2)["error"]
    assert "execute_comand, which does not exist (did you mean ai-session.execute_command?)" in error["message"]
    verbs.rewrite('[[mcp.servers]]\nname = "ai-session"\ncommand = "false"\n')
    good = case("one", "true", "steps = ['true']")
    assert verbs.json("eval", suite(verbs, good), code=1)["error"]["code"] == "server_unavailable"


@pytest.mark.torture
def test_progress_is_drawn_and_ctrl_c_leaves_a_report_and_nothing_else(verbs: RunVerbs) -> None:
    cases = (case("quick", "pwd; false", "steps = ['true']"), case("endless", "true", "steps = ['sleep 600']"))
    words = ("eval", suite(verbs, *cases), "--at-once", "1", "--report", "report.json", "--repeat", "2")
    with verbs.terminal(*words) as (typed, forked):
        for reported in ("mine  [0-9]+ s  0 of 4", "quick +playbook", "failed", "/1", "1 of 4", "endless +playbook"):
            typed.expect(reported)
        typed.send("\x03")
        for reported in ("Ctrl-C again", "ENTRANT", "playbook", "0%", "report: "):
            typed.expect(reported)
        assert forked.wait(BOUND_SECONDS) == 130
    report = json.loads((verbs.home / "report.json").read_text())
    assert (report["complete"], [one["case"] for one in report["results"]]) == (False, ["quick"])
    location = re.search(r"^(/\S*/ccswarm-eval-\w+)/1$", report["results"][0]["why"], re.MULTILINE)
    assert location
    assert not Path(location[1]).exists()


@pytest.mark.torture
def test_every_shipped_case_is_solved_and_its_gates_refuse_what_is_not(verbs: RunVerbs) -> None:
    found = results_of(verbs, BASICS, "--prove")
    assert {one["entrant"] for one in found} == {"solution", "nothing", "wrong"}
    assert [one for one in found if one["passed"] != one["expected"]] == []
    assert [one for one in found if one["entrant"] == "wrong" and one["status"] != "succeeded"] == []
    assert len(found) >= 60


@pytest.mark.torture
def test_every_recorded_reply_solves_its_case(verbs: RunVerbs) -> None:
    found = results_of(verbs, BASICS, "--brain", "llm", "--repeat", "2")
    assert len(found) >= 10
    assert [one for one in found if not one["passed"]] == []


@pytest.mark.torture
def test_defects_in_repositories_are_fixed_with_bash_read_and_edit(verbs: RunVerbs) -> None:
    """By recorded replies, judged by tests that they do not see, which refuse what only passes those that they do."""
    found = results_of(verbs, REPOSITORIES, "--brain", "llm")
    assert len(found) == 20
    assert [one for one in found if not one["passed"]] == []
    proven = results_of(verbs, REPOSITORIES, "--prove")
    assert [one for one in proven if one["passed"] != one["expected"]] == []


def results_of(verbs: RunVerbs, *words: str) -> list[dict[str, Any]]:
    said = verbs.run("eval", *words, "--json")
    return json.loads(said.out.splitlines()[-1])["results"]
