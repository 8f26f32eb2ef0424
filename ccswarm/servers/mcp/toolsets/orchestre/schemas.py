"""The forms of an analysis and of a plan: models are asked for them, and their answers must match them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccswarm.plan.schemas import Schema
from ccswarm.servers.mcp.toolsets.orchestre.plan_toml import problems_of
from ccswarm.servers.mcp.toolsets.orchestre.rules import FACTORS

Facts = dict[str, Any]

MOST_ITEMS = 100


def _text(most: int = 4000) -> Facts:
    return {"type": "string", "maxLength": most}


def _list(items: Facts, least: int = 0) -> Facts:
    return {"type": "array", "items": items, "maxItems": MOST_ITEMS, "minItems": least}


def _object(properties: Facts, optional: tuple[str, ...] = ()) -> Facts:
    return {"type": "object", "properties": properties, "required": [one for one in properties if one not in optional]}


def _texts(*names: str) -> Facts:
    return {name: _text() for name in names}


_POINTS = {"type": "number", "minimum": 0, "maximum": 10}
_LEVEL = {"enum": ["low", "medium", "high"]}

ANALYSIS: Facts = _object(
    {
        "summary": _text(),
        "complexity": _object(
            {
                "score": {"anyOf": [_POINTS, {"type": "null"}]},
                "level": {"enum": ["low", "medium", "high", "very high", "unknown"]},
                "factors": _object(dict.fromkeys(FACTORS, _POINTS)),
            }
        ),
        "keyComponents": _list(_text(300), 1),
        "challenges": _list(
            _object(
                {**_texts("area", "description", "mitigation"), "severity": {"enum": [*_LEVEL["enum"], "critical"]}}
            )
        ),
        "recommendations": _object(
            {
                "architecture": _text(),
                "technologies": _list(_text(300)),
                "patterns": _list(_text(300)),
                "approach": _text(),
            }
        ),
        "risks": _list(
            _object({**_texts("type", "description", "mitigation"), "probability": _LEVEL, "impact": _LEVEL})
        ),
        "phases": _list(
            _object({"name": _text(300), "duration": _text(100), "goals": _list(_text(500))}, ("duration", "goals"))
        ),
    }
)

PLAN: Facts = _object(
    {
        "overview": _text(),
        "methodology": _text(300),
        "totalDuration": _text(100),
        "phases": _list(
            _object(
                {
                    "id": _text(20),
                    "name": _text(300),
                    "duration": _text(100),
                    "objectives": _list(_text(500)),
                    "tasks": _list(
                        _object(
                            {
                                "id": {"type": "string", "pattern": r"^[0-9]{1,3}\.[0-9]{1,3}$"},
                                "title": _text(300),
                                "description": _text(),
                                "effort": _text(100),
                                "dependencies": _list({"type": "string"}),
                                "assignee": _text(100),
                                "priority": {"enum": ["low", "medium", "high", "critical"]},
                                "kind": {"enum": ["study", "build", "check", "tell"]},
                            },
                            ("assignee", "kind"),
                        ),
                        1,
                    ),
                    "deliverables": _list(_text(500)),
                    "risks": _list(_text(500)),
                },
            ),
            1,
        ),
        "milestones": _list(_object({"name": _text(300), "date": _text(100), "criteria": _list(_text(500))})),
        "resources": {"type": "object"},
    },
    ("resources",),
)

_ANALYSIS, _PLAN = Schema(ANALYSIS), Schema(PLAN)


def analysis_problem(answer: Mapping[str, Any]) -> str:
    """Return what is wrong with an analysis; ``""`` if nothing is."""
    return _ANALYSIS.problem(answer)


def plan_problem(answer: Mapping[str, Any]) -> str:
    """Return what is wrong with a plan, or keeps its tasks from being ordered; ``""`` if nothing does."""
    return _PLAN.problem(answer) or "; ".join(problems_of(answer)[:10])
