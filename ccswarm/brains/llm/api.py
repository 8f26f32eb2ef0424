"""Asks models over the network, through pydantic-ai; the only module that imports it. Heavy: loaded when needed."""

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
from ccswarm.brains.llm.tools import Offered, allowed
from ccswarm.brains.llm.wire import (
    CHARS_OF_A_TOKEN,
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
"""What went wrong; the first that fits."""

PASSING = (408, 409, 425)


async def ask(
    model: Model,
    access: Access,
    conversation: Conversation,
    tools: Sequence[Offered],
    bounds: Bounds,
    connections: Connections,
) -> dict[str, Any]:
    """The model's next answer as JSON: ``response`` (pydantic-ai's), ``text``, ``calls`` (id, name, arguments or
    None), ``finish``, ``usage``, ``model``; or ``error`` with kind, message, and retry_after where the server said."""
    api = connections.made(str(model), lambda: _made(model, access.key, connections.client(bounds)))
    messages, wanted = _messages(conversation, model), _wanted(model, access, bounds)
    try:
        response = await _streamed(api, messages, wanted, tools, bounds)
    except TimeoutError as error:
        return failed("timed_out", str(error), access.secrets)
    except Exception as error:
        return failed(_kind(error), _words(error), access.secrets, getattr(error, "retry_after", None))
    if response.finish_reason in (None, "error") or response.state != "complete":
        return failed("cut", "the answer ended prematurely", access.secrets)
    if response.finish_reason == "content_filter":
        why = str((response.provider_details or {}).get("refusal") or response.text or "")
        return failed("refused", why, access.secrets)
    return _answered(model, response, conversation)


def _wanted(model: Model, access: Access, bounds: Bounds) -> ModelSettings:
    """How it is to answer."""
    wanted: dict[str, Any] = {"max_tokens": model.max_tokens, "max_retries": 0, "timeout": bounds.idle}
    if model.temperature is not None:
        wanted["temperature"] = model.temperature
    if model.kind == "anthropic" and model.cache != "off":
        wanted["cache"] = model.cache
    if model.effort:
        wanted["thinking" if model.kind == "anthropic" else "openai_reasoning_effort"] = model.effort
    if access.headers:
        wanted["extra_headers"] = dict(access.headers)
    if model.body:
        wanted["extra_body"] = dict(model.body)
    return cast("ModelSettings", wanted)


def prepare(model: Model) -> None:
    """Have all that reads its answers, so that little time passes between an answer and its record: one that is not on
    record when its process is killed is asked for again. The first time takes a second or two: on a thread."""
    load(model.kind)
    cost(model, RequestUsage(input_tokens=1, output_tokens=1))
    ModelMessagesTypeAdapter.dump_python([ModelResponse(parts=[])], mode="json")


def load(kind: str) -> Any:
    """The classes that a model of that kind is made of."""
    if kind == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel, AnthropicProvider, AnthropicProvider
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    api = OpenAIChatModel if kind == "openai" else OpenAIResponsesModel
    return api, OpenAIProvider, OpenAICompatibleProvider


def _made(model: Model, key: str, client: httpx2.AsyncClient) -> ApiModel:
    api, own, compatible = load(model.kind)
    reached = {"base_url": model.address, "api_key": key or "none", "http_client": client}
    if model.foreign and model.kind != "anthropic":
        provider = compatible(str(urlsplit(model.address).hostname), **reached)
    else:
        provider = own(**reached)
    # A stream of chat completions that was cut looks complete otherwise.
    profile = {"profile": {"openai_chat_streaming_requires_finish_reason": True}} if model.kind == "openai" else {}
    return api(model.name, provider=provider, **profile)


async def _streamed(
    model: ApiModel, messages: list[ModelMessage], wanted: ModelSettings, tools: Sequence[Offered], bounds: Bounds
) -> ModelResponse:
    """The whole answer. Raises TimeoutError for one that takes too long, or falls silent."""
    async with within(bounds) as heard:
        asked = model_request_stream(
            model, messages, model_settings=wanted, model_request_parameters=_parameters(tools), instrument=False
        )
        async with asked as stream:
            async for _ in stream:
                heard()
        return stream.get()


def _messages(conversation: Conversation, model: Model) -> list[ModelMessage]:
    """As pydantic-ai has them: requests and responses by turns."""
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
            # Elsewhere it would be wrapped in JSON, and its text says so anyway.
            outcome = "failed" if call.failed and model.kind == "anthropic" else "success"
            parts.append(ToolReturnPart(allowed(call.name), _returned(message, model), call.call_id, outcome=outcome))
            if kept and call is settled:
                parts.append(UserPromptPart([kept]))
        else:
            parts.append(SystemPromptPart(message.text) if message.kind == "system" else UserPromptPart(message.text))
    return [*found, ModelRequest(parts)]


def _returned(message: Message, model: Model) -> str | list[str | BinaryContent]:
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
            part.tool_name = allowed(part.tool_name)
    return cast("ModelResponse", turn.decoded)


def _parameters(tools: Iterable[Offered]) -> ModelRequestParameters:
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=one.name, parameters_json_schema=dict(one.schema), description=one.description, strict=False
            )
            for one in tools
        ]
    )


def _answered(model: Model, response: ModelResponse, conversation: Conversation) -> dict[str, Any]:
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


def _arguments(given: str | dict[str, Any] | None) -> dict[str, Any] | None:
    """None for what is no JSON object."""
    if not isinstance(given, str):
        return given or {}
    try:
        value = json.loads(given or "{}")
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _usage(model: Model, response: ModelResponse, chars: int, conversation: Conversation) -> dict[str, Json]:
    """Counted about, where the server did not count."""
    used = response.usage
    if used.unmeasured_requests or not used.input_tokens + used.output_tokens:
        given, made = conversation.chars // CHARS_OF_A_TOKEN, chars // CHARS_OF_A_TOKEN
        used = RequestUsage(input_tokens=given, output_tokens=made)
    return usage_of(model, used, response.model_name or "")


def _kind(error: Exception) -> str:
    if isinstance(_first(error), NotUnderstood):
        return "not_understood"
    kind = next((kind for known, kind in KINDS if isinstance(error, known)), "internal")
    if isinstance(error, errors.ModelHTTPError) and kind == "cut":
        return "server_error" if error.status_code in PASSING else "rejected"
    if isinstance(error, errors.ModelConnectionError) and kind == "cannot_connect":
        return "cannot_connect" if error.phase in ("connect", "pool") else "cut"
    return kind


def _words(error: Exception) -> str:
    """What a provider said, without the rest of its error; else what broke first."""
    body = getattr(error, "body", None)
    inner = cast("dict[str, Any]", body).get("error", body) if isinstance(body, dict) else body
    said = cast("dict[str, Any]", inner).get("message") if isinstance(inner, dict) else None
    first = _first(error)
    return str(said or first or type(first).__name__)


def _first(error: BaseException) -> BaseException:
    """What broke first."""
    while error.__cause__:
        error = error.__cause__
    return error
