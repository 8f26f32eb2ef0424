"""The command says what it is and which verbs it has, and loads no verb for that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ccswarm
from ccswarm.cli import main
from ccswarm.cli.main import SECTIONS, VERBS, command
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    code, out, err = forked.run("ccswarm", arguments, cwd=Path.cwd(), env=os.environ)
    return subprocess.CompletedProcess(arguments, code, out.decode(), err.decode())


def test_version() -> None:
    assert run("--version").stdout == f"ccswarm {ccswarm.__version__}\n"


def test_help_has_every_verb_under_its_heading() -> None:
    ran = run("--help")
    assert ran.returncode == 0
    for heading, verbs in SECTIONS.items():
        _, _, below = ran.stdout.partition(f"\n{heading}:\n")
        assert [line.split()[0] for line in below.partition("\n\n")[0].splitlines()] == list(verbs)


@pytest.mark.parametrize("words", [(), ("config",), ("journal",), ("runs",)])
def test_without_a_verb_it_shows_its_help(words: tuple[str, ...]) -> None:
    ran = run(*words)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, run(*words, "--help").stdout, "")


def test_help_loads_no_verb_and_nothing_heavy() -> None:
    program = "import sys; sys.argv = ['ccswarm', '--help']; from ccswarm.cli import main as cli\ntry: cli.main()\n"
    program += "except SystemExit: print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=BOUND_SECONDS, check=True
    )
    loaded = set(ran.stderr.split())
    light = {
        "ccswarm.cli",
        *(f"ccswarm.cli.{one}" for one in ("main", "output", "quick")),
        "agentwire.cli",
        *(f"agentwire.cli.{one}" for one in ("ending", "lines", "options", "output", "parser", "refusals", "usage")),
    }
    assert {name for name in loaded if name.startswith(("ccswarm.cli", "agentwire.cli"))} == light
    assert not loaded & {"pydantic", "dbos", "mcp", "rich", "asyncio"}


def test_an_unknown_verb_is_a_usage_error_that_names_the_nearest() -> None:
    ran = run("resum")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "error usage_invalid: there is no verb 'resum' here\nnext: ccswarm resume\n"


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_is_there_and_says_what_it_does(name: str) -> None:
    made = command(name)
    assert (made.name, made.help.strip()[-1:]) == (name, ".") or name == "completion"
    assert VERBS[name].help.endswith(".")


def test_the_shell_completes_verbs_and_their_options() -> None:
    for words, wanted in (
        ("ccswarm resum", "resume"),
        ("ccswarm resume --no", "--no-wait"),
        ("ccswarm runs re", "replay"),
    ):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_CCSWARM_COMPLETE": "complete_bash"}
        _, out, _ = forked.run("ccswarm", [], cwd=Path.cwd(), env={**os.environ, **asked})
        assert out.decode().split() == [wanted], words


def test_a_verb_that_is_called_otherwise_here_is_named() -> None:
    ran = run("start")
    assert (ran.returncode, ran.stderr) == (
        2,
        "error usage_invalid: there is no verb 'start' here\nnext: ccswarm run\n",
    )
    verbs = {word for reported in main.INSTEAD.values() for word in re.findall(r"\bccswarm ([a-z][a-z-]*)", reported)}
    assert verbs <= set(main.VERBS)
    assert not set(main.INSTEAD) & set(main.VERBS)
    assert main.INSTEAD["view"] == "ccswarm runs show RUN"


@pytest.mark.parametrize(
    ("words", "next_step"),
    [
        (["list the files"], "ccswarm run 'list the files'"),
        (["run", "list", "the files"], "ccswarm run 'list the files'"),
        (["run", "list", "files", "--detach"], "ccswarm run --help"),
        (["run", "--with", "claude", "x"], "ccswarm init --with … adds agents, and ccswarm run uses them"),
        (["run", " "], 'ccswarm run "list the files"'),
        (["fix", "the", "tests"], "ccswarm run 'fix the tests'"),
        (["list", "the", "files"], "ccswarm run 'list the files', or ccswarm runs list"),
        (["init", "--with", "gpt-4"], "ccswarm init --with openai"),
        (["init", "claude"], "ccswarm init --with claude"),
        (["init", "a2a"], "ccswarm init --for a2a"),
        (
            ["run", "absent.toml"],
            'ccswarm run "list the files" takes a task in words; ccswarm init writes a configuration with tasks',
        ),
        (
            ["plan", "check", "absent.toml"],
            'ccswarm run "list the files" takes a task in words; ccswarm init writes a configuration with tasks',
        ),
        (["config", "check", "absent.toml"], "name another; ccswarm init writes ccswarm.toml"),
    ],
)
def test_a_task_that_is_not_said_as_it_should_be_is_told_how(words: list[str], next_step: str, home: Path) -> None:
    ran = run(*words)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (2, f"next: {next_step}")
