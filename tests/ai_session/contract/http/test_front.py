"""MCP over HTTP, by raw requests and by the official client: both eras, one gate, everybody's own sessions."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from ai_session.audit.files import lines, records
from tests.ai_session.support.entries import Audit
from tests.ai_session.support.http_servers import answer_of, answers_in, called, running
from tests.ai_session.support.mcp_client import ENVELOPE, runtime, stop_daemons
from tests.conftest import UNBOXED, new_home
from tests.support.bounds import BOUND_SECONDS, pause_awaited
from tests.support.products import first

pytestmark = pytest.mark.anyio


RISKY = '[[policy.rules]]\nid = "risky"\ndecision = "ask"\ntools = ["resize_session"]\n'


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    """A home whose daemon serves all tests of this module."""
    home = new_home(homes, UNBOXED + RISKY)
    yield home
    stop_daemons(home)


async def test_both_eras_by_raw_requests(daemon_home: Path) -> None:
    async with running(daemon_home, signed=False) as here:
        found = await here.modern("server/discover")
        assert found.status_code == 200, found.text
        assert "2026-07-28" in found.json()["result"]["supportedVersions"]
        listed = (await here.modern("tools/list")).json()["result"]["tools"]
        made = await here.call("create_session", name="raw", backend="pty")
        ran = await here.call("execute_command", session_id="raw", command="echo $((6*7)); (exit 5)")
        assert (ran["structuredContent"]["output"], ran["structuredContent"]["exit_code"]) == ("42\n", 5)
        session = await here.handshake()
        again = answer_of(await here.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, session=session))
        assert [tool["name"] for tool in again["result"]["tools"]] == [tool["name"] for tool in listed]
        looked = answer_of(await here.post(called("get_session_info", session_id="raw"), session=session))
        assert looked["result"]["structuredContent"]["session_id"] == made["structuredContent"]["session_id"]
        ended = await here.http.delete(here.url, headers={"Mcp-Session-Id": session})
        assert ended.status_code == 200
        assert (await here.post(called("list_sessions"), session=session)).status_code == 404


@pytest.mark.parametrize("mode", first(("legacy", "auto", "2026-07-28"), "auto"))
async def test_the_official_client_runs_commands(daemon_home: Path, mode: Any) -> None:
    async with running(daemon_home, signed=False) as here, Client(here.url, mode=mode) as client:
        await client.call_tool("create_session", {"name": mode, "backend": "pty"})
        result = await client.call_tool("execute_command", {"session_id": mode, "command": "echo $((6*7)); (exit 5)"})
        assert result.structured_content == {**result.structured_content, "output": "42\n", "exit_code": 5}
        assert (await client.call_tool("read_screen", {"session_id": "nowhere"})).is_error


async def test_everybody_sees_their_own_sessions(daemon_home: Path) -> None:
    async with running(daemon_home) as here:
        assert here.tokens
        alice, bob = here.tokens.give("alice"), here.tokens.give("bob")
        made = (await here.call("create_session", token=alice, name="mine", backend="pty"))["structuredContent"]
        assert "mine" not in str(await here.call("list_sessions", token=bob))
        for reference in ("mine", made["session_id"]):
            taken = await here.call("execute_command", token=bob, session_id=reference, command="id")
            assert taken["_meta"]["ai-session/error"]["code"] == "session_not_found"
        assert "mine" in str(await here.call("list_sessions", token=here.tokens.give("root", "sessions:read", "admin")))
        assert "mine" in str(await here.call("list_sessions", token=alice))


async def test_a_call_beyond_the_scopes_is_recorded_and_asks_for_more(daemon_home: Path) -> None:
    async with running(daemon_home) as here:
        assert here.tokens
        reader, audit = here.tokens.give("carol", "sessions:read"), Audit(runtime(daemon_home))
        params = {"name": "create_session", "arguments": {"name": "c"}}
        refused = await here.modern("tools/call", params, reader)
        session = await here.handshake(reader)
        again = await here.post(called("create_session", name="c"), reader, session)
        for answer in (refused, again):
            assert answer.status_code == 403, answer.text
            challenge = answer.headers["www-authenticate"]
            assert challenge.startswith('Bearer error="insufficient_scope"'), challenge
            assert 'scope="sessions:read sessions:' in challenge
            assert f'resource_metadata="{here.address.base_url}/.well-known/oauth-protected-resource/mcp"' in challenge
            assert answer.json()["error"]["data"]["required_scope"] in challenge
        assert (refused.json()["id"], again.json()["id"]) == (1, 5)
        assert (await here.call("list_sessions", token=reader))["structuredContent"]["sessions"] == []
        ends = [(begin["tool"], end["outcome"], end.get("code")) for begin, end in audit.calls()]
        assert ends[:2] == [("create_session", "denied", "insufficient_scope")] * 2


@pytest.mark.either("era")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_client_that_goes_away_gives_up_its_wait_and_not_its_command(daemon_home: Path, era: str) -> None:
    async with running(daemon_home) as here:
        assert here.tokens
        token = here.tokens.give("dave")
        await here.call("create_session", token=token, name=era, backend="pty")
        # A command that waits for a person's input would end the call by itself.
        os.mkfifo(pipe := daemon_home / f"{era}.pipe")
        arguments = {"session_id": era, "command": f"read line <{pipe}; echo got $line", "timeout_seconds": 50}
        before = given_up(daemon_home)
        if era == "modern":
            params = {"name": "execute_command", "arguments": arguments}
            asking = asyncio.create_task(here.modern("tools/call", params, token))
        else:
            session = await here.handshake(token)
            asking = asyncio.create_task(here.post(called("execute_command", **arguments), token, session))
        state = ""
        while state != "running":
            assert not asking.done()
            known = await here.call("get_session_info", token=token, session_id=era)
            state = known["structuredContent"]["state"]
            await pause_awaited()
        asking.cancel()
        await asyncio.wait([asking])
        while given_up(daemon_home) == before:
            await here.call("list_sessions", token=token)
            await pause_awaited()
        pipe.write_text("on\n")
        read = await here.call("read_output", token=token, session_id=era, wait_for="finish")
        assert "got on" in read["structuredContent"]["output"]


def given_up(daemon_home: Path) -> int:
    """Calls whose end says that nobody waits for them any more."""
    found = records(lines(runtime(daemon_home) / "audit"))
    return sum(each["event"] == "tool.end" and each["outcome"] == "cancelled" for each in found)


@pytest.mark.either("mode")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_person_behind_the_client_is_asked(daemon_home: Path, mode: Any) -> None:
    asked: list[str] = []

    async def answer(_: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": "once"})

    async with running(daemon_home) as here:
        assert here.tokens
        signed = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {here.tokens.give('grace')}"}, timeout=BOUND_SECONDS, verify=False
        )
        reach = streamable_http_client(here.url, http_client=signed)
        async with signed, Client(reach, mode=mode, elicitation_callback=answer) as client:
            name = f"asked-{mode}"
            await client.call_tool("create_session", {"name": name, "backend": "pty"})
            ran = await client.call_tool("resize_session", {"session_id": name, "rows": 30, "cols": 90})
            assert ran.structured_content, ran
            assert ran.structured_content["rows"] == 30
    assert len(asked) == 1
    assert asked[0].startswith("grace by ")
    assert "resize_session" in asked[0]


async def test_progress_rises_while_a_call_waits(daemon_home: Path) -> None:
    async with running(daemon_home, signed=False, heartbeat_seconds=0.05) as here:
        await here.call("create_session", name="beat", backend="pty")
        session = await here.handshake()
        for modern in (True, False):
            params = {
                "name": "execute_command",
                "_meta": {"progressToken": "p"},
                "arguments": {"session_id": "beat", "command": "sleep 0.3", "timeout_seconds": 20},
            }
            if modern:
                reported = await here.modern("tools/call", params)
            else:
                reported = await here.post({**called(""), "params": params}, session=session)
            *beats, last = answers_in(reported.text)
            assert last["result"]["structuredContent"]["status"] == "finished"
            steps = [beat["params"]["progress"] for beat in beats]
            assert steps == sorted(steps)
            assert len(steps) >= 2
            assert {beat["params"]["progressToken"] for beat in beats} == {"p"}


async def test_changes_are_heard_in_both_eras_and_end_in_order(daemon_home: Path) -> None:
    heard = asyncio.Event()

    async def reported(message: Any) -> None:
        if "list_changed" in str(getattr(message, "method", "")):
            heard.set()

    async with running(daemon_home, signed=False) as here:
        async with Client(here.url, mode="legacy", message_handler=reported) as client:
            await client.list_tools()
            while not heard.is_set():
                made = await here.call("create_session", name="brief", backend="pty")
                assert not made["isError"], made
                await here.call("close_session", session_id=made["structuredContent"]["session_id"])
        params = {"notifications": {"resourcesListChanged": True}, "_meta": ENVELOPE}
        body = {"jsonrpc": "2.0", "id": "L", "method": "subscriptions/listen", "params": params}
        headers = here.headers(**{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"})
        methods: list[str] = []
        async with here.http.stream("POST", here.url, json=body, headers=headers) as stream:
            async for line in stream.aiter_lines():
                for message in answers_in(line):
                    methods.append(message.get("method", "result"))
                    if len(methods) == 1:
                        await here.call("create_session", name="heard", backend="pty")
                    elif len(methods) == 2:
                        here.front.stop()
        assert methods == [
            "notifications/subscriptions/acknowledged",
            "notifications/resources/list_changed",
            "result",
        ]


@pytest.mark.either("path")
@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")
async def test_a_stream_that_only_listens_ends_whole_when_the_front_leaves(daemon_home: Path, path: str) -> None:
    async with running(daemon_home, signed=False, legacy_sse=True) as here:
        session = await here.handshake()
        headers = here.headers(**{"Mcp-Session-Id": session})
        async with here.http.stream("GET", f"{here.address.base_url}{path}", headers=headers) as stream:
            assert stream.status_code == 200
            here.front.stop()
            async for _ in stream.aiter_raw():  # raises where the last chunk is missing
                pass
    gc.collect()  # The SDK's transport of 2024 leaves two streams, without resources, that would warn in a later test.


async def test_the_transport_of_2024_is_served_where_it_is_asked_for(daemon_home: Path) -> None:
    from mcp.client.session import ClientSession
    from mcp.client.sse import sse_client

    async with running(daemon_home, legacy_sse=True) as here:
        assert here.tokens
        token = here.tokens.give("erin")
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            sse_client(f"{here.address.base_url}/sse", headers=headers) as streams,
            ClientSession(*streams) as session,
        ):
            await session.initialize()
            made = await session.call_tool("create_session", {"name": "old", "backend": "pty"})
            assert made.structured_content
        assert (await here.http.get(f"{here.address.base_url}/sse")).status_code == 401
    async with running(daemon_home, signed=False) as here:
        assert (await here.http.get(f"{here.address.base_url}/sse")).status_code == 404


async def test_health_says_whether_the_daemon_answers(daemon_home: Path) -> None:
    async with running(daemon_home) as here:
        answer = await here.http.get(f"{here.address.base_url}/health")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_a_front_is_found_under_its_public_name(daemon_home: Path) -> None:
    settings: dict[str, Any] = {"public_url": "https://mcp.example.org", "trusted_proxies": ("127.0.0.1",)}
    async with running(daemon_home, **settings) as here:
        url = f"http://127.0.0.1:{here.port}/mcp"
        asked = await here.http.post(url, json={}, headers=here.headers(Host="mcp.example.org"))
        assert asked.status_code == 401
        assert 'resource_metadata="https://mcp.example.org/' in asked.headers["www-authenticate"]
        page = here.headers(Host="mcp.example.org", Origin="https://mcp.example.org")
        assert (await here.http.post(url, json={}, headers=page)).status_code == 401
        assert (await here.http.post(url, json={}, headers=here.headers(Host="else.example.org"))).status_code == 421
