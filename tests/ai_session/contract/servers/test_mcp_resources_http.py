"""Resources and prompts over HTTP: the same handlers, for whoever the token of a request speaks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from tests.ai_session.support.http_servers import MODERN, Here, answer_of, called, running
from tests.ai_session.support.mcp_client import BOUND_SECONDS, ENVELOPE, Message, stop_daemons
from tests.conftest import UNBOXED, new_home

pytestmark = pytest.mark.anyio

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    """A home whose daemon serves all tests of this module."""
    home = new_home(homes, UNBOXED)
    yield home
    stop_daemons(home)


async def messages(response: Any) -> AsyncIterator[Message]:
    async for line in response.aiter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data:"))


@asynccontextmanager
async def listening(here: Here, token: str = "", **wanted: Any) -> AsyncGenerator[AsyncIterator[Message]]:
    """A stream of 2026-07-28, acknowledged."""
    method = "subscriptions/listen"
    body = {"jsonrpc": "2.0", "id": 9, "method": method, "params": {"notifications": wanted, "_meta": ENVELOPE}}
    headers = here.headers(token, **{"MCP-Protocol-Version": MODERN, "Mcp-Method": method})
    async with here.http.stream("POST", here.url, json=body, headers=headers) as response:
        assert response.status_code == 200
        found = messages(response)
        acknowledged = await anext(found)
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["_meta"] == {SUBSCRIPTION: 9}
        yield found


@pytest.mark.torture  # below another user's are read by raw requests, and test_front.py has the official client
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_27_and_28_the_official_client_reads_resources_and_prompts(daemon_home: Path, mode: Any) -> None:
    async with running(daemon_home, signed=False) as here, Client(here.url, mode=mode) as client:
        await client.call_tool("create_session", {"name": mode, "backend": "pty"})
        ran = await client.call_tool("execute_command", {"session_id": mode, "command": "echo $((6*7))"})
        assert ran.structured_content
        command = ran.structured_content["command_id"]
        listed = await client.list_resources()
        (output,) = [resource for resource in listed.resources if resource.uri.endswith(command)]
        (content,) = (await client.read_resource(output.uri)).contents
        assert getattr(content, "text", "") == "42\n"
        assert len((await client.list_resource_templates()).resource_templates) == 4
        prompt = await client.get_prompt("diagnose_command", {"session": mode})
        assert len(prompt.messages) == 2
        template = ResourceTemplateReference(type="ref/resource", uri="session://{id}/output/{command_id}")
        found = await client.complete(template, {"name": "command_id", "value": ""}, {"id": mode})
        assert found.completion.values == [command, "all"]
        found = await client.complete(
            PromptReference(type="ref/prompt", name="hand_over"), {"name": "session", "value": mode[:3]}
        )
        assert found.completion.values == [mode]
        with pytest.raises(MCPError) as caught:
            await client.read_resource("session://nobody/info")
        assert caught.value.error.data == {"uri": "session://nobody/info"}


async def test_nothing_of_another_users_session_is_listed_read_or_completed(daemon_home: Path) -> None:
    async with running(daemon_home) as here:
        assert here.tokens
        alice, bob = here.tokens.give("alice"), here.tokens.give("bob")
        made = (await here.call("create_session", token=alice, name="alices", backend="pty"))["structuredContent"]
        reference = {"type": "ref/resource", "uri": "session://{id}/info"}
        for token, sees in ((alice, True), (bob, False)):
            listed = await here.modern("resources/list", token=token)
            assert (made["session_id"] in listed.text) == sees
            for uri in (f"session://{made['session_id']}/screen", "session://alices/recording"):
                found = await here.modern("resources/read", {"uri": uri}, token)
                assert (found.status_code, "result" in found.json()) == ((200, True) if sees else (400, False))
            asked = {"ref": reference, "argument": {"name": "id", "value": "ali"}}
            assert ("alices" in (await here.modern("completion/complete", asked, token)).text) == sees
            prompt = {"name": "review_session", "arguments": {"session": "alices"}}
            assert ("result" in (await here.modern("prompts/get", prompt, token)).json()) == sees


async def test_nothing_of_another_users_session_is_heard(daemon_home: Path) -> None:
    async with running(daemon_home) as here:
        assert here.tokens
        alice, bob = here.tokens.give("alice"), here.tokens.give("bob")
        await here.call("create_session", token=alice, name="heard", backend="pty")
        wanted = {"resourceSubscriptions": ["session://heard/screen"], "resourcesListChanged": True}
        session = await here.handshake(bob)
        asked = {"jsonrpc": "2.0", "id": 3, "method": "resources/subscribe"}
        refused = await here.post({**asked, "params": {"uri": "session://heard/screen"}}, bob, session)
        assert answer_of(refused)["error"]["code"] == -32002
        async with listening(here, alice, **wanted) as hers, listening(here, bob, **wanted) as his:
            await here.call("execute_command", token=alice, session_id="heard", command="echo mine")
            assert (await anext(hers))["params"]["uri"] == "session://heard/screen"
            await here.call("close_session", token=alice, session_id="heard")
            await here.call("create_session", token=bob, name="his", backend="pty")
            first = await anext(his)
            assert first["method"] == "notifications/resources/list_changed", "of his own session"


async def test_26_both_eras_hear_of_changes(daemon_home: Path) -> None:
    async with running(daemon_home, signed=False) as here:
        session = await here.handshake()
        await here.call("create_session", name="both", backend="pty")
        asked: Message = {"jsonrpc": "2.0", "id": 3, "method": "resources/subscribe"}
        asked["params"] = {"uri": "session://both/screen"}
        headers = here.headers(**{"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": session})
        async with here.http.stream("GET", here.url, headers=headers) as standing:
            assert answer_of(await here.post(asked, session=session))["result"] == {}
            async with listening(here, resourceSubscriptions=["session://both/screen"]) as stream:
                await here.post(called("execute_command", session_id="both", command="echo told"), session=session)
                reported = await anext(stream)
                assert reported["params"] == {"uri": "session://both/screen", "_meta": {SUBSCRIPTION: 9}}
                async for message in messages(standing):
                    if message["method"] == "notifications/resources/updated":
                        assert message["params"] == {"uri": "session://both/screen"}
                        break
        await here.http.delete(here.url, headers={"Mcp-Session-Id": session})


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "session://list"}),
        ("resources/list", {}),
        ("subscriptions/listen", {"notifications": {"resourcesListChanged": True}}),
    ],
)
async def test_reading_without_the_scope_asks_for_it(daemon_home: Path, method: str, params: Message) -> None:
    async with running(daemon_home) as here:
        assert here.tokens
        writer = here.tokens.give("dave", "sessions:write")
        refused = await here.modern(method, params, writer)
        assert refused.status_code == 403, refused.text
        assert 'scope="sessions:read' in refused.headers["www-authenticate"]
        assert await here.handshake(writer), "greeting asks for nothing"


async def test_26_streams_end_with_a_result_when_the_front_leaves(daemon_home: Path) -> None:
    async with running(daemon_home, signed=False) as here, listening(here, resourcesListChanged=True) as stream:
        here.front.stop()
        async with asyncio.timeout(BOUND_SECONDS):
            ended = [message async for message in stream][-1]
        assert ended["result"]["_meta"][SUBSCRIPTION] == ended["id"] == 9
