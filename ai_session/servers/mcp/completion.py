"""Values for a variable of a resource's URI or an argument of a prompt, limited to what the caller sees."""

from __future__ import annotations

from typing import Any

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CompleteRequestParams, CompleteResult, Completion, PromptReference

from agentwire.json_lines import scrub
from ai_session.servers.mcp.gate_calls import Context, Missing, call_tool
from ai_session.servers.mcp.prompts import PROMPTS
from ai_session.servers.mcp.uris import TEMPLATES, is_session

MAX_VALUES = 100
SESSION, COMMAND = ("id", "session"), "command_id"


async def complete(ctx: Context, params: CompleteRequestParams) -> CompleteResult:
    """Return values with the typed prefix; session names before their ids, commands newest first.

    Raises MCPError if the template, the prompt or the argument is unknown.
    """
    argument = params.argument.name
    if argument not in _arguments(params):
        raise MCPError(INVALID_PARAMS, f"no argument {argument[:40]!r} to complete there")
    if argument in SESSION:
        sessions: list[dict[str, Any]] = list((await call_tool(ctx, "describe_sessions")).structured["sessions"])
        sessions.reverse()
        found = [row["name"] for row in sessions] + [row["session_id"] for row in sessions]
    elif argument == COMMAND:
        given = (params.context.arguments if params.context else None) or {}
        found = await _commands(ctx, next((given[name] for name in SESSION if given.get(name)), ""))
        found += [] if isinstance(params.ref, PromptReference) or not found else ["all"]
    else:
        found = []
    values = [value for value in dict.fromkeys(scrub(found)) if value.startswith(params.argument.value)]
    shown = values[:MAX_VALUES]
    return CompleteResult(completion=Completion(values=shown, total=len(values), has_more=len(values) > len(shown)))


def _arguments(params: CompleteRequestParams) -> list[str]:
    if isinstance(params.ref, PromptReference):
        prompt = PROMPTS.get(params.ref.name)
        if prompt is None:
            raise MCPError(INVALID_PARAMS, f"no prompt {params.ref.name[:40]!r}")
        return [argument.name for argument in prompt.described.arguments or ()]
    if params.ref.uri not in TEMPLATES.values():
        raise MCPError(INVALID_PARAMS, "no resource template of that URI", {"uri": scrub(params.ref.uri)})
    return [name for name in ("id", COMMAND) if f"{{{name}}}" in params.ref.uri]


async def _commands(ctx: Context, session: str) -> list[str]:
    """Return the commands of a session; none for an unknown one, because completion should not report errors."""
    if not is_session(session):
        return []
    try:
        result = await call_tool(ctx, "list_commands", session_id=session)
    except Missing:
        return []
    return [row["command_id"] for row in result.structured["commands"]]


def register(server: Server[Any]) -> None:
    """Add the handler."""
    server.add_request_handler("completion/complete", CompleteRequestParams, complete)
