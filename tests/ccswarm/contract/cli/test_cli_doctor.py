"""The verb doctor: each thing that can be wrong, made wrong."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from ccswarm.config import config, starters
from ccswarm.journal.writer import Journal
from ccswarm.runs.app import submitting
from tests.ccswarm.support.verbs import SERVERS, Verbs, agent, server

PLAN = '[[tasks]]\nid = "t"\nagent = "ada"\nsteps = [{ id = "s", tool = "small.echo" }]\n'


@pytest.fixture
def verbs(home: Path) -> Verbs:
    return Verbs(home, server("small", "plain", "legacy") + agent("ada", "small.*") + PLAN)


def checked(verbs: Verbs, code: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Findings by what was looked at."""
    reported = verbs.json("doctor", code=code)
    assert reported["healthy"] is (code == 0)
    found: dict[str, list[dict[str, Any]]] = {}
    for one in reported["checks"]:
        found.setdefault(one["check"], []).append(one)
        assert one["state"] == "ok" or one["advice"], f"{one} says not what to do"
    return found


def wrong(found: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """What is not ok: state and detail."""
    return {
        name: f"{one['state']}: {one['detail']}" for name, all_ in found.items() for one in all_ if one["state"] != "ok"
    }


def test_all_is_well(verbs: Verbs) -> None:
    found = checked(verbs)
    assert wrong(found) == {}
    assert set(found) == {
        "python",
        "sqlite",
        "configuration",
        "server small",
        "git",
        "state",
        "store",
        "workers",
        "journal",
    }
    assert re.fullmatch(r"small 1, MCP 2025-11-25, \d+ tools in \d+ ms", found["server small"][0]["detail"])
    assert found["store"][0]["detail"].startswith(f"sqlite {verbs.state}/engine.db")


def test_a_table_for_people(verbs: Verbs) -> None:
    said = verbs.run("doctor", terminal=True).out
    assert "Everything required works." in said
    verbs.rewrite(server("small", "no_server", "crash") + agent("ada"))
    assert "Not working: server small." in verbs.run("doctor", terminal=True, code=1).out


@pytest.mark.parametrize("text", ["", "[swarm]\nname = 'shop'\n"])
def test_without_agents_it_looks_at_what_a_run_would_take(
    verbs: Verbs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The terminals' server, which nobody configured, and who goes by words."""
    for name in starters.KEYS.values():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    if text:
        verbs.rewrite(text)
    else:
        verbs.file.unlink()
    small = tmp_path / "ai-session"
    small.write_text("#!/bin/sh\nexit 3\n")
    small.chmod(0o755)
    reported = wrong(checked(verbs, 1))
    assert list(reported) == ["server ai-session"]
    assert "ai-session" in reported["server ai-session"]
    small.write_text(f"#!/bin/sh\nexec {sys.executable} {SERVERS / 'plain.py'} legacy\n")
    found = checked(verbs)
    assert wrong(found) == {}
    (agents,) = found["agents"]
    assert "using coder, working without a model, by the words of a task" in agents["detail"]
    assert "1 server," not in found["configuration"][0]["detail"], "it says what the file says"
    assert found["server ai-session"][0]["detail"].startswith("small 1, ")


def test_a_configuration_that_is_wrong(verbs: Verbs) -> None:
    verbs.rewrite("[swarm]\nname = 5\n")
    found = wrong(checked(verbs, 1))
    assert found["configuration"].endswith("[swarm] name should be a text")
    assert list(found) == ["configuration"], "it is told once"


def test_a_plan_that_cannot_be_carried_out(verbs: Verbs) -> None:
    verbs.rewrite(server("small", "plain") + agent("ada") + PLAN)
    assert wrong(checked(verbs, 1)) == {"plan": "fail: task t: step s: agent ada has no grant for small.echo"}


def test_servers_that_do_not_work_are_named_with_their_words(verbs: Verbs) -> None:
    with verbs.file.open("a") as file:
        file.write(server("broken", "no_server", "crash") + server("lists", "strange_lists", "twice"))
        file.write('[[mcp.servers]]\nname = "gone"\ncommand = "no-such-program"\n')
    found = wrong(checked(verbs, 1))
    assert set(found) == {"server broken", "server lists", "server gone"}
    assert found["server broken"].startswith("fail: server broken ended with exit code 3")
    assert found["server lists"] == "warn: tool same is listed twice: the first counts"
    assert "no program 'no-such-program'" in found["server gone"]


def test_clones_need_git_and_a_commit(verbs: Verbs) -> None:
    verbs.rewrite(agent("ada", more='workspace = "clone"'))
    assert wrong(checked(verbs, 1))["git"].startswith(f"fail: ada cannot have a clone of {verbs.home}")


def test_a_state_directory_that_others_can_read(verbs: Verbs) -> None:
    verbs.state.mkdir(parents=True, mode=0o755)
    verbs.state.chmod(0o755)
    found = checked(verbs, 1)
    assert list(wrong(found)) == ["state"], "it is told once"
    assert "is open to others" in found["state"][0]["detail"]
    assert found["state"][0]["advice"] == f"chmod 700 {verbs.state}"


def test_a_journal_that_was_changed(verbs: Verbs) -> None:
    verbs.state.mkdir(parents=True, mode=0o700)
    written = Journal(verbs.state / "journal", "w1")
    written.append("call.begin", call="c1", tool="small.echo")
    written.close()
    assert checked(verbs)["journal"][0]["detail"].startswith("3 records in 1 file:")
    file = verbs.state / "journal/w1.jsonl"
    file.write_bytes(file.read_bytes().replace(b"small.echo", b"small.ecko"))
    assert wrong(checked(verbs, 1))["journal"].startswith("fail: w1.jsonl:")


def test_a_store_that_is_no_database(verbs: Verbs) -> None:
    verbs.state.mkdir(parents=True, mode=0o700)
    (verbs.state / "engine.db").write_bytes(os.urandom(8192))
    assert wrong(checked(verbs, 1))["engine"].startswith("fail: the store of the runs cannot be used")


def test_workers_that_are_lost_and_work_that_nobody_does(verbs: Verbs) -> None:
    async def submit() -> None:
        settings = config.peek(verbs.file).settings
        async with submitting(settings, config.state_directory()) as app:
            await app.swarm.submit(settings, "run_1", str(verbs.home))

    asyncio.run(submit())
    with sqlite3.connect(verbs.state / "engine.db") as store:
        store.execute("INSERT INTO ccswarm_worker VALUES ('gone', 'host', 1, 0)")
    store.close()
    lost, idle = checked(verbs)["workers"]
    assert lost["detail"].startswith("gone was last heard from ")
    assert (idle["state"], idle["detail"]) == ("warn", "no worker runs: 0 executions in progress, 1 queued")
