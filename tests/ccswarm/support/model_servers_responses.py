"""OpenAI's responses: its checks of requests and its responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.ccswarm.support.model_servers_chat import check_function, openai_error, openai_key
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


class Responses:
    """OpenAI's responses API. A tool in a namespace has the name ``namespace/tool`` here."""

    name = "responses"
    tail = b""

    def key(self, headers: Mapping[str, str], query: Mapping[str, str], known: str) -> str:
        return openai_key(headers, known)

    def error(self, fail: Fail, code: str = "") -> Json:
        return openai_error(fail, code)

    def asked(self, body: Json, path: str, key: str) -> Asked:
        require(body.get("model"), "Missing required parameter: 'model'.", code="missing_required_parameter")
        require(body.get("input"), "Missing required parameter: 'input'.", code="missing_required_parameter")
        previous = body.get("previous_response_id")
        require(not previous, f"Previous response with id '{previous}' not found.", code="previous_response_not_found")
        items: list[Json] = body["input"]
        if isinstance(items, str):
            items = [{"type": "message", "role": "user", "content": items}]
        more = [tool for item in items if item.get("type") == "additional_tools" for tool in item["tools"]]
        tools = self._tools([*(body.get("tools") or []), *more])
        spoken = [item for item in items if item.get("role") in ("system", "developer") and "content" in item]
        system = "\n".join([joined(body.get("instructions")), *(joined(item["content"]) for item in spoken)])
        said = gathered(list(self._said(items)))
        return Asked(self.name, body["model"], system, said, tools, bool(body.get("stream")), key, body, path)

    def _tools(self, tools: list[Json]) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for number, tool in enumerate(tools):
            inside = tool["type"] == "namespace"
            for inner in tool["tools"] if inside else [tool]:
                if inner["type"] == "function":
                    check_function(f"tools[{number}]", inner.get("name"), inner.get("parameters"))
                name = inner.get("name", inner["type"])
                found[f"{tool['name']}/{name}" if inside else name] = inner
        return found

    def _said(self, items: list[Json]) -> Iterator[RoleMessage]:
        """Yield the messages. Each output must follow its call, and each call must have one."""
        names: dict[str, str] = {}
        answered: set[str] = set()
        for number, item in enumerate(items):
            kind = item.get("type", "message")
            if kind == "message":
                role = item["role"]
                require(role in ("user", "assistant", "system", "developer"), f"Invalid value: 'input[{number}].role'")
                if role in ("user", "assistant"):
                    yield RoleMessage(role, joined(item["content"]))
            elif kind in ("function_call", "custom_tool_call"):
                space = f"{item['namespace']}/" if item.get("namespace") else ""
                call = Call(space + item["name"], item.get("arguments", item.get("input", "")), item["call_id"])
                names[call.id] = call.tool
                yield RoleMessage("assistant", calls=(call,))
            elif kind in ("function_call_output", "custom_tool_call_output"):
                called = item["call_id"]
                require(called in names, f"No tool call found for function call output with call_id {called}.")
                answered.add(called)
                yield RoleMessage("user", results=(Result(called, names[called], joined(item["output"])),))
        left = [called for called in names if called not in answered]
        require(not left, f"No tool output found for function call {', '.join(left)}.")

    def whole(self, asked: Asked, reply: Reply, reply_id: str) -> Json:
        items = self._items(reply, reply_id)
        cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        done: Json = cut if reply.stop == "length" else {"status": "completed", "incomplete_details": None}
        return self._response(asked, reply_id) | done | {"output": items, "usage": self._usage(reply)}

    def _response(self, asked: Asked, reply_id: str) -> Json:
        head = {"id": f"resp_{reply_id}", "object": "response", "created_at": 1, "model": asked.model, "error": None}
        given = {"instructions": asked.body.get("instructions"), "metadata": {}, "temperature": 1.0, "top_p": 1.0}
        tools = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "incomplete_details": None}
        return {**head, **given, **tools, "status": "in_progress", "output": [], "usage": None}

    def _items(self, reply: Reply, reply_id: str) -> list[Json]:
        items: list[Json] = []
        if reply.text:
            part = {"type": "output_text", "text": reply.text, "annotations": []}
            if reply.stop == "refusal":
                part = {"type": "refusal", "refusal": reply.text}
            items.append({"type": "message", "id": f"msg_{reply_id}", "role": "assistant", "content": [part]})
        for call in reply.wanted:
            space, _, name = call.tool.rpartition("/")
            item = {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": name}
            items.append(item | {"arguments": call.written} | ({"namespace": space} if space else {}))
        return [item | {"status": "completed"} for item in items]

    def events(self, asked: Asked, reply: Reply, reply_id: str) -> Iterator[Json]:
        for number, event in enumerate(self._unnumbered(asked, reply, reply_id)):
            yield event | {"sequence_number": number}

    def _unnumbered(self, asked: Asked, reply: Reply, reply_id: str) -> Iterator[Json]:
        for name in ("created", "in_progress"):
            yield {"type": f"response.{name}", "response": self._response(asked, reply_id)}
        for number, item in enumerate(self._items(reply, reply_id)):
            opened = item | {"status": "in_progress"} | ({"content": []} if "content" in item else {"arguments": ""})
            yield {"type": "response.output_item.added", "output_index": number, "item": opened}
            yield from self._inside(item, {"item_id": item["id"], "output_index": number})
            yield {"type": "response.output_item.done", "output_index": number, "item": item}
        whole = self.whole(asked, reply, reply_id)
        yield {"type": f"response.{whole['status']}", "response": whole}

    def _inside(self, item: Json, where: Json) -> Iterator[Json]:
        if item["type"] == "function_call":
            for piece in pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **where, "delta": piece}
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield {"type": "response.function_call_arguments.done", **where, **done}
            return
        (part,) = item["content"]
        where = {**where, "content_index": 0}
        field = "refusal" if part["type"] == "refusal" else "text"
        kind = "response.refusal" if field == "refusal" else "response.output_text"
        yield {"type": "response.content_part.added", **where, "part": part | {field: ""}}
        for piece in pieces(part[field]):
            yield {"type": f"{kind}.delta", **where, "delta": piece, "logprobs": []}
        yield {"type": f"{kind}.done", **where, field: part[field], "logprobs": []}
        yield {"type": "response.content_part.done", **where, "part": part}

    def _usage(self, reply: Reply) -> dict[str, Any]:
        given = reply.input_tokens + reply.cached_tokens
        usage = {"input_tokens": given, "output_tokens": reply.output_tokens}
        details = {"input_tokens_details": {"cached_tokens": reply.cached_tokens}}
        details["output_tokens_details"] = {"reasoning_tokens": 0}
        return {**usage, **details, "total_tokens": given + reply.output_tokens}
