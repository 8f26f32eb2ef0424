"""Names picked by many patterns at once are those that each pattern alone would pick."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import example, given
from hypothesis import strategies as st

from ai_session.config.settings import PASSED_ON
from ai_session.system.variable_names import like

TEXTS = st.text("AB_*?[]!-^x\\|(\n", max_size=6)


@given(name=TEXTS, patterns=st.lists(TEXTS, max_size=4))
@example(name="LC_ALL", patterns=list(PASSED_ON))
@example(name="lc_all", patterns=list(PASSED_ON))
@example(name="", patterns=[])
@example(name="", patterns=[""])
@example(name="HOME\n", patterns=["HOME"])
@example(name="A", patterns=["[", "[!B]", "A|B", "(?i)a"])
def test_it_is_as_with_one_after_the_other(name: str, patterns: list[str]) -> None:
    assert like(tuple(patterns))(name) is any(fnmatchcase(name, pattern) for pattern in patterns)
