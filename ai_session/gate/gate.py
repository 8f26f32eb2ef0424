"""The one door: every call of every way in passes ``Gate.call`` exactly once, and its steps are those of ``ORDER``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from ai_session.errors import AiSessionError, UnknownTool
from ai_session.gate import secrets as gate_secrets
from ai_session.gate.api import Asker
from ai_session.gate.parts import WATCH, GateParts
from ai_session.gate.person import PersonActions
from ai_session.gate.policy.policy import Action
from ai_session.gate.results import refusal
from ai_session.gate.steps import CallSteps
from ai_session.gate.trace import Trace, more_of, rate_key
from ai_session.models import ChangeKind, Effect, Principal, ToolCall, ToolResult
from ai_session.sessions.changes import KINDS, LISTS, Changes
from ai_session.sessions.ownership import require_scope, visibility_of
from ai_session.tools.base import Tool

ORDER: tuple[Callable[[CallSteps], Awaitable[ToolResult | None]], ...] = (
    CallSteps.look_up_tool,
    CallSteps.require_room_in_audit,
    CallSteps.require_scope,
    CallSteps.count_rate,
    CallSteps.validate_arguments,
    CallSteps.find_subject,
    CallSteps.ask_policy,
    CallSteps.ask_hooks,
    CallSteps.refuse_denied,
    CallSteps.ask_person,
    CallSteps.remember_use,
    CallSteps.check_unchanged,
    CallSteps.run_tool,
    CallSteps.record_outcome,
    CallSteps.add_notes,
)
"""What is done with a call after its begin record and before its end record, in this order. A step that refuses raises,
and no later one is taken; a step that returns a result ends the call with it, as the last one does."""

CALL_SECONDS = 0.0005
"""Counted for each call before what it really takes: those of one caller do not begin before those of another."""

AUDIT = "ai-session/audit"
SANDBOX = "ai-session/sandbox"


class Gate:
    """Judges and runs calls. Made once per daemon; ``person`` is what people do that is not a call of a tool."""

    def __init__(self, parts: GateParts) -> None:
        self.parts = parts
        self.person = PersonActions(parts)

    async def call(self, call: ToolCall, asker: Asker | None = None) -> ToolResult:
        """Run one call. Raises UnknownTool only; every other failure is a result with ``is_error``.

        A result with a ``question`` ran nothing: the caller's person is to answer it. Cancelling the wait never ends a
        command.
        """
        trace = Trace()
        with self.parts.telemetry.call(call, trace) as ended:
            return ended(await self._recorded(CallSteps(self.parts, call, asker, trace)))

    async def _recorded(self, steps: CallSteps) -> ToolResult:
        """Begin record, the steps, masks, end record: whatever happens."""
        parts, call, trace = self.parts, steps.call, steps.trace
        await parts.sessions.turns.begin(rate_key(call.principal), CALL_SECONDS)
        recorded, unsafe = gate_secrets.learn(parts.masking, call.principal, call.arguments)
        with parts.telemetry.part("audit.begin"):
            entry = await parts.audit.begin(
                call.call_id,
                call.principal,
                call.name,
                recorded,
                agent=call.agent,
                client_call_id=call.client_call_id,
            )
        head: tuple[int, str] | None = None
        try:
            if unsafe:
                raise unsafe
            result = await steps.masked(await _judged(steps))
            head = parts.end(entry, trace)
        except UnknownTool as error:
            trace.failed(error)
            raise
        except AiSessionError as error:
            trace.failed(error)
            result = await steps.failed(error.code, error.message, error.suggestion, **more_of(error))
        except OSError as error:
            trace.failed(error)
            code, suggestion = refusal(error)
            result = await steps.failed(code, f"the system refused: {error.strerror or error}", suggestion)
        except BaseException as error:
            trace.failed(error)
            raise
        finally:
            seq, newest = head or parts.end(entry, trace)
        meta = {**result.meta, AUDIT: {"seq": seq, "head": newest}}
        if trace.box:
            meta[SANDBOX] = trace.box
        return ToolResult(
            result.text, result.structured, result.is_error, call.call_id, meta, result.question, result.state
        )

    async def list_tools(self, principal: Principal, also: Collection[str] = ()) -> Sequence[Tool]:
        """The tools that are listed, or named by ``also``, and that this principal may ever use, sorted by name."""
        return self._listed(principal, also)

    def _listed(self, principal: Principal, also: Collection[str] = ()) -> list[Tool]:
        listed = (tool for tool in self.parts.tools.values() if tool.listed or tool.name in also)
        return [tool for tool in listed if not self.parts.policy.rules_out(Action(principal, tool.name, tool.effect))]

    async def watch_changes(
        self, principal: Principal, agent: str = "", run: str = "", kinds: Collection[ChangeKind] | None = None
    ) -> Changes:
        """What changes from now on in the sessions this caller sees. Recorded, unless it is only about what is listed.

        Raises InsufficientScope, Denied, RateLimited, StorageFull.
        """
        require_scope(principal, WATCH, Effect.READ)
        kinds = KINDS if kinds is None else kinds
        if LISTS.issuperset(kinds):
            return self._changes(principal, agent, run, kinds)
        async with self.parts.recorded(principal, WATCH, Effect.READ, {}, anyone=True, agent=agent):
            return self._changes(principal, agent, run, kinds)

    def _changes(self, principal: Principal, agent: str, run: str, kinds: Collection[ChangeKind]) -> Changes:
        def tools() -> list[str]:
            return [tool.name for tool in self._listed(principal)]

        return self.parts.sessions.changes.watch(visibility_of(principal, run, agent).covers, kinds, tools)


async def _judged(steps: CallSteps) -> ToolResult:
    for step in ORDER:
        if result := await step(steps):
            return result
    raise AssertionError("the last step returns the result")
