"""What is told of arguments: enough to compare calls, and never a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccswarm.config.masks import Masks
from ccswarm.toolbox.arguments import (
    GUESSABLE_CHARS,
    MOST_MASKED_CHARS,
    MOST_NAMES,
    TEXT_CHARS,
    masked,
    not_json,
    shape,
)

SECRET = "hunter2-hunter2"
ENVIRONMENT = {
    "MY_API_KEY": SECRET,
    "GITHUB_TOKEN": "ghp_1234567890",
    "LONGER_TOKEN": "ghp_1234567890abc",
    "DB_PASSWORD": "short",
    "PWD": "/home/me/work",
    "OLDPWD": "/home/me/work",
    "SSH_AUTH_SOCK": "/tmp/ssh-agent",
    "KEYBOARD": "german-keys",
    "HOME": "/home/me",
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=10,
)


def test_shapes_tell_names_types_and_sizes() -> None:
    reported = shape(
        {"text": "x" * 40, "pin": 1234, "word": "swordfish", "on": True, "none": None, "many": [1, 2]}, str
    )
    assert reported == {
        "text": {"type": "str", "chars": 40, "sha256": reported["text"]["sha256"]},
        "pin": {"type": "int"},
        "word": {"type": "str", "chars": 9},
        "on": {"type": "bool"},
        "none": {"type": "NoneType"},
        "many": {"type": "list", "chars": 6},
    }
    assert reported["text"]["sha256"] != shape({"text": "y" * 40}, str)["text"]["sha256"]
    assert len(shape({str(number): 1 for number in range(2 * MOST_NAMES)}, str)) == MOST_NAMES


@given(st.text(st.characters(), max_size=GUESSABLE_CHARS), st.integers())
def test_what_could_be_guessed_has_no_digest(text: str, number: int) -> None:
    reported = shape({"a": text, "b": number}, str)
    assert all("sha256" not in facts and "text" not in facts for facts in reported.values())


@given(ANYTHING, st.text())
def test_any_arguments_have_a_shape(value: Any, name: str) -> None:
    reported = shape({name: value, "command": value}, Masks(ENVIRONMENT))
    assert json.dumps(reported)
    assert shape(value, str) is not None
    assert isinstance(not_json(value), str)


def test_the_text_of_commands_is_shown_without_secrets() -> None:
    mask = Masks(ENVIRONMENT)
    text = f"curl -H 'x: {SECRET}' https://ghp_1234567890abc@h /home/me/work /tmp/ssh-agent short"
    reported = shape({"command": text}, mask)["command"]["text"]
    assert reported.startswith("curl -H 'x: [REDACTED:MY_API_KEY]' https://[REDACTED:LONGER_TOKEN]@h ")
    assert reported.endswith(" /home/me/work /tmp/ssh-agent short")
    assert shape({"command": ["bash", "-lc", f"echo {SECRET}"]}, mask)["command"]["text"] == (
        "bash -lc 'echo [REDACTED:MY_API_KEY]'"
    )
    assert Masks({})("as it is") == "as it is"


@given(st.integers(0, 40))
def test_no_piece_of_a_secret_stays_at_an_end(before: int) -> None:
    reported = masked("." * (TEXT_CHARS - before) + SECRET * 4 + "x" * 5000, Masks(ENVIRONMENT))
    assert len(reported) == TEXT_CHARS
    assert "hunter2" not in reported


def test_a_text_that_is_too_long_to_be_masked_is_not_shown() -> None:
    mask = Masks({"LONG_TOKEN": "s" * 3000})
    assert masked("s" * MOST_MASKED_CHARS, mask).count("[REDACTED:LONG_TOKEN]") == MOST_MASKED_CHARS // 3000
    assert masked("s" * (MOST_MASKED_CHARS + 1), mask) == "(too long to be masked)"


def test_a_mask_that_fails_shows_nothing() -> None:
    def fails(text: str) -> str:
        raise ValueError(text)

    assert masked(SECRET, fails) == "(could not be masked)"


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"a": [1, "x", None, {"b": 1.5}]}, False),
        ({"a": float("nan")}, True),
        ({"a": b"x"}, True),
        ({"a": "\ud800"}, True),
        ({1: "x"}, True),
        ({(1, 2): "x"}, True),
        ([], True),
        (None, True),
    ],
)
def test_what_cannot_be_sent(arguments: Any, wrong: bool) -> None:
    assert bool(not_json(arguments)) is wrong


def test_circular_arguments_are_reported() -> None:
    circle: dict[str, Any] = {}
    circle["again"] = circle
    assert not_json(circle)
    assert shape(circle, str) == {"again": {"type": "dict"}}
