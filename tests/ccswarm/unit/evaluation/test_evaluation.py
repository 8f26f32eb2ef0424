"""Suites as files, what entrants do of a case, places that nobody can lead astray, reports and what differs in two."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ccswarm.config.settings import AgentSettings, EngineSettings, McpSettings, PlanStep, ServerSettings, Settings
from ccswarm.errors import ConfigInvalid, UsageInvalid, WorkspaceUnusable
from ccswarm.evaluation import report as evaluation_report
from ccswarm.evaluation import runner
from ccswarm.evaluation import suite as evaluation
from ccswarm.evaluation.report import Result
from ccswarm.evaluation.suite import Case, Entrant, Suite
from ccswarm.evaluation.workdir import WorkDirectory
from ccswarm.plan import check

HEAD = '[suite]\nname = "small"\n'
CASE = '[[cases]]\nid = "one"\ntext = "Do it."\ngates = ["true"]\n'


def suite(folder: Path, text: str) -> Suite:
    file = folder / "small.toml"
    file.write_text(text)
    return evaluation.load(file, lambda _: True)


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        suite(folder, text)
    assert caught.value.suggestion == evaluation.GUIDE
    return caught.value.message


def case(**facts: Any) -> Case:
    return Case.model_validate({"id": "one", "text": "Do it.", "gates": ["true"], **facts})


def entrant(brain: str = "playbook", **facts: Any) -> Entrant:
    return Entrant("someone", AgentSettings(name="someone", brain=brain, **facts))


# What a suite says


def test_a_suite_needs_a_name_and_cases_with_text_and_gates(tmp_path: Path) -> None:
    found = suite(tmp_path, HEAD + CASE)
    assert (found.suite.name, [one.id for one in found.cases], found.cases[0].timeout_seconds) == (
        "small",
        ["one"],
        300,
    )
    message = refused(tmp_path, '[[cases]]\nid = "one"\n')
    assert "suite is missing; [cases.one] text is missing; [cases.one] gates is missing" in message
    assert "[cases] there are none" in refused(tmp_path, "cases = []\n" + HEAD)
    assert "[cases.one] gates: at least one" in refused(tmp_path, HEAD + CASE.replace('["true"]', "[]"))


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (CASE + 'gatefiles = { a = "" }\n', "[cases.one] gatefiles is not known (did you mean gate_files?)"),
        (CASE + "[cases.setups]\n", "[cases.one] setups is not known (did you mean setup?)"),
        (
            CASE + 'steps = ["ls", { id = "a", tol = "x" }]\n',
            "[cases.one.steps.a] tol is not known (did you mean tool?)",
        ),
        (CASE + 'steps = ["ls", { id = "a" }]\n', "[cases.one.steps.a] tool is missing"),
        (CASE + "steps = [1]\n", "[cases.one.steps] #1 should be a table"),
        (CASE + 'replies = [{ calls = [{ tol = "x" }] }]\n', "tool is missing"),
        (CASE + CASE, "[cases] id one occurs 2 times"),
        (CASE + "[cases.files]\n'/etc/passwd' = ''\n", "'/etc/passwd' is not a path within the repository"),
        (CASE + "[cases.files]\n'a/../../b' = ''\n", "[cases.one.files] 'a/../../b' is not a path"),
        (CASE + "[cases.gate_files]\n'.git/config' = ''\n", "[cases.one.gate_files] '.git/config' is not a path"),
        (CASE + 'fixture = "gone"\n', "[cases.one] fixture: "),
        (CASE.replace("one", "one two"), "id should be letters, digits"),
    ],
)
def test_every_mistake_is_named_with_its_place(tmp_path: Path, text: str, reported: str) -> None:
    assert reported in refused(tmp_path, HEAD + text)


def test_commands_and_steps_become_a_playbook_in_one_terminal(tmp_path: Path) -> None:
    text = CASE + 'steps = ["echo ${HOME}", { id = "look", tool = "sh.list_sessions" }]\n'
    steps = entrant().steps_for(suite(tmp_path, HEAD + text).cases[0], "sh")
    assert [step.id for step in steps] == ["terminal", "command-1", "look", "terminal-closed"]
    assert [step.tool.partition(".")[0] for step in steps] == ["sh"] * 4
    assert steps[1].args["command"] == "echo $${HOME}"
    assert steps[1].args["session_id"] == steps[3].args["session_id"] == "${steps.terminal.session_id}"
    assert (
        check.plan_problems(
            Settings(
                mcp=McpSettings(servers=(ServerSettings(name="sh", command="x"),)),
                agents=(AgentSettings(name="someone", grants=("sh.*",)),),
                tasks=({"id": "one", "agent": "someone", "steps": steps},),  # pyright: ignore[reportArgumentType]
            ),
            None,
        )
        == []
    )
    assert evaluation.playbook((), "sh") == ()


# Who does what of a case


def test_entrants_do_what_they_can() -> None:
    nothing, wrong = (
        Entrant("a", AgentSettings(name="a"), does="nothing"),
        Entrant("a", AgentSettings(name="a"), does="wrong"),
    )
    recorded = entrant("llm", settings={"model": "recorded:"})
    empty, full = case(), case(steps=["a"], wrong=["b", "c"], replies=[{"text": "yes"}])
    reported = [one.cannot(empty) for one in (entrant(), nothing, wrong, recorded, entrant("llm"))]
    assert reported == ["the case has no steps", "", "the case has no wrong solution", "the case has no replies", ""]
    assert [one.cannot(full) for one in (entrant(), nothing, wrong, recorded)] == [""] * 4
    counts = [len(one.steps_for(full, "sh")) for one in (entrant(), nothing, wrong, recorded)]
    assert counts == [3, 0, 4, 0]
    replies = recorded.agent_for(full).settings["replies"]
    assert [(one["text"], one["calls"]) for one in replies] == [("yes", [])]
    assert entrant("llm", settings={"model": "openai:x"}).agent_for(full).settings == {"model": "openai:x"}


def test_tries_go_round_by_round_and_what_cannot_be_tried_is_told() -> None:
    those = [case(steps=["a"]), case(id="two"), case(id="three", steps=["a"])]
    cases = Suite.model_validate({"suite": {"name": "small"}, "cases": [one.model_dump() for one in those]})
    tries, left_out = runner.tries_of(cases, [entrant()], 2)
    assert [(one.case.id, one.attempt) for one in tries] == [("one", 1), ("three", 1), ("one", 2), ("three", 2)]
    assert left_out == [{"case": "two", "entrant": "someone", "why": "the case has no steps"}]
    tries, left_out = runner.tries_of(cases, [entrant()], 1, ["three"])
    assert ([one.case.id for one in tries], left_out) == (["three"], [])


def server(command: str, **facts: Any) -> Settings:
    return Settings(mcp=McpSettings(servers=(ServerSettings(name="ai-session", command=command, **facts),)))


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("ai-session mcp-server --stdio", ("--no-daemon",)),
        ("/usr/bin/python -m ai_session mcp-server --stdio", ("--no-daemon",)),
        ("ai-session mcp-server --stdio --no-daemon", ()),
        ("another-shell --stdio", ()),
    ],
)
def test_only_ai_session_is_given_sessions_of_its_own(command: str, args: tuple[str, ...]) -> None:
    found = runner.settings_for(server(command, cwd="/somewhere", env={"A": "b"})).mcp.servers[0]
    assert (found.command, found.args, found.cwd, found.env) == (command, args, "", {"A": "b"})


def test_nothing_of_the_configuration_but_its_servers_is_used() -> None:
    given = server("x").model_copy(update={"engine": EngineSettings(database_url="postgresql://elsewhere")})
    found = runner.settings_for(given)
    assert (found.engine.database_url, found.agents, found.tasks) == ("", (), ())
    default = runner.settings_for(Settings()).mcp.servers
    assert [(one.name, one.args) for one in default] == [("ai-session", ("--no-daemon",))]


# Places


@pytest.fixture
def work_directory(tmp_path: Path) -> WorkDirectory:
    return WorkDirectory(tmp_path / "place", {"PATH": os.environ["PATH"]})


def git(work_directory: WorkDirectory, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=work_directory.directory, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_place_begins_the_same_each_time(work_directory: WorkDirectory, tmp_path: Path) -> None:
    (tmp_path / "beside/deep").mkdir(parents=True)
    (tmp_path / "beside/deep/run.sh").write_text("echo\n")
    (tmp_path / "beside/deep/run.sh").chmod(0o755)
    one = case(
        fixture="beside", files={"naïve file.txt": "ü\n"}, setup=["git commit -q --allow-empty -m More", "echo x > new"]
    )
    work_directory.fill(one, tmp_path)
    first = git(work_directory, "log", "--format=%H %an %s")
    assert git(work_directory, "status", "--porcelain") == "?? new"
    assert git(work_directory, "ls-files", "-z").split("\0") == ["deep/run.sh", "naïve file.txt", ""]
    assert os.access(work_directory.directory / "deep/run.sh", os.X_OK)
    (work_directory.directory / "left").write_text("of an agent")
    work_directory.fill(one, tmp_path)
    assert git(work_directory, "log", "--format=%H %an %s") == first
    assert not (work_directory.directory / "left").exists()
    assert [line.split()[1:] for line in first.splitlines()] == [["A", "Person", "More"], ["A", "Person", "Begin"]]


def test_a_setup_that_fails_is_reported_with_its_output(work_directory: WorkDirectory, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceUnusable, match="exit code 3: so it is"):
        work_directory.fill(case(setup=["echo so it is >&2; exit 3"]), tmp_path)
    with pytest.raises(WorkspaceUnusable, match="false"):
        work_directory.fill(case(setup=["false\ntrue"]), tmp_path)


def test_files_are_put_in_place_whatever_was_left_there(work_directory: WorkDirectory, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("mine")
    (work_directory.directory / "link").symlink_to(outside)
    (work_directory.directory / "file").symlink_to(outside / "kept")
    (work_directory.directory / "taken").mkdir()
    (work_directory.directory / "taken/inner").write_text("x")
    (work_directory.directory / "flat").write_text("x")
    (work_directory.directory / "fixed").write_text("x")
    (work_directory.directory / "fixed").chmod(0o400)
    names = ("link/kept", "link/deeper/one", "file", "taken", "flat/below", "fixed", "new/er/é")
    work_directory.put(dict.fromkeys(names, "put"))
    assert [(work_directory.directory / name).read_text() for name in names] == ["put"] * len(names)
    assert [(one.name, one.read_text()) for one in outside.iterdir()] == [("kept", "mine")]


def test_clearing_follows_no_links_and_opens_what_was_closed(work_directory: WorkDirectory, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine")
    (work_directory.directory / "link").symlink_to(tmp_path)
    (work_directory.directory / "closed/in").mkdir(parents=True)
    (work_directory.directory / "closed/in/file").write_text("x")
    (work_directory.directory / "closed/in").chmod(0)
    (work_directory.directory / "closed").chmod(0)
    os.mkfifo(work_directory.directory / "pipe")
    part = "a/" * 250
    deep = f"mkdir deep && cd deep && for n in 1 2 3 4 5 6; do mkdir -p {part} && cd {part} || exit; done"
    subprocess.run(deep, shell=True, cwd=work_directory.directory, check=True)
    work_directory.clear()
    assert list(work_directory.directory.iterdir()) == []
    assert (tmp_path / "outside").read_text() == "mine"


def test_what_is_kept_is_all_that_was_there(work_directory: WorkDirectory, tmp_path: Path) -> None:
    work_directory.fill(case(files={"a/b": "c"}), tmp_path)
    work_directory.keep(tmp_path / "kept/one")
    assert list(work_directory.directory.iterdir()) == []
    kept = sorted(one.name for one in (tmp_path / "kept/one").iterdir())
    assert kept == [".git", "a"]


# Reports


def result(name: str, passed: bool, who: str = "ada", **facts: Any) -> Result:
    return Result(name, who, facts.pop("attempt", 1), passed, **facts)


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    results = [result("one", True, calls=3, seconds=0.5), result("one", False, attempt=2, why="no", dollars=0.25)]
    report = evaluation_report.document({"suite": "small"}, results, complete=True)
    evaluation_report.write(tmp_path / "deep/report.json", report)
    assert evaluation_report.read(tmp_path / "deep/report.json") == results
    assert [one.name for one in (tmp_path / "deep").iterdir()] == ["report.json"]
    total = report["totals"][0]
    assert (total["passed"], total["attempts"], total["rate"], total["dollars"]) == (1, 2, 0.5, 0.25)
    row = evaluation_report.rows(results)[0]
    assert (row["passed"], row["attempts"], row["calls"], row["good"], row["why"]) == (1, 2, 3, False, "no")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"report": 2, "results": []}', '{"report": 1, "results": [{"a": 1}]}']
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(UsageInvalid, match="is not a report"):
        evaluation_report.read(tmp_path / "report.json")
    with pytest.raises(UsageInvalid, match="is not a report"):
        evaluation_report.read(tmp_path / "gone.json")


def test_what_is_to_be_refused_is_good_when_it_is() -> None:
    refused_one, held = result("a", False, expected=False), result("b", True, expected=False)
    assert (refused_one.good, held.good) == (True, False)
    assert evaluation_report.rows([held])[0]["why"] == "the gates passed, but should not have"


def test_two_reports_are_compared_case_by_case() -> None:
    before = [result("a", True, calls=4), result("b", False), result("c", True), result("gone", True)]
    after = [
        result("a", True, "bob", calls=6),
        result("b", True, "bob"),
        result("c", False, "bob"),
        result("d", True, "bob"),
    ]
    rows = {row["case"]: row for row in evaluation_report.compare(before, after)}
    changes = {name: row["change"] for name, row in rows.items()}
    assert changes == {"a": "same", "b": "fixed", "c": "broken", "gone": "gone", "d": "new"}
    assert (rows["a"]["calls"], rows["a"]["before"], rows["a"]["after"]) == (2, "1/1", "1/1")
    often = [result("a", passed, attempt=at) for at, passed in enumerate((True, False, True, False), 1)]
    assert evaluation_report.compare([result("a", True)], often)[0]["change"] == "broken"
    assert evaluation_report.compare(often[:2], often)[0]["change"] == "same"
    two = [result("a", True, "ada"), result("a", True, "bob")]
    assert [row["change"] for row in evaluation_report.compare(two, two[:1])] == ["same", "gone"]


def test_a_step_may_be_given_as_one() -> None:
    step = PlanStep(id="a", tool="sh.run")
    assert evaluation.playbook((step,), "sh")[1] is step
    assert json.loads(case(steps=["ls", step]).model_dump_json())["steps"][1]["tool"] == "sh.run"
