"""Names of sessions: any script, one word everywhere, nothing that hides."""

from __future__ import annotations

import shlex
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwire.plugins import load, names
from agentwire.visible import visible
from ai_session.cli.output import TYPED_AS
from ai_session.sessions.names import MOST_CHARS, checked_name, name_from, normalized


def is_name(text: str) -> bool:
    try:
        return checked_name(text) == text
    except ValueError:
        return False


LETTERS = st.characters(categories=["L", "Nd"])
OTHERS = st.one_of(LETTERS, st.sampled_from("._-"), st.characters(categories=["M"]))
NAMES = st.builds(lambda first, rest: normalized(first + rest), LETTERS, st.text(OTHERS, max_size=12)).filter(is_name)


@pytest.mark.parametrize(
    "name",
    ["build", "a.b-c_d", "7", "b\u00e4r", "\u65e5\u672c", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u05d0\u05d1"],
)
def test_names_of_any_script(name: str) -> None:
    assert checked_name(name) == name


def test_one_spelling() -> None:
    assert checked_name("a\u0308") == "\u00e4" == normalized("a\u0308")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("a" * (MOST_CHARS + 1), "is longer than 64 characters"),
        ("a/b", "has '/', but only letters, digits and the characters . _ - are allowed"),
        ("-rf", "begins with '-', not with a letter or digit"),
        ("..", "begins with '.'"),
        ("a b", "has ' '"),
        ("a\u00a0b", "has '\\\\xa0'"),
        ("a\u3164", "letters, digits"),
        ("a\u202eb", "letters, digits"),
        ("a\u200b", "letters, digits"),
        ("a\x1b[31m", "letters, digits"),
        ("a\n", "letters, digits"),
        ("a\u0300\u0301\u0302\u0303\u0304\u0305\u0306", "combining marks without a letter"),
        ("\u0301a", "combining marks without a letter"),
        ("a$(id)", "has '$'"),
        ("a;b", "has ';'"),
        ("\udcff", "letters, digits"),
    ],
)
def test_what_is_no_name_is_said_in_words(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        checked_name(text)
    assert problem in str(caught.value)


@given(st.text(max_size=80))
def test_what_is_taken_is_safe_everywhere(text: str) -> None:
    try:
        name = checked_name(text)
    except ValueError:
        return
    assert visible(name) == name == unicodedata.normalize("NFC", name) == checked_name(name)
    assert name.split() == [name]
    assert shlex.split(name) == [name]
    assert not set(name) & set("/\\:'\"$`;&|<>(){}[]*?!#~%=@+,")
    assert name[0] not in "-._"


@given(st.text(max_size=80))
def test_a_name_is_made_of_any_text(text: str) -> None:
    name = name_from(text)
    assert checked_name(name) == name


def test_a_person_gives_all_that_verbs_send() -> None:
    """Arguments of the tools that verbs call, but for those that verbs make themselves."""
    used = {"create_session", "execute_command", "send_input", "read_screen", "close_session", "get_session_info"}
    own = {"call_key", "max_output_chars", "separate_stderr", "format"}
    tools = [
        tool for plugin in names("ai_session.tools") for tool in load("ai_session.tools", plugin) if tool.name in used
    ]
    assert {tool.name for tool in tools} == used
    assert {field for tool in tools for field in tool.arguments.model_fields} - own <= set(TYPED_AS)
