"""Anthropic's messages: its checks of requests and its responses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.ccswarm.support.model_servers_script import (
    Asked,
    Call,
    Fail,
    Json,
    Reply,
    Result,
    RoleMessage,
    gathered,
    joined,
    pieces,
    require,
)

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
WORDS = {429: "This request would exceed your account's rate limit.", 529: "Overloaded", 500: "Internal server error"}
NO_CREDIT = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade."


class Messages:
    name = "messages"
    tail = b""

    def key(self, headers: Mapping[str, str], query: Mapping[str, str], known: str) -> str:
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ").strip()
        require(key, "x-api-key header is required", status=401)
        require(not known or key == known, "invalid x-api-key", status=401)
        require(headers.get("anthropic-version"), "anthropic-version: header is required")
        return key

    def error(self, fail: Fail, code: str = "") -> Json:
        kind = "invalid_request_error" if fail.no_credit else KINDS.get(fail.status, "api_error")
        message = fail.message or (NO_CREDIT if fail.no_credit else WORDS.get(fail.status, kind))
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}

    def asked(self, body: Json, path: str, key: str) -> Asked:
        for name in ("model", "messages", *(() if path.endswith("count_tokens") else ("max_tokens",))):
            require(name in body, f"{name}: Field required")
        require(body.get("max_tokens", 1) >= 1, "max_tokens: Input should be greater than or equal to 1")
        require(body["messages"], "messages: at least one message is required")
        tools = self._tools(body.get("tools") or [])
        extra, said = self._messages(body["messages"])
        system = "\n".join(text for text in (joined(body.get("system")), *extra) if text)
        stream = bool(body.get("stream"))
        return Asked(self.name, body["model"], system, gathered(said), tools, stream, key, body, path)

    def _tools(self, tools: list[Json]) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for number, tool in enumerate(tools):
            name = tool.get("name")
            text = f"tools.{number}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            require(isinstance(name, str) and NAME.fullmatch(name), text)
            require(name not in found, "tools: Tool names must be unique.")
            if tool.get("type", "custom") == "custom":
                kind = (tool.get("input_schema") or {}).get("type")
                require(kind == "object", f"tools.{number}.custom.input_schema.type: Input should be 'object'")
            found[str(name)] = tool
        return found

    def _messages(self, messages: list[Json]) -> tuple[list[str], list[RoleMessage]]:
        """Return the system messages, and those of the user and the assistant."""
        said: list[RoleMessage] = []
        system: list[str] = []
        wanted: dict[str, str] = {}
        for number, message in enumerate(messages):
            blocks = message.get("content")
            require(blocks or message["role"] != "user", f"messages.{number}: content must be non-empty")
            if isinstance(blocks, str):
                blocks = [{"type": "text", "text": blocks}]
            if message["role"] == "system":
                system.append(joined(blocks))
                continue
            require(message["role"] in ("user", "assistant"), f"messages.{number}.role: Input should be 'user'")
            require(said or message["role"] == "user", 'messages: first message must use the "user" role')
            if wanted or message["role"] == "user":
                self._answers(number, blocks, wanted)
            said.append(self._said(number, message["role"], blocks, wanted))
            wanted = {call.id: call.tool for call in said[-1].calls}
        self._complete(len(messages) - 1, wanted)
        return system, said

    def _answers(self, number: int, blocks: list[Json], wanted: Mapping[str, str]) -> None:
        """Check that the message after calls begins with one result for each."""
        first = next((at for at, block in enumerate(blocks) if block["type"] != "tool_result"), len(blocks))
        given = [block["tool_use_id"] for block in blocks[:first]]
        self._complete(number - 1, {one: name for one, name in wanted.items() if one not in given})
        for at, block in enumerate(blocks):
            called = block.get("tool_use_id") if block["type"] == "tool_result" else None
            where = f"messages.{number}.content.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {called}."
            rule = "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            require(called is None or called in wanted, f"{where} {rule}")
        require(len(set(given)) == len(given), f"messages.{number}: each tool_use must have a single result.")

    def _complete(self, number: int, left: Mapping[str, str]) -> None:
        text = "`tool_use` ids were found without `tool_result` blocks immediately after:"
        require(not left, f"messages.{number}: {text} {', '.join(left)}.")

    def _said(self, number: int, role: Any, blocks: list[Json], wanted: Mapping[str, str]) -> RoleMessage:
        texts: list[str] = []
        calls: list[Call] = []
        results: list[Result] = []
        for at, block in enumerate(blocks):
            if block["type"] == "text":
                require(block["text"], f"messages.{number}.content.{at}: text content blocks must be non-empty")
                texts.append(block["text"])
            elif block["type"] == "tool_use":
                where = f"messages.{number}.content.{at}.tool_use"
                require(isinstance(block.get("input"), dict), f"{where}.input: Input should be a valid dictionary")
                require(NAME.fullmatch(block["name"]), f"{where}.name: String should match pattern")
                calls.append(Call(block["name"], block["input"], block["id"]))
            elif block["type"] == "tool_result":
                called = block["tool_use_id"]
                text = joined(block.get("content"))
                results.append(Result(called, wanted[called], text, bool(block.get("is_error"))))
        return RoleMessage(role, "\n".join(texts), tuple(calls), tuple(results))

    def whole(self, asked: Asked, reply: Reply, reply_id: str) -> Json:
        content: list[Json] = [{"type": "text", "text": reply.text}] if reply.text else []
        content += [
            {"type": "tool_use", "id": call.id, "name": call.tool, "input": call.parsed or {}} for call in reply.wanted
        ]
        head = {
            "id": f"msg_{reply_id}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": content,
        }
        return {**head, "stop_reason": self._reason(reply), "stop_sequence": None, "usage": self._usage(reply)}

    def events(self, asked: Asked, reply: Reply, reply_id: str) -> Iterator[Json]:
        message = self.whole(asked, Reply(input_tokens=reply.input_tokens, cached_tokens=reply.cached_tokens), reply_id)
        message |= {"stop_reason": None, "usage": self._usage(reply) | {"output_tokens": 1}}
        yield {"type": "message_start", "message": message}
        if reply.text:
            yield self._opened(0, {"type": "text", "text": ""})
            for piece in pieces(reply.text):
                yield self._delta(0, {"type": "text_delta", "text": piece})
            yield {"type": "content_block_stop", "index": 0}
        yield {"type": "ping"}
        for number, call in enumerate(reply.wanted, 1 if reply.text else 0):
            yield self._opened(number, {"type": "tool_use", "id": call.id, "name": call.tool, "input": {}})
            for piece in ["", *pieces(call.written)]:
                yield self._delta(number, {"type": "input_json_delta", "partial_json": piece})
            yield {"type": "content_block_stop", "index": number}
        delta = {"stop_reason": self._reason(reply), "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": self._usage(reply)}
        yield {"type": "message_stop"}

    def _opened(self, number: int, block: Json) -> Json:
        return {"type": "content_block_start", "index": number, "content_block": block}

    def _delta(self, number: int, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": number, "delta": delta}

    def _reason(self, reply: Reply) -> str:
        return {"length": "max_tokens", "refusal": "refusal", "": "tool_use" if reply.calls else "end_turn"}[reply.stop]

    def _usage(self, reply: Reply) -> Json:
        cache = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": reply.cached_tokens}
        return {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens, **cache}
