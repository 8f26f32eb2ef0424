"""Who may do what: one decision per call, with the name of its rule. No I/O.

The strictest of all rules that apply to a call wins: deny, then ask, then allow; without one, the mode decides. Inside
a kernel-level box the box is the boundary, so the mode allows everything but leaving it, about which it asks.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal

from ai_session.errors import ConfigInvalid, Denied, InvalidArguments
from ai_session.gate.policy.commands import Match, Reading
from ai_session.gate.policy.rules import Rule, in_domains, load
from ai_session.models import PROFILES, Effect, Principal, SandboxLevel
from ai_session.system.shell_words import Line, parse

MODES = ("read-only", "ask-all", "workspace", "trusted")
"""From the tightest to the loosest."""

OUTSIDE = "default:outside-workspace"
"""The rule that asks about a directory outside all workspaces."""

Profile = Literal["read-only", "workspace", "trusted"]

STRICTNESS = ("allow", "ask", "deny")

UNJUDGED = Line((), "typed input", complete=False)


@dataclass(frozen=True, slots=True)
class Action:
    """The facts of one call on which a decision depends. ``level`` and ``profile`` are those of its session.

    ``command`` is a whole command line; ``raw_input`` says that keys or half lines go to the terminal, which no rule
    can judge. ``paths`` are absolute. ``loosens`` means that a looser box or mode than configured is requested.
    ``ends_only`` means that all it does is end something, which read-only allows, because it is about stopping things.
    ``agent`` is the client's claim. ``written`` says why a box may write what the command reads, empty if none may.
    """

    principal: Principal
    tool: str
    effect: Effect | None
    agent: str = ""
    session: str = ""
    profile: str = "workspace"
    level: SandboxLevel = SandboxLevel.BWRAP
    command: str | None = None
    raw_input: bool = False
    paths: tuple[str, ...] = ()
    outside_workspace: bool = False
    domain: str = ""
    loosens: bool = False
    ends_only: bool = False
    written: str = ""

    @property
    def boxed(self) -> bool:
        """Whether the kernel contains what the call does."""
        return self.level is not SandboxLevel.NONE and self.profile != "trusted"


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gate does with a call, the rule that decides it, and one sentence for the caller."""

    verdict: Literal["allow", "ask", "deny"]
    rule: str
    reason: str = ""


def stricter(own: Decision, other: Decision) -> Decision:
    """Return the stricter decision; of equal ones that of a written rule rather than a default."""
    first, second = STRICTNESS.index(own.verdict), STRICTNESS.index(other.verdict)
    if first == second:
        return other if "default:" in own.rule and "default:" not in other.rule else own
    return own if first > second else other


NO_EFFECT = Decision("deny", "default:no-effect", "The tool declares no effect, so it cannot be judged.")
OTHER_USER = Decision("deny", "default:other-user", "Sessions are for the user who owns them.")


@dataclass(frozen=True, slots=True)
class HookProgram:
    """A program that is run before calls, and where it was configured. ``rule`` names it in decisions."""

    argv: tuple[str, ...]
    seconds: float
    origin: str
    rule: str = "hook"

    @classmethod
    def of(cls, argv: tuple[str, ...], seconds: float, origin: str, rule: str = "hook") -> HookProgram | None:
        """Return the hook, or None if no program is configured."""
        return cls(argv, seconds, origin, rule) if argv else None


class Policy:
    """Rules and a mode. Immutable; ``with_mode`` returns another."""

    def __init__(
        self,
        uid: int,
        mode: str = "workspace",
        rules: Sequence[Mapping[str, Any]] = (),
        loosest: Profile = "trusted",
        hook: HookProgram | None = None,
    ) -> None:
        """Load the rules. Nothing runs in boxes looser than ``loosest``, for any caller. ``hook`` is run by others.

        Raises ConfigInvalid that names the mode, or the rule and its failing example or wrong key.
        """
        if mode not in MODES:
            near = difflib.get_close_matches(mode, MODES, n=1, cutoff=0)
            raise ConfigInvalid(f"policy.mode: {mode!r} is not a mode", suggestion=f"did you mean {near[0]}?")
        self._uid = uid
        self._loosest: Profile = loosest
        self.hook = hook
        self.rules = load(rules)
        self._denying_or_asking = tuple(rule for rule in self.rules if rule.table.decision != "allow")
        self._allowing = tuple(rule for rule in self.rules if rule.table.decision == "allow")
        self._enter(mode)

    def _enter(self, mode: str) -> None:
        self.mode = mode
        self._allow = Decision("allow", f"default:{mode}")
        rules = [{**rule.table.model_dump(mode="json"), "id": rule.id} for rule in self.rules]
        facts: dict[str, Any] = {"mode": mode, "rules": rules} | (
            {"loosest": self._loosest} if self._loosest != "trusted" else {}
        )
        if self.hook is not None:
            facts["hook"] = [self.hook.argv, self.hook.seconds]
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        """SHA-256 of the mode and the rules in canonical form, in hex."""

    def with_mode(self, mode: str, by_person: bool) -> Policy:
        """Return the same rules in another mode. Anyone may tighten; raises Denied if anyone but a person loosens."""
        if mode not in MODES:
            raise InvalidArguments(f"{mode!r} is not a mode", suggestion=f"modes: {', '.join(MODES)}")
        if not by_person and MODES.index(mode) > MODES.index(self.mode):
            raise Denied(
                f"mode {mode} is looser than {self.mode}, and only a person may loosen",
                suggestion=f"the person runs, in a terminal that no agent owns: ai-session policy mode {mode}",
            )
        other = copy(self)
        other._enter(mode)
        return other

    def decide(self, action: Action) -> Decision:
        """Decide about any action; what is unknown is denied or asked about."""
        effect, principal = action.effect, action.principal
        if effect is None:
            return NO_EFFECT
        if principal.uid != self._uid:
            return OTHER_USER
        if effect is Effect.EXECUTE and PROFILES.index(action.profile) > PROFILES.index(self._loosest):
            return Decision("deny", "default:profile", f"No session may be looser than profile {self._loosest}.")
        line = _line(action, self._denying_or_asking)
        limit = self._strictest(action, effect, line and Reading(line)) if self._denying_or_asking else None
        if limit is not None and limit.verdict == "deny":
            return limit
        default = self._default(action, effect)
        if default.verdict == "deny" or principal.kind == "person":
            return default
        if limit is not None:
            return limit
        if default.verdict == "allow":
            return default
        return self._allowed_by_rules(action, effect, line or _line(action, self._allowing), default)

    def _strictest(self, action: Action, effect: Effect, reading: Reading | None) -> Decision | None:
        """Return the decision of the strictest rule that denies or asks, the first one if there are several."""
        asked: Decision | None = None
        for rule in self._denying_or_asking:
            if not rule.concerns(action.principal, action.tool, effect, action.agent):
                continue
            match = rule.matches(reading, action.paths, action.domain)
            if match is Match.YES and rule.table.decision == "deny":
                return Decision("deny", rule.id, rule.table.reason or f"Rule {rule.id} denies this.")
            if match is not Match.NO and asked is None:
                asked = Decision("ask", rule.id, _why_asked(rule, match, reading and reading.line))
        return asked

    def _default(self, action: Action, effect: Effect) -> Decision:
        """Return what the mode decides without a rule."""
        reading = effect is Effect.READ
        ends_only = effect is Effect.DESTRUCTIVE and action.ends_only
        if self.mode == "trusted":
            return self._allow
        if self.mode == "read-only" and not reading and not ends_only:
            return Decision("deny", "default:read-only", "Mode read-only: nothing runs and nothing is changed.")
        if action.principal.kind == "person":
            return self._allow
        if action.loosens:
            return self._ask("loosens", "it would be less contained than configured")
        if action.outside_workspace:
            return self._ask(OUTSIDE.removeprefix("default:"), "it reaches outside the workspaces")
        if action.domain:
            return self._ask("new-domain", f"{action.domain} is not among the allowed domains")
        if reading or (ends_only and self.mode != "ask-all"):
            return self._allow
        if not action.boxed:
            return self._ask("no-box", "its session is not contained by a box")
        if self.mode == "ask-all":
            return Decision("ask", "default:ask-all", "Mode ask-all asks before every effect.")
        return self._allow

    def _ask(self, why: str, reason: str) -> Decision:
        return Decision("ask", f"default:{why}", f"Mode {self.mode} asks, for {reason}.")

    def _allowed_by_rules(self, action: Action, effect: Effect, line: Line | None, default: Decision) -> Decision:
        """Return ``default``, or permission by allow rules, each of which must be written for exactly this call."""
        if action.loosens or (action.raw_input and not action.boxed):
            return default
        allowing = [
            rule
            for rule in self._allowing
            if rule.concerns(action.principal, action.tool, effect, action.agent)
            and (not action.domain or in_domains(rule.table.domains, action.domain))
            and (not rule.table.domains or action.domain)
            and (not action.outside_workspace or (action.paths and rule.covers(action.paths)))
        ]
        for rule in allowing:
            by_command = action.command is not None and not action.boxed
            fits_paths = rule.paths is None or (bool(action.paths) and rule.covers(action.paths))
            if not rule.table.commands and fits_paths and not by_command:
                return Decision("allow", rule.id, rule.table.reason)
        if line is None or not any(rule.table.commands for rule in allowing):
            return default
        if line.obscure:
            why = f"No rule can allow the line, which is not plain: {line.obscure}."
            return Decision("ask", default.rule, f"{default.reason} {why}")
        used = [next((r for r in allowing if r.allows(words, action.paths)), None) for words in line.commands]
        if None in used:
            return default
        names = dict.fromkeys(rule.id for rule in used if rule)
        if not action.boxed and action.written:
            held = f"{', '.join(names)} would allow it, but does not apply here: {action.written}."
            return Decision("ask", "default:box-writable", f"{default.reason} {held}")
        return Decision("allow", "+".join(names), f"Every command of the line is allowed by {', '.join(names)}.")


def _line(action: Action, rules: Sequence[Rule]) -> Line | None:
    """Parse the call's command, if one of the rules reads its words."""
    if not any(rule.reads_words for rule in rules):
        return None
    if action.raw_input:
        return UNJUDGED
    return None if action.command is None else parse(action.command)


def _why_asked(rule: Rule, match: Match, line: Line | None) -> str:
    reason = rule.table.reason or f"Rule {rule.id} {'asks' if rule.table.decision == 'ask' else 'denies this'}."
    if match is Match.MAYBE and line is not None:
        return f"{reason} It may be covered: {line.obscure or 'some words cannot be known'}."
    return reason
