"""Lines of JSON-RPC: what is cut, refused, recovered and ignored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwire.json_lines import KEPT_BYTES, LineReader, Refused, encode, parse

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[3] / "data/wire/bad_lines.json").read_text())


def refused(line: bytes) -> list[dict[str, Any]]:
    with pytest.raises(Refused) as caught:
        parse(line)
    return list(caught.value.answers)


def line_of(case: dict[str, Any]) -> bytes:
    return bytes(case["line"], "latin-1").replace(b"@DEEP@", b"[" * 100_000 + b"]" * 100_000)


@pytest.mark.parametrize("case", [c for c in CASES if "code" in c], ids=lambda c: c["name"])
def test_bad_line_is_refused_under_the_id_it_carries(case: dict[str, Any]) -> None:
    answers = refused(line_of(case))
    assert [(a["id"], a["error"]["code"]) for a in answers] == [(i, case["code"]) for i in case["ids"]]


@pytest.mark.parametrize("case", [c for c in CASES if "code" not in c], ids=lambda c: c["name"])
def test_line_that_needs_no_answer_is_ignored_or_a_response(case: dict[str, Any]) -> None:
    assert parse(line_of(case)) == case.get("message")


@given(st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b), max_size=8), st.data())
def test_any_chunking_gives_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"unfinished"
    reader = LineReader(limit=20)
    found: list[bytes | Refused] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert [line if isinstance(line, bytes) else None for line in found] == [
        line if len(line) <= 20 else None for line in lines
    ]


@pytest.mark.parametrize("message", ['{"jsonrpc":"2.0","id":7,"x":"%s"}', '{"x":"%s","jsonrpc":"2.0","id":7}'])
def test_endless_line_is_dropped_in_bounded_memory_and_answered(message: str) -> None:
    reader = LineReader(limit=100_000)
    found: list[bytes | Refused] = []
    text = (message % ("y" * 3_000_000)).encode() + b"\nnext\n"
    for start in range(0, len(text), 65_536):
        found += reader.feed(text[start : start + 65_536])
        assert reader.held_bytes <= 100_000 + 65_536 + 2 * KEPT_BYTES
    assert isinstance(found[0], Refused)
    assert [answer["id"] for answer in found[0].answers] == [7]
    assert found[1:] == [b"next"]


@given(st.recursive(st.text() | st.integers() | st.none(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_what_is_written_is_one_line_that_reads_back(value: object) -> None:
    line = encode({"value": value})
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"value": value}


def test_lone_surrogate_never_leaves() -> None:
    assert encode({"value": "a\ud83db\udcff\x00\u2028"}) == b'{"value":"a?b?\\u0000\xe2\x80\xa8"}\n'
    with pytest.raises(ValueError, match="surrogates"):
        encode({"value": "\ud83d"}, errors="strict")


def test_number_that_is_not_json_is_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode({"value": float("nan")})


def test_requests_and_notifications_pass() -> None:
    request = {"jsonrpc": "2.0", "id": "7", "method": "tools/call", "params": {"name": "x"}}
    assert parse(json.dumps(request).encode() + b"\r") == request
    assert parse(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}') == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "ping",
    }
    assert parse(b'{"jsonrpc":"2.0","method":"notifications/x"}') == {"jsonrpc": "2.0", "method": "notifications/x"}
    paired = b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\\ud83d\\ude00 \\\\ud83d"}}'
    assert (parse(paired) or {})["params"] == {"a": "\U0001f600 \\ud83d"}
