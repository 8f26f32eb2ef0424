"""A question on a terminal: what is drawn, and which keys mean what, when."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session.cli.approvals import format_question
from ai_session.cli.question_panel import FEWER, NOT_YET, QUIET_SECONDS, QuestionPanel
from ai_session.terminal.screen import Screen


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


ALL = ["once", "session", "always", "prefix"]


def panel(
    message: str = "agent wants execute_command:\n    rm -rf build", scopes: list[str] = ALL
) -> tuple[QuestionPanel, Clock]:
    clock = Clock()
    facts = {"question_id": "ap_1", "message": message, "scopes": scopes, "prefix": "git log"}
    return QuestionPanel(facts, clock), clock


def armed(message: str = "agent wants it", rows: int = 24, cols: int = 80, scopes: list[str] = ALL) -> QuestionPanel:
    found, clock = panel(message, scopes)
    clock.now += QUIET_SECONDS
    found.draw(rows, cols)
    return found


def shown(found: QuestionPanel, rows: int = 24, cols: int = 80, before: bytes = b"") -> list[str]:
    screen = Screen(rows, cols)
    screen.feed(before)
    screen.feed(found.draw(rows, cols))
    return [line.rstrip() for line in screen.snapshot().lines]


def test_it_lies_over_the_last_lines_and_leaves_the_others() -> None:
    found, clock = panel()
    lines = shown(found, before=b"\r\n".join(b"line %d" % n for n in range(24)))
    assert lines[:20] == [f"line {n}" for n in range(20)]
    assert lines[20:] == [" ai-session asks", "agent wants execute_command:", "    rm -rf build", NOT_YET]
    clock.now += QUIET_SECONDS
    assert shown(found)[-1] == "y once · s this session · a always · p git log … · n deny · Esc later"


def test_nothing_in_it_is_hidden() -> None:
    lines = shown(armed("agent wants it:\n    rm\u3164\u202e\u2800 -rf\x9b x"))
    assert "    rm\\u3164\\u202e\\u2800 -rf\\x9b x" in lines


def test_nor_in_the_verbs_that_show_and_answer_it() -> None:
    message = "it wants:\n    rm\u00ad\x1b[2J x"
    facts = {"question_id": "ap_1", "rule": "r\u3164", "expires_at": 0, "message": message}
    assert format_question(facts) == "ap_1  (rule r\\u3164, 0 s left)\n  it wants:\n      rm\\xad\\x1b[2J x\n\n"


def test_a_yes_that_is_to_be_signed_is_no_key() -> None:
    question_id = f"ap_{'x' * 22}"
    facts = {"question_id": question_id, "message": "agent wants it", "scopes": ALL, "prefix": "", "answer": "signed"}
    clock = Clock()
    found = QuestionPanel(facts, clock)
    clock.now += QUIET_SECONDS
    assert shown(found)[-1] == f"n deny · Esc later · sign a yes: ai-session approve {question_id}"
    assert [found.handle_keys(key) for key in (b"y", b"s", b"a")] == [b"", b"", b""]
    assert json.loads(found.handle_keys(b"n") or b"") == {"question_id": question_id, "allowed": False}
    assert f", yours to sign)\n  {facts['message']}" in format_question({**facts, "rule": "r", "expires_at": 0})


def test_a_folder_is_allowed_with_one_key_where_that_is_offered() -> None:
    found = armed(scopes=["once", "always", "folder"])
    assert shown(found)[-1] == "y once · a always · f this folder and all below · n deny · Esc later"
    assert json.loads(found.handle_keys(b"f") or b"") == {"question_id": "ap_1", "allowed": True, "scope": "folder"}


def test_only_what_is_offered_can_be_chosen() -> None:
    found = armed(scopes=["once", "always"])
    assert shown(found)[-1] == "y once · a always · n deny · Esc later"
    assert [found.handle_keys(key) for key in (b"s", b"p", b"f")] == [b"", b"", b""]
    assert found.handle_keys(b"a")


@pytest.mark.parametrize(
    ("key", "word"),
    [
        (b"y", {"allowed": True, "scope": "once"}),
        (b"s", {"allowed": True, "scope": "session"}),
        (b"a", {"allowed": True, "scope": "always"}),
        (b"p", {"allowed": True, "scope": "prefix"}),
        (b"n", {"allowed": False}),
        (b"\x1b", {"later": True}),
        (b"\x1b[121u", {"allowed": True, "scope": "once"}),
        (b"\x1b[27;1u", {"later": True}),
    ],
)
def test_one_key_answers_once(key: bytes, word: dict[str, Any]) -> None:
    found = armed()
    answer = found.handle_keys(key)
    assert answer is not None
    assert json.loads(answer) == {"question_id": "ap_1", **word}
    assert found.handle_keys(key) == b""


@given(st.binary(max_size=6))
def test_no_other_bytes_answer(data: bytes) -> None:
    answer = armed().handle_keys(data)
    if data not in (b"y", b"s", b"a", b"p", b"n", b"\x1b") and not data.endswith(b"u"):
        assert answer == b""


def test_keys_belong_to_the_program_until_nothing_was_typed_for_a_second() -> None:
    found, clock = panel()
    found.draw(24, 80)
    for _ in range(3):
        clock.now += QUIET_SECONDS * 0.9
        assert found.handle_keys(b"y") is None
    clock.now += QUIET_SECONDS
    assert found.arms_in is None
    assert found.handle_keys(b"y")


def test_what_does_not_fit_can_be_denied_but_not_allowed() -> None:
    long = "\n".join(f"line {n}" for n in range(30))
    found = armed(long, rows=10)
    lines = shown(found, rows=10)
    assert lines[-1] == FEWER
    assert "more lines" in lines[-2]
    for key in (b"y", b"s", b"a", b"p"):
        assert found.handle_keys(key) == b""
    assert found.handle_keys(b"n")
    found = armed(long, rows=10)
    found.draw(50, 80)
    assert found.handle_keys(b"y")


@given(st.text(max_size=400), st.integers(1, 30), st.integers(1, 90))
def test_it_never_leaves_its_place_whatever_is_asked(message: str, rows: int, cols: int) -> None:
    """No scrolling: the first line of a taller terminal stays where it was."""
    found = armed(message, rows, cols)
    screen = Screen(rows + 1, cols)
    screen.feed(b"\x1b[1;1HX")
    height = len(found.draw(rows, cols))
    screen.feed(found.draw(rows, cols).replace(b"\n", b"?"))
    assert height
    assert b"\n" not in found.draw(rows, cols)
    text = found.draw(rows, cols).decode()
    assert all(char.isprintable() or char in "\x1b\x0f" for char in text)
