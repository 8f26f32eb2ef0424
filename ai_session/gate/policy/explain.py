"""Explains the policy to a person: what would be decided about a command and by which rule, what the mode decides
without a rule, and where each rule is written. It judges as the gate does; nothing is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from ai_session.config.config import read_toml
from ai_session.errors import ConfigInvalid
from ai_session.gate.policy.policy import Action, Decision, Policy
from ai_session.gate.policy.rules import Rule, load
from ai_session.models import Effect, Principal, SandboxLevel
from ai_session.system.shell_words import parse

Decide = Callable[[Action], Decision]

HEADER = re.compile(r"\s*\[\[\s*(?:policy|\"policy\"|'policy')\s*\.\s*(?:rules|\"rules\"|'rules')\s*\]\]")
BOXES = {"in a box": ("workspace", SandboxLevel.BWRAP), "without a box": ("trusted", SandboxLevel.NONE)}


def decisions(decide: Decide, uid: int, command: str, client: str = "", agent: str = "") -> list[dict[str, str]]:
    """Return what is decided about a command line, for a client and for a person, in a box and outside."""
    found: list[dict[str, str]] = []
    callers = {"client": Principal("mcp", uid, client=client), "you": Principal("person", uid)}
    for who, principal in callers.items():
        for where, (profile, level) in BOXES.items():
            action = Action(principal, "execute_command", Effect.EXECUTE, agent, "", profile, level, command=command)
            decision = decide(action)
            judged = {"verdict": decision.verdict, "rule": decision.rule, "reason": decision.reason}
            found.append({"who": who, "where": where, **judged})
    return found


def reading(command: str) -> dict[str, Any]:
    """Return how a command line is parsed: whether it is plain words, why not, and the words of each command."""
    line = parse(command)
    commands = [[word if word is not None else "?" for word in words] for words in line.commands]
    return {"plain": not line.obscure, "obscure": line.obscure, "complete": line.complete, "commands": commands}


def defaults(uid: int, mode: str) -> list[dict[str, str]]:
    """Return what a mode decides without a rule: ``what``, and the verdicts for a client (``mcp``) and a ``person``."""
    policy = Policy(uid, mode)

    def verdict(kind: str, tool: str, effect: Effect, **more: Any) -> str:
        return policy.decide(Action(Principal(cast("Any", kind), uid), tool, effect, **more)).verdict

    boxed, unboxed = ({"profile": profile, "level": level} for profile, level in BOXES.values())
    kinds: Sequence[tuple[str, str, Effect, dict[str, Any]]] = (
        ("look at sessions and output", "list_sessions", Effect.READ, {}),
        ("run, type or write in a box", "execute_command", Effect.EXECUTE, boxed),
        ("run, type or write without a box", "execute_command", Effect.EXECUTE, unboxed),
        ("interrupt or close", "close_session", Effect.DESTRUCTIVE, {"ends_only": True}),
        ("work outside of the workspaces", "create_session", Effect.EXECUTE, {"outside_workspace": True}),
        ("reach a domain that is not listed", "execute_command", Effect.NETWORK, {"domain": "example.org"}),
        ("take a looser box than is configured", "create_session", Effect.EXECUTE, {"loosens": True}),
    )
    return [
        {"what": what, **{kind: verdict(kind, tool, effect, **more) for kind in ("mcp", "person")}}
        for what, tool, effect, more in kinds
    ]


def lines(file: Path, rules: Sequence[Rule]) -> list[int]:
    """Return the line at which each rule begins; empty if the file has changed since or a line is uncertain."""
    try:
        text = file.read_text().removeprefix("\ufeff")
        tables: Any = read_toml(text).get("policy", {}).get("rules", ())
        same = [(rule.id, rule.table) for rule in load(tables)] == [(rule.id, rule.table) for rule in rules]
    except (OSError, ValueError, TypeError, AttributeError, ConfigInvalid):
        return []
    found = [number for number, line in enumerate(text.splitlines(), 1) if HEADER.match(line)]
    return found if same and len(found) == len(rules) else []
