"""Variables that a new session is asked to have: taken, or refused by name; never left out without a word."""

import pytest

from ai_session.tools.sessions import MOST_VARIABLE_BYTES, CreateSession


def test_a_variable_may_be_as_long_as_the_system_takes() -> None:
    value = "x" * (MOST_VARIABLE_BYTES - len("BIG=") - 1)
    assert CreateSession(name="s", env={"BIG": value, "TERM": "dumb"}).env["BIG"] == value


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"BIG": "x" * (MOST_VARIABLE_BYTES - len("BIG="))}, "BIG is too long"),
        ({"WIDE": "é" * (MOST_VARIABLE_BYTES // 2)}, "WIDE is too long"),
        ({f"V{n}": "x" * 100_000 for n in range(11)}, "too long together"),
        ({"AI_SESSION_ID": "mine"}, "AI_SESSION_ID is set by ai-session"),
        ({"AI_SESSION_CWD": "/"}, "AI_SESSION_CWD is set by ai-session"),
        ({"NUL": "a\0b"}, "NUL: contains a NUL"),
        ({"a-b": "x"}, "has 'a-b', which is not the name of a variable"),
    ],
)
def test_what_cannot_be_given_is_refused_by_name(env: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        CreateSession(name="s", env=env)
    assert "x" * 50 not in refused.value.errors()[0]["msg"]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
