"""Calls that are answered without the SDK's models get the answer, byte for byte, that they get with them."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentwire.json_lines import Message, encode
from ai_session.errors import Denied
from ai_session.models import Change, Question, ToolCall, ToolResult
from ai_session.servers.mcp import dispatch
from ai_session.servers.mcp.caller import Caller
from ai_session.servers.mcp.calls import CALL, TASKS, is_plain_envelope, needs_no_model
from ai_session.servers.mcp.conversation import Conversation
from ai_session.servers.mcp.listening import LISTEN, needs_no_sdk
from ai_session.servers.mcp.listing import LIST_TOOLS, needs_no_page
from ai_session.sessions.changes import KINDS
from ai_session.tools import commands, queries
from ai_session.tools.base import Tool
from tests.ai_session.contract.servers.test_control import PERSON, MemoryGate, MemoryHost
from tests.support.bounds import BOUND_SECONDS

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


NOTHING: Message = {}
ABLE = st.dictionaries(
    st.sampled_from(("form", "url", "context", "tools", "listChanged", "x/y", "ä")), VALUES, max_size=2
)
CAPABILITIES = st.dictionaries(
    st.sampled_from(("elicitation", "sampling", "roots", "experimental", "extensions", "tasks", "other")),
    ABLE | st.dictionaries(st.sampled_from(("form", "url", "tools", "x/y")), st.just(NOTHING), max_size=2) | VALUES,
    max_size=3,
)
INFO = st.fixed_dictionaries(
    {"name": st.just("c") | VALUES, "version": st.just("1") | VALUES},
    optional=dict.fromkeys(("title", "description", "websiteUrl", "icons", "other"), st.just("t") | VALUES),
)
INTRODUCTIONS: st.SearchStrategy[Message] = st.fixed_dictionaries(
    {ENVELOPE + "protocolVersion": st.just(MODERN), ENVELOPE + "clientCapabilities": CAPABILITIES | VALUES},
    optional={ENVELOPE + "clientInfo": INFO | VALUES, ENVELOPE + "logLevel": st.sampled_from(("error", "x", 1))},
)
FILTERS = st.dictionaries(
    st.sampled_from(("toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "x")),
    st.booleans() | VALUES,
    max_size=4,
)
PAGES = st.dictionaries(st.sampled_from(("cursor", "x")), VALUES, max_size=1)


class Once:
    """Tells once that all changed, and then no more until it is closed."""

    def __init__(self) -> None:
        self.more = asyncio.Event()
        self.closed = asyncio.Event()
        self.all = {Change(kind, "ses_1", "a") for kind in KINDS}

    async def next(self) -> frozenset[Change]:
        batch = frozenset(self.all)
        self.all = set[Change]()
        if not batch:
            self.more.set()
            await self.closed.wait()
        return batch

    def close(self) -> None:
        self.closed.set()


class AskingGate(MemoryGate):
    """Also has a tool that needs a person's word, and tells of changes."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = Once()

    async def call(self, call: ToolCall, progress: object = None) -> ToolResult:
        if call.name == "ask":
            return ToolResult("", {}, question=QUESTION, state="sealed", meta={"ai-session/audit": {"seq": 1}})
        return await super().call(call, progress)

    async def list_tools(self, principal: object) -> list[Tool]:
        return [*commands.PLUGIN, *queries.PLUGIN]

    async def watch_changes(self, principal: object, agent: str, run: str, kinds: object) -> Once:
        if agent == "nobody":
            raise Denied("not for nobody", suggestion="be somebody")
        return self.changes


async def answers(
    server: Any, version: str, params: Message | None, opening: tuple[str, Message] | None = None, method: str = CALL
) -> list[bytes]:
    """All that is sent on a handshake and a request, without what is random in it; a stream is ended at once."""
    sent: list[bytes] = []
    arrived = {number: asyncio.Event() for number in (1, 2)}

    def send(message: Message) -> None:
        sent.append(RANDOM.sub(b"", encode(message)))
        if "id" in message:
            arrived[message["id"]].set()

    gate = AskingGate()
    host: Any = MemoryHost(inner=gate)
    caller = Caller(host.gate, PERSON)

    async def sdk() -> Any:
        return dispatch

    conversation = Conversation(caller, send, 60.0, sdk, server)
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    begin, first = opening or ("initialize", hello)
    conversation.receive({"jsonrpc": "2.0", "id": 1, "method": begin, "params": first})
    async with asyncio.timeout(BOUND_SECONDS):
        await arrived[1].wait()
        request: Message = {"jsonrpc": "2.0", "id": 2, "method": method}
        conversation.receive(request | ({} if params is None else {"params": params}))
        waits = [asyncio.create_task(event.wait()) for event in (gate.changes.more, arrived[2])]
        _, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        gate.changes.close()
        await arrived[2].wait()
        await conversation.settle()
        await conversation.ended()
    return sent


def both(
    version: str, params: Message | None, opening: tuple[str, Message] | None = None, method: str = CALL
) -> tuple[list[bytes], list[bytes]]:
    """The quick way's, and the SDK's."""
    servers = None, dispatch.make_server()
    quick, long = (asyncio.run(answers(server, version, params, opening, method)) for server in servers)
    return quick, long


TURNS = pytest.mark.parametrize("turn", [1, *(pytest.param(turn, marks=pytest.mark.torture) for turn in (2, 3))])
"""Each draws other examples."""


@TURNS
@settings(max_examples=8)
@given(version=st.sampled_from(VERSIONS), params=CALLS)
@example(version="2025-11-25", params={"name": "echo", "arguments": {"a": None, "deep": [{"b": None}]}})
@example(version="2025-06-18", params={"name": "echo", "arguments": None})
@example(version="2025-06-18", params={"name": "echo", "_meta": {"progressToken": True}})
@example(version="2025-06-18", params={"name": "echo", "_meta": {"progressToken": 1.0}})
@example(version="2024-11-05", params={"name": "echo", "arguments": {}})
def test_it_is_the_same_answer(turn: int, version: str, params: Message) -> None:
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
    assert is_plain_envelope(WHO | {ENVELOPE + "clientInfo": {"name": "c", "version": "1", "title": "C"}})
    assert needs_no_page(version, {}) is (version >= "2025-06-18")
    assert needs_no_page(MODERN, {"_meta": WHO})
    assert needs_no_sdk({"notifications": {"toolsListChanged": True}, "_meta": WHO})


@TURNS
@settings(max_examples=8)
@given(params=CALLS, envelope=ENVELOPES)
@example(params={"name": "ask"}, envelope=WHO)
@example(params={"name": "echo", "arguments": {"a": None}}, envelope=WHO)
@example(params={"name": "defect"}, envelope=WHO)
@example(params={"name": "echo"}, envelope=WHO | {ENVELOPE + "logLevel": "x"})
@example(params={"name": "echo"}, envelope=WHO | {ENVELOPE + "clientInfo": {"name": True, "version": "1"}})
def test_it_is_the_same_answer_to_a_client_that_names_itself_in_each_call(
    turn: int, params: Message, envelope: Message
) -> None:
    meta: Any = params.get("_meta", {})
    known = {"name": "echo", "_meta": WHO}
    called: Message = params | {"_meta": {**meta, **envelope} if isinstance(meta, dict) else meta}
    quick, long = both(MODERN, called, ("tools/call", known))
    assert quick == long


@TURNS
@settings(max_examples=8)
@given(params=CALLS, introduction=INTRODUCTIONS)
@example(params={"name": "ask"}, introduction=WHO)
@example(params={"name": "defect"}, introduction=WHO)
@example(params={"name": "nope"}, introduction=WHO | {ENVELOPE + "clientInfo": {"name": "c", "version": "1"}})
@example(params={"name": "echo"}, introduction=WHO | {ENVELOPE + "clientCapabilities": {"extensions": {TASKS: {}}}})
@example(params={"name": "ask"}, introduction=WHO | {ENVELOPE + "clientCapabilities": {"elicitation": {"url": {}}}})
def test_it_is_the_same_answer_to_the_first_that_a_client_says(
    turn: int, params: Message, introduction: Message
) -> None:
    meta: Any = params.get("_meta", {})
    called: Message = params | {"_meta": {**meta, **introduction} if isinstance(meta, dict) else meta}
    quick, long = both("2025-11-25", called)
    assert quick == long


@TURNS
@settings(max_examples=8)
@given(wanted=FILTERS | VALUES, introduction=INTRODUCTIONS, more=METAS)
@example(wanted={"toolsListChanged": True, "resourcesListChanged": False}, introduction=WHO, more={})
@example(wanted={"promptsListChanged": True, "resourceSubscriptions": None}, introduction=WHO, more={})
@example(
    wanted={"resourceSubscriptions": ["session://a/info", "x:"], "toolsListChanged": True}, introduction=WHO, more={}
)
@example(wanted={"taskIds": ["t"]}, introduction=WHO, more={})
def test_a_stream_is_the_same(turn: int, wanted: Any, introduction: Message, more: Message) -> None:
    quick, long = both("2025-11-25", {"notifications": wanted, "_meta": introduction | more}, method=LISTEN)
    assert quick == long


@TURNS
@settings(max_examples=8)
@given(
    introduction=INTRODUCTIONS, more=METAS, others=st.dictionaries(st.sampled_from(("cursor", "x")), VALUES, max_size=1)
)
@example(introduction=WHO, more={}, others={})
@example(introduction={}, more={}, others={})
@example(introduction={}, more={"progressToken": True}, others={})
def test_tools_are_listed_the_same(turn: int, introduction: Message, more: Message, others: Message) -> None:
    ways = both("2025-11-25", others | {"_meta": introduction | more}, method=LIST_TOOLS)
    quick, long = ([json.loads(line) for line in way] for way in ways)
    assert quick == long


OTHERS: list[Message] = [{"sampling": {}}, {"elicitation": {"form": 1}}, {"extensions": {TASKS: {}}}]


@pytest.mark.parametrize("other", OTHERS)
def test_a_client_that_changes_its_name_is_checked_again(other: Message) -> None:
    called = {"name": "ask", "_meta": WHO | {ENVELOPE + "clientCapabilities": other}}
    quick, long = both(MODERN, called, ("tools/call", {"name": "echo", "_meta": WHO}))
    assert quick == long
