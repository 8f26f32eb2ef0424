"""The owners of sessions, and which sessions a caller sees. Pure.

An owner is a path of what is known about the caller that opened a session, ``user:NAME/run:RUN/agent:NAME``, from the
widest to the narrowest part; empty for the user of this machine. A caller sees the sessions at its own path or below
it, so the user sees all, and those shared with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from urllib.parse import quote

from ai_session.errors import InsufficientScope, InvalidArguments
from ai_session.models import Effect, Principal, SessionSpec, ToolCall

ADMIN = "admin"
SCOPES = {
    Effect.READ: "sessions:read",
    Effect.WRITE: "sessions:write",
    Effect.DESTRUCTIVE: "sessions:write",
    Effect.EXECUTE: "sessions:execute",
    Effect.NETWORK: "sessions:execute",
}
"""The scope that a token needs for a tool of each effect."""

LOOK = "look"
TYPE = "type"
APPROVE = "approve"
NEEDED_BY_PERSON = {effect: LOOK if effect is Effect.READ else TYPE for effect in Effect}
"""The scope that a person's connection with scopes needs; ``approve`` is for decisions that only a person makes."""

KINDS = ("user", "run", "agent")
EVERYONE = "everyone"


@dataclass(frozen=True, slots=True)
class Visibility:
    """What a caller may see. ``everything`` is for a ``person`` on this machine or an administrator's token."""

    owner: str = ""
    everything: bool = False
    person: bool = False

    def covers(self, spec: SessionSpec) -> bool:
        """Report whether this caller sees the session."""
        if self.everything or not self.owner or (spec.owner + "/").startswith(self.owner + "/"):
            return True
        return any(self._is(other) for other in spec.shared_with)

    def _is(self, pattern: str) -> bool:
        """Report whether ``pattern`` names this caller: its whole path, or one part of it such as ``agent:scout``."""
        return pattern == EVERYONE or any(fnmatchcase(part, pattern) for part in (self.owner, *self.owner.split("/")))


def visibility_of(principal: Principal, run: str = "", agent: str = "") -> Visibility:
    """Return what a caller sees, which may name a run and an agent it calls for. A person sees everything."""
    if principal.kind == "person":
        return Visibility(everything=True, person=True)
    return _visibility_as(principal.subject, run, agent, ADMIN in (principal.scopes or ()))


@lru_cache(maxsize=256)
def _visibility_as(subject: str, run: str, agent: str, everything: bool) -> Visibility:
    """Return the visibility. Cached, because each call needs it several times, mostly for the same few callers."""
    known = zip(KINDS, (subject, run, agent), strict=True)
    return Visibility("/".join(f"{kind}:{quote(name, safe='@:+ ')}" for kind, name in known if name), everything)


def is_of_run(owner: str) -> bool:
    """Report whether a run is part of the owner."""
    return any(part.startswith("run:") for part in owner.split("/"))


@lru_cache(maxsize=256)
def widening(owner: str) -> tuple[str, ...]:
    """Return the owner and the owners above it, up to the user, which is empty for the user of this machine."""
    parts = owner.split("/") if owner else []
    paths = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return tuple(paths) if owner.startswith("user:") else (*paths, "")


def visibility_of_call(call: ToolCall) -> Visibility:
    """Return what the caller of ``call`` sees."""
    return visibility_of(call.principal, call.run, call.agent)


def require_scope(principal: Principal, tool: str, effect: Effect, needed: str = "") -> None:
    """Raise InsufficientScope if a token or a person's connection lacks ``needed``, or the scope for ``effect``."""
    person = principal.kind == "person"
    needed = needed or (NEEDED_BY_PERSON if person else SCOPES)[effect]
    if principal.scopes is not None and not principal.scopes & {needed, ADMIN}:
        suggestion = f"connect with {needed!r} among the scopes" if person else ""
        raise InsufficientScope(f"{tool} needs the scope {needed}", needed, suggestion=suggestion)


def shared_with(names: list[str]) -> tuple[str, ...]:
    """Return the names to share a session with, without duplicates. Raises InvalidArguments for an unknown form."""
    for name in names:
        kind, found, rest = name.rpartition("/")[2].partition(":")
        if name != EVERYONE and not (found and rest and kind in KINDS):
            raise InvalidArguments(
                f"a session cannot be shared with {name[:80]!r}",
                suggestion=f"name agent:NAME, user:NAME, run:ID, or {EVERYONE}",
            )
    return tuple(dict.fromkeys(names))
