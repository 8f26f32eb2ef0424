"""Calls that are answered without the SDK's models get the answer, byte for byte, that they get with them."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentwire.json_lines import Message, encode
from ai_session.models import Question, ToolCall, ToolResult
from ai_session.servers.mcp import dispatch
from ai_session.servers.mcp.caller import Caller
from ai_session.servers.mcp.calls import TASKS, needs_no_model
from ai_session.servers.mcp.conversation import Conversation
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


QUESTION = Question("q_1", PERSON, "ask", "ses_1", "May it?", "default:no-box", "a" * 64, "b" * 64, 1.0, 2.0)
ENVELOPE = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
WHO: Message = {ENVELOPE + "protocolVersion": MODERN, ENVELOPE + "clientCapabilities": {"elicitation": {}}}
ENVELOPES: st.SearchStrategy[Message] = st.fixed_dictionaries(
    {name: st.just(value) for name, value in WHO.items()},
    optional={ENVELOPE + "logLevel": st.sampled_from(("error", "x", 1)), ENVELOPE + "clientInfo": VALUES},
)


class AskingGate(MemoryGate):
    """Also has a tool that needs a person's word."""

    async def call(self, call: ToolCall, progress: object = None) -> ToolResult:
        if call.name == "ask":
            return ToolResult("", {}, question=QUESTION, state="sealed")
        return await super().call(call, progress)


async def answers(
    server: Any, version: str, params: Message | None, opening: tuple[str, Message] | None = None
) -> list[bytes]:
    """All that is sent on a handshake and a call, without what is random in it."""
    sent: list[bytes] = []
    arrived = {number: asyncio.Event() for number in (1, 2)}

    def send(message: Message) -> None:
        sent.append(RANDOM.sub(b"", encode(message)))
        if "id" in message:
            arrived[message["id"]].set()

    host: Any = MemoryHost(inner=AskingGate())
    caller = Caller(host.gate, PERSON)

    async def sdk() -> Any:
        return dispatch

    conversation = Conversation(caller, send, 60.0, sdk, server)
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    method, first = opening or ("initialize", hello)
    conversation.receive({"jsonrpc": "2.0", "id": 1, "method": method, "params": first})
    async with asyncio.timeout(BOUND_SECONDS):
        await arrived[1].wait()
        request: Message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
        conversation.receive(request | ({} if params is None else {"params": params}))
        await arrived[2].wait()
        await conversation.settle()
        await conversation.ended()
    return sent


def both(
    version: str, params: Message | None, opening: tuple[str, Message] | None = None
) -> tuple[list[bytes], list[bytes]]:
    """The quick way's, and the SDK's."""
    quick, long = (asyncio.run(answers(server, version, params, opening)) for server in (None, dispatch.make_server()))
    return quick, long


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
    assert needs_no_model(version, params) is (version >= "2025-06-18")
    assert needs_no_model(MODERN, params | {"_meta": WHO})


@given(params=CALLS, envelope=ENVELOPES)
@example(params={"name": "ask"}, envelope=WHO)
@example(params={"name": "echo", "arguments": {"a": None}}, envelope=WHO)
@example(params={"name": "defect"}, envelope=WHO)
@example(params={"name": "echo"}, envelope=WHO | {ENVELOPE + "logLevel": "x"})
@example(params={"name": "echo"}, envelope=WHO | {ENVELOPE + "clientInfo": {"name": True, "version": "1"}})
def test_it_is_the_same_answer_to_a_client_that_names_itself_in_each_call(params: Message, envelope: Message) -> None:
    meta: Any = params.get("_meta", {})
    known = {"name": "echo", "_meta": WHO}
    called: Message = params | {"_meta": {**meta, **envelope} if isinstance(meta, dict) else meta}
    quick, long = both(MODERN, called, ("tools/call", known))
    assert quick == long


OTHERS: list[Message] = [{"sampling": {}}, {"elicitation": {"form": 1}}, {"extensions": {TASKS: {}}}]


@pytest.mark.parametrize("other", OTHERS)
def test_a_client_that_says_something_else_of_itself_is_judged_anew(other: Message) -> None:
    called = {"name": "ask", "_meta": WHO | {ENVELOPE + "clientCapabilities": other}}
    quick, long = both(MODERN, called, ("tools/call", {"name": "echo", "_meta": WHO}))
    assert quick == long
