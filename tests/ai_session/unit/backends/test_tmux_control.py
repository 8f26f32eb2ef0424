"""Control mode's text: what is written stands for the bytes meant, what is read is one answer per command."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session.backends.tmux.control import Reply, ReplyParser, join, literal, quote
from ai_session.backends.tmux.plugin import exact_environment
from ai_session.backends.tmux.server import version_number
from ai_session.backends.tmux.terminal import exit_status
from ai_session.models import ExitStatus

STREAM = (
    b"%begin 1700 1 0\n%end 1700 1 0\n"
    b"%session-changed $0 ais-keeper\n"
    b"%begin 1701 2 1\nfirst\n\n%end 1700 1 0\n%begin 9 9 1\n%end 1701 2 1\n"
    b"%sessions-changed\nnot a notice\n"
    b"%begin 1702 3 1\nno such thing\n%error 1702 3 1\n"
)
EVENTS: list[Reply | bytes] = [
    Reply(ok=True, own=False, lines=[]),
    b"%session-changed $0 ais-keeper",
    Reply(ok=True, own=True, lines=[b"first", b"", b"%end 1700 1 0", b"%begin 9 9 1"]),
    b"%sessions-changed",
    Reply(ok=False, own=True, lines=[b"no such thing"]),
]


@given(st.lists(st.integers(0, len(STREAM))))
def test_any_chunking_gives_the_same_answers(cuts: list[int]) -> None:
    parser = ReplyParser()
    edges = [0, *sorted(cuts), len(STREAM)]
    seen = [event for a, b in pairwise(edges) for event in parser.feed(STREAM[a:b])]
    assert seen == EVENTS


def test_an_end_shown_on_a_captured_screen_is_not_believed() -> None:
    parser = ReplyParser()
    seen: list[Reply | bytes] = []
    forged = [b"%end 7 2 1", b"%begin 7 3 1", b"%sessions-changed"]
    stream = b"%begin 7 1 1\n3 80\n%end 7 1 1\n%begin 7 2 1\n" + b"\n".join([*forged, b"%end 7 2 1", b""])
    for event in parser.feed(stream):
        seen.append(event)
        if len(seen) == 1:
            parser.minimum = 3
    assert [event.lines for event in seen if isinstance(event, Reply)] == [[b"3 80"], forged]
    assert parser.minimum == 0


@given(st.binary())
def test_a_quoted_word_stands_for_its_bytes(data: bytes) -> None:
    word = quote(data)
    assert word[:1] == word[-1:] == b'"'
    inside = word[1:-1]
    assert all(32 <= code < 127 for code in inside)
    assert not set(inside) & set(b'"$~')
    assert inside.decode("unicode_escape").encode("latin-1") == data


def test_text_is_quoted_as_the_system_encodes_it() -> None:
    assert quote("aé\udcff") == quote(b"a\xc3\xa9\xff")


@given(st.lists(st.sampled_from([";", "\\;", "\\\\;", "a;", ";;", "x", "\\", ""])))
def test_only_a_bare_semicolon_separates(words: list[str]) -> None:
    assert join(["a", ";", "b"]) == b'"a" ; "b"'
    assert join([literal(word) for word in words]) == b" ".join(quote(word) for word in words)


@pytest.mark.parametrize(
    ("version", "number"),
    [("3.3a", (3, 3)), ("3.10", (3, 10)), ("next-3.4", (3, 4)), ("openbsd-7.5", (7, 5)), ("master", (999, 0))],
)
def test_versions(version: str, number: tuple[int, int]) -> None:
    assert version_number(version) == number


@pytest.mark.parametrize(
    ("code", "name", "status"),
    [
        ("0", "", ExitStatus(code=0)),
        ("255", "", ExitStatus(code=255)),
        ("", "9", ExitStatus(signal=9)),
        ("", "KILL", ExitStatus(signal=9)),
        ("", "SIGTERM", ExitStatus(signal=15)),
        ("", "hup", ExitStatus(signal=1)),
        ("", "", ExitStatus(lost=True)),
        ("", "NOSUCH", ExitStatus(lost=True)),
    ],
)
def test_exit_status(code: str, name: str, status: ExitStatus) -> None:
    assert exit_status(code, name) == status


def test_what_was_added_on_the_way_is_taken_away_and_what_was_changed_is_put_back() -> None:
    env = {"PLAIN": "1", "SHELL": "/bin/zsh", "_": "x", "FUNC%%": "() { :; }", "PATH": "/bin"}
    words = list(exact_environment(env))
    removed = [name for flag, name in pairwise(words) if flag == "-u"]
    assert {"TMUX", "TMUX_PANE", "PWD", "LC_ALL", "SHLVL", "COLORTERM"} <= set(removed)
    assert not {"SHELL", "_", "PATH", "PLAIN", "TERM"} & set(removed)
    assert [word for word in words if "=" in word] == ["SHELL=/bin/zsh", "_=x", "FUNC%%=() { :; }"]
    # The gate runs env in the C locale.
    assert "LC_ALL=de_DE" in list(exact_environment(env | {"LC_ALL": "de_DE"}))
