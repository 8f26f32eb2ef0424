"""What the official conformance suite wants to find in a server: tools, resources and prompts with fixed answers.

Only the registry is a test's own; transport, dispatch and middleware under it are the product's.
"""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp_types import (
    INVALID_PARAMS,
    AudioContent,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    EmbeddedResource,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    Tool,
)

from ai_session.servers.mcp import tasks
from tests.clients.conformance_asking import ASKING, context_asked
from tests.clients.conformance_jobs import Jobs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.server.context import ServerRequestContext

    Context = ServerRequestContext[Any, Any]
    Answer = Awaitable[CallToolResult | InputRequiredResult | dict[str, Any]]
    Fixture = Callable[[Context, CallToolRequestParams], Answer]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
IMAGE = ImageContent(type="image", data=PIXEL, mime_type="image/png")
STATE_KEY = b"the fixtures' key for what a client carries back"


def said(*blocks: Any, is_error: bool = False) -> CallToolResult:
    """A result of texts and other blocks."""
    content = [TextContent(type="text", text=block) if isinstance(block, str) else block for block in blocks]
    return CallToolResult(content=content, is_error=is_error)


def embedded(uri: str, text: str, kind: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=kind, text=text))


def always(*blocks: Any, is_error: bool = False) -> Fixture:
    async def answer(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        return said(*blocks, is_error=is_error)

    return answer


async def logging_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", text, related_request_id=ctx.request_id)  # pyright: ignore[reportDeprecated]
    return said("Tool with logging executed successfully")


async def progress_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100, f"Completed step {done} of 100")
    return said("done")


async def header_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
    return said(f"region={(params.arguments or {}).get('region', 'none')}")


ADDRESS = {
    "$anchor": "addressDef",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}
SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": ADDRESS},
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
SCHEMAS = {
    "json_schema_2020_12_tool": SCHEMA_2020_12,
    "test_x_mcp_header": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
}

PLAIN: dict[str, Fixture] = {
    "test_simple_text": always("This is a simple text response for testing."),
    "test_image_content": always(IMAGE),
    "test_audio_content": always(AudioContent(type="audio", data=SILENCE, mime_type="audio/wav")),
    "test_embedded_resource": always(embedded("test://embedded-resource", "This is an embedded resource content.")),
    "test_multiple_content_types": always(
        "Multiple content types test:",
        IMAGE,
        embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
    ),
    "test_error_handling": always("This tool intentionally returns an error for testing", is_error=True),
    "test_tool_with_logging": logging_tool,
    "test_logging_tool": logging_tool,
    "test_tool_with_progress": progress_tool,
    "test_x_mcp_header": header_tool,
    "json_schema_2020_12_tool": always("json_schema_2020_12_tool"),
}

RESOURCES: dict[str, TextResourceContents | BlobResourceContents] = {
    "test://static-text": TextResourceContents(
        uri="test://static-text", mime_type="text/plain", text="This is the content of the static text resource."
    ),
    "test://static-binary": BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=PIXEL),
    "test://watched-resource": TextResourceContents(
        uri="test://watched-resource", mime_type="text/plain", text="Watched resource content"
    ),
}
TEMPLATE = "test://template/{id}/data"
PROMPTS: dict[str, tuple[str, ...]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


async def list_resources(ctx: Context, params: Any) -> ListResourcesResult:
    return ListResourcesResult(
        resources=[Resource(uri=u, name=u.split("/")[-1], mime_type=r.mime_type) for u, r in RESOURCES.items()]
    )


async def list_templates(ctx: Context, params: Any) -> ListResourceTemplatesResult:
    template = ResourceTemplate(uri_template=TEMPLATE, name="template", mime_type="application/json")
    return ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    uri = str(params.uri)
    before, after = TEMPLATE.split("{id}")
    if uri.startswith(before) and uri.endswith(after):
        number = uri[len(before) : -len(after)]
        text = json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})
        found: Any = TextResourceContents(uri=uri, mime_type="application/json", text=text)
    else:
        found = RESOURCES.get(uri)
    if found is None:
        raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri})
    return ReadResourceResult(contents=[found])


async def accepted(ctx: Context, params: Any) -> EmptyResult:
    return EmptyResult()


async def list_prompts(ctx: Context, params: Any) -> ListPromptsResult:
    prompts = [
        Prompt(
            name=name,
            description=name.replace("_", " "),
            arguments=[PromptArgument(name=argument, required=True) for argument in arguments],
        )
        for name, arguments in PROMPTS.items()
    ]
    return ListPromptsResult(prompts=prompts)


async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult | InputRequiredResult:
    given = params.arguments or {}
    if params.name == "test_input_required_result_prompt":
        context = context_asked(params.input_responses)
        if isinstance(context, InputRequiredResult):
            return context
        blocks: list[Any] = [f"Use the following context: {context}"]
    elif params.name == "test_simple_prompt":
        blocks = ["This is a simple prompt for testing."]
    elif params.name == "test_prompt_with_arguments":
        blocks = [f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"]
    elif params.name == "test_prompt_with_embedded_resource":
        resource = embedded(given.get("resourceUri", "test://"), "Embedded resource content for testing.")
        blocks = [resource, "Please process the embedded resource above."]
    elif params.name == "test_prompt_with_image":
        blocks = [IMAGE, "Please analyze the image above."]
    else:
        raise MCPError(INVALID_PARAMS, f"Unknown prompt: {params.name}")
    return GetPromptResult(
        messages=[PromptMessage(role="user", content=content) for content in said(*blocks).content],
    )


async def complete(ctx: Context, params: CompleteRequestParams) -> CompleteResult:
    return CompleteResult(completion=Completion(values=[], total=0, has_more=False))


class Changing:
    """Tools that change what there is, and tell who listens."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.tools: dict[str, Fixture] = {
            "test_trigger_tool_change": self.tool_change,
            "test_trigger_prompt_change": self.prompt_change,
        }

    async def tool_change(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        await self.bus.publish(ToolsListChanged())
        return said("tool list changed")

    async def prompt_change(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        await self.bus.publish(PromptsListChanged())
        await self.bus.publish(ResourceUpdated(uri="test://watched-resource"))
        return said("prompt list changed")


def make_server() -> Server[Any]:
    """A registry of everything the suite asks for, apart from any transport."""
    changing, jobs = Changing(), Jobs()
    tools: dict[str, Fixture] = PLAIN | ASKING | changing.tools | jobs.tools
    listed = [
        Tool(name=name, description=name.replace("_", " "), input_schema=SCHEMAS.get(name, {"type": "object"}))
        for name in tools
    ]

    async def list_tools(ctx: Context, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def call_tool(ctx: Context, params: CallToolRequestParams) -> Any:
        fixture = tools.get(params.name)
        if fixture is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        return await fixture(ctx, params)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # logging/setLevel is deprecated, and the suite of 2025-11-25 wants it
        server: Server[Any] = Server(
            "conformance-fixtures",
            version="1",
            on_list_tools=list_tools,
            on_call_tool=call_tool,
            on_list_resources=list_resources,
            on_list_resource_templates=list_templates,
            on_read_resource=read_resource,
            on_subscribe_resource=accepted,
            on_unsubscribe_resource=accepted,
            on_subscriptions_listen=ListenHandler(changing.bus),
            on_list_prompts=list_prompts,
            on_get_prompt=get_prompt,
            on_completion=complete,
            on_set_logging_level=accepted,
        )
    server.middleware.append(RequestStateBoundary(RequestStateSecurity(keys=[STATE_KEY]), default_audience="fixtures"))
    tasks.register(server, jobs)
    return server
