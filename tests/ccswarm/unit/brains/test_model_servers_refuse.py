"""What the model servers refuse, in their providers' words."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.ccswarm.support import vendors
from tests.ccswarm.support.model_servers import ModelServer, loops
from tests.ccswarm.support.model_servers_ask import (
    CHAT_TOOL,
    FIRST,
    MESSAGES_TOOL,
    RESPONSES_TOOL,
    SCHEMA,
    ask_chat,
    ask_claude,
    ask_gemini,
    ask_responses,
)
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

CALLING: Any = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}],
}
USING: Any = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "run", "input": {}}]}
USED: Any = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
FUNCTION: Any = {"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{}"}
ASKED_GEMINI: Any = {"role": "user", "parts": [{"text": "x"}]}
CALLED_GEMINI: Any = {"role": "model", "parts": [{"functionCall": {"name": "run", "args": {}}}]}


async def test_only_the_right_key_opens() -> None:
    said = {"role": "user", "parts": [{"text": "x"}]}
    async with ModelServer(loops(), key="right") as server:
        for ask in (ask_chat, ask_responses):
            with pytest.raises(vendors.openai.AuthenticationError, match="Incorrect API key provided: wron"):
                await ask(server, [FIRST], "wrong")
        with pytest.raises(vendors.anthropic.AuthenticationError, match="invalid x-api-key"):
            await ask_claude(server, [FIRST], "wrong")
        with pytest.raises(AssertionError, match="API_KEY_INVALID"):
            await ask_gemini(server, [said], "wrong")
        with pytest.raises(AssertionError, match="PERMISSION_DENIED"):
            await ask_gemini(server, [said], "")
        await ask_chat(server, [FIRST], "right")
        await ask_claude(server, [FIRST], "right")
        await ask_gemini(server, [said], "right")
    assert [asked.key for asked in server.asked] == ["right"] * 3
    assert "right" not in repr(server.asked), "a failing test prints no key"


@pytest.mark.parametrize(
    ("messages", "more", "words"),
    [
        ([FIRST, CALLING, FIRST], {}, "must be followed by tool messages.*c1"),
        ([FIRST, CALLING], {}, "must be followed by tool messages"),
        ([FIRST, {"role": "tool", "tool_call_id": "c1", "content": "ok"}], {}, "must be a response to a preceeding"),
        ([], {}, "Missing required parameter: 'messages'"),
        ([FIRST], {"tools": [{"type": "function", "function": {"name": "a.b"}}]}, "does not match pattern"),
        ([FIRST], {"tools": [{"type": "function", "function": {"name": "a", "parameters": {}}}]}, 'type: "object"'),
        ([FIRST], {"tools": [CHAT_TOOL] * 129}, "array too long"),
    ],
)
@pytest.mark.either("messages")
async def test_chat_refuses_what_is_wrong(messages: list[Any], more: Any, words: str) -> None:
    async with ModelServer(loops()) as server:
        with pytest.raises(vendors.openai.BadRequestError, match=words):
            await ask_chat(server, messages, **more)
    assert (server.asked, [refusal.status for refusal in server.refused]) == ([], [400])


@pytest.mark.parametrize(
    ("messages", "more", "words"),
    [
        ([FIRST, USING, FIRST], {}, "without `tool_result` blocks immediately after: t1"),
        ([FIRST, USING], {}, "without `tool_result` blocks"),
        ([FIRST, {"role": "user", "content": [USED]}], {}, "unexpected `tool_use_id` found.*t1"),
        ([FIRST, USING, {"role": "user", "content": [{"type": "text", "text": "x"}, USED]}], {}, "immediately after"),
        ([FIRST, USING, {"role": "user", "content": [USED, USED]}], {}, "single result"),
        ([USING], {}, 'first message must use the "user" role'),
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], {}, "must be non-empty"),
        ([FIRST], {"tools": [{"name": "a.b", "input_schema": SCHEMA}]}, "should match pattern"),
        ([FIRST], {"tools": [MESSAGES_TOOL] * 2}, "names must be unique"),
        ([FIRST], {"tools": [{"name": "a", "input_schema": {}}]}, "should be 'object'"),
        ([FIRST], {"extra_body": {"max_tokens": 0}}, "max_tokens"),
    ],
)
@pytest.mark.either("messages")
async def test_messages_refuse_what_is_wrong(messages: list[Any], more: Any, words: str) -> None:
    async with ModelServer(loops()) as server:
        with pytest.raises(vendors.anthropic.BadRequestError, match=words):
            await ask_claude(server, messages, **more)
    assert (server.asked, [refusal.status for refusal in server.refused]) == ([], [400])


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([FIRST, FUNCTION], "No tool output found for function call c1"),
        ([FIRST, {"type": "function_call_output", "call_id": "c1", "output": "ok"}], "No tool call found.*c1"),
        ([], "Missing required parameter: 'input'"),
    ],
)
@pytest.mark.either("items")
async def test_responses_refuse_what_is_wrong(items: list[Any], words: str) -> None:
    async with ModelServer(loops()) as server:
        with pytest.raises(vendors.openai.BadRequestError, match=words):
            await ask_responses(server, items)
    assert (server.asked, [refusal.status for refusal in server.refused]) == ([], [400])


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ([ASKED_GEMINI, CALLED_GEMINI, ASKED_GEMINI], "equal to the number of function call parts"),
        ([ASKED_GEMINI, CALLED_GEMINI], "equal to the number of function call parts"),
        ([CALLED_GEMINI], "immediately after a user turn"),
        ([{"role": "user", "parts": []}], "must not be empty"),
        ([], "contents is not specified"),
    ],
)
@pytest.mark.either("contents")
async def test_gemini_refuses_what_is_wrong(contents: list[Any], words: str) -> None:
    async with ModelServer(loops()) as server:
        with pytest.raises(AssertionError, match=words):
            await ask_gemini(server, contents)
    assert (server.asked, [refusal.status for refusal in server.refused]) == ([], [400])


async def test_a_malformed_request_is_refused() -> None:
    keys = {"authorization": "Bearer k", "x-api-key": "k", "anthropic-version": "2023-06-01"}
    async with ModelServer(loops()) as server, httpx2.AsyncClient(headers=keys, timeout=BOUND_SECONDS) as client:
        answer = await client.post(f"{server.url}/v1/responses", json={"model": "x", "input": [{"type": "message"}]})
        assert (answer.status_code, server.refused[0].status) == (400, 400)
        answer = await client.post(f"{server.url}/v1/messages", content=b"{")
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert server.refused[1].body == {}


async def test_responses_take_tools_from_among_the_input() -> None:
    space = {"type": "namespace", "name": "mcp__desk", "tools": [RESPONSES_TOOL]}
    more = {"type": "additional_tools", "role": "developer", "tools": [space]}
    async with ModelServer(loops(("run", {}))) as server:
        answer = await ask_responses(server, [more, FIRST], extra_body={"tools": []})
    assert list(server.asked[0].tools) == ["mcp__desk/desk__run"]
    assert (answer.output[0].namespace, answer.output[0].name) == ("mcp__desk", "desk__run")
