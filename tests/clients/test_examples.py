"""The examples, each with the package that it is for, in an environment of its own and over a daemon of ours."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.ai_session.support.command_line import CommandLine
from tests.clients.installing import TRUST, new_environment
from tests.conftest import client_environment

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MOST_LINES = 250
HOME = Path(pwd.getpwuid(os.getuid()).pw_dir)
SEARCHED = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, HOME.glob(".pyenv/versions/*/bin"))])
"""Of the environment of the run, before tests have another: for a newer Python."""
SECONDS = 280.0
OPEN = '[sandbox]\nprofile = "trusted"\n\n[policy]\nmode = "trusted"\n'
RULE = '[[policy.rules]]\nid = "no"\ndecision = "deny"\ncommands = ["halt now"]\n'
LANGCHAIN = """
import ai_session
from langchain_tools import terminal_tools

with ai_session.open(directory=".") as session:
    tools = {tool.name: tool for tool in terminal_tools(session, timeout=1)}

    def said(name, **arguments):
        return tools[name].invoke({"type": "tool_call", "id": "1", "name": name, "args": arguments}).content

    assert said("run_command", command="cd /tmp; echo $((6 * 7))") == "42\\n[exit code 0]"
    asked = said("run_command", command="read -r name; echo hello $name")
    assert asked.endswith("[waits for input (line)]"), asked
    assert said("send_input", text="Ada\\n").endswith("hello Ada\\n[exit code 0]")
    assert said("run_command", command="sleep 1000").endswith("[running]")
    assert "still running" in said("run_command", command="pwd")
    assert said("interrupt_command").endswith("[interrupted]")
    assert said("run_command", command="pwd") == "/tmp\\n[exit code 0]"
    assert said("read_screen")
"""
PYDANTIC_AI = """
import asyncio
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_toolset import TerminalToolset

STEPS = [
    ("run_command", {"command": "cd /tmp; echo $((6 * 7))"}, "42\\n[exit code 0; in /tmp]"),
    ("run_command", {"command": "read -r name; echo hello $name"}, "[waits for input (line); in /tmp]"),
    ("send_input", {"text": "Ada\\n"}, "hello Ada\\n[exit code 0; in /tmp]"),
    ("run_command", {"command": "sleep 1000"}, "[running; in /tmp]"),
    ("run_command", {"command": "pwd"}, "or use another session"),
    ("interrupt_command", {}, "[interrupted; in /tmp]"),
    ("run_command", {"command": "pwd"}, "/tmp\\n[exit code 0; in /tmp]"),
]
said = []

def think(messages, info):
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart | RetryPromptPart):
        said.append(last.content)
    if len(said) == len(STEPS):
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart(*STEPS[len(said)][:2])])

agent = Agent(FunctionModel(think), toolsets=[TerminalToolset(timeout=1)])
assert asyncio.run(agent.run("go")).output == "done"
for answer, (_, _, wanted) in zip(said, STEPS, strict=True):
    assert answer.endswith(wanted), answer
"""
MINI_SWE_AGENT = """
from minisweagent.agents.default import DefaultAgent
from minisweagent.models.test_models import DeterministicModel, make_output
from mini_swe_agent_environment import AiSessionEnvironment

COMMANDS = [
    "cd /tmp && MARK=kept", "echo $MARK in $(pwd)", "exit 3", "echo again; (exit 4)", "sleep 1000", "halt now",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo the answer",
]
outputs = [make_output("", [{"command": command}]) for command in COMMANDS]
with AiSessionEnvironment(timeout=1) as environment:
    model = DeterministicModel(outputs=outputs)
    agent = DefaultAgent(model, environment, system_template="be", instance_template="{{task}}", cost_limit=0)
    assert agent.run("do it") == {"exit_status": "Submitted", "submission": "the answer\\n"}
said = [message["content"] for message in agent.messages if message["role"] == "user"][1:]
assert "kept in /tmp" in said[1] and "<returncode>3<" in said[2], said
assert "again" in said[3] and "<returncode>4<" in said[3], said
assert "it took more than 1 s" in said[4] and "denied by no" in said[5], said
"""


@pytest.fixture
def line(home: Path, request: pytest.FixtureRequest) -> Iterator[CommandLine]:
    """A daemon of ours, found by what runs in other environments."""
    (home / ".config/ai-session").mkdir(parents=True, exist_ok=True)
    (home / ".config/ai-session/config.toml").write_text(OPEN + getattr(request, "param", ""))
    with CommandLine(home) as line:
        line.run("daemon", "start")
        yield line


def carried_out(python: Path | str, home: Path, *words: str, **more: str) -> str:
    """What it says, where the package and the examples can be imported."""
    env: Mapping[str, str] = {**client_environment(home), **TRUST, "PYTHONPATH": f"{ROOT}:{EXAMPLES}", **more}
    done = subprocess.run(
        [str(python), *words], cwd=home, env={**env}, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_an_example_is_short_and_listed(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= MOST_LINES
    assert file.name in (EXAMPLES / "README.md").read_text()


@pytest.mark.clients
def test_agents_of_pydantic_ai(line: CommandLine) -> None:
    carried_out(sys.executable, line.home, "-c", PYDANTIC_AI)


@pytest.mark.clients
def test_tools_of_langchain(line: CommandLine, tmp_path: Path) -> None:
    programs = new_environment(tmp_path / "env", "langchain-core>=1,<2", home=line.home)
    carried_out(programs / "python", line.home, "-c", LANGCHAIN)


@pytest.mark.clients
@pytest.mark.parametrize("line", [RULE], indirect=True, ids=["with a rule"])
def test_mini_swe_agent(line: CommandLine, tmp_path: Path) -> None:
    needed = ("pyyaml", "jinja2", "python-dotenv", "platformdirs", "tenacity", "pydantic", "rich", "typer", "requests")
    programs = new_environment(tmp_path / "env", *needed, home=line.home)
    alone = ["-m", "pip", "install", "-q", "--no-deps", "mini-swe-agent>=2.4,<3"]  # all of it is a gigabyte
    carried_out(programs / "python", line.home, *alone, PYTHONPATH="")
    carried_out(programs / "python", line.home, "-c", MINI_SWE_AGENT, MSWEA_SILENT_STARTUP="1")


TASKS = {
    "hello": ('echo "Hello, world!" > /app/hello.txt', '[ "$(cat /app/hello.txt)" = "Hello, world!" ]'),
    "build": (
        "cd /app\nprintf 'all: one two\\n\\tcat one two >both\\none two:\\n\\techo $@ >$@\\n' >Makefile\nmake",
        '[ "$(cat /app/both)" = "one\ntwo" ] && ! [ -e /tests/none ]',
    ),
    "asks": ("read -r line || echo none >/app/got", '[ "$(cat /app/got)" = none ]'),
    "fails": ("exit 7", "false"),
}
"""What solves a task, and what is so then."""


@pytest.mark.clients
def test_trials_of_harbor_end_as_their_scripts_do(line: CommandLine, tmp_path: Path) -> None:
    names = ("python3.14", "python3.13", "python3.12")
    found = (shutil.which(name, path=folder) for name in names for folder in SEARCHED.split(os.pathsep))
    python = next(filter(runs, found), None)
    assert python, "Harbor needs Python 3.12 or newer on PATH"
    subprocess.run([python, "-m", "venv", str(tmp_path / "env")], check=True, timeout=SECONDS)
    programs = tmp_path / "env/bin"
    carried_out(programs / "python", line.home, "-m", "pip", "install", "-q", "harbor>=0.20,<1", PYTHONPATH="")
    for name, (solution, check) in TASKS.items():
        task(tmp_path / "tasks" / name, solution, check)
    run = ["run", "--path", str(tmp_path / "tasks"), "--agent", "oracle", "--job-name", "one", "-o", str(tmp_path)]
    where = ["--env", "harbor_environment:AiSessionEnvironment", "--ek", "profile=workspace", "--n-concurrent", "2"]
    carried_out(programs / "harbor", line.home, *run, *where, LITELLM_LOCAL_MODEL_COST_MAP="True")
    rewards = {
        file.parent.name.partition("__")[0]: json.loads(file.read_text())["verifier_result"]["rewards"]["reward"]
        for file in (tmp_path / "one").glob("*/result.json")
    }
    assert rewards == {"hello": 1.0, "build": 1.0, "asks": 1.0, "fails": 0.0}
    assert json.loads(line.out("ls", "--json")) == []


def runs(python: str | None) -> bool:
    """What stands in front of several versions may know none of that number."""
    return bool(python and not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode)


def task(folder: Path, solution: str, check: str) -> None:
    """As Harbor has them."""
    files = {
        "task.toml": 'version = "1.0"\n[metadata]\n[verifier]\ntimeout_sec = 60.0\n[agent]\ntimeout_sec = 60.0\n'
        "[environment]\nbuild_timeout_sec = 60.0\n",
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": "FROM debian\n",
        "solution/solve.sh": f"#!/bin/bash\n{solution}\n",
        "tests/test.sh": f"#!/bin/bash\nif {check}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
