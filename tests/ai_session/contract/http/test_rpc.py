"""JSON-RPC as AgentVault's tool servers have it: the document's messages, statuses, ids, hostile requests, tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ai_session.audit.files import lines, records
from ai_session.http.endpoints.rpc import MAX_BATCH
from ai_session.http.endpoints.rpc_methods import METHODS
from tests.ai_session.support.mcp_client import runtime, stop_daemons
from tests.ai_session.support.rpc_servers import RpcHome, new_rpc_home, serving

pytestmark = pytest.mark.anyio

BIG = 2**70 + 1


@pytest.fixture(scope="module")
def rpc_home(homes: Path) -> Iterator[RpcHome]:
    rpc_home = new_rpc_home(homes)
    yield rpc_home
    stop_daemons(rpc_home.home)


def request(method: str, params: Any = None, number: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, **({} if params is None else {"params": params})}


async def test_the_messages_of_the_document(rpc_home: RpcHome) -> None:
    (rpc_home.workspace / "file.txt").write_text("Content of the file.")
    async with serving(rpc_home) as here:
        read = await here.ask(request("filesystem.readFile", {"path": "/data/file.txt"}, "req-123"))
        assert read.headers["content-type"] == "application/json"
        reported = read.json()
        assert reported["result"].pop("_meta")["ai-session/call_id"]
        content = [{"type": "text", "text": "Content of the file."}]
        assert reported == {"jsonrpc": "2.0", "id": "req-123", "result": {"content": content}}
        reported = (await here.ask(request("filesystem.readFile", {"path": "/data/other.txt"}, "req-456"))).json()
        assert reported["result"].pop("_meta")["ai-session/error"]["code"] == "file_unusable"
        content = [{"type": "text", "text": "Error: File not found at specified path."}]
        assert reported == {"jsonrpc": "2.0", "id": "req-456", "result": {"isError": True, "content": content}}
        reported = (
            await here.ask(request("code.runPython", {"code": "import sys; print('…', file=sys.stderr)"}))
        ).json()
        assert reported["result"]["content"] == [{"type": "code_output", "stdout": "", "stderr": "…\n", "exitCode": 0}]


STATUSES: list[tuple[Any, int, int]] = [
    (b"", 400, -32700),
    (b"{", 400, -32700),
    (b"\xff\xfe{}", 400, -32700),
    (b'{"jsonrpc":"2.0","id":NaN,"method":"tools/list"}', 400, -32700),
    (b"[" * 100_000, 400, -32700),
    (b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"tools/list"}', 400, -32700),
    (b'{"jsonrpc":"2.0","id":1e999,"method":"tools/list"}', 400, -32600),
    ("text", 400, -32600),
    (17, 400, -32600),
    (None, 400, -32600),
    ({}, 400, -32600),
    ([], 400, -32600),
    ([request("tools/list")] * (MAX_BATCH + 1), 400, -32600),
    ({"id": 1, "method": "tools/list"}, 400, -32600),
    ({"jsonrpc": "1.0", "id": 1, "method": "tools/list"}, 400, -32600),
    ({"jsonrpc": "2.0", "id": 1}, 400, -32600),
    (request("tools/list", number=True), 400, -32600),
    (request("tools/list", number=[1]), 400, -32600),
    (request("tools/list", params="x"), 400, -32600),
    ({"jsonrpc": "2.0", "id": 1, "method": 5}, 400, -32600),
    (request("filesystem.readFile", [1]), 400, -32602),
    (request("filesystem.readFile"), 400, -32602),
    (request("filesystem.readFile", {"path": 7}), 400, -32602),
    (request("filesystem.readFile", {"path": "a", "mode": "r"}), 400, -32602),
    (request("filesystem.writeFile", {"path": "a"}), 400, -32602),
    (request("code.runPython", {"code": "\ud800"}), 400, -32602),
    (request("session.execute_command", {"command": "id"}), 400, -32602),
    (request("filesystem.deleteFile", {}), 404, -32601),
    (request("session.read_file", {"path": "a"}), 404, -32601),
    (request("session.", {}), 404, -32601),
    (request("read_file", {}), 404, -32601),
    (request("", {}), 404, -32601),
]


async def test_what_is_wrong_has_its_code_and_status(rpc_home: RpcHome) -> None:
    async with serving(rpc_home) as here:
        for body, status, code in STATUSES:
            reported = await here.ask(body)
            assert (reported.status_code, reported.json()["error"]["code"]) == (status, code), (body, reported.text)
            sent = body.get("id") if isinstance(body, dict) else None
            assert reported.json()["id"] == (sent if type(sent) in (int, str) else None), (body, reported.text)


async def test_ids_numbers_and_order_come_back_as_they_were(rpc_home: RpcHome) -> None:
    text = '{"z":9007199254740993,"a":123456789012345678901234567890,"m":[1.0,-0,1E2]}'
    async with serving(rpc_home) as here:
        for number in ("a", "ü\u2028", "1", 1, 0, -5, BIG, 1.5, None, "\ud800"):
            reported = await here.ask(request("tools/list", number=number))
            assert reported.status_code == 200
            assert (reported.json()["id"], type(reported.json()["id"])) == (number, type(number))
        assert str(BIG).encode() in (await here.ask(request("tools/list", number=BIG))).content
        await here.text("filesystem.writeFile", path="numbers.json", content=text)
        assert (rpc_home.workspace / "numbers.json").read_text() == text
        assert await here.text("filesystem.readFile", path="numbers.json") == text
        ran = await here.method("code.runPython", {"code": f"print('''{text}''')", "timeout_seconds": 20})
        assert ran["content"][0]["stdout"] == text + "\n"


async def test_notifications_and_batches(rpc_home: RpcHome) -> None:
    def write(content: str, number: Any = None) -> dict[str, Any]:
        message = request("filesystem.writeFile", {"path": "batch.txt", "content": content}, number)
        return message if number is not None else {name: message[name] for name in message if name != "id"}

    async with serving(rpc_home) as here:
        silent = await here.ask(write("by nobody"))
        assert (silent.status_code, silent.content) == (204, b"")
        assert (rpc_home.workspace / "batch.txt").read_text() == "by nobody"
        assert (await here.ask({"jsonrpc": "2.0", "method": "no.such"})).status_code == 204
        assert (await here.ask([write("one"), write("two")])).status_code == 204
        batch = [write("first", 1), request("filesystem.readFile", {"path": "batch.txt"}, "2"), write("last"), 5]
        reported = await here.ask([*batch, request("no.such", number=7)])
        assert reported.status_code == 200
        assert [(each["id"], each.get("error", {}).get("code")) for each in reported.json()] == [
            (1, None),
            ("2", None),
            (None, -32600),
            (7, -32601),
        ]
        assert reported.json()[1]["result"]["content"][0]["text"] == "first"
        assert (rpc_home.workspace / "batch.txt").read_text() == "last"


async def test_what_else_is_there(rpc_home: RpcHome) -> None:
    async with serving(rpc_home) as here:
        health = await here.http.get(here.address.base_url + "/health")
        assert (health.status_code, health.json()) == (200, {"status": "ok"})
        got = await here.http.get(here.url)
        assert (got.status_code, got.headers["allow"]) == (405, "POST")
        assert (await here.http.post(here.address.base_url + "/mcp", json={})).status_code == 404
        assert (await here.ask(request("tools/list"), Origin="https://evil.example")).status_code == 403
        assert (await here.ask(request("tools/list"), Host="evil.example")).status_code == 421
        listed = {tool["name"]: tool for tool in (await here.method("tools/list"))["tools"]}
        for name, method in METHODS.items():
            assert listed[name]["inputSchema"]["properties"].keys() == set(method.params)
            assert listed[name]["description"]
        assert {"session.create_session", "session.execute_command"} < listed.keys()
        assert not {"session.read_file", "session.run_python", "session.describe_sessions"} & listed.keys()


async def test_sessions_live_on_between_calls(rpc_home: RpcHome) -> None:
    async with serving(rpc_home) as here:
        made = await here.method("session.create_session", {"name": "kept", "backend": "pty"})
        assert made["structuredContent"]["working_directory"] == str(rpc_home.workspace)
        await here.method("session.execute_command", {"session_id": "kept", "command": "X=42"})
        reported = await here.method("session.execute_command", {"session_id": "kept", "command": "echo $X; (exit 5)"})
        assert (reported["structuredContent"]["output"], reported["structuredContent"]["exit_code"]) == ("42\n", 5)
        assert "42" in reported["content"][0]["text"]
        assert (await here.failure("session.get_session_info", session_id="x")).startswith("Error: No session 'x'")
        await here.method("session.close_session", {"session_id": "kept"})


async def test_tokens_scopes_and_other_peoples_sessions(rpc_home: RpcHome) -> None:
    async with serving(rpc_home, signed=True) as here:
        assert here.tokens
        challenge = (await here.ask(request("tools/list"))).headers["www-authenticate"]
        assert f'resource_metadata="{here.address.base_url}/.well-known/oauth-protected-resource/rpc"' in challenge
        assert (await here.ask(request("tools/list"), "wrong")).status_code == 401
        for_mcp = here.tokens.give("alice", resource=here.address.base_url + "/mcp")
        assert (await here.ask(request("tools/list"), for_mcp)).status_code == 401
        alice, bob = here.tokens.give("alice"), here.tokens.give("bob")
        reader = here.tokens.give("carol", "sessions:read")
        await here.method("session.create_session", {"name": "mine", "backend": "pty"}, alice)
        assert "mine" not in await here.text("session.list_sessions", token=bob)
        assert "No session" in await here.failure("session.close_session", token=bob, session_id="mine")
        await here.method("session.close_session", {"session_id": "mine"}, alice)
        await here.text("filesystem.listDirectory", token=reader)
        write = request("filesystem.writeFile", {"path": "a", "content": ""}, "w")
        for message in (write, request("code.runPython", {"code": "1"}, "w")):
            refused = await here.ask(message, reader)
            assert refused.status_code == 403, refused.text
            assert refused.headers["www-authenticate"].startswith('Bearer error="insufficient_scope"')
            assert (refused.json()["id"], refused.json()["error"]["code"]) == ("w", -32600)
        reported = (await here.ask([write, request("filesystem.listDirectory")], reader)).json()
        assert reported[0]["result"]["_meta"]["ai-session/error"]["required_scope"] == "sessions:write"
        assert "content" in reported[1]["result"]
        audited = [
            each for each in records(lines(runtime(rpc_home.home) / "audit")) if each.get("tool") == "write_file"
        ]
        assert audited[-1]["code"] == "insufficient_scope"


async def test_too_long_too_slow_and_gone(rpc_home: RpcHome) -> None:
    async with serving(rpc_home, max_body_bytes=2000, seconds={"head": 0.3, "body": 0.3, "rest": 0.3}) as here:
        long = request("filesystem.writeFile", {"path": "long", "content": "x" * 3000})
        reported = await here.ask(long)
        assert (reported.status_code, reported.json()["error"]["code"]) == (413, -32600)
        assert not (rpc_home.workspace / "long").exists()
        head = b"POST /rpc HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"
        assert (await here.raw(head + b"{")).startswith(b"HTTP/1.1 408")
        assert (await here.raw(head[:20])).startswith(b"HTTP/1.1 408")
        chunk = b"".join([head.replace(b"content-length: 100", b"transfer-encoding: chunked"), b"bb8\r\n", b"x" * 3000])
        assert (await here.raw(chunk)).startswith(b"HTTP/1.1 413")
        async with here.line() as (_, writer):
            writer.write(head)
        assert (await here.ask(request("tools/list"))).status_code == 200


@pytest.mark.torture
async def test_a_crowd_at_once(rpc_home: RpcHome) -> None:
    async with serving(rpc_home) as here:

        async def one(number: int) -> None:
            name = f"crowd/{number}"
            await here.text("filesystem.writeFile", path=name, content=name)
            assert await here.text("filesystem.readFile", path=name) == name

        await asyncio.gather(*(one(number) for number in range(20)))
        assert len(json.dumps(await here.text("filesystem.listDirectory", path="crowd")).split("FILE")) == 21
