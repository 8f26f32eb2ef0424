"""The MCP server on the wire, behind relay and daemon, with a gate that only remembers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from agentwire.mcp.first_answers import HANDSHAKE_VERSIONS
from ai_session import __version__
from tests.ai_session.support.mcp_client import DATA, ENVELOPE, Client, Message, double

BAD_LINES: list[dict[str, Any]] = json.loads((DATA / "bad_lines.json").read_text())
OPENINGS: dict[str, list[Message]] = json.loads((DATA / "openings.json").read_text())


@pytest.fixture(scope="module")
def pipe(warm: dict[str, str]) -> Iterator[Client]:
    """One connection for all that needs no new one; nobody greets on it."""
    with Client(env=warm) as client:
        yield client


@pytest.fixture(scope="module")
def greeted(warm: dict[str, str]) -> Iterator[Client]:
    """One connection for all greetings."""
    with Client(env=warm) as client:
        yield client


@pytest.fixture
def client(warm: dict[str, str]) -> Iterator[Client]:
    with Client(env=warm) as client:
        yield client


def modern_meta(**changes: Any) -> Message:
    names = {"version": "protocolVersion", "capabilities": "clientCapabilities"}
    meta = {**ENVELOPE, **{f"io.modelcontextprotocol/{names[k]}": v for k, v in changes.items()}}
    return {"_meta": {k: v for k, v in meta.items() if v is not None}}


def error_of(answer: Message) -> tuple[int, str]:
    return answer["error"]["code"], answer["error"]["message"]


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
def test_every_handshake_version_is_echoed(greeted: Client, version: str) -> None:
    assert greeted.initialize(version)["protocolVersion"] == version


@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28", "2099-01-01", ""])
def test_unknown_version_gets_the_newest_handshake(greeted: Client, version: str) -> None:
    assert greeted.initialize(version)["protocolVersion"] == "2025-11-25"


def test_both_eras_say_who_we_are_and_how_to_use_us(client: Client) -> None:
    handshake, discover = client.initialize(), client.result("server/discover", modern=True)
    stamped = discover["_meta"]["io.modelcontextprotocol/serverInfo"]
    assert handshake["serverInfo"] == stamped
    assert stamped == {"name": "ai-session", "title": "AI Session", "version": __version__}
    assert handshake["instructions"] == discover["instructions"]
    assert 500 < len(handshake["instructions"]) <= 2048
    assert discover["supportedVersions"] == ["2026-07-28"]
    assert discover["resultType"] == "complete"
    assert handshake["capabilities"] == {
        "completions": {},
        "prompts": {"listChanged": False},
        "resources": {"subscribe": True, "listChanged": True},
        "tools": {"listChanged": True},
    }
    assert tuple(HANDSHAKE_PROTOCOL_VERSIONS) == HANDSHAKE_VERSIONS


@pytest.mark.parametrize("modern", [False, True])
def test_tools_carry_titles_annotations_and_schemas(pipe: Client, modern: bool) -> None:
    listed = pipe.result("tools/list", modern=modern)
    assert "nextCursor" not in listed
    by_name = {tool["name"]: tool for tool in listed["tools"]}
    assert list(by_name) == sorted(by_name)
    echo = by_name["echo"]
    assert echo["title"] == echo["annotations"]["title"] == "Echo"
    assert set(echo["annotations"]) == {"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
    assert echo["_meta"] == {"anthropic/alwaysLoad": True}
    assert "_meta" not in by_name["fail"]
    assert echo["inputSchema"]["type"] == echo["outputSchema"]["type"] == "object"
    assert by_name["seen"]["annotations"]["readOnlyHint"] is True


@pytest.mark.parametrize("modern", [False, True])
def test_call_returns_text_structure_and_call_id(pipe: Client, modern: bool) -> None:
    result = pipe.call("echo", text="hé\U0001f600", modern=modern)
    assert result["content"] == [{"type": "text", "text": "hé\U0001f600"}]
    assert result["structuredContent"] == {"text": "hé\U0001f600"}
    assert result["isError"] is False
    assert result["_meta"]["ai-session/call_id"].startswith("call_")
    assert result.get("resultType") == ("complete" if modern else None)


def test_failed_call_names_its_error_and_breaks_no_schema(pipe: Client) -> None:
    result = pipe.call("fail")
    assert result["isError"] is True
    assert "structuredContent" not in result
    assert result["content"][0]["text"].startswith("error session_not_found")
    assert result["_meta"]["ai-session/error"]["code"] == "session_not_found"


@pytest.mark.parametrize("modern", [False, True])
def test_protocol_errors(pipe: Client, modern: bool) -> None:
    assert error_of(pipe.ask("tools/call", {"name": "nonesuch"}, modern=modern)) == (
        -32602,
        "unknown tool 'nonesuch'; tools: echo, wait",
    )
    assert error_of(pipe.ask("foo/bar", {}, modern=modern))[0] == -32601
    assert error_of(pipe.ask("logging/setLevel", {"level": "info"}, modern=modern))[0] == -32601
    assert error_of(pipe.ask("tools/call", {"name": 5}, modern=modern))[0] == -32602
    assert error_of(pipe.ask("tools/call", {"name": "echo", "arguments": [1]}, modern=modern))[0] == -32602
    assert pipe.call("echo", text="still here", modern=modern)["structuredContent"] == {"text": "still here"}


def test_inside_of_a_crash_stays_inside() -> None:
    with double(logs="a secret of the inside"), Client() as client:
        assert error_of(client.ask("tools/call", {"name": "crash"})) == (-32603, "Internal server error")
        assert client.result("ping") == {}


def test_modern_envelope_is_checked(pipe: Client) -> None:
    unsupported = pipe.ask("tools/list", modern_meta(version="2099-01-01"))
    assert unsupported["error"]["code"] == -32022
    assert unsupported["error"]["data"]["supported"] == ["2026-07-28"]
    assert error_of(pipe.ask("tools/list", modern_meta(capabilities=None)))[0] == -32602
    assert error_of(pipe.ask("server/discover", {}))[0] == -32602
    assert error_of(pipe.ask("ping", modern=True))[0] == -32601


@pytest.mark.parametrize("case", BAD_LINES, ids=lambda case: case["name"])
def test_bad_line_is_answered_and_the_connection_lives(pipe: Client, case: dict[str, Any]) -> None:
    pipe.write(bytes(case["line"], "latin-1").replace(b"@DEEP@", b"[" * 100_000 + b"]" * 100_000) + b"\n")
    for request_id in case.get("ids", []):
        answer = pipe.read()
        assert (answer["id"], answer["error"]["code"]) == (request_id, case["code"])
    assert pipe.result("ping") == {}


def test_line_of_64_mib_is_answered_and_the_connection_lives(pipe: Client) -> None:
    pipe.write(b'{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"echo","arguments":{"text":"')
    for _ in range(65):
        pipe.write(b"a" * (1 << 20))
    pipe.write(b'"}}}\n')
    answer = pipe.read()
    assert (answer["id"], answer["error"]["code"]) == (77, -32600)
    assert pipe.result("ping") == {}


def test_line_of_8_mib_passes(pipe: Client) -> None:
    assert len(pipe.call("echo", text="a" * (8 << 20))["content"][0]["text"]) == 8 << 20


def test_eras_mix_on_one_pipe(client: Client) -> None:
    """Discover, initialize, again initialize under another name, and enveloped requests between them."""
    for name, version in (("first", "2025-06-18"), ("second", "2024-11-05")):
        assert client.result("server/discover", modern=True)["resultType"] == "complete"
        assert client.initialize(version, name)["protocolVersion"] == version
        client.call("echo")
        assert client.call("seen")["structuredContent"]["client"] == name
        client.call("echo", modern=True)
        assert client.call("seen")["structuredContent"]["client"] == "wire"
    client.ask("initialize", {"protocolVersion": 5})
    client.call("echo")
    assert client.call("seen")["structuredContent"]["client"] == "second"


def test_pipelined_requests_use_the_handshake_before_them(client: Client) -> None:
    info = {"name": "hasty", "version": "1"}
    handshake = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": info}
    lines: list[Message] = [
        {"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": handshake},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": {"name": "echo"}},
        {"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "seen"}},
    ]
    client.write("".join(json.dumps(line) + "\n" for line in lines))
    answers = {answer["id"]: answer for answer in (client.read() for _ in range(3))}
    assert answers["a"]["result"]["protocolVersion"] == "2025-03-26"
    assert answers["c"]["result"]["structuredContent"]["client"] == "hasty"


@pytest.mark.parametrize("name", OPENINGS)
def test_opening_of_a_real_client_is_served(client: Client, name: str) -> None:
    for message in OPENINGS[name]:
        client.write(message)
        if "id" in message:
            answer = client.read()
            assert answer["id"] == message["id"]
            assert "result" in answer
    assert client.call("echo", text="x")["structuredContent"] == {"text": "x"}


def test_answers_never_carry_a_lone_surrogate(pipe: Client) -> None:
    result = pipe.call("surrogate")
    raw = pipe.lines[-1]
    assert raw.decode() == raw.decode().encode().decode()
    assert b"\\ud" not in raw
    text = "a\ufffdb\ufffd \U0001f600 é\u2028\x00"
    assert result["content"][0]["text"] == text
    assert result["structuredContent"] == {"text": text, "\ufffd": [text]}


def test_principal_is_the_process_at_the_other_end(warm: dict[str, str]) -> None:
    home = warm["HOME"]
    environment = {"HOME": home, "PATH": os.environ["PATH"], "ODD": 'a"b\\c\n\té', "BYTES": "\udcff\udc80"}
    with Client(env=environment, cwd=home) as client:
        client.initialize(name="who")
        client.call("echo")
        seen = client.call("seen")["structuredContent"]
    assert seen["cwd"] == home
    assert seen["pid"] == client.process.pid
    assert (seen["client"], seen["kind"]) == ("who", "mcp")
    assert seen["env"]["ODD"] == environment["ODD"]
    assert seen["env"]["BYTES"] == "\ufffd\ufffd"
