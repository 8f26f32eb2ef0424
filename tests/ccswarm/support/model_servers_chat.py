"""OpenAI's chat completions: its checks of requests and its responses."""

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

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MOST_TOOLS = 128
OPENAI_KINDS = {400: "invalid_request_error", 401: "invalid_request_error", 404: "invalid_request_error"}


def openai_key(headers: Mapping[str, str], known: str) -> str:
    """Return the key of a request. Raises Refused, in the same way for both of OpenAI's APIs."""
    key = headers.get("authorization", "").removeprefix("Bearer ").strip()
    require(
        key, "You didn't provide an API key. You need to provide your API key in an Authorization header", status=401
    )
    text = f"Incorrect API key provided: {key[:4]}***. You can find your API key at https://platform.openai.com."
    require(not known or key == known, text, status=401, code="invalid_api_key")
    return key


def openai_error(fail: Fail, code: str = "") -> Json:
    """Return the body of an error."""
    kind = OPENAI_KINDS.get(fail.status, "requests" if fail.status == 429 else "server_error")
    message = fail.message or {429: "Rate limit reached for requests."}.get(fail.status, "The server had an error.")
    if fail.no_credit:
        kind = code = "insufficient_quota"
        message = fail.message or "You exceeded your current quota, please check your plan and billing details."
    elif fail.status == 429:
        code = "rate_limit_exceeded"
    return {"error": {"message": message, "type": kind, "param": None, "code": code or None}}


def check_function(where: str, name: Any, schema: Any) -> None:
    pattern = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
    require(isinstance(name, str) and NAME.fullmatch(name), f"Invalid '{where}.name': {pattern}", code="invalid_value")
    kind = schema.get("type") if isinstance(schema, dict) else None
    text = f"Invalid schema for function '{name}': schema must be of 'type: \"object\"', got 'type: \"{kind}\"'."
    require(schema is None or kind == "object", text, code="invalid_function_parameters")


class ChatCompletions:
    name = "chat"
    tail = b"data: [DONE]\n\n"

    def key(self, headers: Mapping[str, str], query: Mapping[str, str], known: str) -> str:
        return openai_key(headers, known)

    def error(self, fail: Fail, code: str = "") -> Json:
        return openai_error(fail, code)

    def asked(self, body: Json, path: str, key: str) -> Asked:
        require(body.get("model"), "you must provide a model parameter")
        require(isinstance(body.get("messages"), list) and body["messages"], "Missing required parameter: 'messages'.")
        tools = self._tools(body.get("tools") or [])
        require(not body.get("tool_choice") or tools, "'tool_choice' is only allowed when 'tools' are specified.")
        system = "\n".join(joined(one["content"]) for one in body["messages"] if one["role"] in ("system", "developer"))
        said = gathered(self._messages(body["messages"]))
        return Asked(self.name, body["model"], system, said, tools, bool(body.get("stream")), key, body, path)

    def _tools(self, tools: list[Json]) -> dict[str, Json]:
        require(len(tools) <= MOST_TOOLS, f"Invalid 'tools': array too long. Expected at most {MOST_TOOLS}.")
        found: dict[str, Json] = {}
        for number, tool in enumerate(tools):
            require(tool.get("type") == "function", f"Invalid value: {tool.get('type')!r}. Supported: 'function'.")
            function = tool["function"]
            check_function(f"tools[{number}].function", function.get("name"), function.get("parameters"))
            found[function["name"]] = function
        return found

    def _messages(self, messages: list[Json]) -> Iterator[RoleMessage]:
        names: dict[str, str] = {}
        unanswered: list[str] = []
        for number, message in enumerate(messages):
            role = message.get("role")
            if role == "tool":
                text = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                require(message.get("tool_call_id") in unanswered, f"Invalid parameter: {text} (messages.[{number}])")
                unanswered.remove(message["tool_call_id"])
                answered = message["tool_call_id"]
                yield RoleMessage("user", results=(Result(answered, names[answered], joined(message["content"])),))
                continue
            self._answered(unanswered)
            if role == "assistant":
                calls = tuple(self._call(call) for call in message.get("tool_calls") or ())
                require(calls or message.get("content") is not None, "Expected 'content' or 'tool_calls'.")
                names |= {call.id: call.tool for call in calls}
                unanswered += [call.id for call in calls]
                yield RoleMessage("assistant", joined(message.get("content")), calls)
            elif role == "user":
                yield RoleMessage("user", joined(message["content"]))
            else:
                require(role in ("system", "developer"), f"Invalid value: {role!r} (messages[{number}].role)")
        self._answered(unanswered)

    def _answered(self, left: list[str]) -> None:
        rule = "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
        text = f"{rule} 'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(left)}"
        require(not left, text)

    def _call(self, call: Json) -> Call:
        function = call["function"]
        require(isinstance(function["arguments"], str), "Invalid type for 'arguments': expected a string.")
        require(NAME.fullmatch(function["name"]), "Invalid 'function.name': string does not match pattern.")
        return Call(function["name"], function["arguments"], call["id"])

    def whole(self, asked: Asked, reply: Reply, reply_id: str) -> Json:
        message: Json = {"role": "assistant", "content": reply.text or None, "refusal": None}
        calls = [self._written(call) for call in reply.wanted]
        choice = {"index": 0, "message": message | ({"tool_calls": calls} if calls else {}), "logprobs": None}
        head = {"id": f"chatcmpl-{reply_id}", "object": "chat.completion", "created": 1, "model": asked.model}
        return {**head, "choices": [{**choice, "finish_reason": self._reason(reply)}], "usage": self._usage(reply)}

    def events(self, asked: Asked, reply: Reply, reply_id: str) -> Iterator[Json]:
        head = {"id": f"chatcmpl-{reply_id}", "object": "chat.completion.chunk", "created": 1, "model": asked.model}

        def chunk(delta: Json, reason: str | None = None) -> Json:
            return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}

        yield chunk({"role": "assistant", "content": ""})
        for piece in pieces(reply.text) if reply.text else ():
            yield chunk({"content": piece})
        for number, call in enumerate(reply.wanted):
            written = self._written(call)
            empty = written | {"function": {"name": call.tool, "arguments": ""}}
            yield chunk({"tool_calls": [{"index": number, **empty}]})
            for piece in pieces(call.written):
                yield chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
        yield chunk({}, self._reason(reply))
        if (asked.body.get("stream_options") or {}).get("include_usage"):
            yield {**head, "choices": [], "usage": self._usage(reply)}

    def _written(self, call: Call) -> Json:
        return {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": call.written}}

    def _reason(self, reply: Reply) -> str:
        reasons = {"length": "length", "refusal": "content_filter", "": "tool_calls" if reply.calls else "stop"}
        return reasons[reply.stop]

    def _usage(self, reply: Reply) -> Json:
        prompt = reply.input_tokens + reply.cached_tokens
        usage: Json = {"prompt_tokens": prompt, "completion_tokens": reply.output_tokens}
        usage["total_tokens"] = prompt + reply.output_tokens
        return usage | {"prompt_tokens_details": {"cached_tokens": reply.cached_tokens, "audio_tokens": 0}}
