"""The whole planting battery in every setting, compared with what its page says."""

from __future__ import annotations

import pytest

from tests.ai_session.planting import battery, page
from tests.ai_session.planting.battery import SETTINGS, Setting

pytestmark = pytest.mark.torture


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_planting_ends_as_the_page_says(setting: Setting) -> None:
    measured = battery.run(setting)
    said = page.read(page.PAGE.read_text())[setting.name]
    again = "if that is right: python -m tests.ai_session.planting.page"
    assert measured.outcomes == said, f"{measured.notes}; {again}"
