"""The whole escape battery in every setting, compared with what its page says."""

from __future__ import annotations

import os

import pytest

from tests.ai_session.escape import battery, page
from tests.ai_session.escape.battery import SETTINGS, Setting
from tests.ai_session.escape.session import WITH_MASKED_PROC

pytestmark = pytest.mark.torture

AGAIN = "; if that is right: python -m tests.ai_session.escape.page"


@pytest.mark.parametrize("setting", SETTINGS[1:], ids=lambda setting: setting.name)
def test_boxes_stop_what_the_page_says(setting: Setting) -> None:
    if setting.wrapper == WITH_MASKED_PROC and os.geteuid() != 0:
        return  # only root can cover a part of /proc
    outcome = battery.run(setting)
    reported = page.read(page.PAGE.read_text())[setting.name]
    assert set(outcome.escaped) == reported.escaped, f"{outcome.notes}{AGAIN}"
    assert outcome.lost == [], outcome.notes
    assert set(outcome.failed) == reported.failed & {case.name for case in outcome.works}, f"{outcome.notes}{AGAIN}"


def test_without_a_box_nearly_all_succeed() -> None:
    """A few need what not every kernel has."""
    outcome = battery.run(SETTINGS[0])
    assert len(outcome.escaped) >= len(outcome.attacks) - 5, outcome.notes
    assert outcome.failed == []
