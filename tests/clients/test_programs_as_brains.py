"""Claude Code, Codex and Gemini CLI think for agents, with models in memory that do what a script says."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ccswarm.models import CallRequest
from tests.ccswarm.support.cli_swarms import CliWorker
from tests.ccswarm.support.guest_terminals import Terminals
from tests.ccswarm.support.model_servers import ModelServer
from tests.ccswarm.support.model_servers_script import Asked, Reply, Turn, answers
from tests.ccswarm.support.swarms import Hanging, settings
from tests.clients.node import program
from tests.conftest import environment, processes

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

SECONDS = 80.0
KEYS = {"claude": "ANTHROPIC_API_KEY", "codex": "CODEX_API_KEY", "gemini": "GEMINI_API_KEY"}
MODELS = {"claude": "claude-sonnet-4-5", "codex": "gpt-5.5", "gemini": "gemini-2.5-pro"}
PATHS = {"claude": "", "codex": "/v1", "gemini": ""}
DO = Reply(calls=[("srv__do", {})])
FINISH = Reply(calls=[("finish", {"status": "succeeded", "summary": "42 it is"})])
BYE = Reply("Good bye.")


@pytest.fixture(params=list(KEYS))
def name(request: pytest.FixtureRequest, home: Path) -> Iterator[str]:
    """A program that is on PATH."""
    directory = home / "bin"
    directory.mkdir()
    for known in KEYS:
        file = directory / known
        file.write_text(f'#!/bin/sh\nexec {shlex.join(program(known))} "$@"\n')
        file.chmod(0o700)
    with environment({**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}):
        yield request.param


def plan(name: str, url: str, **more: Any) -> dict[str, Any]:
    given = {
        "program": name,
        "model": MODELS[name],
        "base_url": url + PATHS[name],
        "environment": {KEYS[name]: "$KEY"},
        **more,
    }
    ada = {"name": "ada", "grants": ["*"], "brain": "cli", "settings": given}
    return {"agents": [ada], "tasks": [{"id": "main", "text": "do it", "timeout_seconds": SECONDS}]}


@asynccontextmanager
async def cli_worker(home: Path, turns: Sequence[Turn], key: str = "") -> AsyncGenerator[tuple[CliWorker, ModelServer]]:
    terminals = Terminals()
    async with ModelServer(answers(turns), key=key) as server:
        proxy = {"HTTP_PROXY": server.url, "HTTPS_PROXY": server.url, "NO_PROXY": "127.0.0.1"}
        terminals.environ |= proxy | {name.lower(): value for name, value in proxy.items()}
        try:
            yield CliWorker(home, terminals), server
        finally:
            await terminals.close()


async def carried_out(cli: CliWorker, given: Mapping[str, Any]) -> Mapping[str, Any]:
    async with cli.worker.working(), asyncio.timeout(SECONDS):
        await cli.worker.swarm.submit(settings(given), "run_1", "/project")
        return (await cli.worker.engine.wait("run_1")).result["tasks"]["main"]


async def test_it_works_with_the_agents_tools_and_nothing_else(name: str, home: Path) -> None:
    async with cli_worker(home, [DO, FINISH, BYE]) as (cli, server):
        task = await carried_out(cli, plan(name, server.url))
        assert (task["status"], task["summary"]) == ("succeeded", "42 it is"), task
        assert task["usage"]["tokens"] >= 300
        assert (task["usage"]["dollars"] > 0) == (name == "claude")
        assert "42" in server.asked[-1].results[0].text
        offered = {tool for tool in server.asked[0].tools if "ccswarm" not in tool and "__" not in tool}
        assert offered <= {
            "DeferredToolPlaceholder",
            "list_mcp_resources",
            "list_mcp_resource_templates",
            "read_mcp_resource",
            "request_user_input",
            "srv__do",
            "ai-session__create_session",
            "ai-session__execute_command",
            "ai-session__close_session",
            "finish",
            "await_call",
        }, offered
        assert server.others == []
        assert [call.tool for call in cli.worker.task_worker.calls if call.agent == "ada"] == ["srv.do"]


async def test_a_person_is_heard_with_the_answer_to_a_call(name: str, home: Path) -> None:
    async with cli_worker(home, [Reply(calls=[("srv__wait", {})]), FINISH, BYE]) as (cli, server):

        async def wait(_: CallRequest) -> Mapping[str, Any]:
            await cli.worker.swarm.say("run_1.main", "Leave the tests.", by="ann", key="1")
            while not await cli.events("person.said"):
                await cli.worker.engine.store.change()
            return {"found": 42}

        cli.worker.tool("srv.wait", wait)
        task = await carried_out(cli, plan(name, server.url))
        assert (task["status"], task["summary"]) == ("succeeded", "42 it is"), task
        heard = server.asked[1].results[0].text
        assert "ann, who watches your work, says:" in heard
        assert "Leave the tests." in heard
        mark = heard[heard.index("[person ") :][:25]
        assert mark in server.asked[0].prompt


async def test_it_is_reminded_to_finish(name: str, home: Path) -> None:
    async with cli_worker(home, [DO, Reply("I am done."), FINISH, BYE]) as (cli, server):
        task = await carried_out(cli, plan(name, server.url))
        assert (task["status"], task["summary"]) == ("succeeded", "42 it is"), task
        assert "without calling `finish`" in server.asked[2].whole_text
        assert "do it" in server.asked[2].prompt, "the session is running"
        assert 400 <= task["usage"]["tokens"] < 500


async def test_a_wrong_key_is_named(name: str, home: Path) -> None:
    async with cli_worker(home, [], key="another") as (cli, server):
        task = await carried_out(cli, plan(name, server.url))
    assert task["status"] == "failed"
    assert f"{name} has a key that was rejected" in task["summary"]


async def test_no_key_is_named(name: str, home: Path) -> None:
    async with cli_worker(home, []) as (cli, server):
        task = await carried_out(cli, plan(name, server.url, environment={}))
    assert task["status"] == "failed"
    assert f"{name} is not logged in" in task["summary"], task["summary"]


async def test_it_is_killed_in_a_call_and_goes_on(name: str, home: Path) -> None:
    hang = Hanging()

    def prompted(asked: Asked) -> Reply:
        assert "Of these calls nobody knows what came of them: srv.hang" in asked.whole_text
        return FINISH

    async with cli_worker(home, [DO, Reply(calls=[("srv__hang", {})]), prompted, BYE]) as (cli, server):
        cli.worker.tool("srv.hang", hang)
        async with cli.worker.working(), asyncio.timeout(SECONDS):
            await cli.worker.swarm.submit(settings(plan(name, server.url)), "run_1", "/project")
            await hang.called.wait()
            (process,) = cli.terminals.running.values()
            os.killpg(process.pid, signal.SIGKILL)
            task = (await cli.worker.engine.wait("run_1")).result["tasks"]["main"]
        assert (task["status"], task["summary"]) == ("succeeded", "42 it is"), task
        assert "do it" in server.asked[2].whole_text


async def test_it_is_told_its_gates_and_nothing_of_it_is_left_when_it_is_cancelled(name: str, home: Path) -> None:
    going, gone = asyncio.Event(), asyncio.Event()

    async def hang(_: CallRequest) -> Mapping[str, Any]:
        going.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        raise AssertionError

    async with cli_worker(home, [DO, Reply(calls=[("srv__hang", {})]), BYE]) as (cli, server):
        cli.worker.tool("srv.hang", hang)

        async def listed(_: CallRequest) -> Mapping[str, Any]:
            whose = "run:run_1.main/agent:orchestrator"
            return {"sessions": [{"session_id": one, "name": one, "owner": whose} for one in cli.terminals.running]}

        cli.worker.tool("ai-session.list_sessions", listed)
        given = plan(name, server.url)
        given["tasks"][0]["gates"] = [{"command": "make check-it-all"}]
        async with cli.worker.working(), asyncio.timeout(SECONDS):
            await cli.worker.swarm.submit(settings(given), "run_1", "/project")
            await going.wait()
            assert "make check-it-all" in server.asked[0].whole_text
            (process,) = cli.terminals.running.values()
            began = time.monotonic()
            await cli.worker.engine.cancel("run_1")
            await process.wait()
            await gone.wait()
            await cli.worker.swarm.settled()
            print(f"{name} was gone {time.monotonic() - began:.2f} s after it was cancelled")
            assert cli.terminals.running == {}
            assert [pid for pid, what in processes() if os.fsencode(home / "bin") in what] == []
