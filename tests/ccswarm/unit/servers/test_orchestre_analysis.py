"""Analyses by rules: every score and risk has its rule and its evidence, and any text has an analysis."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccswarm.servers.mcp.toolsets.orchestre.analysis import (
    analysis_of,
    brief_of,
    count_in,
    days_in,
    level_of,
    span,
    statements,
    topics_in,
)
from ccswarm.servers.mcp.toolsets.orchestre.repository.scan import count_files
from ccswarm.servers.mcp.toolsets.orchestre.repository.tree import Tree
from ccswarm.servers.mcp.toolsets.orchestre.rules import FACTORS, NAMED, OBSERVATIONS, TOPICS, technologies
from ccswarm.servers.mcp.toolsets.orchestre.schemas import analysis_problem
from tests.ccswarm.support.orchestre_trees import MIXED, PYTHON, made

NOW = 1_800_000_000.0
SHOP = "Build a SaaS shop with user authentication and subscription billing through Stripe for thousands of users."


def analysis_in(requirements: str, facts: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return analysis_of(brief_of({"requirements": requirements, **more}), facts, NOW)


def test_each_point_names_its_rule_and_its_word() -> None:
    complexity = analysis_in(SHOP)["complexity"]
    for factor in FACTORS:
        points = sum(one["points"] for one in complexity["because"] if one["factor"] == factor)
        assert complexity["factors"][factor] == min(10, 1 + points)
    evidence = {one["rule"]: one["evidence"] for one in complexity["because"]}
    assert evidence == {
        "accounts": '"authentication" in the requirements',
        "payments": '"subscription" in the requirements',
        "scale": '"thousands of" in the requirements',
        "tenants": '"SaaS" in the requirements',
    }
    highest = sorted(complexity["factors"].values())[-2:]
    assert complexity["score"] == sum(highest) / 2


def test_words_are_found_whole_only() -> None:
    assert analysis_in("A formatter for the restoration of informal liver paintings")["keyComponents"] == [
        "The program itself"
    ]
    assert analysis_in("Show a form, and offer a REST API to everybody")["keyComponents"] == [
        "Programming interface",
        "User interface",
    ]
    assert analysis_in("Users sign-in with\n OAuth2 and more")["keyComponents"] == ["Accounts and access"]


def test_constraints_and_context_count_too() -> None:
    one = analysis_in("Something that is not told here", constraints=["must be GDPR compliant"])
    assert one["complexity"]["because"][0]["evidence"] == '"GDPR" in a constraint'
    assert one["risks"][0]["rule"] == "personal data"
    two = analysis_in("Something that is not told here", context={"existingStack": ["PostgreSQL", "Rust"]})
    assert two["recommendations"]["technologies"] == ["PostgreSQL", "Rust"]
    three = analysis_in("Something that is not told here", context={"existingStack": "Rust, a thing; " + "x" * 999})
    assert [one[:9] for one in three["recommendations"]["technologies"]] == ["Rust", "a thing", "x" * 9]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("No payments, no accounts.", []),
        ("A shop without payments or accounts", []),
        ("It does not need authentication", []),
        ("We don't need any login; excluding mobile apps", []),
        ("Login is not needed. Payments are out of scope.", []),
        ("Nobody gets in without login", ["accounts"]),
        ("It can't work without a database", ["data"]),
        ("No downtime, login with SSO", ["accounts"]),
        ("No user accounts but login with SSO", ["accounts"]),
        ("There is no database; payments by Stripe", ["payments"]),
        ("Take no more than 100 concurrent users, and not only payments", ["payments", "scale"]),
        ("Passwords must not be stored in plain text", ["accounts"]),
    ],
)
def test_a_word_that_is_ruled_out_does_not_count(text: str, rules: list[str]) -> None:
    assert [topic.rule for topic, _ in topics_in([("the requirements", text)])] == rules


def test_a_repository_is_evidence(tmp_path: Path) -> None:
    facts = count_files(Tree(made(tmp_path, {**MIXED, "api/main_test.go": "", "web/src/index.test.ts": ""})))
    found = analysis_in("Add more of what is there to the rest of it", facts)
    rules = {one["rule"]: one["evidence"] for one in found["risks"]}
    assert rules["no tests"] == f"{facts['lines']} lines of code, no test"
    assert rules["files of secrets"] == "web/.env"
    assert rules["no CI"] == "no file of a CI service"
    assert "no lock file" not in rules
    assert found["complexity"]["factors"]["security"] == 3
    assert found["recommendations"]["architecture"].startswith("Keep what is there. ")
    assert "Go" in found["recommendations"]["technologies"]


def test_what_git_knows_is_evidence(tmp_path: Path) -> None:
    git = {
        "commits": 100,
        "topAuthorShare": 0.9,
        "lastCommit": NOW - 400 * 86400,
        "churnOf": 100,
        "churn": [{"path": "a.py", "commits": 60}],
    }
    facts = {**count_files(Tree(made(tmp_path, PYTHON))), "git": git}
    rules = {one["rule"]: one["evidence"] for one in analysis_in("Add more of what is there", facts)["risks"]}
    assert rules["one author"] == "90% of 100 commits by one author"
    assert rules["a year without change"] == "the last commit is 400 days old"
    assert rules["a file changed all the time"] == "a.py: 60 of 100 commits"


def test_a_timeline_that_does_not_suffice_is_a_risk() -> None:
    late = [
        one
        for one in analysis_in(SHOP, context={"timeline": "1 week", "teamSize": "2"})["risks"]
        if one["rule"] == "timeline"
    ]
    assert [one["evidence"] for one in late] == ["25 days for 2, and 5 working days in '1 week'"]
    in_time = analysis_in(SHOP, context={"timeline": "a year, or 1 year", "teamSize": 2})["risks"]
    assert "timeline" not in {one["rule"] for one in in_time}


def test_each_topic_is_found_by_each_of_its_words() -> None:
    for topic in TOPICS:
        for word in topic.words.split(","):
            plain = word.strip().replace("*", "s")
            assert topic.pattern.search(f"we want {plain}, soon"), (topic.rule, plain)
    assert len({topic.rule for topic in TOPICS} | {one.rule for one in OBSERVATIONS}) == len(TOPICS) + len(OBSERVATIONS)


@pytest.mark.parametrize("name", NAMED.split(", "))
def test_technologies_are_found_by_name(name: str) -> None:
    assert name in technologies(f"Use {name}.") or any(name in one.split() for one in technologies(f"Use {name}."))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One thing. Another thing! A third one?", ["One thing", "Another thing", "A third one"]),
        ("# Title\n- first item\n* second item\n3. third item\n", ["first item", "second item", "third item"]),
        ("It needs:\n  - a, b and c\n  - d or e", ["a, b and c", "d or e"]),
        ("x", ["x"]),
        ("same here\nsame here", ["same here"]),
    ],
)
def test_statements(text: str, found: list[str]) -> None:
    assert statements(text) == found


def test_spans() -> None:
    assert [days_in(one) for one in ("6 weeks", "10 days", "3-month", "1 quarter", "soon")] == [30, 10, 63, 63, 0]
    assert [span(one) for one in (1, 2, 9, 10, 11)] == ["1 day", "2 days", "9 days", "2 weeks", "3 weeks"]
    assert [level_of(one) for one in (1, 3, 3.5, 6, 8, 8.5, 10)] == [
        "low",
        "low",
        "medium",
        "medium",
        "high",
        "very high",
        "very high",
    ]
    assert [count_in(one) for one in (3, "3 people", None, "none", [5])] == [3, 3, 0, 0, 5]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
TEXT = st.text(max_size=300) | st.lists(
    st.sampled_from(
        [*(word.strip() for one in TOPICS for word in one.words.split(",")), "must", "could", ". ", "\n- "]
    ),
    max_size=40,
).map(" ".join)


@given(
    requirements=TEXT,
    constraints=st.lists(TEXT, max_size=2),
    context=st.dictionaries(
        st.sampled_from(["existingStack", "teamSize", "timeline", "constraints", "businessDomain"]), JUNK
    ),
)
def test_any_text_has_an_analysis(requirements: str, constraints: list[str], context: dict[str, Any]) -> None:
    found = analysis_in(requirements, constraints=constraints, context=context)
    assert analysis_problem(found) == ""
    assert all(one["rule"] and one["evidence"] for one in (*found["risks"], *found["complexity"]["because"]))
    assert re.fullmatch(r"Complexity (\d+(\.5)? of 10|unknown).*\.", found["summary"], re.DOTALL)
    json.dumps(found)


def test_the_longest_text_takes_no_time() -> None:
    for text in ("a " * 2500, "-" * 5000, "auth" * 1250, " \n" * 2500, "1. " * 1600):
        score = analysis_in(text)["complexity"]["score"]
        assert score is None or score >= 1
