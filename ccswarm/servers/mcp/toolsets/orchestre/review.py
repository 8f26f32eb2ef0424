"""The consensus of several models' findings by rules: which findings are the same, and how far the models agree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccswarm.servers._json_values import cut, items, table

Facts = dict[str, Any]

SEVERITIES = ("critical", "high", "medium", "low", "info")
PENALTIES = {"critical": 4.0, "high": 2.0, "medium": 1.0, "low": 0.5, "info": 0.0}
MOST_FINDINGS = 100
"""The limit for one model."""

MOST_TEXT = 2000
NEAR_LINES = 2
"""How many lines two positions may be apart and still count as the same."""

GENERAL = {"issue", "problem", "error", "bug", "code", "general", "other", "and", "of", "the"}
"""Words of categories that distinguish nothing."""

SHAPE: Facts = {
    "findings": [
        {
            "file": "the path as it was given, or empty",
            "line": 1,
            "endLine": 1,
            "category": "one or two words, as in: security, correctness, performance, readability, tests",
            "severity": " | ".join(SEVERITIES),
            "message": "what is wrong",
            "suggestion": "what to do about it",
        }
    ],
    "summary": "two sentences",
}
"""The form of a model's answer. ``line`` and ``endLine`` may be missing."""

RULE = (
    "Two findings are the same where both name the same file (or none) and their lines overlap or lie at most "
    f"{NEAR_LINES} apart, or, where one names no lines, a word of their categories is the same. The score begins at "
    "10; each finding takes "
    + ", ".join(f"{value:g} ({name})" for name, value in PENALTIES.items() if value)
    + " times the share of the models that have it. Agreement is the share of findings that more than one model has; "
    "confidence is agreement times the share of the models asked that answered. With fewer than two answers there is "
    "neither."
)


@dataclass(frozen=True, slots=True)
class Finding:
    model: str
    file: str
    first: int
    """0 if no line is named."""
    last: int
    category: str
    severity: str
    message: str
    suggestion: str

    @property
    def words(self) -> frozenset[str]:
        return frozenset(re.findall(r"\w+", self.category.casefold())) - GENERAL

    def same(self, other: Finding) -> bool:
        """Report whether two findings are the same by RULE."""
        if self.file != other.file:
            return False
        if self.first and other.first:
            return self.first <= other.last + NEAR_LINES and other.first <= self.last + NEAR_LINES
        return bool(self.words & other.words)

    def shown(self) -> Facts:
        lines = {"line": self.first, "endLine": self.last} if self.first else {}
        return {
            "file": self.file,
            **lines,
            "category": self.category,
            "severity": self.severity,
            "message": self.message,
            "suggestion": self.suggestion,
        }


def findings_of(model: str, answer: Mapping[str, Any]) -> list[Finding] | None:
    """Return the findings in an answer; None if it has no list of findings, or none of its entries is readable."""
    given: object = answer.get("findings")
    if not isinstance(given, list):
        return None
    found = [
        _finding(model, table(one)) for one in items(answer["findings"])[:MOST_FINDINGS] if table(one).get("message")
    ]
    return found if found or not given else None


def _finding(model: str, given: Mapping[str, Any]) -> Finding:
    first = _line(given.get("line"))
    severity = str(given.get("severity") or "").lower()
    return Finding(
        model,
        str(given.get("file") or "").removeprefix("./")[:1000],
        first,
        max(first, _line(given.get("endLine"))) if first else 0,
        cut(str(given.get("category") or ""), 80),
        severity if severity in SEVERITIES else "medium",
        cut(str(given["message"]), MOST_TEXT),
        cut(str(given.get("suggestion") or ""), MOST_TEXT),
    )


def _line(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9 else 0


def group_findings(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Return groups of findings that are the same, in the order of the first; a finding that is the same as others in
    two groups joins the groups."""
    groups: list[list[Finding]] = []
    for finding in findings:
        joined = [group for group in groups if any(finding.same(one) for one in group)]
        merged = [one for group in joined for one in group] + [finding]
        if joined:
            joined[0][:] = merged
            groups = [group for group in groups if group is joined[0] or all(group is not one for one in joined)]
        else:
            groups.append(merged)
    return groups


def consensus(answers: Mapping[str, Sequence[Finding]], asked: int) -> tuple[Facts, list[Facts]]:
    """Return what the models agree on, and where they differ. ``answers`` is not empty; ``asked`` counts all."""
    groups = group_findings(finding for found in answers.values() for finding in found)
    count = len(answers)
    shared = [group for group in groups if len(_models(group)) > 1]
    agreement = None if count < 2 else round(len(shared) / len(groups), 2) if groups else 1.0
    lost = sum(PENALTIES[_worst(group)] * len(_models(group)) / count for group in groups)
    order = sorted(groups, key=lambda group: (-len(_models(group)), SEVERITIES.index(_worst(group))))
    issues = [_issue(group) for group in order if len(_models(group)) > 1 or _worst(group) in SEVERITIES[:2]]
    facts: Facts = {
        "score": round(max(0.0, 10.0 - lost), 1),
        "agreement": agreement,
        "priorityIssues": issues,
        "confidence": None if agreement is None else round(agreement * count / asked, 2),
        "rule": RULE,
    }
    return facts, _disagreements(groups, list(answers))


def _disagreements(groups: Sequence[Sequence[Finding]], models: Sequence[str]) -> list[Facts]:
    """Return findings of only some models, and findings whose severities differ by two steps."""
    found: list[Facts] = []
    for group in groups:
        having = _models(group)
        ranks = [SEVERITIES.index(one.severity) for one in group]
        if len(having) < len(models):
            without = [one for one in models if one not in having]
            found.append({**_issue(group), "kind": "seen by some", "without": without})
        elif len(having) > 1 and max(ranks) - min(ranks) >= 2:
            severities = {one.model: one.severity for one in group}
            found.append({**_issue(group), "kind": "judged differently", "severities": severities})
    return found


def _issue(group: Sequence[Finding]) -> Facts:
    worst = min(group, key=lambda one: SEVERITIES.index(one.severity))
    lines = [one for one in group if one.first]
    line_numbers = {"line": min(one.first for one in lines), "endLine": max(one.last for one in lines)} if lines else {}
    return {**worst.shown(), **line_numbers, "models": _models(group), "messages": [one.message for one in group]}


def _models(group: Sequence[Finding]) -> list[str]:
    return list(dict.fromkeys(one.model for one in group))


def _worst(group: Sequence[Finding]) -> str:
    return min((one.severity for one in group), key=SEVERITIES.index)
