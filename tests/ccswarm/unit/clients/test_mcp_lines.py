"""Bytes of a server → messages: whatever is wrong with a line costs its call only."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import JSONRPCError, JSONRPCResponse

from ccswarm.clients.mcp.framing import KEPT_BYTES, MAX_MESSAGE_BYTES, LineCutter, read_message


def read(line: bytes, length: int | None = None) -> Any:
    message = read_message(bytearray(line), len(line) if length is None else length)
    return message.message if message is not None else None


def cut(*chunks: bytes) -> list[bytes]:
    cutter = LineCutter()
    return [bytes(line) for chunk in chunks for line, _ in cutter.feed(chunk)]


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b""))), st.lists(st.integers(0, 200), max_size=9))
def test_lines_do_not_depend_on_how_they_arrive(lines: list[bytes], places: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    edges = [0, *sorted(places), len(stream)]
    assert cut(*(stream[start:end] for start, end in pairwise(edges))) == lines


def test_of_a_line_that_is_too_long_both_ends_are_kept() -> None:
    cutter = LineCutter()
    chunk = b"x" * (1 << 20)
    fed = [b"<" + chunk[1:], *[chunk] * 99, b">\n" + b"next\n"]
    lines = [found for piece in fed for found in cutter.feed(piece)]
    assert [length for _, length in lines] == [(100 << 20) + 1, 4]
    first = bytes(lines[0][0])
    assert (first[:1], first[-1:]) == (b"<", b">")
    assert len(first) < 3 * KEPT_BYTES
    assert bytes(lines[1][0]) == b"next"


@pytest.mark.parametrize(
    "line", [b"", b"Welcome!", b"[1]", b"{}", b"5", b"{not json", b"\xff", b'{"id": 1, "method": "x"']
)
def test_what_is_no_message_is_none(line: bytes) -> None:
    assert read(line) is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc": "2.0", "id": 7, "result": ["not an object"]}',
        b'{"jsonrpc": "2.0", "id": 7, "result": {"broken": }}',
        b'{"result": {"broken": }, "jsonrpc": "2.0", "id": 7}',
        b'{"id": 7, "result": {}}',
        b'{"jsonrpc": "2.0", "id": 7, "result": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error_for_who_waits(line: bytes) -> None:
    message = read(line)
    assert isinstance(message, JSONRPCError)
    assert message.id == 7


@pytest.mark.parametrize("identity", [b"7", b'"seven"'])
@pytest.mark.parametrize("last", [True, False])
def test_an_answer_that_is_too_long_is_an_error_too(identity: bytes, last: bool) -> None:
    parts = [b'"jsonrpc":"2.0"', b'"id":' + identity, b'"result":{"a":"' + b"x" * 100 + b'","id":3}']
    message = read(b"{" + b",".join(reversed(parts) if last else parts) + b"}", MAX_MESSAGE_BYTES + 1)
    assert isinstance(message, JSONRPCError)
    assert message.id == json.loads(identity)
    assert str(MAX_MESSAGE_BYTES + 1) in message.error.message


def test_a_request_that_is_too_long_is_nobodys_answer() -> None:
    assert (
        read(b'{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}', MAX_MESSAGE_BYTES + 1) is None
    )


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (rb"\ud83d\ude00", "😀"),
        (rb"a\ud83d!", "a�!"),
        (rb"\ude00\ud83d", "��"),
        (rb"\\ud83d \ud83d", r"\ud83d �"),
        (b"\xff\xfe", "��"),
    ],
)
def test_what_is_no_character_becomes_one(raw: bytes, text: str) -> None:
    message = read(b'{"jsonrpc":"2.0","id":1,"result":{"text":"' + raw + b'"}}')
    assert isinstance(message, JSONRPCResponse)
    assert message.result == {"text": text}


def test_words_before_the_first_message_are_left_out_and_later_ones_make_it_none() -> None:
    line = b'motd: {"jsonrpc": 1} {"jsonrpc":"2.0","method":"x"}'
    assert read_message(bytearray(line), len(line)) is None
    assert read_message(bytearray(b'Welcome! {"jsonrpc":"2.0","method":"x"}'), 40, first=True) is not None
    assert read_message(bytearray(b'{"jsonrpc":"2.0","method":"x"}'), 40, first=True) is not None
    assert read_message(bytearray(b"Welcome!"), 8, first=True) is None
