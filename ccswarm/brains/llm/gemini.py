"""Asks Gemini's models by their own API (``streamGenerateContent``), over HTTP and nothing else.

Answers are kept as those of other models are, so that another may continue with the conversation; what only Gemini
knows of (signatures of thoughts, ids of calls) is kept beside them, and sent back to it as it came.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import httpx2
from genai_prices import Usage

from ccswarm.brains.llm.conversation import Conversation, Message
from ccswarm.brains.llm.settings import Model
from ccswarm.brains.llm.tools import Offered, allowed
from ccswarm.brains.llm.wire import (
    CHARS_OF_A_TOKEN,
    OK,
    Access,
    Bounds,
    Connections,
    NotUnderstood,
    failed,
    result_text,
    usage_of,
    within,
)
from ccswarm.models import Json

PROVIDER = "google"
SIGNATURE = "thought_signature"
NO_SIGNATURE = base64.b64encode(b"skip_thought_signature_validator").decode()
"""Gemini 3 refuses a call without a signature; this one stands for a call of another model's."""

FINISHED = {"STOP": "tool_call", "MAX_TOKENS": "length", "MALFORMED_FUNCTION_CALL": "stop"}
"""Finish reasons after which the conversation can continue; a malformed call counts as an empty answer, which the model
is asked to correct."""
FILTERED = re.compile(r"(IMAGE_)?(SAFETY|PROHIBITED_CONTENT)|RECITATION|BLOCKLIST|SPII|MODEL_ARMOR")
BUDGETS = {"minimal": 512, "low": 2048, "medium": 8192}
MOST_BUDGET = 24_576
"""Tokens of thoughts: what efforts are for models before Gemini 3."""
LEVELS = {"xhigh": "high", "max": "high"}
VERSION = re.compile(r"gemini-(\d+)")
SECONDS = re.compile(r"([0-9.]+)s")
TOO_LONG = re.compile(r"token count .*exceeds|too long", re.IGNORECASE)
BAD_REQUEST = 400
KINDS = {401: "key_refused", 403: "key_refused", 404: "unknown_model", 429: "rate_limited", 503: "overloaded"}


async def ask(
    model: Model,
    access: Access,
    conversation: Conversation,
    tools: Sequence[Offered],
    bounds: Bounds,
    connections: Connections,
) -> dict[str, Any]:
    """One answer of the model. Returns and raises as ``api.ask``."""
    address = f"{model.address.rstrip('/')}/models/{model.name}:streamGenerateContent?alt=sse"
    headers = {"x-goog-api-key": access.key or "none", **access.headers}
    asked = {**_body(model, conversation, tools), **model.body}
    parts: list[dict[str, Any]] = []
    facts: dict[str, Any] = {}
    try:
        request = connections.client(bounds).stream("POST", address, headers=headers, json=asked)
        async with within(bounds) as heard, request as answer:
            if answer.status_code != OK:
                return _refused(answer.status_code, await answer.aread(), access)
            async for line in answer.aiter_lines():
                heard()
                if line.startswith("data:"):
                    _take(_mapping(json.loads(line[5:])), parts, facts)
    except (TimeoutError, httpx2.ReadTimeout) as error:
        return failed("timed_out", str(error) or f"nothing was received for {bounds.idle:g} s", access.secrets)
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        return failed("cannot_connect", str(error), access.secrets)
    except NotUnderstood as error:
        return failed("not_understood", str(error), access.secrets)
    except (
        httpx2.TransportError,
        httpx2.DecodingError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        return failed("cut", str(error) or type(error).__name__, access.secrets)
    return _answered(model, parts, facts, conversation, access)


def _body(model: Model, conversation: Conversation, tools: Sequence[Offered]) -> dict[str, Any]:
    generation: dict[str, Any] = {"maxOutputTokens": model.max_tokens}
    if model.temperature is not None:
        generation["temperature"] = model.temperature
    if model.effort:
        generation["thinkingConfig"] = _thinking(model)
    declared = [
        {"name": one.name, "description": one.description, "parametersJsonSchema": dict(one.schema)} for one in tools
    ]
    first, *rest = conversation.messages()
    return {
        "systemInstruction": {"parts": [{"text": first.text}]},
        "contents": list(_contents(rest, model)),
        "tools": [{"functionDeclarations": declared}],
        "generationConfig": generation,
    }


def _thinking(model: Model) -> dict[str, Json]:
    if _version(model) >= 3:
        return {"thinkingLevel": LEVELS.get(model.effort, model.effort)}
    return {"thinkingBudget": BUDGETS.get(model.effort, MOST_BUDGET)}


def _version(model: Model) -> int:
    found = VERSION.search(model.name)
    return int(found[1]) if found else 0


def _contents(messages: Sequence[Message], model: Model) -> Iterator[dict[str, Any]]:
    """By turns; what functions answered is a content of its own, right after the calls."""
    answers: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []
    for message in messages:
        if message.turn:
            yield from _of_user(answers, said)
            answers, said = [], []
            yield {"role": "model", "parts": _sent_back(message, model)}
        elif message.call:
            answers.append(_function_response(message, model))
            if message.images and model.sees:
                shown = ({"mimeType": one["type"], "data": one["data"]} for one in message.images)
                said += [
                    {"text": f"[{message.call.number}] has these images:"},
                    *({"inlineData": one} for one in shown),
                ]
        else:
            said.append({"text": message.text})
    yield from _of_user(answers, said)


def _of_user(*groups: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield from ({"role": "user", "parts": parts} for parts in groups if parts)


def _function_response(message: Message, model: Model) -> dict[str, Any]:
    call = message.call
    assert call
    answer = {"error" if call.failed else "output": result_text(message, model)}
    response = {"name": allowed(call.name), "response": answer}
    return {"functionResponse": response | ({} if call.call_id.startswith(PROVIDER) else {"id": call.call_id})}


def _sent_back(message: Message, model: Model) -> list[dict[str, Any]]:
    """An earlier answer as its parts, with the signatures that Gemini gave it."""
    assert message.turn
    response = _mapping(message.turn.response)
    found: list[dict[str, Any]] = []
    unsigned = _version(model) >= 3
    for part in _mappings(response.get("parts")):
        kind, details = part.get("part_kind"), _mapping(part.get("provider_details"))
        signature = details.get(SIGNATURE) if part.get("provider_name") == PROVIDER else None
        if kind == "tool-call":
            arguments = part.get("args")
            given = _object(arguments) if isinstance(arguments, str) else _mapping(arguments)
            name, number = allowed(str(part["tool_name"])), str(part["tool_call_id"])
            call: dict[str, Any] = {"name": name, "args": given} | (
                {} if number.startswith(PROVIDER) else {"id": number}
            )
            signature = signature or (NO_SIGNATURE if unsigned else None)
            unsigned = False  # only the first of an answer has one
            found.append({"functionCall": call})
        elif kind == "text" and (part.get("content") or signature):
            found.append({"text": part.get("content") or ""})
        else:
            continue
        if signature:
            found[-1]["thoughtSignature"] = signature
    return found or [{"text": "(nothing)"}]


def _object(text: str) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return {}


def _mapping(value: object) -> dict[str, Any]:
    """An object of JSON, empty where it is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _mappings(value: object) -> list[dict[str, Any]]:
    """The objects of a list of JSON."""
    return [_mapping(one) for one in cast("list[object]", value)] if isinstance(value, list) else []


def _take(chunk: Mapping[str, Any], parts: list[dict[str, Any]], facts: dict[str, Any]) -> None:
    """What one event of the stream adds."""
    if "error" in chunk:
        raise ValueError(str(_mapping(chunk["error"]).get("message") or chunk["error"]))
    facts["model"] = chunk.get("modelVersion") or facts.get("model")
    facts["usage"] = chunk.get("usageMetadata") or facts.get("usage")
    facts["blocked"] = _mapping(chunk.get("promptFeedback")).get("blockReason") or facts.get("blocked")
    for candidate in _mappings(chunk.get("candidates"))[:1]:
        facts["finish"] = candidate.get("finishReason") or facts.get("finish")
        for part in _mappings(_mapping(candidate.get("content")).get("parts")):
            if part.get("thought"):
                continue
            if list(part) == ["text"] and parts and list(parts[-1]) == ["text"]:
                parts[-1] = {"text": f"{parts[-1]['text']}{part['text']}"}
            else:
                parts.append(part)


def _answered(
    model: Model,
    parts: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
    conversation: Conversation,
    access: Access,
) -> dict[str, Any]:
    reason = str(facts.get("finish") or "")
    if facts.get("blocked") or FILTERED.fullmatch(reason):
        return failed("refused", str(facts.get("blocked") or reason), access.secrets)
    if not (parts or any(facts.values())):
        return failed("not_understood", "an answer of an unknown kind", access.secrets)
    if reason not in FINISHED:
        why = f"it ended by {reason}" if reason else "the answer ended prematurely"
        return failed("cut", why, access.secrets)
    number = len(conversation.turns) + 1
    kept = list(filter(None, (_kept(part, f"{PROVIDER}_{number}_{at}") for at, part in enumerate(parts, 1))))
    name = str(facts.get("model") or model.name)
    calls = [
        {"id": part["tool_call_id"], "name": part["tool_name"], "arguments": part["args"]}
        for part in kept
        if part["part_kind"] == "tool-call"
    ]
    return {
        "response": {"kind": "response", "parts": kept, "model_name": name},
        "text": "".join(part["content"] for part in kept if part["part_kind"] == "text"),
        "calls": calls,
        "finish": FINISHED[reason] if calls or reason != "STOP" else "stop",
        "usage": usage_of(model, _usage(_mapping(facts.get("usage")), conversation, kept), name),
        "model": name,
    }


def _kept(part: Mapping[str, Any], number: str) -> dict[str, Any] | None:
    signature = part.get("thoughtSignature")
    whose = {"provider_name": PROVIDER, "provider_details": {SIGNATURE: signature}} if signature else {}
    if call := _mapping(part.get("functionCall")):
        named = {"tool_name": str(call.get("name") or "_"), "tool_call_id": str(call.get("id") or number)}
        return {"part_kind": "tool-call", **named, "args": _mapping(call.get("args")), **whose}
    if "text" in part or signature:
        return {"part_kind": "text", "content": part.get("text") or "", **whose}
    return None


def _usage(counted: Mapping[str, Any], conversation: Conversation, kept: Sequence[Mapping[str, Any]]) -> Usage:
    """Thoughts are answered tokens too; counted about, where the server did not count."""
    given = counted.get("promptTokenCount") or 0
    made = (counted.get("candidatesTokenCount") or 0) + (counted.get("thoughtsTokenCount") or 0)
    if not given + made:
        given = conversation.chars // CHARS_OF_A_TOKEN
        made = len(json.dumps(kept)) // CHARS_OF_A_TOKEN
    return Usage(input_tokens=given, output_tokens=made, cache_read_tokens=counted.get("cachedContentTokenCount") or 0)


def _refused(status: int, body: bytes, access: Access) -> dict[str, Any]:
    error = _mapping(_object(body.decode(errors="replace")).get("error"))
    message = str(error.get("message") or body[:600].decode(errors="replace") or f"HTTP {status}")
    details = {str(one.get("@type", "")).rpartition(".")[2]: one for one in _mappings(error.get("details"))}
    waits = SECONDS.fullmatch(str(details.get("RetryInfo", {}).get("retryDelay", "")))
    return failed(_kind(status, message, details), message, access.secrets, float(waits[1]) if waits else None)


def _kind(status: int, message: str, details: Mapping[str, Mapping[str, Any]]) -> str:
    if details.get("ErrorInfo", {}).get("reason") == "API_KEY_INVALID":
        return "key_refused"
    violations = _mappings(details.get("QuotaFailure", {}).get("violations"))
    if any("PerDay" in str(one.get("quotaId")) or one.get("quotaValue") == "0" for one in violations):
        return "quota"
    if status == BAD_REQUEST and TOO_LONG.search(message):
        return "too_long"
    return KINDS.get(status, "server_error" if status >= 500 else "rejected")
