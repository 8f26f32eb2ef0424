"""A whole model provider in memory, on 127.0.0.1: it calls the tools a script names and answers with what it saw.

It speaks as much of three providers' streaming APIs as their own agents need. It is also the proxy those agents are
given, so whatever else they want to reach is refused and noted.
"""

from __future__ import annotations

import gzip
import json
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Json = dict[str, Any]
USAGE_TOKENS = 7

SEARCH = "ToolSearch"
"""The tool with which a model finds those that are not offered from the start."""


@dataclass(frozen=True)
class Call:
    """What the model wants: our name of a tool, and arguments."""

    tool: str
    arguments: Json


@dataclass(frozen=True)
class Turn:
    """One request of the agent: the tools it offers, under the names it gives them, and all results so far."""

    tools: list[str]
    results: list[str]
    body: Json = field(repr=False)


class Api(Protocol):
    """How one provider writes requests and streams answers."""

    def tools(self, body: Json) -> list[str]:
        """Names of the tools offered."""
        ...

    def results(self, body: Json) -> list[str]:
        """What came back from the calls of this conversation, oldest first, as the model reads it."""
        ...

    def call(self, name: str, arguments: Json, number: int) -> Iterator[Json]:
        """Events of an answer that calls a tool."""
        ...

    def answer(self, text: str) -> Iterator[Json]:
        """Events of an answer in words."""
        ...


def joined(content: Any) -> str:
    """The text of a content field: a string, or blocks of which some are text."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content or () if "text" in block)


class AnthropicMessages:
    def tools(self, body: Json) -> list[str]:
        return [tool["name"] for tool in body.get("tools", ())]

    def results(self, body: Json) -> list[str]:
        blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
        return [joined(b["content"]) for b in blocks if b["type"] == "tool_result" and not self._found(b["content"])]

    def call(self, name: str, arguments: Json, number: int) -> Iterator[Json]:
        block: Json = {"type": "tool_use", "id": f"toolu_{number:04}", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        return self._message(block, delta, "tool_use")

    def answer(self, text: str) -> Iterator[Json]:
        return self._message({"type": "text", "text": ""}, {"type": "text_delta", "text": text}, "end_turn")

    def _found(self, content: Any) -> bool:
        """Whether this is what a search for tools found, and so no result of ours."""
        return not isinstance(content, str) and any(block["type"] == "tool_reference" for block in content)

    def _message(self, block: Json, delta: Json, reason: str) -> Iterator[Json]:
        usage = {"input_tokens": USAGE_TOKENS, "output_tokens": USAGE_TOKENS}
        message: Json = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake", "content": []}
        yield {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
        yield {"type": "message_stop"}


class OpenAiResponses:
    def tools(self, body: Json) -> list[str]:
        """A tool inside a namespace is called ``namespace/tool`` here."""
        names: list[str] = []
        for tool in body.get("tools", ()):
            prefix = f"{tool['name']}/" if tool["type"] == "namespace" else ""
            names += [prefix + inner.get("name", inner["type"]) for inner in tool.get("tools", [tool])]
        return names

    def results(self, body: Json) -> list[str]:
        items = [item for item in body["input"] if item["type"] == "function_call_output"]
        return [joined(item["output"]) for item in items]

    def call(self, name: str, arguments: Json, number: int) -> Iterator[Json]:
        namespace, _, short = name.rpartition("/")
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": short}
        item |= {"arguments": json.dumps(arguments)} | ({"namespace": namespace} if namespace else {})
        return self._response(item)

    def answer(self, text: str) -> Iterator[Json]:
        content: list[Json] = [{"type": "output_text", "text": text, "annotations": []}]
        return self._response({"type": "message", "id": "msg_1", "role": "assistant", "content": content})

    def _response(self, item: Json) -> Iterator[Json]:
        yield {"type": "response.created", "response": {"id": "resp_1"}}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        details = {"input_tokens_details": None, "output_tokens_details": None, "total_tokens": 2 * USAGE_TOKENS}
        usage = {"input_tokens": USAGE_TOKENS, "output_tokens": USAGE_TOKENS, **details}
        yield {"type": "response.completed", "response": {"id": "resp_1", "output": [item], "usage": usage}}


class GeminiContent:
    def tools(self, body: Json) -> list[str]:
        return [f["name"] for tool in body.get("tools", ()) for f in tool.get("functionDeclarations", ())]

    def results(self, body: Json) -> list[str]:
        parts = [part for content in body["contents"] for part in content["parts"] if "functionResponse" in part]
        answers = [part["functionResponse"]["response"] for part in parts]
        return [answer.get("output") or answer.get("error") or json.dumps(answer) for answer in answers]

    def call(self, name: str, arguments: Json, number: int) -> Iterator[Json]:
        return self._candidate({"functionCall": {"id": f"call_{number}", "name": name, "args": arguments}})

    def answer(self, text: str) -> Iterator[Json]:
        return self._candidate({"text": text})

    def _candidate(self, part: Json) -> Iterator[Json]:
        usage = {"promptTokenCount": USAGE_TOKENS, "candidatesTokenCount": USAGE_TOKENS}
        content = {"role": "model", "parts": [part]}
        yield {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}


APIS: dict[str, Api] = {
    "/messages": AnthropicMessages(),
    "/responses": OpenAiResponses(),
    ":streamGenerateContent": GeminiContent(),
}


class FakeModels:
    """The provider, serving while it is entered. ``turns`` are the requests that offered tools, in their order."""

    def __init__(self, script: Sequence[Call]) -> None:
        self.script = script
        self.turns: list[Turn] = []
        self.others: list[str] = []
        """Requests that were no turn: method and path, or the host that a proxy was asked for."""
        handler = type("Handler", (Handler,), {"models": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reply(self, api: Api, body: Json) -> Iterator[Json]:
        """The next step of the script, found by counting results, so that a request sent again is answered again."""
        turn = Turn(api.tools(body), api.results(body), body)
        if not turn.tools:
            self.others.append(f"aside: {json.dumps(body)[:200]}")
            return api.answer("fine")
        self.turns.append(turn)
        done = len(turn.results)
        if done >= len(self.script):
            return api.answer(f"The last thing I saw: {turn.results[-1:]}")
        step = self.script[done]
        names = [name for name in turn.tools if name.endswith(step.tool)]
        if not names and SEARCH in turn.tools:
            return api.call(SEARCH, {"query": step.tool.replace("_", " "), "max_results": 5}, len(self.turns))
        if len(names) != 1:
            return api.answer(f"I am offered {len(names)} tools {step.tool} among {turn.tools}")
        return api.call(names[0], step.arguments, len(self.turns))


class Handler(BaseHTTPRequestHandler):
    models: FakeModels
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with suppress(ConnectionError):  # an agent that leaves does not close its connections first
            super().handle()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        path = self.path.partition("?")[0]
        api = next((api for end, api in APIS.items() if path.endswith(end)), None)
        if api is None:
            return self._refuse()
        data = b"".join(self._event(event) for event in self.models.reply(api, json.loads(body)))
        return self._send(200, "text/event-stream", data)

    def do_GET(self) -> None:
        self._refuse()

    def do_HEAD(self) -> None:
        self._refuse()

    def do_CONNECT(self) -> None:
        self._refuse()

    def _event(self, event: Json) -> bytes:
        name = f"event: {event['type']}\n" if "type" in event else ""
        return f"{name}data: {json.dumps(event)}\n\n".encode()

    def _refuse(self) -> None:
        self.models.others.append(f"{self.command} {self.path}")
        self._send(404, "application/json", b'{"error":{"message":"not here","type":"not_found_error"}}')

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
        """Nothing: what was asked is kept in ``models``."""
