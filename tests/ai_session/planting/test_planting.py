"""The planting battery in short: some cases of each class, with no box and in one; and that its page fits its cases."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.ai_session.planting import battery, page
from tests.ai_session.planting.battery import SETTINGS, Setting
from tests.ai_session.planting.cases import CASES
from tests.ai_session.planting.model import GROUPS

UNBOXED, BOXED = SETTINGS[0], [setting for setting in SETTINGS if "bwrap" in setting.name]
SHORT = [
    case
    for case in CASES
    if case.name
    in (
        *("submodule-filter", "hooks-path-and-absent", "claude-below", "code-workspace", "npm-below", "envrc-new"),
        *("parents-that-change-places", "dotenv-below", "by-an-alias"),
    )
]
MISSED = {"objects-from-elsewhere", "repository-far-below-node-modules"}
"""In a box of the strongest level; the page says why."""


def test_there_are_enough_cases_of_each_class_and_each_has_its_name() -> None:
    assert len(CASES) >= 150
    groups = Counter(case.group for case in CASES)
    assert min(groups[group] for group in GROUPS) >= 6
    assert {case.group for case in SHORT} == set(GROUPS)
    names = Counter(case.name for case in CASES)
    assert [name for name, count in names.items() if count > 1] == []


def test_the_page_is_of_these_cases_and_its_sums_are_right() -> None:
    text = page.PAGE.read_text()
    assert page.render(page.read(text)) == text


def test_what_the_page_says_is_enough() -> None:
    measured = page.read(page.PAGE.read_text())
    for setting in BOXED:
        assert {name for name, outcome in measured[setting.name].items() if outcome == "missed"} == MISSED
        for case in CASES:
            if case.severity == "critical" or case.group == "secrets":
                wanted = ("stopped", "noticed") if case.group == "git" else ("stopped",)
                assert measured[setting.name][case.name] in wanted
    without = [name for name, outcome in measured[UNBOXED.name].items() if outcome == "stopped"]
    assert without == ["program-of-a-server-of-ccswarm", "by-a-mount"], "what works nowhere says nothing of boxes"


DAILY = {"submodule-filter", "claude-below", "envrc-new", "parents-that-change-places", "dotenv-below"}
"""Of the groups that a box treats differently, one each: editors' and build tools' names are in one table with those of
agents, and what is denied is test_policy.py's."""


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        pytest.param(BOXED[0], DAILY, id=f"{BOXED[0].name}, some"),
        *(pytest.param(one, set(), id=one.name, marks=pytest.mark.torture) for one in BOXED),
    ],
)
def test_in_a_box_each_is_stopped_or_noticed(setting: Setting, names: set[str]) -> None:
    cases = [case for case in SHORT if not names or case.name in names]
    measured = battery.run(setting, cases)
    assert measured.of("missed") == set(), measured.notes
    said = page.read(page.PAGE.read_text())[setting.name]
    assert measured.outcomes == {case.name: said[case.name] for case in cases}, measured.notes
