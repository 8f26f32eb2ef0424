"""What the page says of the rules is what they are."""

from __future__ import annotations

from pathlib import Path

from ccswarm.servers.mcp.toolsets.orchestre.research import RULE as SEARCH
from ccswarm.servers.mcp.toolsets.orchestre.review import RULE as CONSENSUS
from ccswarm.servers.mcp.toolsets.orchestre.rules import FACTORS, OBSERVATIONS, TOPICS, Observation, Topic

PAGE = Path(__file__).parents[4] / "docs/protocols/orchestre-analysis.md"


def points(of: Topic | Observation) -> str:
    return ", ".join(f"{factor} {of.points[factor]}" for factor in FACTORS if factor in of.points) or "–"


def topics() -> str:
    words = [one.words.replace("*", r"\*") for one in TOPICS]
    rows = [
        f"| {one.rule} | {said} | {points(one)} | {one.severity} |" for one, said in zip(TOPICS, words, strict=True)
    ]
    return "\n".join(("| rule | words | points | severity |", "|---|---|---|---|", *rows))


def observations() -> str:
    rows = [f"| {one.rule} | {one.risk} | {points(one)} | {one.probability}, {one.impact} |" for one in OBSERVATIONS]
    return "\n".join(("| rule | risk | points | probability, impact |", "|---|---|---|---|", *rows))


def test_the_tables_of_the_page_are_those_of_the_rules() -> None:
    page = PAGE.read_text()
    assert topics() in page
    assert observations() in page
    reported = " ".join(page.split())
    assert CONSENSUS in reported
    assert SEARCH in reported
