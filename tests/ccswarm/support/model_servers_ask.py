"""Requests to a model server by each provider's SDK; to Gemini, whose SDK is not installed, by HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2

from tests.ccswarm.support import vendors
from tests.support.bounds import BOUND_SECONDS

if TYPE_CHECKING:
    from tests.ccswarm.support.model_servers import ModelServer

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
FIRST = {"role": "user", "content": "Build it."}


def chat(server: ModelServer, key: str = "any") -> vendors.openai.AsyncOpenAI:
    return vendors.openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def claude(server: ModelServer, key: str = "any") -> vendors.anthropic.AsyncAnthropic:
    return vendors.anthropic.AsyncAnthropic(base_url=server.url, api_key=key, max_retries=0)


CHAT_TOOL: Any = {"type": "function", "function": {"name": "desk__run", "parameters": SCHEMA}}
RESPONSES_TOOL: Any = {"type": "function", "name": "desk__run", "parameters": SCHEMA}
MESSAGES_TOOL: Any = {"name": "desk__run", "input_schema": SCHEMA}
GEMINI_TOOL: Any = {"functionDeclarations": [{"name": "desk__run", "parameters": SCHEMA}]}


async def ask_chat(server: ModelServer, messages: list[Any], key: str = "any", **more: Any) -> Any:
    async with chat(server, key) as client:
        more = {"tools": [CHAT_TOOL], **more}
        return await client.chat.completions.create(model="fake", messages=messages, **more)


async def ask_responses(server: ModelServer, items: list[Any], key: str = "any", **more: Any) -> Any:
    async with chat(server, key) as client:
        return await client.responses.create(model="fake", input=items, tools=[RESPONSES_TOOL], **more)


async def ask_claude(server: ModelServer, messages: list[Any], key: str = "any", **more: Any) -> Any:
    async with claude(server, key) as client:
        more = {"tools": [MESSAGES_TOOL], **more}
        return await client.messages.create(model="fake", max_tokens=100, messages=messages, **more)


async def ask_gemini(server: ModelServer, contents: list[Any], key: str = "any", *, stream: bool = False) -> Any:
    """Send a request to Gemini's API and return the bodies of the response, in order."""
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    body = {"contents": contents, "tools": [GEMINI_TOOL]}
    headers = {"x-goog-api-key": key} if key else {}
    async with httpx2.AsyncClient(timeout=BOUND_SECONDS) as client:
        answer = await client.post(f"{server.url}/v1beta/models/fake:{method}", json=body, headers=headers)
    if answer.status_code != 200:
        raise AssertionError(answer.status_code, answer.json())
    if not stream:
        return [answer.json()]
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]
