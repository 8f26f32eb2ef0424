"""What a person reads before they answer: whole, printable, and how far an answer would reach."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ai_session.gate.consent.question import SHOWN_CHARS, ask_about, describe_call, digest, narrowed
from ai_session.models import Principal, Question

ME = Principal("mcp", 1000, client="agent")


def asked(about: str, **changes: Any) -> Question:
    facts: dict[str, Any] = {
        "session": "ses_1",
        "name": "main",
        "where": "/work, sandbox none",
        "detail": narrowed(about, about),
        "rule": "default:no-box",
        "reason": "Why.",
        "policy": "p",
        **changes,
    }
    return ask_about(ME, "execute_command", {}, about=about, **facts)


def test_it_says_who_wants_what_where_and_why_and_what_the_same_is() -> None:
    lines = asked("git log -5", prefix="git log").message.split("\n")
    assert lines[:3] == [
        "agent wants execute_command in session main (/work, sandbox none):",
        "    git log -5",
        "Why.",
    ]
    assert lines[3:] == [
        '"The same" means exactly this, to the letter.',
        '"Begins like it" means git log …, in plain words that only look below the directory.',
    ]
    assert asked("").message.endswith('"The same" means every execute_command that default:no-box asks about.')
    lines = asked("/w", folder="/w\x1b").message.split("\n")
    assert lines[3] == '"The same" means execute_command with exactly this, whatever the session is called.'
    assert lines[4].startswith(
        '"This folder and all below" means every execute_command in /w\\x1b or in any directory below'
    )


def test_how_far_a_yes_may_reach_depends_on_what_there_is_to_hold_on_to() -> None:
    assert asked("ls").scopes == ("once", "session", "always")
    assert asked("ls", session="", name="").scopes == ("once", "always")
    assert asked("ls", prefix="ls").scopes == ("once", "session", "always", "prefix")
    assert asked("/w", session="", folder="/w").scopes == ("once", "always", "folder")


def test_everything_that_matters_of_a_call_is_shown_and_bound() -> None:
    given = {
        "session_id": "main",
        "command": "sh",
        "stdin": "rm -rf ~",
        "timeout_seconds": 5.0,
        "separate_stderr": True,
    }
    assert describe_call(given, "sh") == "sh\nstdin: rm -rf ~"
    given = {"name": "b", "working_directory": "", "shell": "/tmp/sh", "backend": "pty", "env": {"B": "é", "A": "1"}}
    assert describe_call(given, "/work") == '/work\nenv: {"A": "1", "B": "é"}\nshell: /tmp/sh'
    assert describe_call({"session_id": "main", "rows": 5}, "") == ""
    assert describe_call({"unheard_of": [1]}, "") == "unheard_of: [1]"


def test_what_is_kept_of_an_answer_is_exact_bounded_and_without_secrets() -> None:
    long = "x" * 100_000
    assert len(narrowed(long, long)) < 2100
    assert narrowed(long, long) != narrowed(long + "y", long + "y")
    assert narrowed("curl s3cret", "curl [REDACTED]") != narrowed("curl other", "curl [REDACTED]")
    assert "s3cret" not in narrowed("curl s3cret", "curl [REDACTED]")
    assert narrowed("", "") == ""


@given(st.text(max_size=200))
def test_no_text_steers_the_terminal_or_leaves_its_lines(text: str) -> None:
    message = asked(text).message
    assert all(char.isprintable() or char == "\n" for char in message)
    assert message.count("\n") == text.count("\n") + (4 if text else 3) - 1


def test_what_is_too_long_says_so() -> None:
    assert "… (5 more characters)" in asked("x" * (SHOWN_CHARS + 5)).message


def test_a_key_makes_no_other_call() -> None:
    assert digest({"command": "ls", "call_key": "a"}) == digest({"command": "ls", "call_key": "b"})
    assert digest({"command": "ls"}) != digest({"command": "ls "})
