"""The caller of a request, as every handler finds it, and the tool calls made for it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from agentwire.json_lines import scrub
from ai_session.models import Principal, ToolCall, ToolResult
from ai_session.servers.base import call_gate
from ai_session.servers.mcp.trace import RequestContext, trace_of
from ai_session.sessions.changes import LISTS

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from ai_session.gate.api import Asker, GateApi, Watched
    from ai_session.models import ChangeKind

AGENT = "ai-session/agent"
RUN = "ai-session/run"
CLIENT_CALL_ID = "ai-session/client_call_id"
CLAIM_CHARS = 200


class Stream(Protocol):
    """Something a client listens to until it is closed."""

    def close(self) -> None:
        """End it in an orderly way."""
        ...


class Callers(Protocol):
    """What the SDK passes to its handlers as ``lifespan_context``."""

    def of(self, ctx: ServerRequestContext[Any, Any]) -> Caller:
        """Return the caller of this request."""
        ...


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request: its gate, once that answers, and its principal. ``streams`` are those to which this
    client, or all clients of its process, listen; ``lists`` has a watch of lists until a subscriber takes it over."""

    gate: Callable[[], Awaitable[GateApi]]
    principal: Principal
    streams: set[Stream] = field(default_factory=set[Stream], compare=False)
    lists: list[Watched] = field(default_factory=list["Watched"], compare=False)

    def named(self, client: str) -> Caller:
        """Return the same caller with the client's own name."""
        return replace(self, principal=replace(self.principal, client=client))

    def of(self, ctx: ServerRequestContext[Any, Any]) -> Caller:
        """Return itself: on a pipe, all requests are from one client."""
        return self

    async def call(self, call: ToolCall, asker: Asker | None = None) -> ToolResult:
        """Run one call. Raises only UnknownTool."""
        return await call_gate(self.gate, call, asker)

    async def watch_changes(self, agent: str, run: str, kinds: Collection[ChangeKind]) -> Watched:
        """Return the changes from now on in the sessions this caller sees. Raises the gate's errors."""
        if self.lists and kinds == LISTS:
            return self.lists.pop()
        return await (await self.gate()).watch_changes(self.principal, agent, run, kinds)


def caller_of(ctx: ServerRequestContext[Any, Any]) -> Caller:
    """Return the caller of this request: the pipe's client, or the subject of the HTTP request's token."""
    callers: Callers = ctx.lifespan_context
    return callers.of(ctx)


def call_of(
    ctx: RequestContext,
    principal: Principal,
    name: str,
    arguments: Mapping[str, Any],
    *,
    state: str = "",
    answers: Mapping[str, Any] | None = None,
) -> ToolCall:
    """Return a new call of the tool ``name``, with the claims in the request's ``_meta``."""
    return ToolCall(
        principal,
        name,
        arguments,
        "call_" + secrets.token_urlsafe(16),
        agent=claim(ctx, AGENT),
        run=claim(ctx, RUN),
        client_call_id=claim(ctx, CLIENT_CALL_ID),
        state=state,
        answers=answers or {},
        trace=trace_of(ctx),
    )


def claim(ctx: RequestContext, name: str) -> str:
    """Return a client's claim in ``_meta``, if it is a short text, or nothing."""
    meta: Any = (ctx.params or {}).get("_meta")
    value: Any = meta.get(name) if isinstance(meta, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return scrub(value) if isinstance(value, str) and len(value) <= CLAIM_CHARS else ""
