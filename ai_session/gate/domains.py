"""Questions about domains that programs in a box want to reach, on behalf of the client that last acted there."""

from __future__ import annotations

import os
from collections.abc import Callable

from ai_session.errors import Denied
from ai_session.gate.consent.consent import Consent
from ai_session.gate.consent.question import ask_about, narrowed
from ai_session.gate.policy.mode import PolicyInForce
from ai_session.gate.policy.policy import Action
from ai_session.models import Answer, Effect, Principal, SessionSpec

MAX_SESSIONS = 1024
UNKNOWN = Principal("mcp", os.getuid(), client="network")
"""The caller if no client has acted since the daemon started; then no client's process may answer."""


class DomainQuestions:
    """The questions of one daemon."""

    def __init__(self, policy: PolicyInForce, consent: Consent, mask: Callable[[str], str]) -> None:
        self._policy = policy
        self._consent = consent
        self._mask = mask
        self._clients: dict[str, Principal] = {}

    def record_caller(self, session_id: str, principal: Principal) -> None:
        """Record the client that ran or typed something in a session. A person's own commands do not count."""
        if principal.kind == "mcp":
            self._clients.pop(session_id, None)
            self._clients[session_id] = principal
            if len(self._clients) > MAX_SESSIONS:
                del self._clients[next(iter(self._clients))]

    async def ask(self, spec: SessionSpec, domain: str) -> bool:
        """Report whether a session may reach ``domain``; False is a person's own answer.

        Raises Denied if the policy denies it, ConsentNeeded if there is no answer yet, RateLimited, LimitReached.
        """
        principal = self._clients.get(spec.session_id, UNKNOWN)
        action = Action(
            principal,
            "network",
            Effect.NETWORK,
            session=spec.name,
            profile=spec.profile.name,
            level=spec.level,
            domain=domain,
        )
        decision = self._policy.decide(action)
        if decision.verdict == "allow":
            return True
        if decision.verdict == "deny":
            raise Denied(f"denied by {decision.rule}: {decision.reason}")
        masked = self._mask(domain)
        question = ask_about(
            principal,
            "network",
            {"domain": domain},
            session=spec.session_id,
            name=spec.name,
            about=masked,
            where="",
            detail=domain if masked == domain else narrowed(domain, masked),
            rule=decision.rule,
            reason=self._mask(decision.reason),
            policy=self._policy.digest,
        )
        try:
            return isinstance(await self._consent.obtain(question, None), Answer)
        except Denied:
            return False
