"""Who asks, as every handler of a request finds it, and the call it makes of what was asked."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from ai_session.models import Principal, ToolCall, ToolResult
from ai_session.servers.base import call_gate
from ai_session.servers.mcp.trace import Asking, trace_of
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
    """What a client listens to until it is closed."""

    def close(self) -> None:
        """End it in an orderly way."""
        ...


class Callers(Protocol):
    """What the SDK hands its handlers as ``lifespan_context``."""

    def of(self, ctx: ServerRequestContext[Any, Any]) -> Caller:
        """Who makes this request."""
        ...


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is: the gate it goes to once that answers, and who asks. ``streams`` are those that this client,
    or all that its process serves, listen to; ``lists`` what hears that lists change, until somebody takes it over."""

    gate: Callable[[], Awaitable[GateApi]]
    principal: Principal
    streams: set[Stream] = field(default_factory=set[Stream], compare=False)
    lists: list[Watched] = field(default_factory=list["Watched"], compare=False)

    def named(self, client: str) -> Caller:
        """The same, of the name that a client gave itself."""
        return replace(self, principal=replace(self.principal, client=client))

    def of(self, ctx: ServerRequestContext[Any, Any]) -> Caller:
        """Itself: on a pipe everything is asked by one client."""
        return self

    async def call(self, call: ToolCall, asker: Asker | None = None) -> ToolResult:
        """Run one call. Raises UnknownTool only."""
        return await call_gate(self.gate, call, asker)

    async def watch_changes(self, agent: str, run: str, kinds: Collection[ChangeKind]) -> Watched:
        """What changes from now on in the sessions this caller sees. Raises what the gate does, or its start."""
        if self.lists and kinds == LISTS:
            return self.lists.pop()
        return await (await self.gate()).watch_changes(self.principal, agent, run, kinds)


def caller_of(ctx: ServerRequestContext[Any, Any]) -> Caller:
    """Who makes this request: the client of the pipe, or whom the token of the HTTP request speaks for."""
    callers: Callers = ctx.lifespan_context
    return callers.of(ctx)


def call_of(
    ctx: Asking,
    principal: Principal,
    name: str,
    arguments: Mapping[str, Any],
    *,
    state: str = "",
    answers: Mapping[str, Any] | None = None,
) -> ToolCall:
    """A new call of the tool ``name``, with what the request claims beside it."""
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


def claim(ctx: Asking, name: str) -> str:
    """What a client says of a call in its ``_meta``, where it is a short text."""
    meta: Any = (ctx.params or {}).get("_meta")
    value: Any = meta.get(name) if isinstance(meta, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return scrub(value) if isinstance(value, str) and len(value) <= CLAIM_CHARS else ""


def scrub(value: Any) -> Any:
    """The same value without lone surrogates, which the SDK refuses and clients hang on."""
    if isinstance(value, str):
        if value.isascii():
            return value
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value
    if isinstance(value, dict):
        pairs = cast(dict[Any, Any], value)
        return {
            # Most are ASCII, and each call of this function would take as long as all the rest.
            name if name.__class__ is str and name.isascii() else scrub(name): (
                item if item.__class__ is int or (item.__class__ is str and item.isascii()) else scrub(item)
            )
            for name, item in pairs.items()
        }
    if isinstance(value, (list, tuple)):
        return [scrub(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value
