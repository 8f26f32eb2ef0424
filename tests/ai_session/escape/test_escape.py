"""The escape battery in short: every critical attack, with no box and in one; and that its page fits its cases."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.ai_session.escape import battery, page
from tests.ai_session.escape.battery import ATTACKS, REFUSED, SETTINGS, WORKS, Setting, ready
from tests.ai_session.escape.session import Refused, Session

CRITICAL = [case for case in ATTACKS if case.severity == "critical"]
UNBOXED, BOXED = SETTINGS[:2]
DAILY = {
    *("append-bashrc", "through-proc-root", "own-audit-log", "git-config", "link-for-git", "ssh-key"),
    *("environments-of-others", "kill-one", "read-memory", "abstract-socket", "own-daemon", "dev-tcp"),
}
"""Of each group some."""


def test_there_are_enough_cases_and_each_has_its_name() -> None:
    assert len(ATTACKS) >= 80
    assert len(WORKS) >= 18
    names = Counter(case.name for case in (*ATTACKS, *WORKS))
    assert [name for name, count in names.items() if count > 1] == []
    daily = [case for case in CRITICAL if case.name in DAILY]
    assert (len(daily), {case.group for case in daily}) == (len(DAILY), {case.group for case in CRITICAL})


def test_the_page_is_of_these_cases_and_its_sums_are_right() -> None:
    text = page.PAGE.read_text()
    assert page.render(page.read(text)) == text


def test_what_the_page_says_is_enough() -> None:
    reported = page.read(page.PAGE.read_text())
    for setting in SETTINGS:
        if "bwrap" in setting.name:
            assert not reported[setting.name].escaped & {case.name for case in CRITICAL}
            assert reported[setting.name].stopped() >= max(75, len(ATTACKS) - 5)
            assert reported[setting.name].failed == frozenset()
    assert len(reported["none"].escaped) >= len(ATTACKS) - 5


@pytest.mark.torture
def test_critical_attacks_succeed_without_a_box() -> None:
    outcome = battery.run(UNBOXED, CRITICAL, ())
    assert set(outcome.escaped) == {case.name for case in outcome.attacks}, outcome.notes


@pytest.mark.parametrize(
    "names", [pytest.param(DAILY, id="some"), pytest.param(set(), id="all", marks=pytest.mark.torture)]
)
def test_no_critical_attack_gets_out_of_a_box(names: set[str]) -> None:
    outcome = battery.run(BOXED, [case for case in CRITICAL if not names or case.name in names], ())
    assert outcome.escaped + outcome.lost == [], outcome.notes


@pytest.mark.parametrize("setting", REFUSED, ids=lambda setting: setting.name)
@pytest.mark.torture  # test_workspace_protection.py demands more than the machine has
def test_where_no_box_can_be_made_or_only_a_weaker_one_no_session_starts(setting: Setting) -> None:
    with ready(setting) as target:
        target.begin()
        for backend in ("pty", "tmux"):
            with pytest.raises(
                Refused, match=r"sandbox_unavailable.*this machine can make \w+ boxes, but .*\n.*ai-session doctor"
            ):
                Session(target, target.project(), backend, setting.wrapper)
