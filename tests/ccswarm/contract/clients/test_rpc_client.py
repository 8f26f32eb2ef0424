"""Tool servers of AgentVault's kind, called by name: what is sent, what an answer becomes, what goes wrong."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccswarm.clients.base import Unlisted
from ccswarm.clients.rpc import RpcToolClient
from ccswarm.config.settings import AgentSettings, ServerSettings, ToolFilter
from ccswarm.errors import CallTimedOut, ConfigInvalid, InvalidArguments, ServerLost, ServerUnavailable, UnknownTool
from ccswarm.journal.writer import Journal
from ccswarm.toolbox.toolbox import Toolbox
from tests.ccswarm.support.http_servers import endpoint
from tests.ccswarm.support.rpc_servers import LISTED, RpcServer, rpc_server
from tests.ccswarm.support.toolboxes import invoke_tool
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

LARGE = 9007199254740993


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RpcServer]:
    root = tmp_path_factory.mktemp("files")
    (root / "x").write_text("what is in it")
    with rpc_server(root) as one:
        yield one


def client_of(server: RpcServer | int, **more: Any) -> RpcToolClient:
    port = server if isinstance(server, int) else server.port
    settings = ServerSettings(name="files", url=f"http://127.0.0.1:{port}/rpc", protocol="rpc", **more)
    return RpcToolClient(settings, env={"KEY": "s3cret-s3cret"})


async def test_a_tool_is_a_method_and_its_arguments_are_the_params(server: RpcServer) -> None:
    client = client_of(server, headers={"X-Api-Key": "env:KEY"})
    given = {"z": LARGE, "a": [1, 2.5, None, {"y": "ü☃"}], "m": {"b": True, "a": ""}}
    answer = await client.call("echo", given, meta={"never": "sent"})
    asked = server.asked[-1]
    assert (asked["jsonrpc"], asked["method"], asked["params"]) == ("2.0", "echo", given)
    assert list(asked["params"]) == ["z", "a", "m"]
    assert answer.structured is not None
    assert answer.structured["given"] == given
    assert list(answer.structured["given"]) == ["z", "a", "m"]
    assert (answer.is_error, dict(answer.meta)) == (False, {})
    assert server.headers[-1]["X-Api-Key"] == "s3cret-s3cret"
    reported = await client.call("echo", {"text": "s3cret-s3cret"}, meta={})
    assert reported.structured is not None
    assert reported.structured["given"] == {"text": "[REDACTED:X-Api-Key]"}
    await client.close()


async def test_what_a_tool_says_is_kept_whole(server: RpcServer) -> None:
    client = client_of(server)
    ran = await client.call("code.runPython", {"code": "print(1 + 2)"}, meta={})
    block = {"type": "code_output", "stdout": "3\n", "stderr": "careful\n"}
    assert ran.structured == {"content": [block], "exit_code": 0}
    assert ran.text == "3\n\ncareful\n"
    reported = {"_meta": {"ai-session/call_id": "call_1"}, "content": []}
    assert (await client.call("any", {"result": reported}, meta={})).meta == reported["_meta"]
    failed = await client.call("filesystem.readFile", {"path": "nothing"}, meta={})
    assert (failed.is_error, failed.text) == (True, "Error: File not found at specified path.")
    await client.close()


async def test_a_server_that_lists_nothing_is_called_by_name(server: RpcServer, tmp_path: Path) -> None:
    client = client_of(server, tools=ToolFilter(allow=("filesystem.*", "echo"), deny=("filesystem.writeFile",)))
    assert isinstance(client, Unlisted)
    assert [tool.name for tool in await client.list_tools()] == ["echo"]
    assert list(client.notes) == ["it does not list its tools; they can be called by name"]
    journal = Journal(tmp_path / "journal", "test")
    agents = {"ada": AgentSettings(name="ada", grants=("files.filesystem.*",))}
    box = Toolbox({"files": client}, agents, journal)
    read = await invoke_tool(box, "ada", "files.filesystem.readFile", {"path": "x"})
    assert (read.status, read.text) == ("ok", "what is in it")
    denied = await invoke_tool(box, "ada", "files.echo", {})
    assert (denied.status, denied.code) == ("denied", "not_granted")
    unseen = await invoke_tool(box, "ada", "files.filesystem.writeFile", {"path": "x", "content": ""})
    assert (unseen.status, unseen.code) == ("invalid", "unknown_tool")
    unknown = await invoke_tool(box, "ada", "files.filesystem.eatFile", {})
    assert (unknown.status, unknown.code) == ("invalid", "unknown_tool")
    assert "Method not found: filesystem.eatFile" in unknown.message
    journal.close()
    await client.close()


async def test_a_server_that_lists_its_tools_has_no_others(tmp_path: Path) -> None:
    with rpc_server(tmp_path, lists=True) as server:
        client = client_of(server)
        (tool,) = await client.list_tools()
        assert (tool.full_name, tool.description) == ("files.filesystem.readFile", "Reads a file.")
        assert tool.input_schema == LISTED[0]["inputSchema"]
        assert (client.unlisted("echo"), list(client.notes)) == (None, [])
        asked = len(server.asked)
        assert await client.list_tools() == (tool,)
        assert len(server.asked) == asked
        await client.list_tools(fresh=True)
        assert len(server.asked) == asked + 1
        await client.close()


async def test_refusals_of_the_protocol(server: RpcServer) -> None:
    client = client_of(server)
    with pytest.raises(UnknownTool, match="Method not found: nothing"):
        await client.call("nothing", {}, meta={})
    with pytest.raises(InvalidArguments, match="path is missing"):
        await client.call("filesystem.readFile", {}, meta={})
    with pytest.raises(InvalidArguments, match="not JSON"):
        await client.call("echo", {"a": float("inf")}, meta={})
    fault = await client.call("fault", {"code": -32050, "message": "no", "data": {"why": 1}}, meta={})
    assert (fault.is_error, fault.text, fault.structured) == (True, "no", {"data": {"why": 1}})
    assert fault.meta["ai-session/error"]["code"] == "-32050"
    await client.close()


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (200, "no json", "invalid_response"),
        (200, "[]", "invalid_response"),
        (200, "", "invalid_response"),
        (200, '{"jsonrpc":"2.0","id":1}', "invalid_response"),
        (200, '{"result":{"n":NaN}}', "invalid_response"),
        (200, '{"result":{"n":1e999}}', "invalid_response"),
        (200, "[" * 100_000, "invalid_response"),
        (302, "elsewhere", "invalid_response"),
        (500, "<h1>oh</h1>", "invalid_response"),
        (200, '{"result":[1]}', "invalid_result"),
        (200, '{"result":null}', "invalid_result"),
        (500, '{"error":{}}', "unknown_error"),
        (500, '{"error":{"code":true,"message":1}}', "unknown_error"),
    ],
)
async def test_what_is_no_answer_is_an_error_that_says_so(server: RpcServer, status: int, body: str, code: str) -> None:
    client = client_of(server)
    answer = await client.call("raw", {"status": status, "body": body}, meta={})
    assert (answer.is_error, answer.meta["ai-session/error"]["code"]) == (True, code)
    await client.close()


async def test_a_page_that_is_not_there_is_a_method_that_is_not_there(server: RpcServer) -> None:
    settings = ServerSettings(name="files", url=server.url, protocol="rpc")
    client = RpcToolClient(settings, env={})
    with pytest.raises(UnknownTool, match="HTTP 404"):
        await client.call("echo", {}, meta={})
    await client.close()


async def test_a_call_that_takes_too_long_and_one_that_is_cancelled_leave_the_server(tmp_path: Path) -> None:
    with rpc_server(tmp_path) as server:
        for seconds in (0.05, 0.5, 5.0, 50.0):  # the first that is long enough for the call to reach the server
            client = client_of(server, timeout_seconds=seconds)
            with pytest.raises(CallTimedOut):
                await client.call("hold", {}, meta={})
            await client.close()
            if server.held.is_set():
                break
        assert await asyncio.to_thread(server.gone.wait, BOUND_SECONDS)
    with rpc_server(tmp_path) as server:
        client = client_of(server)
        going = asyncio.create_task(client.call("hold", {}, meta={}))
        assert await asyncio.to_thread(server.held.wait, BOUND_SECONDS)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        assert await asyncio.to_thread(server.gone.wait, BOUND_SECONDS)
        await client.close()


async def test_nobody_there_is_distinguished_from_nobody_answering(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        client = client_of(unused.getsockname()[1])
        with pytest.raises(ServerUnavailable, match="cannot be reached"):
            await client.call("echo", {}, meta={})
        with pytest.raises(ServerUnavailable):
            await client.list_tools()
        assert client.problem.startswith("server files cannot be reached")
        await client.close()
    async with endpoint(lambda *_: b"") as port:
        client = client_of(port)
        with pytest.raises(ServerLost, match="while echo was called"):
            await client.call("echo", {}, meta={})
        with pytest.raises(ServerUnavailable):
            await client.list_tools()
        await client.close()
    with pytest.raises(ServerUnavailable, match="was closed"):
        await client.call("echo", {}, meta={})


def test_it_is_spoken_at_an_address_only() -> None:
    from ccswarm.config import parsing

    with pytest.raises(ConfigInvalid, match="protocol rpc needs a url"):
        parsing.parse('[[mcp.servers]]\nname = "a"\ncommand = "x"\nprotocol = "rpc"')
    text = '[[mcp.servers]]\nname = "a"\nurl = "http://127.0.0.1:1/rpc"\nprotocol = "rpc"'
    assert parsing.parse(text).mcp.servers[0].protocol == "rpc"
