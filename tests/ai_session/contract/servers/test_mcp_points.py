"""What real clients need of a server, one need a number, each on the wire with real sessions."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.ai_session.support.mcp_client import (
    BOUND_SECONDS,
    DATA,
    SERVER,
    Client,
    Message,
    daemon_pids,
    living_in,
    runtime,
    stop_daemons,
)
from tests.conftest import new_home
from tests.support.process_ends import ending, kill_process
from tests.support.processor_time import once_within, processor_seconds
from tests.support.products import first

OPENINGS: dict[str, list[Message]] = json.loads((DATA / "openings.json").read_text())


@pytest.fixture(scope="module")
def module_home(homes: Path) -> Iterator[Path]:
    """A HOME with a daemon and a session called work."""
    home = new_home(homes)
    with Client(env=living_in(home), cwd=home) as client:
        client.call("create_session", name="work", backend="pty", working_directory=str(home))
    yield home
    stop_daemons(home)


@pytest.fixture
def client(module_home: Path) -> Iterator[Client]:
    with Client(env=living_in(module_home), cwd=module_home) as client:
        yield client
        check(client)


@pytest.fixture(scope="module")
def pipes(module_home: Path) -> Iterator[list[Client]]:
    """Connections for all that needs no new one; the last may be open."""
    made: list[Client] = []
    yield made
    for pipe in made:
        pipe.__exit__()


@pytest.fixture
def pipe(module_home: Path, pipes: list[Client]) -> Iterator[Client]:
    if not pipes or pipes[-1].process.poll() is not None:
        pipes.append(Client(env=living_in(module_home), cwd=module_home))
    pipes[-1].lines.clear()
    yield pipes[-1]
    check(pipes[-1])


def check(client: Client) -> None:
    """What it was told."""
    for line in client.lines:
        message = json.loads(line)
        assert "method" not in message or message["method"] == "notifications/progress", "15: the server asks nothing"
        assert not re.search(rb"\\u[dD][89a-fA-F]", line), "8: no escaped surrogate"


def run(client: Client, command: str, **arguments: Any) -> Message:
    return client.call("execute_command", session_id="work", command=command, **arguments)


def work_of(client: Client, home: Path | None = None) -> float:
    """Seconds of the processor that a server has taken with its daemon; benchmarks/startup.py has those of the wall."""
    return sum(map(processor_seconds, (client.process.pid, *daemon_pids(home))))


@pytest.mark.parametrize("method", first(("server/discover", "tools/list"), "server/discover"))
def test_2_and_6_first_answers_of_a_cold_start_come_early(method: str) -> None:
    def start() -> float:
        with Client(anew=True) as client:
            client.result(method, modern=True)
            client.result("tools/list", modern=True)
            seconds = work_of(client)
        stop_daemons()
        return seconds

    once_within(0.8, start)


def test_6_warm_start_is_early(module_home: Path) -> None:
    def start() -> float:
        before = sum(map(processor_seconds, daemon_pids(module_home)))
        with Client(anew=True, env=living_in(module_home)) as client:
            client.initialize()
            return work_of(client, module_home) - before

    once_within(0.3, start)


@pytest.mark.either("name")  # test_mcp_wire.py has them all
@pytest.mark.parametrize("name", OPENINGS)
def test_1_and_3_openings_of_real_clients_lead_to_a_session(client: Client, name: str) -> None:
    for message in OPENINGS[name]:
        client.write(json.dumps(message).replace('"echo"', '"list_sessions"') + "\n")
        if "id" in message:
            client.read()
    assert run(client, "echo $((6*7))")["structuredContent"]["output"].strip() == "42"


@pytest.mark.parametrize("end", first(("kill", "killpg", "eof", "term"), "killpg", "eof"))
def test_4_sessions_outlive_the_server_process(module_home: Path, end: str) -> None:
    with Client(env=living_in(module_home)) as first:
        run(first, f"kept={end}")
        run(first, "read answer; echo got $answer", timeout_seconds=0)
        if end == "killpg":
            os.killpg(first.process.pid, signal.SIGKILL)
        elif end == "eof":
            first.end()
        else:
            first.process.send_signal(signal.SIGKILL if end == "kill" else signal.SIGTERM)
        first.process.wait(BOUND_SECONDS)
    elsewhere = {"XDG_STATE_HOME": "/nowhere", "XDG_RUNTIME_DIR": "/nowhere", "TMPDIR": "/nowhere"}
    with Client(env=living_in(module_home) | elsewhere) as second:
        second.call("send_input", session_id="work", text="on", keys=["Enter"])
        output = second.call("read_output", session_id="work", wait_for="finish")["structuredContent"]
        assert (output["status"], output["exit_code"]) == ("finished", 0)
        assert "got on" in output["output"]
        assert run(second, "echo $kept")["structuredContent"]["output"].strip() == end


@pytest.mark.parametrize("end", ["eof", signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.torture)])
def test_5_server_ends_at_once_while_a_command_runs(module_home: Path, end: str | int) -> None:
    waiting = {"name": "execute_command", "arguments": {"session_id": "work", "command": "read x"}}

    def attempt() -> float:
        with Client(env=living_in(module_home)) as client:
            client.request("tools/call", waiting)
            client.result("ping")
            status, seconds = client.end() if isinstance(end, str) else client.signalled(end)
        assert status == 0
        with Client(env=living_in(module_home)) as client:
            client.call("interrupt_command", session_id="work")
        return seconds

    once_within(0.1, attempt)


def test_7_output_of_commands_and_programs_never_reaches_our_output(module_home: Path) -> None:
    with Client(env=living_in(module_home)) as client:
        client.initialize()
        run(
            client,
            "echo to stdout; echo to stderr >&2; echo to tty >/dev/tty; cat /proc/self/fd/0 </dev/null; tput bel",
        )
        client.end()
        assert client.line() == b""
        assert client.process.stderr
        assert client.process.stderr.read() == b""
    assert [json.loads(line)["jsonrpc"] for line in client.lines] == ["2.0", "2.0"]


def test_8_bytes_that_are_no_text_become_text(pipe: Client) -> None:
    result = run(pipe, r"printf 'a\377\355\240\275\303\251\n'")
    assert result["structuredContent"]["output"].startswith("a\ufffd")
    assert "é" in result["structuredContent"]["output"]


def test_9_text_and_structure_carry_the_same_and_fit_the_schema(pipe: Client) -> None:
    tools = {tool["name"]: tool for tool in pipe.result("tools/list")["tools"]}
    for name, arguments in (
        ("execute_command", {"command": "echo out; echo err >&2; (exit 3)", "separate_stderr": True}),
        ("get_session_info", {}),
        ("read_output", {"tail_lines": 3}),
        ("read_screen", {}),
        ("resize_session", {"rows": 40, "cols": 120}),
        ("send_input", {"keys": ["Enter"]}),
    ):
        result = pipe.call(name, session_id="work", **arguments)
        assert result["isError"] is False, result
        assert [block["type"] for block in result["content"]] == ["text"]
        Draft202012Validator(tools[name]["outputSchema"]).validate(result["structuredContent"])
    result = run(pipe, "echo out; echo err >&2; (exit 3)", separate_stderr=True)
    text, structure = result["content"][0]["text"], result["structuredContent"]
    assert (structure["exit_code"], structure["stderr"].strip()) == (3, "err")
    assert "exit code 3" in text.splitlines()[0]
    assert all(part in text for part in ("out", "err", structure["command_id"]))


def test_10_output_is_cut_in_the_middle_and_can_be_read_on(pipe: Client) -> None:
    result = run(pipe, "seq 1 100000")
    text, structure = result["content"][0]["text"], result["structuredContent"]
    assert len(text) <= 7500
    assert len(pipe.lines[-1]) < 20_000
    assert structure["output"].startswith("1\n2\n")
    assert structure["output"].rstrip().endswith("\n100000")
    assert structure["omitted_bytes"] > 500_000
    offset = int(re.search(r"offset[ =](\d+)", text.splitlines()[0])[1])  # type: ignore[index]
    more = pipe.call("read_output", session_id="work", offset=offset)["structuredContent"]["output"]
    assert re.match(r"\d+\n\d+\n", more)


def test_10_output_and_a_separate_stderr_share_the_room(pipe: Client) -> None:
    def lengths(command: str, **more: Any) -> tuple[int, int]:
        structure = run(pipe, command, separate_stderr=True, **more)["structuredContent"]
        return len(structure["output"]), len(structure["stderr"])

    out, err = lengths("seq 9999; seq 9999 >&2")
    assert out + err <= 7000
    assert min(out, err) >= 3300
    out, err = lengths("echo out; seq 9999 >&2")
    assert (out, err) == (4, 6996)
    out, err = lengths("seq 9999; echo err >&2")
    assert 6500 < out <= 6996
    assert err == 4
    out, err = lengths("seq 9999; seq 9999 >&2", max_output_chars=200)
    assert out + err <= 200
    assert min(out, err) > 0


def test_11_unknown_arguments_are_ignored_and_named(pipe: Client) -> None:
    result = run(pipe, "echo on", wait_for_previous=True, comand="x")
    assert result["structuredContent"]["output"].strip() == "on"
    assert "wait_for_previous" in result["content"][0]["text"]
    assert "did you mean 'command'" in result["structuredContent"]["note"]
    assert "nextCursor" not in pipe.result("tools/list")
    assert pipe.ask("tools/list", {"cursor": "x"})["error"]["code"] == -32602


def test_12_a_long_command_returns_early_and_cancelling_stops_only_the_wait(pipe: Client, module_home: Path) -> None:
    result = run(pipe, "read line; echo then $line", timeout_seconds=0.2)
    assert result["structuredContent"]["status"] == "running"
    assert "exit_code" not in result["structuredContent"]
    waiting = pipe.request(
        "tools/call", {"name": "read_output", "arguments": {"session_id": "work", "wait_for": "finish"}}
    )
    assert pipe.result("ping") == {}
    assert pipe.call("get_session_info", session_id="work")["isError"] is False
    pipe.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waiting}})
    pipe.call("send_input", session_id="work", text="more", keys=["Enter"])
    output = pipe.call("read_output", session_id="work", wait_for="finish")["structuredContent"]
    assert (output["status"], output["output"].strip().splitlines()[-1]) == ("finished", "then more")
    with pytest.raises(TimeoutError):
        pipe.line(0.1)


def test_12_a_line_end_of_two_characters_answers_one_question(pipe: Client) -> None:
    pipe.call("execute_command", session_id="work", command="read -r a; read -r b; echo $a-$b", timeout_seconds=0.0)
    pipe.call("send_input", session_id="work", text="one\r\ntwo\r\n")
    output = pipe.call("read_output", session_id="work", wait_for="finish")["structuredContent"]["output"]
    assert output.splitlines()[-1] == "one-two"


def test_13_a_call_sent_again_by_a_new_process_does_not_run_twice(module_home: Path) -> None:
    results: list[Message] = []
    for _ in range(2):
        with Client(env=living_in(module_home)) as client:
            results.append(run(client, f"echo ran >> {module_home}/ran; cat {module_home}/ran", call_key="once"))
            client.process.kill()
    assert (module_home / "ran").read_text() == "ran\n"
    assert results[0]["structuredContent"]["output"] == results[1]["structuredContent"]["output"]
    with Client(env=living_in(module_home)) as client:
        other = run(client, "echo other", call_key="once")
    assert other["_meta"]["ai-session/error"]["code"] == "call_key_conflict"


def test_13_a_key_of_another_client_is_another_key(module_home: Path) -> None:
    written = list[str]()
    for name in ("one", "two", "one"):
        with Client(env=living_in(module_home), anew=True) as client:
            client.initialize(name=name)
            counted = run(client, "echo ran >> each; wc -l < each", call_key="each")
            written.append(counted["structuredContent"]["output"])
    assert [line.strip() for line in written] == ["1", "2", "1"]


def test_14_tools_say_what_they_are(pipe: Client) -> None:
    tools: list[Message] = pipe.result("tools/list")["tools"]
    assert len(tools) <= 12
    for tool in tools:
        assert re.fullmatch(r"[a-z0-9_]{1,40}", tool["name"])
        assert tool["title"] == tool["annotations"]["title"]
        hints = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
        assert {type(tool["annotations"][hint]) for hint in hints} == {bool}
        assert len(tool["description"]) <= 2048
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
            assert not {"anyOf", "oneOf", "allOf", "$ref", "$defs"} & set(json.dumps(schema).split('"'))
    always = {tool["name"] for tool in tools if tool.get("_meta", {}).get("anthropic/alwaysLoad")}
    assert {"create_session", "execute_command"} <= always < {tool["name"] for tool in tools}


DOCUMENTED: dict[str, Message] = {
    "execute_command": {
        "properties": {"session_id": {"type": "string"}, "command": {"type": "string"}},
        "required": ["session_id", "command"],
    },
    "create_session": {
        "properties": {"name": {"type": "string"}, "working_directory": {"type": "string"}},
        "required": ["name"],
    },
    "get_session_info": {"properties": {"session_id": {"type": "string"}}, "required": ["session_id"]},
}
"""What clients were told of these three before there was anything else; more may be optional."""


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_documented_tools_take_what_is_documented(pipe: Client, name: str) -> None:
    (tool,) = (tool for tool in pipe.result("tools/list")["tools"] if tool["name"] == name)
    assert tool["inputSchema"]["required"] == DOCUMENTED[name]["required"]
    for argument, schema in DOCUMENTED[name]["properties"].items():
        assert schema.items() <= tool["inputSchema"]["properties"][argument].items()


def test_errors_of_sessions_are_results_that_say_what_to_do(pipe: Client) -> None:
    for name, arguments, code in (
        ("execute_command", {"session_id": "nowhere", "command": "ls"}, "session_not_found"),
        ("execute_command", {"session_id": 5}, "invalid_arguments"),
        ("create_session", {"name": "work"}, "session_exists"),
        ("create_session", {"name": "x", "working_directory": "/none"}, "directory_unusable"),
        ("interrupt_command", {"session_id": "work"}, "nothing_running"),
    ):
        result = pipe.call(name, **arguments)
        assert result["isError"] is True
        error = result["_meta"]["ai-session/error"]
        assert error["code"] == code
        assert error["suggestion"]
        assert error["message"] in result["content"][0]["text"]


def test_killed_daemon_loses_no_output(module_home: Path, pipes: list[Client]) -> None:
    """The next daemon reads the whole output and the exit code; none of the clients notices."""
    with Client(env=living_in(module_home)) as client:
        run(client, "for i in 1 2 3; do echo before $i; done; read x; seq 1 5000; (exit 7)", timeout_seconds=0)
        (pid,) = daemon_pids(module_home)
        kill_process(pid)
        client.call("send_input", session_id="work", keys=["Enter"])
        result = client.call("read_output", session_id="work", wait_for="finish")["structuredContent"]
        assert (result["status"], result["exit_code"]) == ("finished", 7)
        whole = client.call("read_output", session_id="work", offset=0, max_output_chars=200_000)["structuredContent"]
        lines = whole["output"].split()
        assert lines[:6] == ["before", "1", "before", "2", "before", "3"]
        assert lines[-5000:] == [str(number) for number in range(1, 5001)]
        assert run(client, "echo alive")["structuredContent"]["output"].strip() == "alive"
        for each in pipes:
            assert each.call("get_session_info", session_id="work")["structuredContent"]["state"] == "ready"
    assert runtime(module_home).is_dir()


def test_server_without_daemon_has_real_sessions_that_end_with_it(home: Path) -> None:
    with Client([*SERVER, "--no-daemon"], cwd=home) as client:
        client.call("create_session", name="mine", backend="pty")
        result = client.call("execute_command", session_id="mine", command="cat; echo $$; pwd", stdin="")
        shell, folder = result["structuredContent"]["output"].split()
        assert folder == str(home)
        # Others may run beside it.
        those = [str(path) for path in Path("/tmp").glob("ai-session-alone-*")]
        words = ["grep", "-rlsF", "--include=spec.json", str(home), *those]
        (spec,) = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
        with ending(int(shell)):
            client.end()
    assert not Path(spec).parents[2].exists()
