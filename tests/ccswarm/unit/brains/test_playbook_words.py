"""Tasks in words without a model: which playbook is chosen, and what is done in the terminal."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ccswarm.brains.base import CallTool
from ccswarm.brains.playbook.plugin import PLUGIN
from ccswarm.brains.playbook.words import LIBRARY, SEARCH, WordPlaybook, choose
from ccswarm.config.settings import AgentSettings, McpSettings, ServerSettings, Settings
from ccswarm.errors import PlanInvalid
from ccswarm.models import CallOutcome, CallStatus
from ccswarm.plan import check
from ccswarm.runs import service
from tests.ccswarm.support.playbooks import Drive, drive, exited, ok


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("list the files", "files"),
        ("make the tests pass", "tests"),
        ("What changed?", "changes"),
        ("How many lines of Python does this project have?", "size"),
        ("Which TODOs are left", "todo"),
        ("Analyze knowledge graph for communities", "search"),
        ("", "search"),
    ],
)
def test_the_words_choose(text: str, name: str) -> None:
    assert choose(text).name == name


def test_a_playbook_of_ones_own_comes_before_the_library() -> None:
    own = WordPlaybook(name="deploy", words=("tests", "deploys"), command="./deploy")
    assert choose("deploy after the tests", (own,)).name == "deploy"
    assert choose("the tests", (own,)).name == "deploy"
    assert choose("list files", (own,)).name == "files"


def test_what_nothing_is_about_is_searched_for_without_what_says_nothing() -> None:
    assert (
        choose("Analyze the knowledge graph for communities, please").stdin
        == "Analyze\nknowledge\ngraph\ncommunities\n"
    )


def test_the_library_says_what_is_true(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text('print("hello")  # TODO sell\n')
    (tmp_path / "Makefile").write_text("test:\n\tpython3 shop.py | grep -q hello\n")
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    commands = {one.name: one.command for one in LIBRARY} | {"search": SEARCH}

    def said(name: str, given: str = "", code: int = 0) -> str:
        done = subprocess.run(
            ["sh", "-c", commands[name]], cwd=tmp_path, input=given, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (code, ""), name
        return done.stdout

    assert said("files") == "Makefile\nshop.py\n2 files\n"
    assert said("tests").startswith("+ make test\n")
    assert "one" in said("changes")
    assert said("todo") == 'shop.py:1:print("hello")  # TODO sell\n1 places\n'
    assert "2 files in all" in said("size")
    assert "hello: 2 places\n" in said("search", "hello\n$(touch planted)\n-e\n")
    nothing_done = "Nothing was done. ccswarm init --with claude, or another, adds an agent that thinks."
    assert said("search", choose("rm -rf /").stdin, code=1).splitlines()[1:] == [
        "none was looked for: no word of it has three letters and says what is meant",
        nothing_done,
    ]
    assert said("search", "sky\n", code=1).splitlines()[1:] == ["sky: 0 places", nothing_done]
    (tmp_path / "shop.py").write_text("raise SystemExit(3)\n")
    failed = subprocess.run(["sh", "-c", commands["tests"]], cwd=tmp_path, capture_output=True, check=False)
    assert failed.returncode != 0
    assert not (tmp_path / "planted").exists()


def words(text: str, settings: dict[str, Any], **answers: CallOutcome) -> Drive:
    async def answer(call: CallTool) -> CallOutcome:
        return answers.get(call.id, ok(session_id="ses_1"))

    return asyncio.run(drive({"id": "t", "text": text}, answer, settings=settings))


def test_a_command_that_takes_long_is_waited_for_and_its_exit_code_counts() -> None:
    going = ok("", status="running", output="")
    done = words("test", {"words": "playbooks"}, run=going, wait1=going, wait2=exited(1, "1 failed"))
    assert done.ids == ["open", "run", "wait1", "wait2"]
    assert (done.finish.status, done.steps["run"]["output"]) == ("failed", "1 failed")
    assert done.finish.summary == "playbook tests, chosen by: test; exit code 1"
    assert done.decided[0].arguments["shell"] == "sh"  # type: ignore[union-attr]


def test_the_words_are_the_command_line_only_where_that_is_chosen() -> None:
    done = words("echo $((6 * 7)); ls", {"words": "commands"}, run=exited(0, "42"))
    assert done.decided[1].arguments["command"] == "echo $((6 * 7)); ls"  # type: ignore[union-attr]
    assert done.finish.status == "succeeded"
    done = words("$(touch planted) files", {"words": "playbooks"}, run=exited(0))
    assert "planted" not in done.decided[1].arguments["command"]  # type: ignore[union-attr]


def test_a_terminal_that_cannot_be_had_fails_the_task() -> None:
    done = words("files", {"words": "playbooks"}, open=CallOutcome(CallStatus.DENIED, code="not_granted", message="no"))
    assert (done.finish.status, done.finish.summary) == ("failed", "not_granted: no")


def test_settings_that_are_wrong_are_named() -> None:
    def reported(**settings: Any) -> str:
        return "".join(PLUGIN.problems(AgentSettings(name="a", settings=settings), lambda _: "", priced=False))

    assert reported(words="playbooks") == ""
    assert "settings.words" in reported(words="guess")
    assert "settings.playbooks.0.command" in reported(words="playbooks", playbooks=[{"name": "a", "words": ["b"]}])
    with pytest.raises(PlanInvalid, match=r"settings\.words"):
        words("x", {"words": "guess"})


def test_who_takes_words_needs_the_grants_for_a_terminal() -> None:
    server = McpSettings(servers=(ServerSettings(name="ai-session", command="x"),))
    few = AgentSettings(name="a", grants=("ai-session.create_session",), settings={"words": "playbooks"})
    reported = check.plan_problems(service.with_task("files", Settings(agents=(few,), mcp=server)), None)
    assert reported[0].endswith("agent a has no grant for ai-session.execute_command, ai-session.read_output")
    able = few.model_copy(update={"grants": ("ai-session.*",)})
    assert check.plan_problems(service.with_task("files", Settings(agents=(able,), mcp=server)), None) == []
    assert (
        "needs a terminal server" in check.plan_problems(service.with_task("files", Settings(agents=(able,))), None)[0]
    )


def test_who_thinks_is_asked_before_who_goes_by_the_words() -> None:
    goes_by = AgentSettings(name="a", type="coordinator", settings={"words": "playbooks"})
    thinks = AgentSettings(name="b", brain="llm")
    assert service.with_task("x", Settings(agents=(goes_by, thinks))).tasks[0].agent == "b"
