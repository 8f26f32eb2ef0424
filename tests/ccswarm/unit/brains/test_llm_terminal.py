"""bash, read and edit: what they run is exact in every shell and awk there is; what they take are ordinary calls."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ccswarm.brains.base import Assignment
from ccswarm.brains.llm.plugin import PLUGIN
from ccswarm.brains.llm.terminal import BASH, EDIT, READ, Terminal
from ccswarm.models import CallOutcome, CallRequest, CallStatus, ToolInfo
from tests.ccswarm.support.llm_agents import CONTEXT, finish, llm_worker, plan, recorded, reply
from tests.ccswarm.support.swarms import MemoryWorker
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

PIECES = ["a", "b", "\n", "\\", '"', "'", "$", "`", "\t", " ", "é", "\r", "%", "&", "%s", "\\n", "=", "{", "}"]
SHELLS = [words for words in (["bash"], ["sh"], ["busybox", "sh"]) if shutil.which(words[0])]
AWKS = [name for name in ("mawk", "gawk", "busybox", "original-awk") if shutil.which(name)]
NAME = "-f=x y'\n;z"


def terminal(*more: str) -> Terminal:
    tools = {name: ToolInfo("t", name) for name in ("create_session", "execute_command", *more)}
    return Terminal("t", tools, "ada", "/w", 9000, "run.t")


def command_of(tool: str, **given: Any) -> str:
    """What it runs in a terminal that is open."""
    made = terminal()
    made.session = "s"
    return next(made.work(tool, given))[1]["command"]


def environ(directory: Path, awk: str) -> dict[str, str]:
    """With ``awk`` as the only one."""
    location = directory / f"bin-{awk}"
    if not location.exists():
        location.mkdir()
        (location / "awk").symlink_to(shutil.which(awk) or awk)
    return {**os.environ, "PATH": f"{location}:{os.environ['PATH']}"}


def run(shell: list[str], command: str, directory: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*shell, "-c", command], cwd=directory, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("shell", SHELLS, ids=str)
@pytest.mark.parametrize("awk", AWKS)
@pytest.mark.corners
def test_an_edit_is_exact_and_made_only_where_old_is_there_once(shell: list[str], awk: str, tmp_path: Path) -> None:
    drawn, env, path = random.Random(f"{shell}{awk}"), environ(tmp_path, awk), tmp_path / NAME
    for _ in range(12):
        text = "".join(drawn.choices(PIECES, k=drawn.randrange(1, 30)))
        start = drawn.randrange(len(text))
        old = text[start : start + drawn.randrange(1, 8)]
        new = "".join(drawn.choices(PIECES, k=drawn.randrange(6))) + "!"
        path.write_bytes(text.encode())
        done = run(shell, command_of(EDIT, path=NAME, old=old, new=new), tmp_path, env)
        times = sum(text.startswith(old, at) for at in range(len(text)))
        expected = text.replace(old, new) if times == 1 else text
        assert path.read_bytes().decode() == expected, (text, old, new, done)
        assert (done.returncode == 0) == (times == 1), (text, old, new, done)
        line = text[: text.index(old)].count("\n") + 1
        assert times == 1 or f"old is there {times} times (line {line}, " in done.stdout, (text, old, done)


def test_an_edit_says_what_is_wrong_and_keeps_what_a_file_is(tmp_path: Path) -> None:
    env, path = {**os.environ}, tmp_path / "run.sh"

    def edited(**given: str) -> str:
        return run(["bash"], "set -C; " + command_of(EDIT, **given), tmp_path, env).stdout

    path.write_text("one\r\ntwo\r\n", newline="")
    path.chmod(0o750)
    (tmp_path / "link").symlink_to(path)
    assert "the lines of this file end in CR LF" in edited(path="run.sh", old="one\ntwo", new="x")
    assert edited(path="link", old="one", new="1") == "edited link\n"
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"1\r\ntwo\r\n", 0o750)
    assert (tmp_path / "link").is_symlink()
    assert "there is no file gone" in edited(path="gone", old="a", new="b")
    assert edited(path="new/deep/file", old="", new="$x 'y'\n") == "created new/deep/file\n"
    assert (tmp_path / "new/deep/file").read_text() == "$x 'y'\n"
    assert "is there and not empty" in edited(path="run.sh", old="", new="b")
    (tmp_path / "binary").write_bytes(b"a\0b")
    assert "it has NUL bytes" in edited(path="binary", old="a", new="b")
    assert (tmp_path / "binary").read_bytes() == b"a\0b"


@pytest.mark.parametrize("awk", AWKS)
def test_a_file_is_read_by_lines(awk: str, tmp_path: Path) -> None:
    env, path = environ(tmp_path, awk), tmp_path / NAME
    path.write_text("".join(f"\tline {number}\n" for number in range(1, 1001)))

    def read(**given: Any) -> str:
        return run(["bash"], command_of(READ, path=NAME, **given), tmp_path, env).stdout

    shown = read()
    assert shown.startswith("     1\t\tline 1\n")
    assert shown.endswith("   400\t\tline 400\n(1000 lines in all: from 401 on they are not shown)\n")
    assert read(**{"from": 999, "to": 2000}) == "   999\t\tline 999\n  1000\t\tline 1000\n"
    assert read(**{"from": 5000}) == "(it has 1000 lines)\n"
    path.write_text("")
    assert read() == "(the file is empty)\n"
    assert f"bin-{awk}" in run(["bash"], command_of(READ, path="."), tmp_path, env).stdout


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        (BASH, {}, "command is missing"),
        (BASH, {"command": "a", "timeout_seconds": "long"}, "timeout_seconds is not a number"),
        (READ, {"path": "a\0b"}, "path has a NUL character"),
        (READ, {"path": ["a"]}, "path is not text"),
        (EDIT, {"path": "a", "old": "x"}, "new is missing"),
        (EDIT, {"path": "a", "old": "x", "new": "x"}, "old and new are the same"),
        (EDIT, {"path": "a", "old": "x", "new": "y" * 100_001}, "more than 100000 bytes"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_called(tool: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(StopIteration) as ended:
        next(terminal().work(tool, given))
    assert ended.value.value.failed
    assert said in ended.value.value.text


class Shell:
    """A server of terminals in memory: what each command answers is given."""

    def __init__(self, made: MemoryWorker, *answers: Mapping[str, Any] | CallOutcome) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.going = self.most = 0
        self._answers = list(answers)
        self._names = itertools.count(1)
        for tool in ("create_session", "execute_command", "read_output", "interrupt_command", "close_session"):
            made.tool(f"ai-session.{tool}", self._answer)
        made.tool("ai-session.list_sessions", sessions=[])

    async def _answer(self, request: CallRequest) -> Mapping[str, Any] | CallOutcome:
        tool = request.tool.partition(".")[2]
        self.calls.append((tool, dict(request.arguments)))
        if tool == "create_session":
            return {"session_id": f"s{next(self._names)}", "working_directory": "/project"}
        self.going += 1
        self.most = max(self.most, self.going)
        await asyncio.sleep(0)
        self.going -= 1
        return self._answers.pop(0) if self._answers else {"status": "finished", "exit_code": 0, "output": "fine\n"}

    def made(self, *names: str) -> list[tuple[Any, ...]]:
        """The calls, each with these of its arguments."""
        return [(tool, *(given[name] for name in names if name in given)) for tool, given in self.calls]


async def ran(made: MemoryWorker, *replies: Mapping[str, Any], **more: Any) -> Mapping[str, Any]:
    async with asyncio.timeout(BOUND_SECONDS):
        return (await made.run(plan(recorded(*replies), **more))).result["tasks"]["t"]


GONE = CallOutcome(CallStatus.TOOL_ERROR, code="session_not_found", message="there is no session")
RUNNING = {"status": "running", "output": "", "command_id": "c1"}


async def test_calls_of_one_answer_take_one_terminal_in_their_order() -> None:
    made = llm_worker()
    shell = Shell(made)
    several = reply((BASH, {"command": "make"}), (READ, {"path": "a"}), (BASH, {"command": "make test", "stdin": "y"}))
    direct = [("ai-session.execute_command", {"session_id": "x", "command": str(number)}) for number in range(3)]
    task = await ran(made, several, reply(*direct), reply(finish()))
    assert task["status"] == "succeeded"
    assert [tool for tool, _ in shell.calls] == ["create_session", *["execute_command"] * 6]
    opened = shell.calls[0][1]
    assert (opened["shell"], opened["working_directory"]) == ("bash", "/project")
    assert opened["name"].startswith("ada-")
    commands = [given["command"] for tool, given in shell.calls[1:]]
    assert (commands[0], commands[2:]) == ("make", ["make test", "0", "1", "2"])
    assert [given.get("stdin") for _, given in shell.calls[1:4]] == ["", "", "y"]
    assert shell.most == 1, "those of one session are made one after the other, too"
    assert task["usage"]["calls"] == 7, "each is counted as the call it is"
    assert made.ran[:4] == ["turn1.call1", "turn1.call1.2", "turn1.call2", "turn1.call3"]


async def test_a_terminal_that_is_gone_is_opened_anew_and_a_person_is_asked_for_each_call() -> None:
    made = llm_worker()
    shell = Shell(made, {"status": "finished", "exit_code": 0, "output": "one"}, GONE)
    task = await ran(made, reply((BASH, {"command": "one"})), reply((BASH, {"command": "two"})), reply(finish()))
    assert task["status"] == "succeeded"
    assert shell.made("session_id", "command") == [
        ("create_session",),
        ("execute_command", "s1", "one"),
        ("execute_command", "s1", "two"),
        ("create_session",),
        ("execute_command", "s2", "two"),
    ]


async def test_long_commands_are_waited_for_then_interrupted_and_questions_are_not_waited_for() -> None:
    made = llm_worker()
    ended = {"status": "finished", "exit_code": 130, "output": "half"}
    asks = {**RUNNING, "input_mode": "password"}
    shell = Shell(made, RUNNING, RUNNING, RUNNING, ended, asks, ended)
    replies = reply((BASH, {"command": "a"})), reply((BASH, {"command": "b", "timeout_seconds": 10})), reply(finish())
    task = await ran(made, *replies)
    assert task["status"] == "succeeded"
    assert [(tool, given.get("timeout_seconds")) for tool, given in shell.calls[1:]] == [
        ("execute_command", 50),
        ("read_output", 50),
        ("read_output", 20),
        ("interrupt_command", None),
        ("execute_command", 10),
        ("interrupt_command", None),
    ]


async def test_a_command_that_fails_next_to_the_finish_keeps_the_task_running() -> None:
    made = llm_worker()
    failed = {"status": "finished", "exit_code": 1, "output": "1 failed\n"}
    Shell(made, failed, *[failed] * 6)
    again = [reply((BASH, {"command": "make test"})) for _ in range(6)]
    task = await ran(made, reply((BASH, {"command": "make test"}), finish()), *again, reply(finish(summary="Mended.")))
    assert (task["status"], task["summary"]) == ("succeeded", "Mended."), "tests may fail as often as they do"


async def test_a_command_that_fails_alike_while_nothing_else_is_done_ends_the_task() -> None:
    made = llm_worker()
    answers = [{"status": "finished", "exit_code": 7, "output": f"refused after {n} ms"} for n in range(60)]
    answers[4] = {"status": "finished", "exit_code": 0, "output": ""}
    shell = Shell(made, *answers)
    failing, other = (BASH, {"command": "curl -s localhost"}), (BASH, {"command": "true"})
    asked = [
        reply(failing),
        reply(failing),
        reply(failing),
        reply(failing, other),
        *[reply(failing) for _ in range(60)],
    ]
    async with asyncio.timeout(BOUND_SECONDS):
        done = await made.run(plan(recorded(*asked, same_failures=2)))
    task = done.result["tasks"]["t"]
    assert task["status"] == "failed"
    said = "the same call failed 4 times in a row: bash 'curl -s localhost': refused after 8 ms"
    assert task["summary"].startswith(said), "beside another command it is no repetition"
    assert len(shell.made()) == 1 + 4 + 1 + 4


def test_what_a_model_is_told_of_a_command() -> None:
    def reported(*facts: Mapping[str, Any]) -> list[str]:
        made, found = terminal(), list[str]()
        made.session = "s"
        made.cwd = "/w"
        for one in facts:
            work = made.work(BASH, {"command": "x"})
            next(work)
            with pytest.raises(StopIteration) as ended:
                work.send(CallOutcome(CallStatus.OK, json.dumps(one), {"status": "finished", "exit_code": 0, **one}))
            found.append(ended.value.value.text)
        return found

    plain = {"output": "out\n", "cwd": "/w"}
    assert reported(
        plain, {"output": "", "cwd": "/w/sub"}, {**plain, "cwd": "/w/sub", "exit_code": 2, "note": "odd"}
    ) == [
        "out",
        "[you are in /w/sub now]",
        "out\n[exit code 2; odd]",
    ]
    assert reported({"output": ""}, {"output": "a", "late_output": "late", "stderr": "err\n"}) == [
        "(no output)",
        "[before this, of the background]\nlate\na\nerr",
    ]


def offered(*grants: str, **settings: Any) -> tuple[list[str], str]:
    names = ("create_session", "execute_command", "send_input", "close_session")
    tools = [*(ToolInfo("ai-session", name) for name in names), ToolInfo("srv", "look")]
    own = recorded(reply(finish()), **settings)
    given = Assignment("run", "t", "ada", {"text": "Look."}, {}, tools, own, "", "/work", grants=grants)
    thinking = PLUGIN.begin(given, CONTEXT)
    return list(thinking._names), thinking.conversation.system  # pyright: ignore[reportPrivateUsage]


def test_the_servers_own_tools_are_listed_where_they_are_granted_by_name() -> None:
    names, system = offered("*")
    assert names == ["finish", "recall", "bash", "read", "edit", "todo", "srv__look"]
    assert "bash, read, edit, todo, srv__look" in system
    assert "Reproduce: run what fails" in system
    assert offered("ai-session.*", "ai-session.send_input", "srv.*")[0][6:] == ["ai-session__send_input", "srv__look"]
    plain, system = offered("*", terminal=False)
    assert plain[2:] == [f"ai-session__{one}" for one in ("create_session", "execute_command", "send_input")] + [
        "ai-session__close_session",
        "srv__look",
    ]
    assert "Reproduce" not in system
