"""Who may do what: one decision per call, naming its rule. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ai_session.models import Effect, Principal


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gate does with a call, and the rule that says so."""

    verdict: Literal["allow", "ask", "deny"]
    rule: str


class Policy:
    """Allows every tool that declares an effect to the user's own processes."""

    def __init__(self, uid: int) -> None:
        self._uid = uid

    def decide(self, principal: Principal, tool: str, effect: Effect | None) -> Decision:
        """Total: every combination has an answer; what is not known is denied."""
        if effect is None:
            return Decision("deny", "no-effect")
        if principal.uid != self._uid:
            return Decision("deny", "other-user")
        return Decision("allow", "default")
