"""Sessions as resources on the wire, in both eras: listed, read, completed, and nothing of others'."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ai_session.models import ToolCall, ToolResult
from ai_session.servers.base import Connection
from ai_session.servers.mcp.plugin import McpServer
from ai_session.servers.mcp.resources import OUTPUT_CHARS, PAGE_SESSIONS
from tests.ai_session.contract.servers.test_control import PERSON, MemoryGate, MemoryHost
from tests.ai_session.support.mcp_client import ENVELOPE, Client, Message, living_in, stop_daemons
from tests.conftest import new_home
from tests.support.bounds import BOUND_SECONDS

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "2026"])
OUTPUT = "session://{id}/output/{command_id}"
SECRET = "sk-ant-REDACTED" + "A" * 90


class ServedHome:
    """One daemon with sessions ``build`` and ``other``, and a client of it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.client = Client(env=living_in(home), cwd=home)
        self.client.initialize()
        self.ids = {name: self.open(name)["session_id"] for name in ("build", "other")}
        self.made = self.run("build", "printf 'one\\ntwo\\n'; (exit 3)")

    def open(self, name: str, agent: str = "") -> Message:
        meta = {"ai-session/agent": agent, "ai-session/run": "r"} if agent else {}
        given = {"name": name, "backend": "pty", "working_directory": str(self.home)}
        made = self.client.result("tools/call", {"name": "create_session", "arguments": given, "_meta": meta})
        return made["structuredContent"]

    def run(self, session: str, command: str) -> str:
        made = self.client.call("execute_command", session_id=session, command=command)["structuredContent"]
        return made["command_id"]

    def read(self, uri: str, *, modern: bool = False) -> Message:
        (content,) = self.client.result("resources/read", {"uri": uri}, modern=modern)["contents"]
        assert content["uri"] == uri
        return content

    def complete(self, variable: str, value: str, ref: Message | None = None, **context: str) -> Message:
        params: Message = {
            "ref": ref or {"type": "ref/resource", "uri": OUTPUT},
            "argument": {"name": variable, "value": value},
            "context": {"arguments": context},
        }
        return self.client.result("completion/complete", params)["completion"]


@pytest.fixture(scope="module")
def daemon(homes: Path) -> Iterator[ServedHome]:
    home = new_home(homes)
    daemon = ServedHome(home)
    with daemon.client:
        yield daemon
    stop_daemons(home)


@ERAS
def test_27_the_list_names_the_parts_of_each_session(daemon: ServedHome, modern: bool) -> None:
    listed = daemon.client.result("resources/list", modern=modern)
    by_uri = {resource["uri"]: resource for resource in listed["resources"]}
    build = daemon.ids["build"]
    mine = [uri for uri in by_uri if build in uri]
    assert mine == [f"session://{build}/{part}" for part in ("info", "screen", "recording", f"output/{daemon.made}")]
    assert next(iter(by_uri)) == "session://list"
    screen = by_uri[f"session://{build}/screen"]
    assert (screen["name"], screen["title"], screen["mimeType"]) == ("build/screen", "Screen of build", "text/plain")
    assert screen["annotations"]["lastModified"].endswith("Z")
    assert all(daemon.read(uri, modern=modern)["text"] for uri in by_uri)
    assert (listed.get("ttlMs"), listed.get("cacheScope")) == ((1000, "private") if modern else (None, None))


@ERAS
def test_27_what_is_read_is_what_the_tool_says(daemon: ServedHome, modern: bool) -> None:
    call = daemon.client.call
    for reference in ("build", daemon.ids["build"]):
        info = json.loads(daemon.read(f"session://{reference}/info", modern=modern)["text"])
        reported = call("get_session_info", session_id="build")["structuredContent"]
        assert [facts.pop("used_at") > 0 for facts in (info, reported)] == [True, True]  # who looks uses it
        assert info == reported
        screen = daemon.read(f"session://{reference}/screen", modern=modern)
        assert screen["text"] == call("read_screen", session_id="build")["structuredContent"]["screen"]
        assert screen["_meta"]["ai-session/resource"]["rows"] > 1
        output = daemon.read(f"session://{reference}/output/{daemon.made}", modern=modern)
        assert output["text"] == "one\ntwo\n"
        assert output["_meta"]["ai-session/resource"]["exit_code"] == 3
    listed = json.loads(daemon.read("session://list", modern=modern)["text"])
    assert listed == call("list_sessions")["structuredContent"]
    result = daemon.client.result("resources/read", {"uri": "session://list"}, modern=modern)
    assert result["_meta"]["ai-session/call_id"].startswith("call_")
    assert result["_meta"]["ai-session/audit"]["seq"] > 0


def test_27_hints_say_how_long_what_was_read_holds(daemon: ServedHome) -> None:
    def hint(uri: str) -> tuple[int, str]:
        result = daemon.client.result("resources/read", {"uri": uri}, modern=True)
        return result["ttlMs"], result["cacheScope"]

    assert hint("session://build/screen") == (0, "private")
    assert hint("session://build/output/all") == (0, "private")
    assert hint(f"session://build/output/{daemon.made}") == (60_000, "private")


def test_27_output_that_is_cut_says_where_and_how_to_read_on(daemon: ServedHome) -> None:
    command = daemon.run("other", "seq 1 60000")
    content = daemon.read(f"session://other/output/{command}")
    text, facts = content["text"], content["_meta"]["ai-session/resource"]
    assert OUTPUT_CHARS * 0.9 < len(text) < OUTPUT_CHARS * 1.1
    first = text.splitlines()[0]
    assert f"read_output(command_id='{command}', offset={facts['next_offset']})" in first
    assert "bytes omitted" in first
    page = daemon.client.call("read_output", session_id="other", command_id=command, offset=facts["next_offset"])
    following = page["structuredContent"]["output"].splitlines()[0]
    assert f"\n{int(following) - 1}\n" in text
    assert f"\n{following}\n" not in text
    assert text.endswith("60000\n")


def test_27_separate_errors_stand_behind_the_output(daemon: ServedHome) -> None:
    given = {"session_id": "other", "command": "echo out; echo err >&2", "separate_stderr": True}
    made = daemon.client.call("execute_command", **given)["structuredContent"]
    assert daemon.read(f"session://other/output/{made['command_id']}")["text"] == "out\n[stderr]\nerr\n"


@ERAS
def test_27_a_recording_is_asciicast_without_secrets(daemon: ServedHome, modern: bool) -> None:
    daemon.run("other", f"echo key={SECRET}")
    content = daemon.read("session://other/recording", modern=modern)
    header, *events = [json.loads(line) for line in content["text"].splitlines() if not line.startswith("#")]
    assert (header["version"], header["title"]) == (3, "other")
    assert {code for _, code, _ in events} <= {"o", "m", "r", "x"}
    assert "key=" in content["text"]
    assert "REDACTED" + "A" * 20 not in content["text"]
    assert content["mimeType"] == "application/x-asciicast"


@ERAS
@pytest.mark.parametrize(
    "uri",
    [
        "session://nobody/info",
        "session://build/output/cmd_none",
        "session://build/nothing",
        "session://../info",
        "session://build/../other/info",
        "session://build/output/%2e%2e",
        "file:///etc/passwd",
        "",
        "session://build",
    ],
)
def test_27_what_is_not_there_is_refused_with_its_uri(daemon: ServedHome, modern: bool, uri: str) -> None:
    error = daemon.client.ask("resources/read", {"uri": uri}, modern=modern)["error"]
    assert error["code"] == (-32602 if modern else -32002)
    assert error["data"] == {"uri": uri}
    if not modern:
        assert daemon.client.ask("resources/subscribe", {"uri": uri})["error"]["code"] == -32002


def test_27_a_long_recording_is_its_newest_part_and_says_so(daemon: ServedHome) -> None:
    daemon.open("long")
    daemon.run("long", "seq 1 200000")
    content = daemon.read("session://long/recording")
    lines = content["text"].splitlines()
    left_out = f"# bytes 0 to {content['_meta']['ai-session/resource']['from_offset']} are left out"
    assert lines[1].startswith(left_out)
    assert "ai-session record export long" in lines[1]
    assert "200000" in "".join(lines[-2:])  # the next prompt may have come in a piece of its own
    assert 1 << 20 <= len(content["text"]) < 3 << 20
    assert json.loads(lines[0])["version"] == 3


def test_27_templates_are_those_of_the_resources(daemon: ServedHome) -> None:
    for modern in (False, True):
        found = daemon.client.result("resources/templates/list", modern=modern)["resourceTemplates"]
        assert [each["uriTemplate"] for each in found] == [
            "session://{id}/info",
            "session://{id}/screen",
            OUTPUT,
            "session://{id}/recording",
        ]
        assert all(each["mimeType"] and each["description"] and each["title"] for each in found)


@ERAS
@pytest.mark.parametrize("cursor", ["", "x", "////", base64.b64encode(b"[1]").decode(), "W10=", "bnVsbA==", "é"])
@pytest.mark.parametrize("method", ["resources/list", "resources/templates/list", "prompts/list"])
def test_27_a_cursor_of_nobody_is_refused(daemon: ServedHome, method: str, cursor: str, modern: bool) -> None:
    assert daemon.client.ask(method, {"cursor": cursor}, modern=modern)["error"]["code"] == -32602


class Described(MemoryGate):
    """Has sessions without terminals."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self.numbers = [*numbers]

    async def call(self, call: ToolCall, progress: object = None) -> ToolResult:
        rows = [{"session_id": f"ses_{number:022}", "name": f"s{number}", "created_at": 1.0} for number in self.numbers]
        return ToolResult("", {"sessions": rows}, call_id=call.call_id)


@pytest.mark.anyio
async def test_27_a_page_begins_after_a_session_that_may_be_gone() -> None:
    here, there = socket.socketpair()
    host: Any = MemoryHost(inner=(gate := Described(*range(PAGE_SESSIONS + 5))))
    connection = Connection(*await asyncio.open_connection(sock=there), PERSON, {}, host)
    serving = asyncio.ensure_future(McpServer().serve(connection))
    reader, writer = await asyncio.open_connection(sock=here)

    async def page(cursor: Message) -> Message:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {"_meta": ENVELOPE, **cursor}}
        writer.write(json.dumps(asked).encode() + b"\n")
        return json.loads(await reader.readline())["result"]

    async with asyncio.timeout(BOUND_SECONDS):
        first = await page({})
        gate.numbers.remove(PAGE_SESSIONS - 1)
        second = await page({"cursor": first["nextCursor"]})
        writer.close()
        await serving
    assert len({uri.split("/")[2] for uri in uris(first)}) == PAGE_SESSIONS + 1
    assert {uri.split("/")[2] for uri in uris(second)} == {f"ses_{PAGE_SESSIONS + more:022}" for more in range(5)}
    assert "nextCursor" not in second


@pytest.mark.torture
def test_27_pages_follow_each_other_while_sessions_come_and_go(homes: Path) -> None:
    home = new_home(homes)
    with (home / ".config/ai-session/config.toml").open("a") as config:
        config.write("\n[session]\nmax_sessions = 100\nmax_sessions_per_owner = 75\n")
    try:
        with Client(env=living_in(home), cwd=home) as client:
            count = PAGE_SESSIONS + 5
            for number in range(count):
                client.call("create_session", name=f"s{number}", backend="pty", shell="dash")
            first = client.result("resources/list", modern=True)
            assert len({uri.split("/")[2] for uri in uris(first)}) == PAGE_SESSIONS + 1
            assert client.result("resources/list")["resources"] == first["resources"]
            last_seen = json.loads(client.result("resources/read", {"uri": "session://list"})["contents"][0]["text"])
            client.call("close_session", session_id=last_seen["sessions"][PAGE_SESSIONS - 1]["session_id"])
            second = client.result("resources/list", {"cursor": first["nextCursor"]}, modern=True)
            assert "nextCursor" not in second
            assert len({uri.split("/")[2] for uri in uris(second)}) == 5
            assert not set(uris(first)) & set(uris(second))
            values = client.result("completion/complete", completion("id", ""))["completion"]
            assert (len(values["values"]), values["total"], values["hasMore"]) == (100, 2 * (count - 1), True)
            assert values["values"][:2] == [f"s{count - 1}", f"s{count - 2}"]
    finally:
        stop_daemons(home)


def uris(listed: Message) -> list[str]:
    return [resource["uri"] for resource in listed["resources"]]


def completion(variable: str, value: str) -> Message:
    return {"ref": {"type": "ref/resource", "uri": OUTPUT}, "argument": {"name": variable, "value": value}}


def test_28_variables_are_completed_with_what_the_caller_sees(daemon: ServedHome) -> None:
    assert daemon.complete("id", "bui")["values"] == ["build"]
    assert daemon.complete("id", daemon.ids["other"][:10])["values"] == [daemon.ids["other"]]
    assert daemon.complete("id", "none of that") == {"values": [], "total": 0, "hasMore": False}
    assert daemon.complete("command_id", "", id="build")["values"] == [daemon.made, "all"]
    assert daemon.complete("command_id", "a", id=daemon.ids["build"])["values"] == ["all"]
    assert daemon.complete("command_id", "")["values"] == []
    assert daemon.complete("command_id", "", id="nobody")["values"] == []
    assert daemon.complete("command_id", "", id="../x")["values"] == []


@pytest.mark.parametrize(
    ("ref", "variable"),
    [
        ({"type": "ref/resource", "uri": "session://{id}/nothing"}, "id"),
        ({"type": "ref/resource", "uri": OUTPUT}, "name"),
        ({"type": "ref/resource", "uri": "session://{id}/info"}, "command_id"),
        ({"type": "ref/prompt", "name": "nothing"}, "session"),
        ({"type": "ref/prompt", "name": "hand_over"}, "command_id"),
    ],
)
def test_28_what_cannot_be_completed_is_refused(daemon: ServedHome, ref: Message, variable: str) -> None:
    params: Message = {"ref": ref, "argument": {"name": variable, "value": ""}}
    assert daemon.client.ask("completion/complete", params)["error"]["code"] == -32602


@ERAS
def test_nothing_of_another_agents_session_is_listed_read_or_completed(daemon: ServedHome, modern: bool) -> None:
    name = f"hidden-{modern}"
    made = daemon.open(name, agent="ada")["session_id"]

    def ask(agent: str, method: str, **params: Any) -> Message:
        meta = {"ai-session/agent": agent, "ai-session/run": "r"}
        return daemon.client.ask(method, {**params, "_meta": meta}, modern=modern)

    for agent, sees in (("ada", True), ("bob", False)):
        assert (made in json.dumps(ask(agent, "resources/list"))) == sees
        assert (name in json.dumps(ask(agent, "completion/complete", **completion("id", "hid")))) == sees
        assert (name in json.dumps(ask(agent, "resources/read", uri="session://list"))) == sees
        for uri in (f"session://{made}/info", f"session://{name}/screen", f"session://{made}/recording"):
            assert ("result" in ask(agent, "resources/read", uri=uri)) == sees
        prompt = {"name": "review_session", "arguments": {"session": made}}
        assert ("result" in ask(agent, "prompts/get", **prompt)) == sees
    assert made not in json.dumps(daemon.client.result("resources/list", {"_meta": {"ai-session/agent": "bob"}}))


def test_25_conversations_that_mix_on_one_pipe_leave_nothing_to_each_other(daemon: ServedHome) -> None:
    """Two agents and somebody who shook hands, all at once: each request stands for itself."""
    uris: dict[str, str] = {}
    for agent in ("ada", "bob"):
        uris[agent] = f"session://{daemon.open(f'mixed-{agent}', agent)['session_id']}/info"
    asked: dict[int, tuple[str, str]] = {}
    for number in range(30):
        agent, of = ("ada", "bob", "")[number % 3], ("ada", "bob")[number // 3 % 2]
        meta = {"ai-session/agent": agent, "ai-session/run": "r"} if agent else {}
        method, params = ("resources/read", {"uri": uris[of]}) if number % 2 else ("resources/list", {})
        asked[daemon.client.request(method, {**params, "_meta": meta}, modern=bool(agent))] = agent, of
    for _ in range(len(asked)):
        while "id" not in (answer := daemon.client.read()):
            pass
        agent, of = asked.pop(answer["id"])
        reported = json.dumps(answer.get("result", {}))
        sees = {other: f"mixed-{other}" in reported for other in ("ada", "bob")}
        if "contents" in reported:
            assert sees == {other: other == of for other in sees}
            assert agent in ("", of)
        elif "result" in answer:
            assert sees == {other: agent in ("", other) for other in sees}
        else:
            assert agent not in ("", of)
            assert answer["error"]["code"] == -32602
    assert not asked
