"""The verbs worker, approvals, approve and reject: who answers is never the process that executes."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import signal
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agentwire.system.user import user_name
from ccswarm.config import config
from ccswarm.models import Execution
from ccswarm.runs.app import new_run_id, submitting
from tests.ccswarm.support.verbs import BOUND_SECONDS, Verbs, agent, server

QUICK = "[engine]\npoll_seconds = 0.05\nheartbeat_seconds = 0.3\nlost_after_seconds = 2.0\n"
STEPS = """
[[tasks]]
id = "ask"
agent = "ada"

[[tasks.steps]]
id = "say"
tool = "small.echo"
args = { text = "rm -rf /\\necho done\\u3164" }
"""


@pytest.fixture
def verbs(home: Path) -> Verbs:
    return Verbs(home, QUICK + server("small", "plain") + agent("ada", "small.echo", more='approval = "all"') + STEPS)


def submitted(verbs: Verbs, count: int = 1) -> list[str]:
    """New runs of what is configured."""

    async def submit() -> list[str]:
        settings = config.peek(verbs.file).settings
        runs = [new_run_id() for _ in range(count)]
        async with submitting(settings, config.state_directory()) as app:
            for run in runs:
                await app.swarm.submit(settings, run, str(verbs.home))
        return runs

    return asyncio.run(submit())


def followed(verbs: Verbs, run: str, event: str) -> dict[str, Any]:
    """The first such event of the run's task, when it comes."""

    async def follow() -> dict[str, Any]:
        async with submitting(config.peek(verbs.file).settings, config.state_directory()) as app:
            async with asyncio.timeout(BOUND_SECONDS):
                async for begun in app.engine.events(run):
                    if begun["event"] == "task.started":
                        async for found in app.engine.events(begun["execution"]):
                            if found["event"] == event:
                                return dict(found)
        raise AssertionError(f"{run} is over, and there was no {event}")

    return asyncio.run(follow())


def over(verbs: Verbs, run: str) -> Execution:
    """The run when it is over."""

    async def wait() -> Execution:
        async with submitting(settings, config.state_directory()) as app:
            async with asyncio.timeout(BOUND_SECONDS):
                return await app.engine.wait(run)

    settings = config.peek(verbs.file).settings
    return asyncio.run(wait())


def asked(verbs: Verbs, count: int) -> list[dict[str, Any]]:
    """What waits for a person, once it is so many."""
    while len(found := verbs.json("approvals")["approvals"]) < count:
        pass
    return found


def refused(verbs: Verbs, number: str, run: str) -> None:
    """Nobody executes it: the word is kept, and a second one does not count."""
    said = verbs.run("reject", number, "--reason", "not on my machine")
    assert said.err.splitlines() == [
        f"Refused small.echo for ada in {run}.ask",
        f"next: no worker is carrying it out: ccswarm resume {run}, or ccswarm worker",
    ]
    [question] = verbs.json("approvals")["approvals"]
    assert question["answer"] == {"approved": False, "by": user_name(), "reason": "not on my machine"}
    said = verbs.run("approvals")
    waits = f"    answered: {user_name()} refused; it waits for a worker: ccswarm resume {run}"
    assert said.out.splitlines()[-1] == waits
    said = verbs.run("approve", number, code=1)
    assert said.err.splitlines() == [
        f"error answered_already: {number} has already been answered: {user_name()} refused: not on my machine",
        "next: ccswarm approvals",
    ]
    assert verbs.json("approve", number, code=1)["error"]["code"] == "answered_already"


def agrees_in_a_session(verbs: Verbs, number: str) -> None:
    """An agent may type there, so nothing is agreed to; no is taken from anybody."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AI_SESSION_ID", "s1")
        said = verbs.run("approve", number, code=3)
        assert said.err.startswith(
            "error approval_needed: inside a session of ai-session a person's agreement or message is not accepted"
        )
        [question] = verbs.json("approvals")["approvals"]
        assert "answer" not in question


@pytest.mark.parametrize("words", [("say", "last", "x"), ("return", "last.t", "x"), ("accept", "t"), ("approve", "1")])
def test_where_an_agent_may_type_nobody_speaks_for_a_person(verbs: Verbs, words: tuple[str, ...]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AI_SESSION_ID", "s1")
        assert verbs.json(*words, code=3)["error"]["code"] == "approval_needed"


def test_approvals_are_answered_while_another_process_executes_and_while_none_does(verbs: Verbs) -> None:
    with verbs.worker("--id", "one") as worker:
        assert worker.until("carries out queued runs").startswith("worker one carries out queued runs in sqlite ")
        assert "another process writes the journal of worker one" in verbs.run("worker", "--id", "one", code=1).err
        first, second = submitted(verbs, 2)
        for run in (first, second):
            followed(verbs, run, "approval.asked")
        by_run = {one["task_id"].partition(".")[0]: one for one in asked(verbs, 2)}
        assert (by_run[first]["agent"], by_run[first]["tool"]) == ("ada", "small.echo")
        lines = verbs.run("approvals").out.splitlines()
        assert f"{by_run[first]['id']}  ada wants to call small.echo in {first}.ask" in lines
        assert "    text = rm -rf /" in lines
        assert "        echo done\\u3164" in lines

        short = by_run[first]["id"].removeprefix("ap_")[:6]
        said = verbs.run("approve", short, "--tool", "--reason", "it is only an echo")
        assert said.err.splitlines() == [
            f"Agreed to small.echo for ada in {first}.ask",
            "until the run is over nobody is asked about small.echo by ada again",
        ]
        assert over(verbs, first).result["status"] == "succeeded"
        answered = followed(verbs, first, "approval.answered")
        assert (answered["approved"], answered["reason"], answered["scope"]) == (True, "it is only an echo", "tool")
        assert answered["by"]

        code, out = worker.end(signal.SIGTERM)
        assert (code, out) == (0, "")
        assert f"{first}: succeeded" in worker.lines
        assert f"{second}.ask: running" in worker.lines
        assert worker.lines[-2:] == ["worker one is ending: unfinished work is handed back", "worker one has ended"]

    assert [one["task_id"] for one in asked(verbs, 1)] == [f"{second}.ask"]
    agrees_in_a_session(verbs, by_run[second]["id"])
    refused(verbs, by_run[second]["id"], second)

    def interrupt() -> None:
        over(verbs, second)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    said = verbs.run("worker", "--json")
    thread.join()
    result = over(verbs, second).result
    assert result["status"] == "failed"
    assert "not on my machine" in json.dumps(result)
    assert said.err == ""
    events = [json.loads(line) for line in said.out.splitlines()]
    assert [one["event"] for one in events] == [
        "worker.started",
        *["execution"] * (len(events) - 3),
        "worker.ending",
        "worker.ended",
    ]
    ended = {one["id"]: one["status"] for one in events if one["event"] == "execution"}
    assert ended == {second: "failed", f"{second}.ask": "failed"}


def test_nothing_waits(verbs: Verbs) -> None:
    assert verbs.json("approvals") == {"approvals": []}
    empty = verbs.run("approvals")
    assert (empty.out, empty.err) == ("", "Nothing waits for an answer. Progress of runs: ccswarm status\n")
    error = verbs.json("approve", "ap_1", code=2)["error"]
    assert (error["code"], error["message"]) == (
        "question_not_found",
        "no open question 'ap_1'",
    )
    assert "--reason" in verbs.run("reject", "ap_1", code=2).err
    said = verbs.run("approve", "ap_1", "--tool", "--run", code=2)
    assert said.err.startswith("error usage_invalid: use only one of --command, --tool and --run")


def test_a_worker_whose_store_cannot_be_used_ends_and_says_so(verbs: Verbs) -> None:
    nowhere = '[engine]\ndatabase_url = "postgresql://nobody@127.0.0.1:9/x"\n'
    verbs.rewrite(nowhere + server("small", "plain"))
    error = verbs.json("worker", code=1)["error"]
    assert error["code"] == "engine_unavailable"
    assert "the store of the runs cannot be used" in error["message"]


def test_a_worker_whose_name_another_one_has_ends_and_says_so(verbs: Verbs) -> None:
    verbs.run("cancel", "last", code=2)  # makes the store
    with sqlite3.connect(verbs.state / "engine.db") as store:
        alive = ("one", platform.node(), os.getppid(), time.time())
        store.execute("INSERT INTO ccswarm_worker VALUES (?, ?, ?, ?)", alive)
    store.close()
    *_, last = verbs.run("worker", "--id", "one", "--json", code=2).out.splitlines()
    assert json.loads(last)["error"]["message"] == f"worker 'one' is already running: process {os.getppid()}"


@pytest.mark.torture  # unit/swarm/test_leases.py
def test_a_worker_keeps_no_server_for_a_workspace_in_which_nothing_goes_on(verbs: Verbs) -> None:
    facts = STEPS.replace("small.echo", "small.facts").replace('{ text = "rm -rf /\\necho done\\u3164" }', "{}")
    verbs.rewrite(QUICK + server("small", "plain") + agent("ada", "small.*") + facts)
    with verbs.worker("--id", "one") as worker:
        worker.until("carries out queued runs")
        found: list[tuple[str, int]] = []
        for name in ("a", "b", "a"):
            (verbs.home / name).mkdir(exist_ok=True)
            run = verbs.run("run", "--detach", "--workspace", str(verbs.home / name)).out.strip()
            reported = over(verbs, run).result["tasks"]["ask"]["result"]["steps"]["say"]
            found.append((Path(reported["directory"]).name, reported["pid"]))
            with pytest.raises(ProcessLookupError):
                os.kill(reported["pid"], 0)
        assert [name for name, _ in found] == ["a", "b", "a"]
        assert worker.end(signal.SIGTERM)[0] == 0
