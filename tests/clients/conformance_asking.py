"""Fixture tools that ask the client something, in the handshake era while they wait, since 2026-07-28 by a result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.server.context import ServerRequestContext

    Context = ServerRequestContext[Any, Any]
    Result = CallToolResult | InputRequiredResult


def said(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)])


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def form(message: str, **properties: Any) -> ElicitRequest:
    params = ElicitRequestFormParams(message=message, requested_schema=schema(**properties))
    return ElicitRequest(params=params)


def name_form(message: str = "What is your name?") -> ElicitRequest:
    return form(message, name={"type": "string"})


def question(text: str) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=100))


def field(answer: Any, name: str) -> str | None:
    """One value of an accepted form."""
    value = (answer.content or {}).get(name) if isinstance(answer, ElicitResult) else None
    return value if isinstance(value, str) else None


async def sampling(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
    asked = question(str((params.arguments or {}).get("prompt"))).params
    result = await ctx.session.create_message(  # pyright: ignore[reportDeprecated]
        messages=asked.messages, max_tokens=asked.max_tokens, related_request_id=ctx.request_id
    )
    return said(f"LLM response: {result.content.text if isinstance(result.content, TextContent) else ''}")


USER = schema(response={"type": "string", "description": "User's response"})
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
LEVELS = {"low": "Low Priority", "medium": "Medium Priority", "high": "High Priority"}
TOPICS = {"feature": "New Feature", "bug": "Bug Fix", "docs": "Documentation"}
CHOICES = schema(
    untitledSingle={"type": "string", "enum": ["option1", "option2", "option3"]},
    titledSingle={"type": "string", "oneOf": [{"const": c, "title": t} for c, t in LEVELS.items()]},
    untitledMulti={"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    titledMulti={"type": "array", "items": {"anyOf": [{"const": c, "title": t} for c, t in TOPICS.items()]}},
    legacyEnum={"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
)


def asking(message: str, wanted: dict[str, Any], reported: str) -> Callable[[Context, CallToolRequestParams], Any]:
    async def ask(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        shown = (params.arguments or {}).get("message", message)
        result = await ctx.session.elicit_form(str(shown), wanted, ctx.request_id)
        return said(f"{reported}: action={result.action}, content={json.dumps(result.content or {})}")

    return ask


async def missing_capability(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        needed = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "This tool needs sampling", needed)
    return said("Client declared sampling capability")


def rounds(step: Callable[[Context, Mapping[str, Any], str | None], Result]) -> Callable[..., Awaitable[Result]]:
    """A tool out of what to do with the answers and the state that came back."""

    async def call(ctx: Context, params: CallToolRequestParams) -> Result:
        return step(ctx, params.input_responses or {}, params.request_state)

    return call


def elicited(ctx: Context, answers: Mapping[str, Any], state: str | None) -> Result:
    if name := field(answers.get("user_name"), "name"):
        return said(f"Hello, {name}!")
    return InputRequiredResult(input_requests={"user_name": name_form()})


def sampled(ctx: Context, answers: Mapping[str, Any], state: str | None) -> Result:
    answer = answers.get("capital_question")
    if isinstance(answer, CreateMessageResult) and isinstance(answer.content, TextContent):
        return said(f"Model said: {answer.content.text}")
    return InputRequiredResult(input_requests={"capital_question": question("What is the capital of France?")})


def rooted(ctx: Context, answers: Mapping[str, Any], state: str | None) -> Result:
    if "client_roots" in answers:
        return said(f"Client exposed {len(answers['client_roots'].roots)} root(s).")
    return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})


def confirmed(ctx: Context, answers: Mapping[str, Any], state: str | None) -> Result:
    if "confirm" in answers and state == "the state":
        return said("state-ok: confirmation received")
    return InputRequiredResult(
        input_requests={"confirm": form("Please confirm", ok={"type": "boolean"})}, request_state="the state"
    )


def several(ctx: Context, answers: Mapping[str, Any], state: str | None) -> Result:
    wanted: dict[str, Any] = {
        "user_name": name_form(),
        "greeting": question("Generate a greeting"),
        "client_roots": ListRootsRequest(),
    }
    if wanted.keys() <= answers.keys():
        return said("All inputs received.")
    return InputRequiredResult(input_requests=wanted, request_state="several")


def multi_round(ctx: Context, answers: Mapping[str, Any], state: str | None) -> Result:
    name = field(answers.get("step1"), "name")
    if state == "1" and name:
        asked = form("Step 2: What is your favorite color?", color={"type": "string"})
        return InputRequiredResult(input_requests={"step2": asked}, request_state=f"2 {name}")
    color = field(answers.get("step2"), "color")
    if state and state.startswith("2 ") and color:
        return said(f"{state[2:]} likes {color}.")
    return InputRequiredResult(input_requests={"step1": name_form("Step 1: What is your name?")}, request_state="1")


def tampered(ctx: Context, answers: Mapping[str, Any], state: str | None) -> Result:
    if state:
        return said(f"state-ok: {state}")
    return InputRequiredResult(
        input_requests={"confirm": form("Please confirm", ok={"type": "boolean"})}, request_state="untouched"
    )


def capable(ctx: Context, answers: Mapping[str, Any], state: str | None) -> Result:
    capabilities, asked = ctx.session.client_capabilities, dict[str, Any]()
    if capabilities and capabilities.sampling is not None:
        asked["sample"] = question("Say hello")
    if capabilities and capabilities.elicitation is not None:
        asked["ask"] = name_form()
    return InputRequiredResult(input_requests=asked, request_state="capable")


def context_asked(answers: Mapping[str, Any] | None) -> str | InputRequiredResult:
    """What a prompt asked for, or the question."""
    context = field((answers or {}).get("user_context"), "context")
    asked = form("What context should the prompt use?", context={"type": "string"})
    return context or InputRequiredResult(input_requests={"user_context": asked})


ASKING: dict[str, Any] = {
    "test_sampling": sampling,
    "test_elicitation": asking("", USER, "User response"),
    "test_elicitation_sep1034_defaults": asking("Please provide user information", DEFAULTS, "Elicitation completed"),
    "test_elicitation_sep1330_enums": asking("Please select values", CHOICES, "Elicitation completed"),
    "test_streaming_elicitation": rounds(elicited),
    "test_missing_capability": missing_capability,
    "test_input_required_result_elicitation": rounds(elicited),
    "test_input_required_result_sampling": rounds(sampled),
    "test_input_required_result_list_roots": rounds(rooted),
    "test_input_required_result_request_state": rounds(confirmed),
    "test_input_required_result_multiple_inputs": rounds(several),
    "test_input_required_result_multi_round": rounds(multi_round),
    "test_input_required_result_tampered_state": rounds(tampered),
    "test_input_required_result_capabilities": rounds(capable),
}
