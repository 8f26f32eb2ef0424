"""The handlers that the SDK calls: the swarm's tools and resources in the SDK's own types."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
    UnsubscribeRequestParams,
)

from agentwire import plugins
from agentwire.json_lines import scrub
from ccswarm import __version__
from ccswarm.errors import CallerError, SwarmError
from ccswarm.servers.mcp import prompts, resources
from ccswarm.servers.mcp.toolsets.base import Failure, MissingFields, Toolset
from ccswarm.servers.mcp.toolsets.base import Tool as ListedTool
from ccswarm.servers.mcp.toolsets.swarm.tools import INSTRUCTIONS
from ccswarm.servers.mcp.workbench import Workbench

ERROR = "ccswarm/error"
KIND = "ccswarm.servers.mcp.toolsets"
CACHE_MS = 60_000
TOOLSETS: tuple[Toolset, ...] = tuple(
    plugins.load(KIND, name) for name in sorted(plugins.names(KIND), key=lambda name: (name != "swarm", name))
)
"""The swarm's own tools, and those of others."""

BUS = InMemorySubscriptionBus()
LISTEN = ListenHandler(BUS)


@dataclass(frozen=True, slots=True)
class Client:
    """The client of the requests; handlers get it as the SDK's ``lifespan_context``. ``subscribed`` are addresses of
    `resources/subscribe`; ``list_changed`` is called with the list's address when the list of runs has changed."""

    workbench: Workbench
    watchers: resources.Watchers
    subscribed: set[str]
    list_changed: Callable[[str], Awaitable[None]]


Context = ServerRequestContext[Client]


async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    """Return all tools on one page: four clients never request a second one. Raises MCPError for any cursor."""
    _only_page(params)
    tools = [tool for toolset in _toolsets(ctx.lifespan_context) for tool in toolset.tools.values()]
    return ListToolsResult(tools=[describe(tool) for tool in tools])


def _toolsets(client: Client) -> tuple[Toolset, ...]:
    """Return the sets of tools that the client is offered."""
    return TOOLSETS[:1] if client.workbench.runs_only else TOOLSETS


def describe(tool: ListedTool) -> Tool:
    """Return a tool as the SDK lists it. The title occurs twice, because clients read one or the other."""
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=tool.open_world,
        ),
    )


async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
    """Call a tool. A failed call has no structured content, which clients would check against the schema."""
    client, name = ctx.lifespan_context, params.name
    toolsets = _toolsets(client)
    toolset = next((one for one in toolsets if name in one.tools), None)
    if toolset is None:
        names = ", ".join(tool for one in toolsets for tool in one.tools)
        raise MCPError(INVALID_PARAMS, f"there is no tool {name[:80]!r}; use one of: {names}")
    try:
        answer = await toolset.call(client.workbench, name, params.arguments or {})
    except MissingFields as missing:
        raise MCPError(INVALID_PARAMS, "Invalid params", {"details": missing.details}) from None
    content: list[ContentBlock] = [TextContent(type="text", text=scrub(answer.text))]
    if isinstance(answer, Failure):
        meta = answer.error and {ERROR: scrub(answer.error)}
        return CallToolResult(content=content, is_error=True, _meta=meta)
    if name in toolset.changes_runs:
        await client.list_changed(resources.LIST)
    return CallToolResult(content=content, structured_content=scrub(answer.facts))


async def list_prompts(ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
    """Return all prompts on one page. Raises MCPError for any cursor."""
    _only_page(params)
    return ListPromptsResult(
        prompts=[
            Prompt(
                name=one.name,
                title=one.title,
                description=one.about,
                arguments=[PromptArgument(name=one.argument, description=one.argument_about, required=True)],
            )
            for one in (() if ctx.lifespan_context.workbench.runs_only else prompts.PROMPTS)
        ]
    )


async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
    """Return one prompt with its argument."""
    try:
        prompt, text = prompts.fill(params.name, params.arguments)
    except SwarmError as problem:
        raise MCPError(INVALID_PARAMS, f"{problem.message}; {problem.suggestion}") from None
    message = PromptMessage(role="user", content=TextContent(type="text", text=scrub(text)))
    return GetPromptResult(description=prompt.about, messages=[message])


def _only_page(params: PaginatedRequestParams | None) -> None:
    if params and params.cursor is not None:
        raise MCPError(INVALID_PARAMS, "Invalid cursor: there is one page")


async def list_resources(ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
    """Return the newest runs first."""
    try:
        found, following = await resources.page(ctx.lifespan_context.workbench, (params and params.cursor) or "")
    except SwarmError as problem:
        raise MCPError(
            INVALID_PARAMS if isinstance(problem, CallerError) else INTERNAL_ERROR,
            f"{problem.message}; {problem.suggestion}",
        ) from None
    shown = [Resource(uri=one.uri, name=one.name, description=one.description, mime_type=one.mime) for one in found]
    return ListResourcesResult(resources=shown, next_cursor=following or None)


async def list_templates(ctx: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    """Return a template for each part of a run, on one page. Raises MCPError for any cursor."""
    _only_page(params)
    return ListResourceTemplatesResult(
        resource_templates=[
            ResourceTemplate(uri_template=f"run://{{run}}/{part}", name=part, description=about, mime_type=mime)
            for part, (about, mime) in resources.PARTS.items()
        ]
    )


async def read_resource(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    """Return one part of a run."""
    uri = str(params.uri)
    try:
        text, mime = await resources.read(ctx.lifespan_context.workbench, uri)
    except SwarmError as problem:
        code = INVALID_PARAMS if isinstance(problem, CallerError) else INTERNAL_ERROR
        raise MCPError(code, f"{problem.message}; {problem.suggestion}", {"uri": uri}) from None
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, text=scrub(text), mime_type=mime)])


async def subscribe(ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
    """Subscribe until ``unsubscribe``; repeating it changes nothing."""
    client, uri = ctx.lifespan_context, str(params.uri)
    if uri not in client.subscribed:
        client.subscribed.add(uri)
        client.watchers.add(uri)
    return EmptyResult()


async def unsubscribe(ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
    """End a subscription; an unknown URI is ignored."""
    client, uri = ctx.lifespan_context, str(params.uri)
    if uri in client.subscribed:
        client.subscribed.discard(uri)
        client.watchers.remove(uri)
    return EmptyResult()


async def listen(ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
    """Stream changes until the client cancels the request."""
    with ctx.lifespan_context.watchers.watch(map(str, params.notifications.resource_subscriptions or ())):
        return await LISTEN(ctx, params)


def _server() -> Server[Any]:
    server: Server[Any] = Server(
        "ccswarm",
        version=__version__,
        title="ccswarm",
        instructions=INSTRUCTIONS,
        cache_hints={"tools/list": CacheHint(ttl_ms=CACHE_MS), "server/discover": CacheHint(ttl_ms=CACHE_MS)},
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=listen,
    )
    server.middleware.clear()  # tracing without an exporter takes 5 % of every call
    return server


SERVER = _server()
