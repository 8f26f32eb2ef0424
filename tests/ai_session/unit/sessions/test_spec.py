"""What a new shell finds in its environment."""

from __future__ import annotations

import pytest

from ai_session.sessions.spec import SessionDefaults


@pytest.mark.parametrize(
    ("given", "language"),
    [
        ({}, "C.UTF-8"),
        ({"LANG": ""}, "C.UTF-8"),
        ({"LANG": "", "LC_ALL": ""}, "C.UTF-8"),
        ({"LANG": "de_DE.UTF-8"}, "de_DE.UTF-8"),
        ({"LANG": "", "LC_CTYPE": "de_DE.UTF-8"}, ""),
        ({"LC_ALL": "C"}, None),
    ],
)
def test_where_no_locale_is_set_text_is_utf_8(given: dict[str, str], language: str | None) -> None:
    assert SessionDefaults().environment(given, {}).get("LANG") == language
