"""The share of one owner."""

from __future__ import annotations

import pytest

from ai_session.system.shares import share


@pytest.mark.parametrize(
    ("whole", "most", "found"), [(64, 48, 48), (64, 64, 48), (64, 9, 9), (5, 5, 3), (2, 2, 1), (1, 1, 1), (0, 5, 1)]
)
def test_no_owner_has_more_than_three_quarters_and_each_has_one(whole: int, most: int, found: int) -> None:
    assert share(whole, most) == found
