"""What the gate judges and records with, and the audit records of everything that is not a tool call."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ai_session.audit.log import AuditLog
from ai_session.errors import Denied
from ai_session.gate import secrets as gate_secrets
from ai_session.gate.consent.consent import Consent
from ai_session.gate.domains import DomainQuestions
from ai_session.gate.feed import ChangeFeed
from ai_session.gate.hook import Hooks
from ai_session.gate.idempotency import CallKeys
from ai_session.gate.policy.mode import PolicyInForce
from ai_session.gate.policy.policy import Action, Decision
from ai_session.gate.rate_limits import RateLimiter
from ai_session.gate.redaction.known_secrets import Masking
from ai_session.gate.telemetry.base import Telemetry
from ai_session.gate.trace import Trace, rate_key
from ai_session.gate.written import WrittenDirectories
from ai_session.models import Effect, Principal
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.ownership import require_scope
from ai_session.sessions.workspaces import Workspaces
from ai_session.tools.base import Limits, Tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ai_session.audit.log import Entry

STOP, WATCH = "stop", "watch_changes"
CONFIGURED = "your configuration denies it: ai-session config show"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateParts:
    """The parts of the gate, created once per daemon. ``tools`` has all tools by name."""

    tools: Mapping[str, Tool]
    sessions: SessionManager
    workspaces: Workspaces
    policy: PolicyInForce
    rates: RateLimiter
    consent: Consent
    domains: DomainQuestions
    masking: Masking
    audit: AuditLog
    call_keys: CallKeys
    limits: Limits
    feed: ChangeFeed
    hooks: Hooks
    written: WrittenDirectories
    telemetry: Telemetry = field(default_factory=Telemetry)

    def count(self, principal: Principal, effect: Effect, *, opens: bool = False) -> None:
        """Count one more call of this caller. Raises RateLimited."""
        key = rate_key(principal)
        self.rates.acquire(key, "output_bytes", 0)
        self.rates.acquire(key, "read" if effect is Effect.READ else "effect")
        if opens:
            self.rates.acquire(key, "sessions")

    def record_decision(self, trace: Trace, decision: Decision) -> None:
        """Put the policy's decision on record."""
        trace.rule = decision.rule
        trace.facts["decision"] = {
            "verdict": decision.verdict,
            "policy": self.policy.digest,
            "mode": self.policy.mode,
        }

    def end(self, entry: Entry, trace: Trace) -> tuple[int, str]:
        """Write the end record; return its number and the log's newest hash."""
        return self.audit.end(entry, trace.outcome, rule=trace.rule, code=trace.code, facts=trace.facts)

    @asynccontextmanager
    async def recorded(
        self,
        principal: Principal,
        name: str,
        effect: Effect,
        arguments: Mapping[str, Any],
        *actions: Action,
        anyone: bool = False,
        agent: str = "",
        scope: str = "",
    ) -> AsyncGenerator[Trace]:
        """Judge and record what a person, or if ``anyone`` a client, does that is not a tool call.

        With several ``actions``, all of them must be allowed. ``scope`` is required of a connection that has declared
        its purpose. Raises Denied, RateLimited, InsufficientScope, LimitReached, StorageFull.
        """
        arguments, unsafe = gate_secrets.learn(self.masking, principal, arguments)
        entry = await self.audit.begin("call_" + secrets.token_urlsafe(16), principal, name, arguments, agent=agent)
        trace = Trace(call_id=entry.call_id)
        try:
            if unsafe and name != STOP:
                raise unsafe
            if name != STOP:
                self.audit.require_room(effect)
                self.count(principal, effect)
            if principal.kind != "person" and not anyone:
                raise Denied(f"only a person may use {name}", suggestion="ask the person to do it")
            require_scope(principal, name, effect, scope)
            for action in actions or (Action(principal, name, effect, agent=agent, ends_only=name == STOP),):
                decision = self.policy.decide(action)
                self.record_decision(trace, decision)
                if decision.verdict != "allow":
                    by_hand = f"kill {os.getpid()} ends the daemon anyway" if name == STOP else CONFIGURED
                    raise Denied(f"{name} is denied by {decision.rule}: {decision.reason}", suggestion=by_hand)
            trace.outcome = "ok"
            yield trace
        except BaseException as error:
            trace.record_failure(error)
            raise
        finally:
            self.end(entry, trace)
