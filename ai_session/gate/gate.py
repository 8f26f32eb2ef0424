"""The gate: every call of every server passes ``Gate.call`` exactly once and takes the steps in ``ORDER``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from ai_session.errors import AiSessionError, UnknownTool
from ai_session.gate import secrets as gate_secrets
from ai_session.gate.api import Asker
from ai_session.gate.consent.terminal_origin import Origin
from ai_session.gate.parts import WATCH, GateParts
from ai_session.gate.person import PersonActions
from ai_session.gate.policy.policy import Action
from ai_session.gate.results import known_first, refusal
from ai_session.gate.steps import CallSteps
from ai_session.gate.trace import Trace, extra_facts, rate_key
from ai_session.models import PROFILES, ChangeKind, Effect, Principal, ToolCall, ToolResult
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
"""The steps of a call between its begin and end records, in this order. A step that refuses raises, and none follows; a
step that returns a result ends the call with it, as the last one does."""

CALL_SECONDS = 0.0005
"""Counted for each call before its real duration: calls of one caller do not all start before another's."""

AUDIT = "ai-session/audit"
SANDBOX = "ai-session/sandbox"
VERB = "ai-session"
"""The client's name in calls of an agent that runs verbs."""


class Gate:
    """Judges and runs calls. Created once per daemon; ``person`` has what people do that is not a tool call."""

    def __init__(self, parts: GateParts) -> None:
        self.parts = parts
        self.person = PersonActions(parts)

    async def call(self, call: ToolCall, asker: Asker | None = None) -> ToolResult:
        """Run one call. Raises only UnknownTool; every other failure is a result with ``is_error``.

        If the result has a ``question``, nothing was run, and the caller's person must answer it first. Cancelling the
        wait never ends a command.
        """
        trace = Trace()
        call = await self._attributed(call)
        with self.parts.telemetry.call(call, trace) as ended:
            return ended(await self._recorded(CallSteps(self.parts, call, asker, trace)))

    async def _attributed(self, call: ToolCall) -> ToolCall:
        """Return the call; as a client's, for which a person is asked, if a process that belongs to an agent makes it
        and chooses a looser profile than is configured."""
        if call.principal.kind != "person" or call.profile not in PROFILES:
            return call
        if PROFILES.index(call.profile) <= PROFILES.index(self.parts.sessions.boxes.profile("").name):
            return call
        standing = await self.parts.consent.person.standing(call.principal)
        if standing.finding.origin is not Origin.AGENT:
            return call
        return replace(call, principal=replace(call.principal, kind="mcp", client=VERB))

    async def _recorded(self, steps: CallSteps) -> ToolResult:
        """Write the begin record, take the steps, mask the result and write the end record, whatever happens."""
        parts = self.parts
        call = steps.call
        trace = steps.trace
        await parts.sessions.turns.begin(rate_key(call.principal), CALL_SECONDS)
        recorded, unsafe = gate_secrets.learn(parts.masking, call.principal, call.arguments)
        recorded = known_first(recorded, parts.tools.get(call.name))
        if texts := parts.masking.unsure(recorded):
            learning = gate_secrets.learn_given(parts.masking, call.principal, texts)
            await parts.sessions.turns.run(rate_key(call.principal), learning)
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
            result = await steps.masked(await _take_steps(steps))
            head = parts.end(entry, trace)
        except UnknownTool as error:
            trace.record_failure(error)
            raise
        except AiSessionError as error:
            trace.record_failure(error)
            result = await steps.failed(error.code, error.message, error.suggestion, **extra_facts(error))
        except OSError as error:
            trace.record_failure(error)
            code, suggestion = refusal(error)
            result = await steps.failed(code, f"the system refused: {error.strerror or error}", suggestion)
        except BaseException as error:
            trace.record_failure(error)
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
        """Return the tools that are listed, or in ``also``, and that this principal may ever use, sorted by name."""
        tools = (tool for tool in self.parts.tools.values() if tool.listed or tool.name in also)
        return [tool for tool in tools if self._may_ever_use(principal, tool)]

    def _may_ever_use(self, principal: Principal, tool: Tool) -> bool:
        return not self.parts.policy.rules_out(Action(principal, tool.name, tool.effect, ends_only=tool.ends_only))

    async def watch_changes(
        self, principal: Principal, agent: str = "", run: str = "", kinds: Collection[ChangeKind] | None = None
    ) -> Changes:
        """Return the changes from now on in the sessions this caller sees. Recorded, unless they are only about lists.

        Raises InsufficientScope, Denied, RateLimited, StorageFull.
        """
        require_scope(principal, WATCH, Effect.READ)
        kinds = KINDS if kinds is None else kinds
        tools = self.parts.tools.values()

        def listed() -> list[str]:
            return [tool.name for tool in tools if tool.listed and self._may_ever_use(principal, tool)]

        sees = visibility_of(principal, run, agent).covers
        watch = partial(self.parts.sessions.changes.watch, sees, kinds, listed)
        if LISTS.issuperset(kinds):
            return watch()
        async with self.parts.recorded(principal, WATCH, Effect.READ, {}, anyone=True, agent=agent):
            return watch()


async def _take_steps(steps: CallSteps) -> ToolResult:
    for step in ORDER:
        if result := await step(steps):
            return result
    raise AssertionError("the last step returns the result")
