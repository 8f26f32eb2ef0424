"""The analysis of requirements and their repository by rules: each score and risk comes with its rule and evidence."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ccswarm.servers._json_values import cut, table
from ccswarm.servers.mcp.toolsets.orchestre.rules import (
    FACTORS,
    LEVELS,
    MOST_POINTS,
    OBSERVATIONS,
    TOPICS,
    Observation,
    Topic,
    technologies,
)

Facts = dict[str, Any]

UNKNOWN = "unknown"
"""The value of a number for which no rule has a basis."""

MANY_STATEMENTS = ((16, 2), (8, 1))
"""From how many statements on requirements count as long, and the points that ``technical`` gets for it."""

MOST_STATEMENTS = 40
SHOWN_CHARS = 300
FOUNDATION_DAYS = 2
DELIVERY_DAYS = 2
HARDENING_DAYS = 2
HARD = 5
"""A factor with at least so many points gets a task of its own before delivery."""

BEGINNING = re.compile(
    r"\b(?:build|create|make|develop|write|start) (?:me |us )?(?:an?\b|new\b|saas\b)|from scratch", re.IGNORECASE
)
EXISTING = re.compile(
    r"\b(?:existing|current(?:ly)?|legacy|this|our|refactor\w*|migrat\w*|upgrad\w*|fix\w*|extend\w*)\b", re.IGNORECASE
)
"""Words about something new, and about something that exists."""

WORKING_DAYS = {"day": 1, "week": 5, "sprint": 10, "month": 21, "quarter": 63, "year": 250}


@dataclass(frozen=True, slots=True)
class Brief:
    """A client's description of a project, from either generation of its document."""

    requirements: str
    constraints: tuple[str, ...] = ()
    existing_code: str = ""
    stack: tuple[str, ...] = ()
    team: int = 0
    """The number of people or agents; 0 if not given."""
    timeline: str = ""
    domain: str = ""

    @property
    def texts(self) -> list[tuple[str, str]]:
        """All texts in which words are searched, each with its place in the description."""
        parts = [("the requirements", self.requirements), *(("a constraint", one) for one in self.constraints)]
        parts += [("the context", " ".join((*self.stack, self.domain)))]
        return [(where, text) for where, text in parts if text.strip()]


def brief_of(given: Mapping[str, Any]) -> Brief:
    """Return the brief in a call's arguments."""
    context = table(given.get("context"))
    return Brief(
        str(given["requirements"]),
        (*map(str, given.get("constraints") or ()), *_texts(context.get("constraints"))),
        str(given.get("existingCode") or ""),
        _stack(context.get("existingStack")),
        count_in(context.get("teamSize")),
        cut(str(context.get("timeline") or ""), SHOWN_CHARS),
        str(context.get("businessDomain") or ""),
    )


def _texts(value: object) -> tuple[str, ...]:
    """Return one text, or several, as a tuple."""
    many = cast("list[object]", value) if isinstance(value, list) else [value] if value else []
    return tuple(str(one) for one in many)


def _stack(value: object) -> tuple[str, ...]:
    """Return the names in a list, or in a text with commas."""
    parts = [part.strip() for text in _texts(value) for part in re.split(r"[,;\n]", text)]
    return tuple(cut(part, SHOWN_CHARS) for part in parts if part)[:MOST_STATEMENTS]


def count_in(value: object) -> int:
    """Return the first number in a value; 0 if there is none."""
    found = re.search(r"\d{1,4}", str(value or ""))
    return int(found[0]) if found else 0


def days_in(text: str) -> int:
    """Return the working days of a span in words (``6 weeks``); 0 if there is none."""
    found = re.search(r"(\d{1,4})\s*[- ]?\s*(day|week|sprint|month|quarter|year)", text, re.IGNORECASE)
    return int(found[1]) * WORKING_DAYS[found[2].lower()] if found else 0


def is_new(brief: Brief) -> bool:
    """Report whether the words describe something new, and mention nothing that exists."""
    return bool(BEGINNING.search(brief.requirements)) and not (EXISTING.search(brief.requirements) or brief.stack)


def statements(text: str) -> list[str]:
    """Return the single requirements of a text: its lines if it is a list, else its sentences. There is at least one,
    and at most ``MOST_STATEMENTS``."""
    lines = [re.sub(r"^\s*(?:[-*•+]|\d{1,3}[.)])\s+", "", line).strip() for line in text.splitlines()]
    parts = [part for line in lines for part in re.split(r"(?<=[.!?;])\s+", line)]
    kept = [one for part in parts if len(re.findall(r"\w+", one := part.strip(" .;!?:"))) >= 2 and not _heading(part)]
    return list(dict.fromkeys(kept))[:MOST_STATEMENTS] or [text.strip()[:SHOWN_CHARS]]


def _heading(line: str) -> bool:
    return line.startswith("#") or (line.rstrip().endswith(":") and len(line.split()) < 8)


@dataclass(slots=True)
class Assessment:
    """The results of the rules."""

    factors: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FACTORS, 1))
    because: list[Facts] = field(default_factory=list[Facts])
    topics: list[tuple[Topic, str]] = field(default_factory=list[tuple[Topic, str]])
    risks: list[Facts] = field(default_factory=list[Facts])

    def add(self, rule: str, points: Mapping[Any, int], evidence: str) -> None:
        for factor, count in points.items():
            self.factors[factor] = min(MOST_POINTS, self.factors[factor] + count)
            self.because.append({"rule": rule, "factor": factor, "points": count, "evidence": evidence})

    @property
    def score(self) -> float | None:
        """The mean of the two highest factors; None if no topic was found."""
        if not self.topics:
            return None
        first, second = sorted(self.factors.values())[-2:]
        return (first + second) / 2


def topics_in(texts: Sequence[tuple[str, str]]) -> list[tuple[Topic, str]]:
    """Return the topics, each with the word that was found, and where."""
    found: list[tuple[Topic, str]] = []
    for topic in TOPICS:
        hit = next(((where, word) for where, text in texts if (word := topic.found(text))), None)
        if hit:
            found.append((topic, f'"{hit[1]}" in {hit[0]}'))
    return found


def assess(brief: Brief, facts: Mapping[str, Any] | None, now: float) -> Assessment:
    """Apply the rules. ``facts`` are the repository's; ``now`` is in seconds since 1970."""
    found = Assessment(topics=topics_in(brief.texts))
    for topic, evidence in found.topics:
        found.add(topic.rule, topic.points, evidence)
    count = len(statements(brief.requirements))
    if extra := next((points for least, points in MANY_STATEMENTS if count >= least), 0):
        found.add("many requirements", {"technical": extra}, f"{count} requirements")
    for topic, evidence in found.topics:
        if topic.severity == "high":
            found.risks.append(_risk(topic.rule, topic.rule, topic.challenge, "medium", "high", topic, evidence))
    for seen in OBSERVATIONS if facts else ():
        if facts and (evidence := seen.holds(facts, now)):
            found.add(seen.rule, seen.points, evidence)
            given = (seen.kind, seen.rule, seen.risk, seen.probability, seen.impact)
            found.risks.append(_risk(*given, seen, evidence))
    if len(brief.requirements.split()) < 12:
        words = f"{len(brief.requirements.split())} words"
        found.risks.append(
            _plain_risk("scope", "short requirements", "Much is not said yet", "high", "medium", "Ask before building")
            | {"evidence": words}
        )
    return found


def _risk(
    kind: str, rule: str, text: str, probability: str, impact: str, of: Topic | Observation, evidence: str
) -> Facts:
    return _plain_risk(kind, rule, text, probability, impact, of.mitigation) | {"evidence": evidence}


def _plain_risk(kind: str, rule: str, text: str, probability: str, impact: str, mitigation: str) -> Facts:
    return {
        "type": kind,
        "description": text,
        "probability": probability,
        "impact": impact,
        "mitigation": mitigation,
        "rule": rule,
    }


def level_of(score: float | None) -> str:
    """Return the name of a score."""
    return UNKNOWN if score is None else next(name for most, name in LEVELS if score <= most)


def analysis_of(brief: Brief, facts: Mapping[str, Any] | None, now: float) -> Facts:
    """Return the analysis as docs/protocols/orchestre-analysis.md describes it."""
    found = assess(brief, facts, now)
    score = found.score
    phases = phases_of(found)
    counted = [one["effortDays"] for one in phases]
    days = None if None in counted else sum(counted)
    risks = found.risks + (_schedule_risk(brief, days) if days is not None else [])
    return {
        "summary": _summary(found, score, facts, days),
        "complexity": {
            "score": score,
            "level": level_of(score),
            "factors": dict(found.factors),
            "because": found.because,
        },
        "keyComponents": [topic.component for topic, _ in found.topics] or ["The program itself"],
        "challenges": [
            {
                "area": topic.component,
                "severity": topic.severity,
                "description": topic.challenge,
                "mitigation": topic.mitigation,
                "rule": topic.rule,
                "evidence": evidence,
            }
            for topic, evidence in found.topics
        ],
        "recommendations": recommendations(brief, facts, found),
        "risks": risks,
        "phases": phases,
    }


def _summary(found: Assessment, score: float | None, facts: Mapping[str, Any] | None, days: int | None) -> str:
    parts = ["Complexity unknown" if score is None else f"Complexity {score:g} of 10 ({level_of(score)}), by rules"]
    names = [topic.component.lower() for topic, _ in found.topics]
    parts.append(f"it is about {', '.join(names)}" if names else "no rule knows what it is about")
    if facts and facts["lines"]:
        most = [one["name"] for one in facts["languages"] if one["share"] >= 0.05][:3]
        tests = facts["tests"]["cases"]
        parts.append(f"there are {facts['lines']} lines of {', '.join(most)} with {tests} tests")
    elif facts:
        parts.append("the directory has no code yet")
    estimate = "how much work it is, is unknown" if days is None else f"{days} days of work for one, as the rules count"
    parts.append(estimate)
    return "; ".join(parts) + "."


def _schedule_risk(brief: Brief, days: int) -> list[Facts]:
    """Return a risk if the counted days exceed the given timeline."""
    span, team = days_in(brief.timeline), brief.team or 1
    if not span or math.ceil(days / team) <= span:
        return []
    risk = _plain_risk(
        "schedule",
        "timeline",
        "The time does not suffice, as the rules count the work",
        "high",
        "high",
        "Leave out what can come later, or ask for more time",
    )
    return [risk | {"evidence": f"{days} days for {team}, and {span} working days in {brief.timeline!r}"}]


def days_of(topics: Sequence[Topic]) -> int:
    """Return the days of work: 1, and 1 for each point of the topics."""
    return 1 + sum(sum(topic.points.values()) for topic in topics)


def phases_of(found: Assessment) -> list[Facts]:
    """Return the phases in order, with their days, from the topics."""
    topics = [topic for topic, _ in found.topics]
    hard = [name for name in ("security", "scalability") if found.factors[name] >= HARD]
    phases: list[tuple[str, int | None, list[str]]] = [
        ("Foundation", FOUNDATION_DAYS, ["What is there and what is wanted, tests that run"])
    ]
    base = [one for one in topics if one.rule in BASE]
    rest = [one for one in topics if one.rule not in BASE]
    if base:
        phases.append(("Base", days_of(base), [one.component for one in base]))
    days = days_of(rest) if rest or base else None
    phases.append(("Features", days, [one.component for one in rest] or ["The program itself"]))
    if hard:
        phases.append(("Hardening", HARDENING_DAYS * len(hard), [f"Check of {name}" for name in hard]))
    phases.append(("Delivery", DELIVERY_DAYS, ["Everything tried together", "Documentation"]))
    return [{"name": name, "effortDays": days, "duration": span(days), "goals": goals} for name, days, goals in phases]


BASE = frozenset({"data", "accounts", "tenants", "migration", "personal data"})
"""Topics on which others build, and which come first."""


def span(days: int | None) -> str:
    """Return working days in words."""
    if days is None:
        return UNKNOWN
    return f"{days} day{'s' * (days != 1)}" if days < 10 else f"{math.ceil(days / 5)} weeks"


def recommendations(brief: Brief, facts: Mapping[str, Any] | None, found: Assessment) -> Facts:
    """Return recommendations. As technology, only what exists or was named is recommended."""
    rules = {topic.rule for topic, _ in found.topics}
    named = technologies(" ".join((brief.requirements, *brief.constraints, *brief.stack)))
    there = [one["name"] for one in (facts or {}).get("languages", ()) if one["share"] >= 0.1]
    patterns = [
        text
        for wanted, text in (
            ({"outside services", "payments"}, "an adapter for each outside service"),
            ({"jobs", "messages", "files"}, "a queue of repeatable jobs"),
            ({"accounts", "tenants"}, "rights checked at one place on the server"),
            ({"data", "migration"}, "migrations of the schema, tried backwards too"),
            ({"interface"}, "a contract with a version, tested from outside"),
            ({"real time", "offline"}, "numbered events that can be asked for again"),
        )
        if wanted & rules
    ]
    code = bool(facts and facts["lines"])
    if found.factors["scalability"] >= HARD:
        shape = "One program whose slow work runs in workers next to it; divided further only after measuring"
    else:
        shape = "One program that is deployed as one piece, divided by components inside"
    return {
        "architecture": f"Keep what is there. {shape}" if code else shape,
        "technologies": list(dict.fromkeys((*there, *brief.stack, *named))),
        "patterns": patterns,
        "approach": (
            "Tests around what is touched first, then one component after the other, each merged when it works"
            if code
            else "One path through the whole first, then one component after the other, each tried when it works"
        ),
    }
