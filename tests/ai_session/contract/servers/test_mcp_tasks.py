"""Tasks of a real daemon on a pipe: commands that take longer than a client is made to wait for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

import pytest

from ai_session.servers.mcp.tasks import COMMAND_ID, PATIENCE_SECONDS, TASKS, TTL_SECONDS
from tests.ai_session.support.asking import decide
from tests.ai_session.support.mcp_client import Client, Message, daemon_pids, living_in, stop_daemons
from tests.conftest import UNBOXED, new_home
from tests.support.process_ends import kill_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KNOWS: Message = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}
ASKS: Message = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}, "elicitation": {}}}
TASK_FACTS = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}
UNKNOWN, NO_METHOD, NOT_DECLARED = -32602, -32601, -32021
LOOKS = 30
"""A look waits a second and a half by itself, so this bounds a wait without counting time."""


class Tasking:
    """A client that knows tasks."""

    def __init__(self, home: Path, meta: Message = KNOWS) -> None:
        self.home = home
        self.meta = meta
        self.wire = Client(env=living_in(home))

    def __enter__(self) -> Self:
        self.wire.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.__exit__()

    def request(self, tool: str, /, **arguments: Any) -> int:
        params = {"name": tool, "arguments": arguments, "_meta": self.meta}
        return self.wire.request("tools/call", params, modern=True)

    def call(self, tool: str, /, **arguments: Any) -> Message:
        params = {"name": tool, "arguments": arguments, "_meta": self.meta}
        return self.wire.result("tools/call", params, modern=True)

    def ask(self, method: str, task: Message | str, **more: Any) -> Message:
        task_id = task if isinstance(task, str) else task["taskId"]
        return self.wire.ask(method, {"taskId": task_id, "_meta": self.meta, **more}, modern=True)

    def seen(self, task: Message) -> Message:
        return self.ask("tasks/get", task)["result"]

    def ended(self, task: Message) -> Message:
        """The task once it is no longer working."""
        for _ in range(LOOKS):
            seen = self.seen(task)
            if seen["status"] != "working":
                return seen
        raise AssertionError(f"still {seen}")

    def session(self, name: str) -> str:
        assert not self.call("create_session", name=name, shell="bash")["isError"]
        return name

    def running(self, name: str, command: str = "cat {pipe}; (exit 3)", **more: Any) -> tuple[Message, Path]:
        """A task in a session of its own, whose command goes on when its pipe is written to."""
        pipe = self.home / name
        os.mkfifo(pipe)
        return self.call(
            "execute_command", session_id=self.session(name), command=command.format(pipe=pipe), **more
        ), pipe


def error_code(answer: Message) -> int:
    return answer["error"]["code"]


@pytest.fixture(scope="module")
def daemon_home(shared_home: Path) -> Iterator[Path]:
    yield shared_home
    stop_daemons(shared_home)


@pytest.fixture
def client(daemon_home: Path) -> Iterator[Tasking]:
    with Tasking(daemon_home) as client:
        yield client


def test_a_quick_command_is_answered_as_ever(client: Tasking) -> None:
    client.session("quick")
    result = client.call("execute_command", session_id="quick", command="echo tea")
    assert (result["resultType"], result["structuredContent"]["output"]) == ("complete", "tea\n")
    started = client.call("execute_command", session_id="quick", command="read -r line", timeout_seconds=0)
    assert (started["resultType"], started["structuredContent"]["status"]) == ("complete", "running")
    asked = client.call("read_output", session_id="quick", wait_for="finish")
    assert asked["structuredContent"]["input_mode"] == "line"  # what wants input is no longer a wait


def test_a_long_one_is_a_task_until_it_is_over(client: Tasking) -> None:
    task, pipe = client.running("long")
    assert task["resultType"] == "task"
    assert task.keys() >= TASK_FACTS
    assert (task["status"], task["ttlMs"]) == ("working", TTL_SECONDS * 1000)
    assert {"ai-session/call_id", "ai-session/audit", COMMAND_ID} <= task["_meta"].keys()
    working = client.seen(task)
    assert (working["resultType"], working["status"], "result" in working) == ("complete", "working", False)
    pipe.write_text("tea\n")
    done = client.ended(task)
    facts = done["result"]["structuredContent"]
    assert (done["status"], facts["status"], facts["exit_code"], facts["output"]) == (
        "completed",
        "finished",
        3,
        "tea\n",
    )
    assert facts["command_id"] == task["_meta"][COMMAND_ID]
    assert "exit code 3" in done["result"]["content"][0]["text"]
    begun, reported = task["_meta"]["ai-session/audit"], done["result"]["_meta"]["ai-session/audit"]
    assert reported["seq"] > begun["seq"]
    assert client.seen(task)["result"]["structuredContent"]["output"] == "tea\n"


def test_a_wait_for_what_runs_already_is_one_too_and_its_end_leaves_the_command(client: Tasking) -> None:
    started, pipe = client.running("waited", "echo first; cat {pipe}; echo last; cat {pipe}", timeout_seconds=0)
    facts = started["structuredContent"]
    waits = {"session_id": "waited", "wait_for": "pattern", "pattern": "last"}
    task = client.call("read_output", **waits)
    assert task["resultType"] == "task", task
    assert task["_meta"][COMMAND_ID] == facts["command_id"]
    assert client.ask("tasks/cancel", task)["result"]["resultType"] == "complete"
    assert client.seen(task)["status"] == "working"
    pipe.write_text("")
    assert client.ended(task)["result"]["structuredContent"]["matches"] == 1
    assert client.call("get_session_info", session_id="waited")["structuredContent"]["state"] == "running"


def test_a_program_that_wants_input_ends_the_task_and_says_so(client: Tasking) -> None:
    task, pipe = client.running("input", "cat {pipe}; read -r line; echo got $line")
    pipe.write_text("")
    done = client.ended(task)
    facts = done["result"]["structuredContent"]
    assert (done["status"], facts["status"], facts["input_mode"]) == ("completed", "running", "line")
    client.call("send_input", session_id="input", text="tea", keys=["enter"])
    assert "got tea" in client.ended(task)["result"]["structuredContent"]["output"]


def test_who_says_how_long_waits_no_longer(client: Tasking) -> None:
    task, _ = client.running("bounded", timeout_seconds=PATIENCE_SECONDS + 0.5)
    assert task["resultType"] == "task"
    done = client.ended(task)
    assert (done["status"], done["result"]["structuredContent"]["status"]) == ("completed", "running")


def test_cancelling_interrupts_the_command_that_it_began_and_no_other(client: Tasking) -> None:
    task, _ = client.running("cancelled")
    assert client.ask("tasks/cancel", task)["result"]["resultType"] == "complete"
    facts = client.ended(task)["result"]["structuredContent"]
    assert (facts["status"], facts["exit_code"]) == ("interrupted", 130)
    client.call("execute_command", session_id="cancelled", command="read -r line", timeout_seconds=0)
    assert "result" in client.ask("tasks/cancel", task)
    assert client.call("read_output", session_id="cancelled")["structuredContent"]["status"] == "running"


def test_the_daemon_may_be_replaced_meanwhile(homes: Path) -> None:
    home = new_home(homes)
    with Tasking(home) as before:
        task, pipe = before.running("kept")
        (pid,) = daemon_pids(home)
        kill_process(pid)
    with Tasking(home) as after:
        assert after.seen(task)["status"] == "working"
        pipe.write_text("tea\n")
        facts = after.ended(task)["result"]["structuredContent"]
        assert (facts["exit_code"], facts["output"]) == (3, "tea\n")
        after.call("close_session", session_id="kept")
        gone = after.ask("tasks/get", task)
        assert error_code(gone) == UNKNOWN
    stop_daemons(home)


def test_another_agent_s_task_is_unknown(daemon_home: Path) -> None:
    claim = {"ai-session/run": "r1"}
    with Tasking(daemon_home, KNOWS | claim | {"ai-session/agent": "one"}) as one:
        task, pipe = one.running("owned")
        with Tasking(daemon_home, KNOWS | claim | {"ai-session/agent": "two"}) as two:
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                more = {"inputResponses": {}} if method == "tasks/update" else {}
                assert error_code(two.ask(method, task, **more)) == UNKNOWN
        pipe.write_text("")
        assert one.ended(task)["result"]["structuredContent"]["exit_code"] == 3


@pytest.mark.parametrize("task_id", ["", "task_", "task_AAAA", "x" * 5000, "task_" + "W10", "task_é"])
def test_what_is_no_task_is_unknown(client: Tasking, task_id: str) -> None:
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        assert error_code(client.ask(method, task_id, inputResponses={})) == UNKNOWN


def test_who_does_not_know_tasks_gets_none(daemon_home: Path) -> None:
    with Client(env=living_in(daemon_home)) as wire:
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            refused = wire.ask(method, {"taskId": "x", "inputResponses": {}}, modern=True)
            assert error_code(refused) == NOT_DECLARED
            assert TASKS in refused["error"]["data"]["requiredCapabilities"]["extensions"]
            assert error_code(wire.ask(method, {"taskId": "x"})) == NO_METHOD  # of an earlier protocol
        wire.call("create_session", modern=True, name="plain")
        more = {"session_id": "plain", "timeout_seconds": PATIENCE_SECONDS + 0.2}
        result = wire.call("execute_command", modern=True, command="tail -f /dev/null", **more)
        assert (result["resultType"], result["structuredContent"]["status"]) == ("complete", "running")
        discovered = wire.result("server/discover", modern=True)
        assert discovered["capabilities"]["extensions"] == {TASKS: {}}


def test_tasks_are_not_listened_to(client: Tasking) -> None:
    wanted = {"notifications": {"taskIds": ["task_x"], "toolsListChanged": True}}
    refused = client.wire.ask("subscriptions/listen", wanted, modern=True)
    assert error_code(refused) == NOT_DECLARED
    client.wire.request("subscriptions/listen", {**wanted, "_meta": client.meta}, modern=True)
    acknowledged = client.wire.read()
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}


def test_a_call_made_again_with_its_key_finds_the_same_command(client: Tasking) -> None:
    task, pipe = client.running("keyed", call_key="k1")
    again = client.call("execute_command", session_id="keyed", command=f"cat {pipe}; (exit 3)", call_key="k1")
    assert again["resultType"] == "task"
    assert again["_meta"][COMMAND_ID] == task["_meta"][COMMAND_ID]
    pipe.write_text("")
    assert client.ended(again)["result"]["structuredContent"]["exit_code"] == 3


READS_ARE_ASKED_ABOUT = UNBOXED + (
    '\n[[policy.rules]]\nid = "reads"\ndecision = "ask"\ntools = ["read_output"]\nreason = "A test wants it."\n'
)


def test_a_question_about_reading_it_is_the_task_s(homes: Path) -> None:
    home = new_home(homes, READS_ARE_ASKED_ABOUT)
    with Tasking(home, ASKS) as client:
        task, pipe = client.running("asked")
        pipe.write_text("tea\n")
        seen = client.ended(task)
        ((key, request),) = seen["inputRequests"].items()
        assert (seen["status"], request["method"]) == ("input_required", "elicitation/create")
        assert client.seen(task)["inputRequests"] == seen["inputRequests"]
        client.ask("tasks/update", task, inputResponses={"other": decide("session")})
        assert client.seen(task)["status"] == "input_required"
        acknowledged = client.ask("tasks/update", task, inputResponses={key: decide("session")})["result"]
        assert acknowledged.keys() <= {"resultType", "_meta"}
        done = client.ended(task)
        assert (done["status"], done["result"]["structuredContent"]["output"]) == ("completed", "tea\n")
    with Tasking(home) as formless:
        formless.session("silent")
        task = formless.call("execute_command", session_id="silent", command="tail -f /dev/null")
        refused = formless.ask("tasks/get", task)["error"]
        assert refused["data"]["ai-session/error"]["code"] == "consent_needed"
        formless.call("interrupt_command", session_id="silent")
    stop_daemons(home)
