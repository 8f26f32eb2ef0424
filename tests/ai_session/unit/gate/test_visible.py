"""What a person is shown of others' text: every character is seen, or written as an escape."""

from __future__ import annotations

import sys
import unicodedata
from importlib import import_module
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentwire.visible import visible
from ai_session.gate.consent.question import ask_about
from ai_session.models import Principal

HIDDEN = "\u3164\u115f\u1160\uffa0\u2800\u00ad\ufe0f\U000e0041\u202e\u2066\u200b\u200d\u034f\u180e\u17b4\ufeff\ufffc"


@pytest.mark.parametrize("char", HIDDEN)
def test_what_shows_nothing_is_an_escape(char: str) -> None:
    assert visible(f"rm{char} x") == f"rm{char.encode('unicode_escape').decode()} x"


def test_every_default_ignorable_code_point_is_an_escape() -> None:
    """As another implementation of Unicode knows them."""
    regex: Any = import_module("regex")
    ignorable = regex.compile(r"\p{Default_Ignorable_Code_Point}")
    found = ignorable.findall("".join(map(chr, range(sys.maxunicode + 1))))
    shown = [f"U+{ord(char):04X}" for char in found if visible(f"a{char}") == f"a{char}"]
    assert len(found) > 4000
    assert shown == []


def test_all_that_stays_alone_is_printable_and_takes_room() -> None:
    used = {0, 1, 2, 3, 14}  # planes; of the others, which are empty or private, some characters speak for all
    codes = [code for plane in range(17) for code in range(plane << 16, (plane + 1) << 16, 1 if plane in used else 97)]
    alone = [char for char in map(chr, codes) if visible(char) == char]
    assert len(alone) > 140_000
    assert all(char.isprintable() for char in alone)
    assert {unicodedata.category(char) for char in alone}.isdisjoint({"Mn", "Me", "Cf", "Cc", "Cn", "Co", "Cs"})
    assert [char for char in alone if unicodedata.category(char) == "Zs"] == [" "]


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "é",
        "e\u0301",
        "e\u0323\u0302",
        "ไม่",
        "हिन्दी",
        "שָׁלוֹם",
        "العَرَبِيَّة",
        "한국어",
        "日本語",
        "ёй",
        "🎉",
        "naïve — “q”",
    ],
)
def test_writing_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_marks_that_draw_over_what_is_not_theirs_are_escapes() -> None:
    assert visible("a=\u0338b") == "a=\\u0338b", "looks like another sign"
    assert visible("r\u0336m\u0336") == "r\\u0336m\\u0336", "struck through"
    assert visible("\u0301x") == "\\u0301x", "on nothing"
    assert visible("e\u0301" + "\u0301" * 9).count("\\u0301") == 9
    assert visible("ก" + "\u0e48" * 9).count("\u0e48") == 4, "tall enough to cover the line above"
    assert visible("a\u20dd") == "a\\u20dd"


def test_lines_stay_only_where_they_may() -> None:
    assert visible("a\nb\tc") == "a\\nb\\tc"
    assert visible("a\nb\r\u2028", lines=True) == "a\nb\\r\\u2028"


@given(st.text())
@example("\ud800")
def test_it_says_the_same_when_it_is_said_again(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert shown.isprintable()


def test_a_question_hides_nothing_wherever_it_comes_from() -> None:
    deceiving = "x\u3164\n\x1b[2J\u202e"
    question = ask_about(
        Principal("mcp", 1, client=deceiving, subject=deceiving),
        "execute_command",
        {},
        session="s",
        name=deceiving,
        about=deceiving,
        where=f"{deceiving}, sandbox none",
        detail="d",
        rule="r",
        reason=deceiving,
        policy="p",
    )
    assert visible(question.message, lines=True) == question.message
    assert question.message.count("\n") == 4, "the lines of the question and the one of what it is about"
