"""A program thinks for an agent: it runs in a terminal, calls what it may, and ends in one of many ways."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ccswarm.brains.base import WorkerContext
from ccswarm.models import CallOutcome, CallRequest, CallStatus, RunStatus
from tests.ccswarm.support.cli_swarms import TASK, CliWorker, ended, started
from tests.ccswarm.support.guest_terminals import Terminals
from tests.ccswarm.support.swarms import Hanging, MemoryWorker
from tests.conftest import processes
from tests.support.bounds import BOUND_SECONDS
from tests.support.products import first as first_of

pytestmark = pytest.mark.anyio

AGENT = Path(__file__).parents[3] / "data/scripted_agent.py"


def plan(*actions: str, more: Mapping[str, Any] | None = None, task: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One task of a program that does these actions; ``more`` are further settings of its brain."""
    words = [sys.executable, str(AGENT), "{mcp_config}"]
    given = {
        "program": "scripted",
        "command": [*words, *actions],
        "resume": [*words, "--resume", "{session}", "finish:succeeded:resumed"],
    }
    ada = {"name": "ada", "grants": ["*"], "brain": "cli", "settings": {**given, **(more or {})}, "prompt": "Be terse."}
    return {"agents": [ada], "tasks": [{"id": "main", "text": "count the files", **(task or {})}]}


@pytest.fixture
async def cli(home: Path) -> AsyncGenerator[CliWorker]:
    terminals = Terminals()
    yield CliWorker(home, terminals)
    await terminals.close()


async def test_a_program_works_and_finishes(cli: CliWorker, home: Path) -> None:
    heard = home / "prompts"
    task = await cli.run(
        plan(f"prompt:{heard}", "say:Looking.", "tools", "call:srv__do:{}", "say:There.", "finish:succeeded:42 files")
    )
    assert (task["status"], task["summary"]) == ("succeeded", "42 files")
    assert task["usage"] == {"calls": 1, "tokens": 150, "dollars": 0.25, "seconds": 1.0}
    said = [event["text"] for event in await cli.events("agent.said")]
    # What makes it run is granted to the orchestrator alone, here as tools of everybody.
    assert said[0] == "Looking."
    assert "srv__do finish await_call" in said[1]
    assert said[2] == "There."
    (program,) = await cli.events("program.started")
    assert cli.terminals.closed == [program["session"]]
    (over,) = await cli.events("program.ended")
    assert over["exit"] == 0
    prompt = heard.read_text()
    for words in ("the agent ada", "Be terse.", "count the files", "/project", "`finish`"):
        assert words in prompt
    assert [call.tool for call in cli.worker.task_worker.calls if call.agent == "ada"] == ["srv.do"]
    assert not list((home / "guests").iterdir()), "nothing is left of the program's directory"


async def test_the_token_is_in_no_word_and_no_record(cli: CliWorker, home: Path) -> None:
    async with started(cli, plan("say:here", "call:srv__do:{}", "hang")) as name:
        token = cli.terminals.made[name]["env"]["CCSWARM_GUEST"].partition("@")[0].rpartition(".")[2]
        process = cli.terminals.running[name]
        assert len(token) == 64
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
        assert any(b"scripted_agent" in line for line in lines)
        assert not any(token.encode() in line for line in lines)
        files = [path for path in home.rglob("*") if path.is_file()]
        assert not [path for path in files if token.encode() in path.read_bytes()]
        assert process.returncode is None
        await cli.worker.engine.send(TASK, "stop", "enough")
        assert (await ended(cli))["summary"] == "stopped: enough"
        async with asyncio.timeout(BOUND_SECONDS):
            await process.wait()
    records = json.dumps([list(row.records.values()) for row in cli.worker.engine.store.rows.values()])
    assert token not in records
    assert cli.terminals.closed == [name]


async def test_a_key_reaches_the_program_and_nothing_else(cli: CliWorker, home: Path) -> None:
    key = cli.worker.task_worker.worker_context.secret("SOME")
    given = plan("length:API_KEY", "call:srv__do:{}", "hang", more={"environment": {"API_KEY": "$SOME"}})
    async with started(cli, given) as name:
        (said,) = await cli.events("agent.said")
        assert said["text"] == str(len(key))
        files = [path for path in home.rglob("*") if path.is_file()]
        assert not [path for path in files if key.encode() in path.read_bytes()]
        assert key not in json.dumps([dict(made) for made in cli.terminals.made.values()])
        assert all(path.stat().st_mode & 0o77 == 0 for path in (home / "guests").rglob("*"))
        await cli.worker.engine.send(TASK, "stop", "enough")
        await ended(cli)
        assert cli.terminals.closed == [name]
    assert key not in json.dumps(
        [[row.payload, list(row.records.values())] for row in cli.worker.engine.store.rows.values()]
    )


def _readable(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


async def test_what_is_not_granted_is_denied(cli: CliWorker, home: Path) -> None:
    seen = home / "seen"
    del seen
    task = await cli.run(plan("call:other__secret:{}", "call:srv__do:{}", "finish:succeeded:ok"))
    assert task["status"] == "succeeded"
    assert [call.tool for call in cli.worker.task_worker.calls if call.agent == "ada"] == ["srv.do"]


ENDS = {
    "crash": (["say:hm", "complain:segfault in liboops", "exit:3"], "scripted exited 3: segfault in liboops"),
    "silent": (["exit:9"], "scripted exited 9 and printed nothing"),
    "login": (["complain:Not logged in · Please run /login", "exit:1"], "not logged in (scripted exited 1: Not"),
    "key": (
        ['result:{"is_error":true,"result":"API Error: 401 invalid x-api-key"}', "exit:1"],
        "scripted has a key that was rejected",
    ),
    "daily quota": (
        ['result:{"is_error":true,"result":"daily quota exhausted, or switch to another /auth method"}', "exit:1"],
        "scripted has used up its quota",
    ),
    "quota": (['result:{"is_error":true,"result":"usage limit reached"}', "exit:1"], "scripted has used up its quota"),
    "network": (["complain:getaddrinfo EAI_AGAIN api.example.com", "exit:1"], "cannot reach its API from its terminal"),
    "garbage": (["print:\x01 what{", "exit:2"], "scripted exited 2"),
}


@pytest.mark.parametrize("how", first_of(ENDS, "key"))
async def test_an_early_end_is_named(cli: CliWorker, how: str) -> None:
    actions, words = ENDS[how]
    task = await cli.run(plan(*actions))
    assert task["status"] == "failed"
    assert words in task["summary"]


async def test_an_end_without_finish_is_reminded_once(cli: CliWorker) -> None:
    task = await cli.run(plan("say:I think I am done"))
    assert (task["status"], task["summary"]) == ("succeeded", "resumed")
    assert len(cli.terminals.made) == 2


@pytest.mark.torture
async def test_a_client_that_forgot_its_session_begins_again(cli: CliWorker, home: Path) -> None:
    words = [sys.executable, str(AGENT), "{mcp_config}", "--resume", "{session}"]
    forgets = [*words, "complain:No conversation found with session ID: x", "exit:1"]
    task = await cli.run(plan("say:I think I am done", f"prompt:{home / 'prompts'}", more={"resume": forgets}))
    assert task["summary"].startswith("scripted ended without calling finish")
    assert len(cli.terminals.made) == 3
    first, second = (home / "prompts").read_text().split("----\n")[:2]
    assert "count the files" in first
    assert "count the files" in second
    assert "You were interrupted" in second


async def test_who_cannot_be_reminded_has_not_finished(cli: CliWorker) -> None:
    task = await cli.run(plan("say:I think I am done", more={"resume": []}))
    assert (task["status"], task["result"]) == ("failed", "I think I am done")
    assert task["summary"] == "scripted ended without calling finish: I think I am done"


async def test_a_program_that_is_not_there(cli: CliWorker) -> None:
    cli.terminals.environ["PATH"] = "/nowhere"
    task = await cli.run(plan(more={"command": ["python3"]}))
    assert task["status"] == "failed"
    assert "scripted is not installed where its terminal runs; install it" in task["summary"]


async def test_a_terminal_that_cannot_run_it(cli: CliWorker) -> None:
    cli.terminals.environ["PATH"] = "/nowhere"
    given = plan("say:never")
    cli.worker.task_worker.worker_context = WorkerContext(
        lambda _: "", {"PYTHONPATH": "/nowhere"}, cli.worker.task_worker.worker_context.state_directory
    )
    cli.terminals.environ["PYTHONSAFEPATH"] = "1"
    cli.terminals.environ["PYTHONHOME"] = "/nowhere"
    task = await cli.run(given)
    assert task["status"] == "failed"
    assert "scripted cannot be started in its terminal (exit code 1)" in task["summary"]
    assert "ai-session" in task["summary"]


async def test_no_terminal_is_told(cli: CliWorker) -> None:
    cli.terminals.refusal = CallOutcome(CallStatus.TOOL_ERROR, code="limit_reached", message="64 sessions are open")
    task = await cli.run(plan("say:never"))
    assert task["summary"].startswith("no terminal for scripted: limit_reached: 64 sessions are open")
    assert not cli.terminals.closed


@pytest.mark.parametrize("victim", first_of(["keeper", "program"], "program"))
async def test_a_killed_program_is_started_again_with_its_session(cli: CliWorker, home: Path, victim: str) -> None:
    hang = Hanging()
    cli.worker.tool("srv.hang", hang)
    heard = home / "prompts"
    words = [sys.executable, str(AGENT), "{mcp_config}", "--resume", "{session}", f"prompt:{heard}", "finish:failed:no"]
    async with started(cli, plan("say:here", "call:srv__do:{}", "call:srv__hang:{}", more={"resume": words})) as name:
        await asyncio.wait_for(hang.called.wait(), BOUND_SECONDS)
        if victim == "keeper":
            os.killpg(cli.terminals.running[name].pid, signal.SIGKILL)
        else:
            (pid,) = [pid for pid, what in processes() if b"scripted_agent" in what and os.fsencode(home) in what]
            os.kill(pid, signal.SIGKILL)
        task = await ended(cli)
    assert (task["status"], task["summary"]) == ("failed", "no")
    assert len(cli.terminals.made) == 2
    assert "11111111-2222" in heard.read_text()
    assert "Of these calls nobody knows what came of them: srv.hang." in heard.read_text()


async def test_a_killed_worker_leaves_the_program_running(home: Path, cli: CliWorker) -> None:
    """The next worker goes on with the same program, in the same terminal; what it said is told once."""
    hang = Hanging()
    cli.worker.tool("srv.hang", hang)
    second = CliWorker(home, cli.terminals, MemoryWorker(cli.worker.engine.store, "two"))
    second.worker.tool("srv.hang", found=2)
    given = plan("say:one", "call:srv__hang:{}", "say:two", "call:srv__do:{}", "finish:succeeded:went on")
    async with started(cli, given, "one"):
        await asyncio.wait_for(hang.called.wait(), BOUND_SECONDS)
        cli.worker.engine.kill()
        async with second.worker.working("two"):
            task = await ended(second)
    assert (task["status"], task["summary"]) == ("succeeded", "went on")
    assert len(cli.terminals.made) == 1
    assert [event["text"] for event in await second.events("agent.said")] == ["one", "two"]
    assert task["usage"]["tokens"] == 150


@pytest.mark.torture
async def test_a_worker_is_killed_after_the_program_was(home: Path, cli: CliWorker) -> None:
    """The next worker hears of the first start only from the record; the second one is not taken for a stranger."""
    going = [asyncio.Event(), asyncio.Event()]

    async def hang(request: CallRequest) -> Mapping[str, Any]:
        going[int(request.arguments["number"])].set()
        await asyncio.Event().wait()
        raise AssertionError

    cli.worker.tool("srv.hang", hang)
    second = CliWorker(home, cli.terminals, MemoryWorker(cli.worker.engine.store, "two"))
    second.worker.tool("srv.hang", found=2)
    words = [sys.executable, str(AGENT), "{mcp_config}", "--resume", "{session}", 'call:srv__hang:{"number":1}']
    given = plan(
        *("say:one", "call:srv__do:{}", 'call:srv__hang:{"number":0}'),
        more={"resume": [*words, "say:two", "finish:succeeded:went on"]},
    )
    async with started(cli, given, "one") as name:
        await asyncio.wait_for(going[0].wait(), BOUND_SECONDS)
        os.killpg(cli.terminals.running[name].pid, signal.SIGKILL)
        await asyncio.wait_for(going[1].wait(), BOUND_SECONDS)
        cli.worker.engine.kill()
        async with second.worker.working("two"):
            task = await ended(second)
    assert (task["status"], task["summary"]) == ("succeeded", "went on")
    assert len(cli.terminals.made) == 2
    assert [event["text"] for event in await second.events("agent.said")] == ["one", "two"]


async def test_work_that_is_given_back_goes_on_with_its_session(cli: CliWorker, home: Path) -> None:
    heard, checks = home / "prompts", iter((1, 0))

    async def check(_: CallRequest) -> CallOutcome:
        code = next(checks)
        return CallOutcome(CallStatus.OK, f"exit {code}: no test passes", {"exit_code": code})

    cli.worker.tool("srv.check", check)
    words = [sys.executable, str(AGENT), "{mcp_config}", "--resume", "{session}", f"prompt:{heard}"]
    given = plan(
        "finish:succeeded:first",
        more={"resume": [*words, "finish:succeeded:second"]},
        task={"rounds": 2, "gates": [{"tool": "srv.check", "expect": {"exit_code": 0}}]},
    )
    task = await cli.run(given)
    assert (task["status"], task["summary"]) == ("succeeded", "second")
    assert "not accepted yet" in heard.read_text()


async def test_tokens_count_while_it_works(cli: CliWorker) -> None:
    given = plan("say:a", "say:b", "call:srv__do:{}", "hang", task={"budget": {"tokens": 20}})
    task = await cli.run(given)
    assert task["status"] == RunStatus.EXHAUSTED
    assert task["usage"]["tokens"] == 30
    assert len(cli.terminals.closed) == 1


def mark_of(prompt: str) -> str:
    """What is before the words of people, as the program was told."""
    found = re.search(r"after `(\[person [0-9a-f]{16}])`", prompt)
    assert found
    return found[1]


async def said(cli: CliWorker, text: str) -> None:
    """A person says so, twice with the same key, and it is heard."""
    for _ in range(2):
        await cli.worker.swarm.say(TASK, text, by="ann", key=text)
    while not await cli.events("person.said"):
        await cli.worker.engine.store.change()
    assert [(one["by"], one["text"]) for one in await cli.events("person.said")] == [("ann", text)]


@pytest.mark.parametrize("victim", first_of(["", "worker", "program"], ""))
async def test_a_person_is_heard_with_the_next_answer(cli: CliWorker, home: Path, victim: str) -> None:
    going, goes_on = asyncio.Event(), asyncio.Event()

    async def waits(_: CallRequest) -> Mapping[str, Any]:
        going.set()
        await goes_on.wait()
        return {"found": 7}

    cli.worker.tool("srv.wait", waits)
    second = CliWorker(home, cli.terminals, MemoryWorker(cli.worker.engine.store, "two"))
    second.worker.tool("srv.wait", found=7)
    first, again, answers = home / "first", home / "again", home / "answers"
    words = [sys.executable, str(AGENT), "{mcp_config}", "--resume", "{session}", f"prompt:{again}"]
    given = plan(
        *(f"prompt:{first}", "say:here", "call:srv__wait:{}", "call:srv__do:{}", f"answers:{answers}"),
        *("finish:succeeded:heard",),
        more={"resume": [*words, "finish:succeeded:heard"]},
    )
    async with started(cli, given, "one") as name, asyncio.timeout(BOUND_SECONDS):
        await going.wait()
        await said(cli, "Leave the tests.")
        if victim == "worker":
            cli.worker.engine.kill()
            async with second.worker.working("two"):
                task = await ended(second)
        elif victim == "program":
            os.killpg(cli.terminals.running[name].pid, signal.SIGKILL)
            task = await ended(cli)
        else:
            goes_on.set()
            task = await ended(cli)
    assert (task["status"], task["summary"]) == ("succeeded", "heard")
    spoken = f"{mark_of(first.read_text())} ann, who watches your work, says:\nLeave the tests."
    if victim == "program":
        assert spoken in again.read_text()
        return
    heard, other = json.loads(answers.read_text())
    assert spoken in heard["content"][0]["text"]
    assert "7" in heard["content"][0]["text"]
    assert "structuredContent" not in heard, "or some programs would show their model nothing else"
    assert "[person" not in json.dumps(other), "once"


async def test_nothing_is_finished_before_a_person_was_heard(cli: CliWorker, home: Path) -> None:
    answered, gate, answers = home / "answered", home / "gate", home / "answers"
    os.mkfifo(answered)
    os.mkfifo(gate)
    ends = ("finish:succeeded:early", f"answers:{answers}", "finish:failed:heard")
    given = plan("say:here", "call:srv__do:{}", f"prompt:{answered}", f"prompt:{gate}", *ends)
    async with started(cli, given):
        await asyncio.to_thread(answered.read_text)
        await said(cli, "Stop here.")
        await asyncio.to_thread(gate.read_text)
        task = await ended(cli)
    assert (task["status"], task["summary"]) == ("failed", "heard")
    (_, refused) = json.loads(answers.read_text())
    assert refused["isError"]
    assert "a person said something in the meantime" in refused["content"][0]["text"]
    assert "Stop here." in refused["content"][0]["text"]
