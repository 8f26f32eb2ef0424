"""Gemini's content API: its checks of requests and its responses."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.ccswarm.support.model_servers_script import (
    Asked,
    Call,
    Fail,
    Json,
    Refused,
    Reply,
    Result,
    RoleMessage,
    gathered,
    joined,
    pieces,
    require,
)

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
BAD_NAME = (
    "Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), "
    "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128."
)
AFTER_USER = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
AS_MANY = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
KINDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
WORDS = {429: "Resource exhausted. Please try again later.", 503: "The model is overloaded. Please try again later."}
TYPES = "type.googleapis.com/google.rpc."
UNSIGNED = "Function call is missing a thought_signature in functionCall parts. This is required for tools to work."
SKIPPED = base64.b64encode(b"skip_thought_signature_validator").decode()
NO_QUOTA = "You exceeded your current quota, please check your plan and billing details."


class GeminiContent:
    name = "gemini"
    tail = b""

    def key(self, headers: Mapping[str, str], query: Mapping[str, str], known: str) -> str:
        key = headers.get("x-goog-api-key") or query.get("key", "")
        text = "Method doesn't allow unregistered callers (callers without established identity)."
        require(key, text, status=403)
        text = "API key not valid. Please pass a valid API key."
        require(not known or key == known, text, code="API_KEY_INVALID")
        return key

    def error(self, fail: Fail, code: str = "") -> Json:
        kind = KINDS.get(fail.status, "UNKNOWN")
        message = fail.message or (NO_QUOTA if fail.no_credit else WORDS.get(fail.status, kind))
        details: list[Json] = [{"@type": f"{TYPES}ErrorInfo", "reason": code}] if code else []
        if fail.no_credit:
            violation = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel", "quotaValue": "0"}
            details.append({"@type": f"{TYPES}QuotaFailure", "violations": [violation]})
        if fail.retry_after is not None:
            details.append({"@type": f"{TYPES}RetryInfo", "retryDelay": f"{fail.retry_after}s"})
        error: Json = {"code": fail.status, "message": message, "status": kind}
        return {"error": error | ({"details": details} if details else {})}

    def asked(self, body: Json, path: str, key: str) -> Asked:
        contents = body.get("contents") or body.get("generateContentRequest", {}).get("contents")
        require(contents, "* GenerateContentRequest.contents: contents is not specified")
        tools: dict[str, Json] = {}
        for tool in body.get("tools") or ():
            for function in tool.get("functionDeclarations", ()):
                require(NAME.fullmatch(function.get("name", "")), BAD_NAME)
                require(function["name"] not in tools, f"Duplicate function declaration found: {function['name']}")
                tools[function["name"]] = function
        system = joined((body.get("systemInstruction") or {}).get("parts"))
        model = path.rpartition("/")[2].partition(":")[0]
        said = tuple(gathered(list(self._said(contents))))
        if thinks(model):
            for parts in (content["parts"] for content in contents if content.get("role") == "model"):
                first = next((part for part in parts if "functionCall" in part), None)
                signature = first and first.get("thoughtSignature")
                fits = first and signature in (SKIPPED, parse_signature(first["functionCall"]))
                require(not first or fits, UNSIGNED)
        return Asked(self.name, model, system, said, tools, ":stream" in path, key, body, path)

    def _said(self, contents: list[Json]) -> Iterator[RoleMessage]:
        called: list[Call] = []
        for number, content in enumerate(contents):
            require(
                content.get("parts"),
                f"* GenerateContentRequest.contents[{number}].parts: contents.parts must not be empty.",
            )
            role = content.get("role", "user")
            require(role in ("user", "model", "function"), "Please use a valid role: user, model.")
            parts: list[Json] = content["parts"]
            results = [part["functionResponse"] for part in parts if "functionResponse" in part]
            calls = [part["functionCall"] for part in parts if "functionCall" in part]
            require(len(results) == len(called), AS_MANY)
            text = joined([part for part in parts if not part.get("thought")])
            if role != "model":
                require(not calls, AFTER_USER)
                yield RoleMessage("user", text, results=tuple(self._results(results, called)))
                called = []
                continue
            require(
                not results, "Please ensure that function response turn comes immediately after a function call turn."
            )
            require(not calls or number > 0, AFTER_USER)
            called = [Call(call["name"], call.get("args") or {}, call.get("id", "")) for call in calls]
            yield RoleMessage("assistant", text, tuple(called))
        require(not called, AS_MANY)

    def _results(self, results: list[Json], called: list[Call]) -> Iterator[Result]:
        for result, call in zip(results, called, strict=True):
            require(isinstance(result.get("response"), dict), "function_response.response: expected a struct")
            answer = result["response"]
            text = answer.get("output") or answer.get("result") or answer.get("error") or json.dumps(answer)
            if result["name"] not in {one.tool for one in called}:
                raise Refused(400, AS_MANY)
            yield Result(result.get("id") or call.id, result["name"], _text(text), "error" in answer)

    def whole(self, asked: Asked, reply: Reply, reply_id: str) -> Json:
        return self._chunk(asked, [{"text": reply.text}] if reply.text else [], reply, reply_id)

    def events(self, asked: Asked, reply: Reply, reply_id: str) -> Iterator[Json]:
        """Yield the text in pieces, then whole calls with the end, as Gemini streams."""
        said = pieces(reply.text) if reply.text else []
        for piece in said[:-1]:
            yield {**self._head(asked, reply_id), "candidates": [self._candidate([{"text": piece}])]}
        yield self._chunk(asked, [{"text": piece} for piece in said[-1:]], reply, reply_id)

    def _chunk(self, asked: Asked, parts: list[Json], reply: Reply, reply_id: str) -> Json:
        calls = reply.wanted
        reasons = {"length": "MAX_TOKENS", "refusal": "SAFETY", "": "STOP"}
        reason = reasons[reply.stop]
        if any(call.parsed is None for call in calls):
            calls, reason = [], "MALFORMED_FUNCTION_CALL"
        called: list[Json] = [
            {"functionCall": {"id": call.id, "name": call.tool, "args": call.parsed}} for call in calls
        ]
        if thinks(asked.model) and called:
            called[0]["thoughtSignature"] = parse_signature(called[0]["functionCall"])
        candidate = self._candidate([*parts, *called]) | {"finishReason": reason}
        prompt = reply.input_tokens + reply.cached_tokens
        usage = {"promptTokenCount": prompt, "candidatesTokenCount": reply.output_tokens}
        usage |= {"totalTokenCount": prompt + reply.output_tokens, "cachedContentTokenCount": reply.cached_tokens}
        return {**self._head(asked, reply_id), "candidates": [candidate], "usageMetadata": usage}

    def _head(self, asked: Asked, reply_id: str) -> Json:
        return {"modelVersion": asked.model, "responseId": reply_id}

    def _candidate(self, parts: list[Json]) -> Json:
        return {"content": {"role": "model", "parts": parts}, "index": 0}


def thinks(model: str) -> bool:
    """Report whether a model refuses one of its own calls without its thought signature."""
    return model.startswith("gemini-3")


def parse_signature(call: Json) -> str:
    return base64.b64encode(json.dumps([call["name"], call["args"]]).encode()).decode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
