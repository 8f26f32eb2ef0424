"""Asks Gemini's models through their own API (``streamGenerateContent``), over HTTP without a library.

Answers are stored in the form of other models, so that another model may continue the conversation. Gemini's own data
(signatures of thoughts, ids of calls) is stored with them and returned to it unchanged.
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
from ccswarm.brains.llm.tools import OfferedTool, safe_name
from ccswarm.brains.llm.wire import (
    CHARS_OF_A_TOKEN,
    OK,
    Access,
    Bounds,
    Connections,
    NotUnderstood,
    failure,
    make_usage,
    result_text,
    time_limits,
)
from ccswarm.models import Json

PROVIDER = "google"
SIGNATURE = "thought_signature"
NO_SIGNATURE = base64.b64encode(b"skip_thought_signature_validator").decode()
"""A replacement for the signature of another model's call. Gemini 3 rejects calls without one."""

FINISHED = {"STOP": "tool_call", "MAX_TOKENS": "length", "MALFORMED_FUNCTION_CALL": "stop"}
"""The finish reasons that allow to continue. A malformed call is an empty answer, for the model to correct."""
FILTERED = re.compile(r"(IMAGE_)?(SAFETY|PROHIBITED_CONTENT)|RECITATION|BLOCKLIST|SPII|MODEL_ARMOR")
BUDGETS = {"minimal": 512, "low": 2048, "medium": 8192}
MOST_BUDGET = 24_576
"""The tokens for thinking in place of an effort, for models before Gemini 3."""
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
    tools: Sequence[OfferedTool],
    bounds: Bounds,
    connections: Connections,
) -> dict[str, Any]:
    """Request one answer of the model. Returns and raises as ``api.ask`` does."""
    address = f"{model.address.rstrip('/')}/models/{model.name}:streamGenerateContent?alt=sse"
    headers = {"x-goog-api-key": access.key or "none", **access.headers}
    body = {**_body(model, conversation, tools), **model.body}
    parts: list[dict[str, Any]] = []
    facts: dict[str, Any] = {}
    try:
        request = connections.client(bounds).stream("POST", address, headers=headers, json=body)
        async with time_limits(bounds) as received, request as answer:
            if answer.status_code != OK:
                return _http_failure(answer.status_code, await answer.aread(), access)
            async for line in answer.aiter_lines():
                received()
                if line.startswith("data:"):
                    _add_event(_mapping(json.loads(line[5:])), parts, facts)
    except (TimeoutError, httpx2.ReadTimeout) as error:
        return failure("timed_out", str(error) or f"nothing was received for {bounds.idle:g} s", access.secrets)
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        return failure("cannot_connect", str(error), access.secrets)
    except NotUnderstood as error:
        return failure("not_understood", str(error), access.secrets)
    except (
        httpx2.TransportError,
        httpx2.DecodingError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        return failure("cut", str(error) or type(error).__name__, access.secrets)
    return _to_answer(model, parts, facts, conversation, access)


def _body(model: Model, conversation: Conversation, tools: Sequence[OfferedTool]) -> dict[str, Any]:
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
    """Yield the conversation by turns. Function results are a content of their own, right after the calls."""
    answers: list[dict[str, Any]] = []
    texts: list[dict[str, Any]] = []
    for message in messages:
        if message.turn:
            yield from _user_contents(answers, texts)
            answers, texts = [], []
            yield {"role": "model", "parts": _model_parts(message, model)}
        elif message.call:
            answers.append(_function_response(message, model))
            if message.images and model.sees:
                shown = ({"mimeType": one["type"], "data": one["data"]} for one in message.images)
                texts += [
                    {"text": f"[{message.call.number}] has these images:"},
                    *({"inlineData": one} for one in shown),
                ]
        else:
            texts.append({"text": message.text})
    yield from _user_contents(answers, texts)


def _user_contents(*groups: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield from ({"role": "user", "parts": parts} for parts in groups if parts)


def _function_response(message: Message, model: Model) -> dict[str, Any]:
    call = message.call
    assert call
    answer = {"error" if call.failed else "output": result_text(message, model)}
    response = {"name": safe_name(call.name), "response": answer}
    return {"functionResponse": response | ({} if call.call_id.startswith(PROVIDER) else {"id": call.call_id})}


def _model_parts(message: Message, model: Model) -> list[dict[str, Any]]:
    """Return the parts of an earlier answer, with Gemini's signatures."""
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
            name, number = safe_name(str(part["tool_name"])), str(part["tool_call_id"])
            call: dict[str, Any] = {"name": name, "args": given} | (
                {} if number.startswith(PROVIDER) else {"id": number}
            )
            signature = signature or (NO_SIGNATURE if unsigned else None)
            unsigned = False  # only the first call of an answer has one
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
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _mappings(value: object) -> list[dict[str, Any]]:
    return [_mapping(one) for one in cast("list[object]", value)] if isinstance(value, list) else []


def _add_event(chunk: Mapping[str, Any], parts: list[dict[str, Any]], facts: dict[str, Any]) -> None:
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


def _to_answer(
    model: Model,
    parts: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
    conversation: Conversation,
    access: Access,
) -> dict[str, Any]:
    reason = str(facts.get("finish") or "")
    if facts.get("blocked") or FILTERED.fullmatch(reason):
        return failure("refused", str(facts.get("blocked") or reason), access.secrets)
    if not (parts or any(facts.values())):
        return failure("not_understood", "an answer of an unknown kind", access.secrets)
    if reason not in FINISHED:
        why = f"it ended by {reason}" if reason else "the answer ended prematurely"
        return failure("cut", why, access.secrets)
    number = len(conversation.turns) + 1
    stored = list(filter(None, (_stored_part(part, f"{PROVIDER}_{number}_{at}") for at, part in enumerate(parts, 1))))
    name = str(facts.get("model") or model.name)
    calls = [
        {"id": part["tool_call_id"], "name": part["tool_name"], "arguments": part["args"]}
        for part in stored
        if part["part_kind"] == "tool-call"
    ]
    return {
        "response": {"kind": "response", "parts": stored, "model_name": name},
        "text": "".join(part["content"] for part in stored if part["part_kind"] == "text"),
        "calls": calls,
        "finish": FINISHED[reason] if calls or reason != "STOP" else "stop",
        "usage": make_usage(model, _usage(_mapping(facts.get("usage")), conversation, stored), name),
        "model": name,
    }


def _stored_part(part: Mapping[str, Any], number: str) -> dict[str, Any] | None:
    signature = part.get("thoughtSignature")
    whose = {"provider_name": PROVIDER, "provider_details": {SIGNATURE: signature}} if signature else {}
    if call := _mapping(part.get("functionCall")):
        named = {"tool_name": str(call.get("name") or "_"), "tool_call_id": str(call.get("id") or number)}
        return {"part_kind": "tool-call", **named, "args": _mapping(call.get("args")), **whose}
    if "text" in part or signature:
        return {"part_kind": "text", "content": part.get("text") or "", **whose}
    return None


def _usage(counted: Mapping[str, Any], conversation: Conversation, stored: Sequence[Mapping[str, Any]]) -> Usage:
    """Return the usage, including thinking tokens; estimated if the server did not count."""
    given = counted.get("promptTokenCount") or 0
    made = (counted.get("candidatesTokenCount") or 0) + (counted.get("thoughtsTokenCount") or 0)
    if not given + made:
        given = conversation.chars // CHARS_OF_A_TOKEN
        made = len(json.dumps(stored)) // CHARS_OF_A_TOKEN
    return Usage(input_tokens=given, output_tokens=made, cache_read_tokens=counted.get("cachedContentTokenCount") or 0)


def _http_failure(status: int, body: bytes, access: Access) -> dict[str, Any]:
    error = _mapping(_object(body.decode(errors="replace")).get("error"))
    message = str(error.get("message") or body[:600].decode(errors="replace") or f"HTTP {status}")
    details = {str(one.get("@type", "")).rpartition(".")[2]: one for one in _mappings(error.get("details"))}
    waits = SECONDS.fullmatch(str(details.get("RetryInfo", {}).get("retryDelay", "")))
    return failure(_kind(status, message, details), message, access.secrets, float(waits[1]) if waits else None)


def _kind(status: int, message: str, details: Mapping[str, Mapping[str, Any]]) -> str:
    if details.get("ErrorInfo", {}).get("reason") == "API_KEY_INVALID":
        return "key_refused"
    violations = _mappings(details.get("QuotaFailure", {}).get("violations"))
    if any("PerDay" in str(one.get("quotaId")) or one.get("quotaValue") == "0" for one in violations):
        return "quota"
    if status == BAD_REQUEST and TOO_LONG.search(message):
        return "too_long"
    return KINDS.get(status, "server_error" if status >= 500 else "rejected")
