"""How ``ccswarm mcp-server`` begins, bears its client, and ends; and what becomes of the runs it carries out."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccswarm.config.settings import Settings
from ccswarm.runs import app
from ccswarm.servers.base import ServerOptions
from ccswarm.servers.mcp.dispatch import Conversation
from tests.ccswarm.support.mcp_server_process import INITIALIZE, MODERN, ServerClient, serving
from tests.ccswarm.support.runs import HELD, QUICK, RunVerbs, step, task
from tests.ccswarm.support.verbs import agent, server
from tests.conftest import client_environment, environment
from tests.support.bounds import BOUND_SECONDS, pause
from tests.support.processor_time import once_within

BOTH = (
    QUICK
    + server("small", "plain")
    + server("pipe", "pipes", more="trusted = true")
    + agent("ada", "small.*", "pipe.*")
    + agent("eve", "small.*", more='approval = "all"')
    + HELD.replace('"hold"', '"hold"\nagent = "ada"')
)
ASK = task("ask", step("say", text="rm -rf /"), more='agent = "eve"')
FAIL = '[[tasks.steps]]\nid = "fail"\ntool = "small.fail"\ngate = true\n'
TOGETHER = task("other", step("say"), more='agent = "ada"') + ASK


@pytest.fixture
def verbs(home: Path) -> RunVerbs:
    return RunVerbs(home, BOTH)


@pytest.fixture(scope="module")
def shared(shared_home: Path) -> RunVerbs:
    return RunVerbs(shared_home, BOTH)


@pytest.fixture(scope="module")
def client(shared: RunVerbs) -> Iterator[ServerClient]:
    """A server for tests that neither end nor configure it."""
    with environment(client_environment(shared.home)), serving(*words(shared)) as client:
        yield client


def words(verbs: RunVerbs) -> tuple[Path, str, str]:
    return verbs.home, "--workspace", str(verbs.home)


def finished(client: ServerClient, run: str) -> dict[str, object]:
    """The steps of the task ``hold`` when the run has succeeded."""
    client.follow(run)
    status = client.tool("run_status", run=run)
    assert status["status"] == "succeeded"
    assert status["usage"]["calls"] == 3
    return json.loads(client.tool("read_result", run=run, task="hold")["text"])["steps"]


def test_a_client_that_leaves_at_once_is_answered_first(verbs: RunVerbs) -> None:
    client = ServerClient(*words(verbs))
    numbers = [client.begin("initialize", INITIALIZE), client.begin("tools/list"), client.begin("ping")]
    read = client.begin("resources/read", {"uri": "run://nowhere/plan"})
    code, _ = client.leave()
    client.process.close()
    assert code == 0
    assert all("result" in client.answer(number) for number in numbers)
    assert client.answer(read)["error"]["code"] == -32602


@pytest.mark.parametrize("way", ["end of input", signal.SIGTERM, signal.SIGINT])
def test_it_ends_within_a_second(verbs: RunVerbs, way: object) -> None:
    def attempt() -> float:
        with serving(*words(verbs)) as client:
            client.tool("list_runs")
            waiting = client.begin("tools/list")
            client.answer(waiting)
            if isinstance(way, signal.Signals):
                began = time.monotonic()
                client.process.send_signal(way)
                code, seconds = client.process.wait(BOUND_SECONDS), time.monotonic() - began
            else:
                code, seconds = client.leave()
            assert code == 0
        return seconds

    once_within(1, attempt)


BAD_LINES: list[tuple[bytes, list[tuple[object, int]]]] = [
    (b"no json at all", [(None, -32700)]),
    (b'{"jsonrpc":"2.0","id":71,"method":"tools/list"', [(71, -32700)]),
    (b'{"jsonrpc":"2.0","id":72,"method":"ping","params":[1]}', [(72, -32600)]),
    (b'{"jsonrpc":"1.0","id":73,"method":"ping"}', [(73, -32600)]),
    (b'{"jsonrpc":"2.0","id":74,"method":7}', [(74, -32600)]),
    (b'[{"jsonrpc":"2.0","id":75,"method":"ping"},{"id":76,"method":"ping"}]', [(75, -32600), (76, -32600)]),
    (b'{"jsonrpc":"2.0","id":77,"method":"x","params":' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"}", [(77, -32600)]),
    (b'{"jsonrpc":"2.0","id":78,"method":"ping","params":{"x":"\\ud800"}}', [(78, -32700)]),
    (b'\xff\xfe{"jsonrpc":"2.0","id":79,"method":"ping"}', [(None, -32700)]),
    (b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}', [(None, -32700)]),
    (b'{"jsonrpc":"2.0","id":79,"method":"ping","params":{"x":1e999}}', [(79, -32700)]),
    (b'{"jsonrpc":"2.0","id":80,"method":"no/such"}', [(80, -32601)]),
    (b'{"jsonrpc":"2.0","id":81,"method":"tools/call","params":{"name":7}}', [(81, -32602)]),
    (b'{"jsonrpc":"2.0","id":82,"method":"tools/call","params":{"name":"run_status","arguments":[]}}', [(82, -32602)]),
    (b'{"jsonrpc":"2.0","id":83,"method":"ping","params":{"x":"' + b"y" * (9 << 20) + b'"}}', [(83, -32600)]),
    (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}', []),
    (b'{"jsonrpc":"2.0","method":"notifications/no/such"}', []),
    (b'{"jsonrpc":"2.0","id":1,"result":{}}', []),
    (b"Content-Length: 120", []),
    (b"", []),
]


def test_whatever_is_wrong_with_a_line_costs_that_line_only(verbs: RunVerbs) -> None:
    with serving(*words(verbs)) as client:
        for line, expected in BAD_LINES:
            client.send(line)
            for number, code in expected:
                assert client.answer(number)["error"]["code"] == code, line[:80]
        assert client.ask("ping") == {}
        client.tool("list_runs")


def test_a_client_that_reads_late_gets_everything(verbs: RunVerbs) -> None:
    with serving(*words(verbs)) as client:
        numbers = [client.begin("tools/list") for _ in range(30)]
        assert all(len(client.answer(number)["result"]["tools"]) == 18 for number in numbers)


def test_a_client_may_be_offered_the_tools_for_runs_alone(verbs: RunVerbs) -> None:
    with serving(*words(verbs), "--runs-only") as client:
        assert len(client.ask("tools/list")["tools"]) == 11
        assert client.ask("prompts/list")["prompts"] == []
        number = client.begin("tools/call", {"name": "analyze_project", "arguments": {"requirements": "a shop"}})
        assert "there is no tool 'analyze_project'" in client.answer(number)["error"]["message"]


def test_calls_do_not_wait_for_each_other_and_can_be_given_up(client: ServerClient, shared: RunVerbs) -> None:
    run = client.tool("start_run")["run"]
    with shared.held() as pipe:
        cursor = ""
        while (reported := client.tool("run_events", run=run, cursor=cursor))["events"] or not cursor:
            cursor = reported["cursor"]
        wait = {"run": run, "cursor": cursor, "wait_seconds": 45}
        waiting = client.begin("tools/call", {"name": "run_events", "arguments": wait})
        given_up = client.begin("tools/call", {"name": "run_events", "arguments": wait})
        asked = [client.begin("tools/call", {"name": "run_status", "arguments": {"run": run}}) for _ in range(10)]
        for number in asked:
            assert client.answer(number)["result"]["structuredContent"]["status"] == "running"
        assert waiting not in client.answers
        for _ in range(2):
            client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": given_up}})
        client.ask("ping")
        pipe.write("told")
    came = client.answer(waiting)["result"]["structuredContent"]
    assert came["events"]
    assert finished(client, run)["wait"]
    assert given_up not in client.answers


def test_when_the_client_leaves_its_run_is_paused_and_the_next_server_goes_on(verbs: RunVerbs) -> None:
    with serving(*words(verbs)) as client:
        run = client.tool("start_run")["run"]
        with verbs.held():
            status = client.tool("run_status", run=run)
            assert (status["status"], status["worker"]) == ("running", "this server")
            code, _ = client.leave()
            assert code == 0
    assert verbs.json("status", run)["status"] == "paused"
    with serving(*words(verbs)) as client:
        status = client.tool("run_status", run=run)
        assert (status["status"], status["worker"], status["over"]) == ("paused", "", False)
        assert "resume_run" in status["next"]
        assert client.tool("run_events", run=run, cursor="1", wait_seconds=45)["status"] == "paused"
        with verbs.answering("at last"):
            assert client.tool("resume_run", run=run)["run"] == run
            assert finished(client, run)["wait"] == {"status": "ok", "text": "at last"}


@pytest.mark.torture
def test_who_says_that_it_works_is_known_to_whoever_leaves_runs_to_it(home: Path) -> None:
    async def work() -> None:
        async with app.working(Settings(), home, {}) as opened:
            assert list((await opened.engine.health())["workers"]) == [app.worker_name(opened.settings)]

    asyncio.run(work())


@pytest.mark.torture
def test_where_a_worker_is_the_run_goes_on_there(verbs: RunVerbs) -> None:
    with serving(*words(verbs)) as client:
        run = client.tool("start_run")["run"]
        with verbs.held(), verbs.started("worker", "--id", "steady") as worker:
            worker.until("carries out queued runs")
            assert client.tool("run_status", run=run)["worker"] == "this server"
            assert client.leave()[0] == 0
            with verbs.answering("at the worker"):
                worker.until(f"{run}: succeeded")
            verbs.run("logs", "--follow", run)  # until that is recorded
            assert worker.end(signal.SIGTERM)[0] == 0
    assert verbs.json("status", run)["status"] == "succeeded"


@pytest.mark.torture
def test_after_a_kill_the_next_server_tells_the_truth_and_goes_on(verbs: RunVerbs) -> None:
    with serving(*words(verbs)) as client:
        run = client.tool("start_run")["run"]
        with verbs.held():
            client.kill()
    with serving(*words(verbs)) as client:
        status = client.tool("run_status", run=run)
        assert (status["status"], status["worker"], status["over"]) == ("interrupted", "", False)
        assert client.tool("list_runs")["runs"][0]["status"] == "interrupted"
        reported = client.tool("run_events", run=run, cursor="2;hold:0", wait_seconds=45)
        assert (reported["status"], reported["events"]) == ("interrupted", [])
        with verbs.answering("again"):
            client.tool("resume_run", run=run)
            assert finished(client, run)["wait"] == {"status": "ok", "text": "again"}
        assert client.tool("run_status", run=run)["worker"] == ""


def test_a_run_is_paused_resumed_and_cancelled(client: ServerClient, shared: RunVerbs) -> None:
    run = client.tool("start_run")["run"]
    with shared.held():
        assert client.tool("pause_run", run="last")["status"] == "paused"
    client.tool("resume_run", run=run)
    with shared.held():
        assert client.tool("cancel_run", run=run)["status"] == "cancelled"
    reported = client.tool("run_events", run=run, cursor="1", wait_seconds=45)
    assert (reported["status"], reported["over"]) == ("cancelled", True)
    assert client.refused("pause_run", run=run)["code"] == "usage_invalid"
    with shared.answering("after all"):
        assert client.tool("resume_run", run=run)["run"] == run
        finished(client, run)


@pytest.mark.torture
def test_what_failed_is_done_again_by_a_run_of_the_same_plan(client: ServerClient) -> None:
    plan = task("good", step("say"), more='agent = "ada"') + task("bad", more='agent = "ada"') + FAIL
    run = client.tool("start_run", plan=plan)["run"]
    client.follow(run)
    assert client.tool("run_status", run=run)["status"] == "failed"
    again = client.tool("resume_run", run=run)
    assert again["run"] != run
    assert run in again["notes"][0]
    client.follow(again["run"])
    tasks = client.tool("run_status", run=again["run"])["tasks"]
    assert [(one["task"], one["status"]) for one in tasks] == [("good", "succeeded"), ("bad", "failed")]


def test_what_an_agent_asks_is_listed_and_answered_by_a_person_only(client: ServerClient, shared: RunVerbs) -> None:
    run = client.tool("start_run", plan=TOGETHER)["run"]
    assert not client.follow_whole(run, "approval.asked")[1]["over"]
    (asked,) = client.tool("list_approvals", run=run)["approvals"]
    assert (asked["agent"], asked["tool"], asked["arguments"]) == ("eve", "small.echo", {"text": "rm -rf /"})
    assert asked["answer"] == f"ccswarm approve {asked['id']}"
    status = client.tool("run_status", run=run)
    while status["status"] == "running":  # the other task has not told its end
        pause()
        status = client.tool("run_status", run=run)
    assert status["status"] == "waiting_approval"
    assert status["approvals"] == [asked]
    assert asked["id"] in status["next"]
    assert "you cannot" in status["next"]
    text = client.call("list_approvals")["content"][0]["text"]
    assert asked["answer"] in text
    with environment(client_environment(shared.home)):
        shared.run("approve", asked["id"])
    client.follow(run)
    assert client.tool("list_approvals")["approvals"] == []
    assert client.tool("run_status", run=run)["status"] == "succeeded"


def test_who_subscribed_is_told_of_changes_in_both_eras(verbs: RunVerbs) -> None:
    with serving(*words(verbs)) as client:
        client.ask("resources/subscribe", {"uri": "run://list"})
        run = client.tool("start_run")["run"]
        client.notification("notifications/resources/list_changed")
        assert client.notification("notifications/resources/updated") == {"uri": "run://list"}
        uri = f"run://{run}/events"
        with verbs.held() as pipe:
            client.ask("resources/subscribe", {"uri": uri})
            asked = {"notifications": {"resourceSubscriptions": [f"run://{run}/result"]}, "_meta": MODERN}
            listening = client.begin("subscriptions/listen", asked)
            client.notification("notifications/subscriptions/acknowledged")
            pipe.write("x")
        client.follow(run)
        reported = {client.notification("notifications/resources/updated")["uri"] for _ in range(2)}
        assert {uri, f"run://{run}/result"} & reported
        client.ask("resources/unsubscribe", {"uri": uri})
        assert listening not in client.answers


def test_what_waits_says_that_it_goes_on_until_it_is_given_up() -> None:
    async def listened() -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []
        enough = asyncio.Event()

        def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if message["method"] == "notifications/progress" and len(sent) > 2:
                enough.set()

        conversation = Conversation(ServerOptions(), send, heartbeat_seconds=0.01)
        meta = {**MODERN, "progressToken": "tick"}
        params = {"notifications": {"resourcesListChanged": True}, "_meta": meta}
        conversation.receive({"jsonrpc": "2.0", "id": 5, "method": "subscriptions/listen", "params": params})
        await asyncio.wait_for(enough.wait(), BOUND_SECONDS)
        conversation.receive({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
        await conversation.settle()
        await conversation.close()
        return sent

    first, *beats = asyncio.run(listened())
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert {one["method"] for one in beats} == {"notifications/progress"}
    assert {one["params"]["progressToken"] for one in beats} == {"tick"}
    progress = [one["params"]["progress"] for one in beats]
    assert sorted(set(progress)) == progress
