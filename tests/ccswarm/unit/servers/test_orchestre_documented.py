"""Orchestre's document to the letter: its envelope, its own sentence, what is unknown, what is no analysis, prompts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ccswarm.errors import InvalidArguments
from ccswarm.servers.mcp.prompts import PROMPTS, fill
from ccswarm.servers.mcp.toolsets.orchestre import plugin
from ccswarm.servers.mcp.toolsets.orchestre.analysis import analysis_of, brief_of, is_new
from ccswarm.servers.mcp.toolsets.orchestre.base import Refusal
from ccswarm.servers.mcp.toolsets.orchestre.model_tools import given_analysis
from ccswarm.servers.mcp.toolsets.orchestre.plan import plan_of, preferences_of
from ccswarm.servers.mcp.toolsets.orchestre.schemas import analysis_problem, plan_problem

SAAS = "Build SaaS with auth and billing"
COMPILER = "Build a compiler for our own language with a type checker and an LLVM backend"


def planned(requirements: str) -> tuple[dict[str, Any], dict[str, Any]]:
    brief = brief_of({"requirements": requirements})
    analysis = analysis_of(brief, None, 0.0)
    return analysis, plan_of(brief, analysis, None, preferences_of({}, brief, 1))


def test_the_documents_own_sentence_is_more_than_one_task() -> None:
    _, plan = planned(SAAS)
    titles = [
        task["title"] for phase in plan["phases"] for task in phase["tasks"] if phase["name"] in ("Base", "Features")
    ]
    assert titles == [f"Accounts and access: {SAAS}", f"Tenants: {SAAS}", f"Payments: {SAAS}"]
    assert plan_problem(plan) == ""


def test_what_no_rule_knows_has_no_number() -> None:
    analysis, plan = planned(COMPILER)
    assert (analysis["complexity"]["score"], analysis["complexity"]["level"]) == (None, "unknown")
    assert "unknown" in analysis["summary"]
    assert not re.search(r"\d", analysis["summary"])
    features = next(phase for phase in plan["phases"] if phase["name"] == "Features")
    assert (features["duration"], features["tasks"][0]["effort"]) == ("unknown", "unknown")
    assert "1 task of unknown length" in plan["totalDuration"]
    assert {one["date"] for one in plan["milestones"][1:]} == {"unknown"}
    assert (analysis_problem(analysis), plan_problem(plan)) == ("", "")


def test_a_new_idea_is_distinguished_from_work_on_existing_code() -> None:
    new = (SAAS, "Create a recipe app", "Write an invoice tool from scratch")
    there = ("Fix the login of this shop", "Refactor the parser", "Build a billing page into our existing shop")
    assert [is_new(brief_of({"requirements": one})) for one in (*new, *there)] == [True] * 3 + [False] * 3


@pytest.mark.parametrize("given", [{}, {"x": 1}, {"keyComponents": []}, {"complexity": {"factors": {}}}])
def test_what_is_no_analysis_is_refused_by_field(given: Any) -> None:
    with pytest.raises(Refusal, match=r"analysis\.(keyComponents|complexity\.factors): must be") as refused:
        given_analysis({"analysis": given})
    assert refused.value.code == "INVALID_ARGUMENTS"


def test_answers_have_the_names_of_the_document_and_ours() -> None:
    analysis, plan = planned(SAAS)
    reported = plugin.as_documented({"plan": plan, "method": "rules"})
    assert reported["phases"] == plan["phases"]
    assert {**reported["data"], "phases": reported["phases"]} == plan
    assert plugin.as_documented({"analysis": analysis, "notes": []}) == {"data": analysis}
    assert plugin.as_documented({"key": "a", "keys": ["a"]}) == {"data": {"key": "a", "keys": ["a"]}}


def test_prompts_say_what_to_do_with_what_was_given() -> None:
    assert [prompt.name for prompt in PROMPTS] == ["orchestrate", "plan", "review", "survey"]
    _, text = fill("orchestrate", {"idea": "Build {a} shop"})
    assert "Orchestrate this: Build {a} shop" in text
    assert "Call analyze_project" in text
    for name, given in (("orchestrate", {}), ("orchestrate", {"idea": " "}), ("nope", {"idea": "x"})):
        with pytest.raises(InvalidArguments):
            fill(name, given)
