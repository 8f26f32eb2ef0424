"""Calls that are answered without the SDK's models get the answer, byte for byte, that they get with them."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ai_session.servers import mcp_sdk, mcp_tools
from ai_session.servers.mcp_caller import Caller
from ai_session.servers.mcp_lines import Message, encode
from tests.ai_session.contract.test_control import PERSON, MemoryGate, MemoryHost
from tests.bounds import BOUND_SECONDS

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
RANDOM = re.compile(rb'"ai-session/call_id":"[^"]*"')

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(st.sampled_from(("text", "a", "_meta", "ä")), VALUES, max_size=3)
METAS = st.dictionaries(
    st.sampled_from(("progressToken", "ai-session/agent", "traceparent", "x/y", "related")), VALUES, max_size=3
)
CALLS = st.fixed_dictionaries(
    {"name": st.sampled_from(("echo", "nope", "defect", "", "ä", "e\ud800")) | VALUES},
    optional={"arguments": TABLES | VALUES, "_meta": METAS | VALUES, "task": VALUES, "inputResponses": VALUES},
)


async def answers(server: Any, version: str, params: Message | None) -> list[bytes]:
    """All that is sent on a handshake and a call, without what is random in it."""
    sent: list[bytes] = []
    arrived = {number: asyncio.Event() for number in (1, 2)}

    def send(message: Message) -> None:
        sent.append(RANDOM.sub(b"", encode(message)))
        if "id" in message:
            arrived[message["id"]].set()

    caller = Caller(MemoryGate(), MemoryHost(), PERSON)  # pyright: ignore[reportArgumentType]
    conversation = mcp_sdk.Conversation(caller, send, 60.0, server)
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    conversation.receive({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    async with asyncio.timeout(BOUND_SECONDS):
        await arrived[1].wait()
        request: Message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
        conversation.receive(request | ({} if params is None else {"params": params}))
        await arrived[2].wait()
        await conversation.settle()
        await conversation.ended()
    return sent


def both(version: str, params: Message | None) -> tuple[list[bytes], list[bytes]]:
    """The quick way's, and the SDK's."""
    return asyncio.run(answers(None, version, params)), asyncio.run(answers(mcp_sdk.make_server(), version, params))


@given(version=st.sampled_from(VERSIONS), params=CALLS)
@example(version="2025-11-25", params={"name": "echo", "arguments": {"a": None, "deep": [{"b": None}]}})
@example(version="2025-06-18", params={"name": "echo", "arguments": None})
@example(version="2025-06-18", params={"name": "echo", "_meta": {"progressToken": True}})
@example(version="2025-06-18", params={"name": "echo", "_meta": {"progressToken": 1.0}})
@example(version="2024-11-05", params={"name": "echo", "arguments": {}})
def test_it_is_the_same_answer(version: str, params: Message) -> None:
    quick, long = both(version, params)
    assert quick == long


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_taken_for_what_clients_send(version: str) -> None:
    params = {
        "name": "execute_command",
        "arguments": {"session_id": "s", "command": "é"},
        "_meta": {"progressToken": 3},
    }
    assert mcp_tools.needs_no_model(version, params) is (version >= "2025-06-18")
