"""What both packages have for themselves, since neither imports the other, is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COPIES = ("path_patterns", "protected_names", "visible")


@pytest.mark.parametrize("name", COPIES)
def test_it_is_the_same_in_both_packages(name: str) -> None:
    files = [ROOT / package / f"{name}.py" for package in ("ai_session", "ccswarm")]
    one, other = (file.read_text().replace("ai_session", "ccswarm") for file in files)
    assert one == other
