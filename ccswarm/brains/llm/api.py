"""Asks models over the network through pydantic-ai. Only this module imports it; it is slow to load."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
from pydantic_ai import exceptions as errors
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model as ApiModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from ccswarm.brains.llm.conversation import Conversation, Message
from ccswarm.brains.llm.prices import cost
from ccswarm.brains.llm.settings import Model
from ccswarm.brains.llm.tools import OfferedTool, safe_name
from ccswarm.brains.llm.wire import (
    CHARS_OF_A_TOKEN,
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

KINDS: tuple[tuple[type[Exception], str], ...] = (
    (errors.ModelQuotaExceededError, "quota"),
    (errors.ModelRateLimitError, "rate_limited"),
    (errors.ModelUnavailableError, "overloaded"),
    (errors.ModelServerError, "server_error"),
    (errors.ModelRequestTimeout, "timed_out"),
    (errors.ModelTimeoutError, "timed_out"),
    (errors.ModelConnectionError, "cannot_connect"),
    (errors.ModelAuthenticationError, "key_refused"),
    (errors.ModelNotFoundError, "unknown_model"),
    (errors.ModelContextWindowExceededError, "too_long"),
    (errors.ContentFilterError, "refused"),
    (errors.ModelRequestRejectedError, "rejected"),
    (errors.ModelAPIError, "cut"),
    (httpx2.TransportError, "cut"),
    (httpx2.DecodingError, "cut"),
    (errors.UnexpectedModelBehavior, "not_understood"),
    (AttributeError, "not_understood"),
    (TypeError, "not_understood"),
    (ValueError, "not_understood"),
    (LookupError, "not_understood"),
)
"""The kind of failure for each exception; the first match counts."""

PASSING = (408, 409, 425)


async def ask(
    model: Model,
    access: Access,
    conversation: Conversation,
    tools: Sequence[OfferedTool],
    bounds: Bounds,
    connections: Connections,
) -> dict[str, Any]:
    """Request the model's next answer, and return it as JSON. The answer has ``response`` (pydantic-ai's), ``text``,
    ``calls`` (id, name, arguments or None), ``finish``, ``usage`` and ``model``. A failure has ``error`` with kind,
    message, and retry_after if the server sent it."""
    api = connections.get(str(model), lambda: _make_model(model, access.key, connections.client(bounds)))
    messages, settings = _messages(conversation, model), _model_settings(model, access, bounds)
    try:
        response = await _stream(api, messages, settings, tools, bounds)
    except TimeoutError as error:
        return failure("timed_out", str(error), access.secrets)
    except Exception as error:
        return failure(_kind(error), _error_message(error), access.secrets, getattr(error, "retry_after", None))
    if response.finish_reason in (None, "error") or response.state != "complete":
        return failure("cut", "the answer ended prematurely", access.secrets)
    if response.finish_reason == "content_filter":
        why = str((response.provider_details or {}).get("refusal") or response.text or "")
        return failure("refused", why, access.secrets)
    return _to_answer(model, response, conversation)


def _model_settings(model: Model, access: Access, bounds: Bounds) -> ModelSettings:
    settings: dict[str, Any] = {"max_tokens": model.max_tokens, "max_retries": 0, "timeout": bounds.idle}
    if model.temperature is not None:
        settings["temperature"] = model.temperature
    if model.kind == "anthropic" and model.cache != "off":
        settings["cache"] = model.cache
    if model.effort:
        settings["thinking" if model.kind == "anthropic" else "openai_reasoning_effort"] = model.effort
    if access.headers:
        settings["extra_headers"] = dict(access.headers)
    if model.body:
        settings["extra_body"] = dict(model.body)
    return cast("ModelSettings", settings)


def prepare(model: Model) -> None:
    """Load everything that reads the model's answers. Takes a second or two the first time: call it on a thread. An
    answer is lost, and requested again, if the process is killed before it is recorded. So that time must be short."""
    load(model.kind)
    cost(model, RequestUsage(input_tokens=1, output_tokens=1))
    ModelMessagesTypeAdapter.dump_python([ModelResponse(parts=[])], mode="json")


def load(kind: str) -> Any:
    """Return the classes for a model of that kind."""
    if kind == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel, AnthropicProvider, AnthropicProvider
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    api = OpenAIChatModel if kind == "openai" else OpenAIResponsesModel
    return api, OpenAIProvider, OpenAICompatibleProvider


def _make_model(model: Model, key: str, client: httpx2.AsyncClient) -> ApiModel:
    api, own, compatible = load(model.kind)
    reached = {"base_url": model.address, "api_key": key or "none", "http_client": client}
    if model.foreign and model.kind != "anthropic":
        provider = compatible(str(urlsplit(model.address).hostname), **reached)
    else:
        provider = own(**reached)
    # Without this, a truncated stream of chat completions looks complete.
    profile = {"profile": {"openai_chat_streaming_requires_finish_reason": True}} if model.kind == "openai" else {}
    return api(model.name, provider=provider, **profile)


async def _stream(
    model: ApiModel, messages: list[ModelMessage], settings: ModelSettings, tools: Sequence[OfferedTool], bounds: Bounds
) -> ModelResponse:
    """Return the whole answer. Raises TimeoutError if it takes too long, or nothing is received for too long."""
    async with time_limits(bounds) as received:
        request = model_request_stream(
            model, messages, model_settings=settings, model_request_parameters=_parameters(tools), instrument=False
        )
        async with request as stream:
            async for _ in stream:
                received()
        return stream.get()


def _messages(conversation: Conversation, model: Model) -> list[ModelMessage]:
    found: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    kept = CachePoint(ttl=model.cache) if model.kind == "anthropic" and model.cache != "off" else None
    settled = conversation.settled
    for message in conversation.messages():
        if message.turn:
            found += [ModelRequest(parts), _response(message)]
            parts = []
        elif message.call:
            call = message.call
            # Other APIs would wrap it in JSON, and the text tells of the failure anyway.
            outcome = "failed" if call.failed and model.kind == "anthropic" else "success"
            parts.append(
                ToolReturnPart(safe_name(call.name), _result_content(message, model), call.call_id, outcome=outcome)
            )
            if kept and call is settled:
                parts.append(UserPromptPart([kept]))
        else:
            parts.append(SystemPromptPart(message.text) if message.kind == "system" else UserPromptPart(message.text))
    return [*found, ModelRequest(parts)]


def _result_content(message: Message, model: Model) -> str | list[str | BinaryContent]:
    if not message.images or not model.sees:
        return result_text(message, model)
    shown = (BinaryContent(base64.b64decode(one["data"]), media_type=one["type"]) for one in message.images)
    return [message.text, *shown]


def _response(message: Message) -> ModelResponse:
    turn = message.turn
    assert turn
    if turn.decoded is None:
        (turn.decoded,) = ModelMessagesTypeAdapter.validate_python([turn.response])
        for part in turn.decoded.tool_calls:
            part.tool_name = safe_name(part.tool_name)
    return cast("ModelResponse", turn.decoded)


def _parameters(tools: Iterable[OfferedTool]) -> ModelRequestParameters:
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=one.name, parameters_json_schema=dict(one.schema), description=one.description, strict=False
            )
            for one in tools
        ]
    )


def _to_answer(model: Model, response: ModelResponse, conversation: Conversation) -> dict[str, Any]:
    (plain,) = ModelMessagesTypeAdapter.dump_python([response], mode="json")
    calls = [
        {"id": call.tool_call_id, "name": call.tool_name, "arguments": _arguments(call.args)}
        for call in response.tool_calls
    ]
    return {
        "response": plain,
        "text": response.text or "",
        "calls": calls,
        "finish": response.finish_reason,
        "usage": _usage(model, response, len(json.dumps(plain)), conversation),
        "model": response.model_name or model.name,
    }


def _arguments(arguments: str | dict[str, Any] | None) -> dict[str, Any] | None:
    """Parse a call's arguments; None if they are not a JSON object."""
    if not isinstance(arguments, str):
        return arguments or {}
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _usage(model: Model, response: ModelResponse, chars: int, conversation: Conversation) -> dict[str, Json]:
    """Return the usage, estimated if the server did not count."""
    used = response.usage
    if used.unmeasured_requests or not used.input_tokens + used.output_tokens:
        sent, made = conversation.chars // CHARS_OF_A_TOKEN, chars // CHARS_OF_A_TOKEN
        used = RequestUsage(input_tokens=sent, output_tokens=made)
    return make_usage(model, used, response.model_name or "")


def _kind(error: Exception) -> str:
    if isinstance(_root_cause(error), NotUnderstood):
        return "not_understood"
    kind = next((kind for known, kind in KINDS if isinstance(error, known)), "internal")
    if isinstance(error, errors.ModelHTTPError) and kind == "cut":
        return "server_error" if error.status_code in PASSING else "rejected"
    if isinstance(error, errors.ModelConnectionError) and kind == "cannot_connect":
        return "cannot_connect" if error.phase in ("connect", "pool") else "cut"
    return kind


def _error_message(error: Exception) -> str:
    body = getattr(error, "body", None)
    inner = cast("dict[str, Any]", body).get("error", body) if isinstance(body, dict) else body
    message = cast("dict[str, Any]", inner).get("message") if isinstance(inner, dict) else None
    first = _root_cause(error)
    return str(message or first or type(first).__name__)


def _root_cause(error: BaseException) -> BaseException:
    while error.__cause__:
        error = error.__cause__
    return error
