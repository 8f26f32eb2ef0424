"""Marks in output: found whatever the chunks, forged by nobody, never a reason to fail."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ai_session.sessions.shell_state import ShellState
from ai_session.terminal.marks import (
    MAX_MARK_BYTES,
    MOST_MARKS,
    Mark,
    MarkKind,
    MarkScanner,
    strip_marks,
    without_marks,
)

NONCE = "5f0c9a7be1d2"
PREFIX = b"\x1b]7777;5f0c9a7be1d2;"

BODIES = [
    b"R;4242;5.2.15(1)-release",
    b"C;7;1763716444.123456",
    b"D;7;0;1763716444.5;himBHs;/home/me",
    b"D;8;130;;;/tmp/with;semicolon",
    b"P",
    b"A;;1;1763716444,25;himBHs;/",
    b"A;9;130;;;/aborted",
    b"B",
    b"X;;7;1763716444.9;;/",
    b"Z;unknown",
    b"",
    b"D",
    b"D;x;-1;nan;\xff;\xfe",
]
noise = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([PREFIX, PREFIX[:5], b"\x1b", b"\x07", b"\x1b]7777;other;D;1;0;;;/\x07", b"\x1b]133;D;0\x07"]),
)
streams = st.lists(
    st.one_of(noise, st.sampled_from(BODIES).map(lambda body: PREFIX + body + b"\x07")), max_size=12
).map(b"".join)


def scan(*chunks: bytes, offset: int = 0) -> list[Mark]:
    scanner = MarkScanner(NONCE, offset)
    return [mark for chunk in chunks for mark in scanner.feed(chunk)]


def mark(body: bytes) -> bytes:
    return PREFIX + body + b"\x07"


def test_each_kind_carries_its_fields() -> None:
    found = scan(b"".join(mark(body) for body in BODIES[:9]))
    facts = [(m.kind, m.seq, m.exit_code, m.at, m.flags, m.cwd, m.pid, m.version) for m in found]
    assert facts == [
        (MarkKind.SHELL_STARTED, None, None, None, "", "", 4242, "5.2.15(1)-release"),
        (MarkKind.COMMAND_EXECUTED, 7, None, 1763716444.123456, "", "", None, ""),
        (MarkKind.COMMAND_FINISHED, 7, 0, 1763716444.5, "himBHs", "/home/me", None, ""),
        (MarkKind.COMMAND_FINISHED, 8, 130, None, "", "/tmp/with;semicolon", None, ""),
        (MarkKind.LINE_EXECUTED, None, None, None, "", "", None, ""),
        (MarkKind.PROMPT_START, None, 1, 1763716444.25, "himBHs", "/", None, ""),
        (MarkKind.PROMPT_START, 9, 130, None, "", "/aborted", None, ""),
        (MarkKind.PROMPT_READY, None, None, None, "", "", None, ""),
        (MarkKind.SHELL_EXITED, None, 7, 1763716444.9, "", "/", None, ""),
    ]


def test_offsets_are_those_of_the_log() -> None:
    data = b"before" + mark(b"C;1;") + b"output" + mark(b"D;1;0;;;/")
    started, finished = scan(data, offset=1000)
    assert data[started.end - 1000 : finished.start - 1000] == b"output"
    assert started.start == 1006
    assert finished.end == 1000 + len(data)


def test_the_offset_counts_every_byte_fed() -> None:
    scanner = MarkScanner(NONCE, 10)
    scanner.feed(b"abc\x1b]77")
    assert scanner.offset == 17


@pytest.mark.parametrize("body", [b"D;x;y;z", b"D;;;;;", b"D;1_0; 5;1e400;;", b"R;\xb2;\xff", b"C;" + b"9" * 5000])
def test_malformed_fields_are_empty(body: bytes) -> None:
    (found,) = scan(mark(body))
    assert (found.seq, found.exit_code, found.at, found.pid) == (None, None, None, None)


def test_a_path_that_is_not_utf8_has_no_surrogates() -> None:
    (found,) = scan(mark(b"D;1;0;;;/caf\xe9"))
    assert found.cwd == "/caf\ufffd"


def test_the_longest_path_passes() -> None:
    path = "/" + "d" * 4095
    (found,) = scan(mark(b"D;1;0;;;" + path.encode()))
    assert found.cwd == path


def test_a_mark_without_end_is_none_and_hides_none() -> None:
    open_one = PREFIX + b"D;1;0;"
    assert [m.seq for m in scan(open_one + mark(b"D;2;0;;;/"))] == [2]
    assert [m.seq for m in scan(open_one + b"x" * MAX_MARK_BYTES, b"\x07", mark(b"D;3;0;;;/"))] == [3]


def test_what_is_held_back_stays_small() -> None:
    scanner = MarkScanner(NONCE)
    for _ in range(2000):
        assert scanner.feed(PREFIX[:-1] + b"x" * 7) == []
        assert scanner.feed(PREFIX + b"x" * 100) == []
    assert len(scanner._held) < MAX_MARK_BYTES


def test_old_marks_of_other_sessions_are_not_ours() -> None:
    assert scan(b"\x1b]7777;0000;D;1;0;;;/\x07", b"\x1b]7777;;D;1;0;;;/\x07", b"\x1b]133;D;0\x07") == []


@given(streams, st.lists(st.integers(0, 600), max_size=20))
@example(mark(b"D;1;0;;;/"), list(range(40)))
def test_any_chunking_gives_the_same_marks(data: bytes, cuts: list[int]) -> None:
    borders = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    chunks = [data[a:b] for a, b in itertools.pairwise(borders)]
    assert scan(*chunks) == scan(data)


@given(st.integers(MAX_MARK_BYTES - 40, MAX_MARK_BYTES + 40), st.integers(1, 3000))
def test_the_length_limit_does_not_depend_on_chunks(length: int, size: int) -> None:
    data = PREFIX + b"D;1;0;;;/" + b"x" * (length - len(PREFIX) - 10) + b"\x07"
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    assert len(scan(*chunks)) == len(scan(data)) == (length <= MAX_MARK_BYTES)


@given(st.binary(max_size=300).filter(lambda data: NONCE.encode() not in data), st.integers(1, 50))
def test_output_that_does_not_know_the_nonce_forges_nothing(data: bytes, size: int) -> None:
    assert scan(*(data[i : i + size] for i in range(0, len(data), size))) == []


@given(streams)
def test_stripping_leaves_exactly_what_is_between_the_marks(data: bytes) -> None:
    left = strip_marks(data, NONCE)
    assert len(left) <= len(data)
    assert left == data or PREFIX in data
    known = [(m.start, m.end) for m in scan(data)]
    assert len(left) <= len(data) - sum(end - start for start, end in known)


def test_stripping_marks_from_output() -> None:
    data = b"one" + mark(b"C;1;") + b"two" + mark(b"Z") + b"three" + PREFIX + b"open"
    assert strip_marks(data, NONCE) == b"onetwothree" + PREFIX + b"open"


def flood(body: bytes, count: int) -> bytes:
    return mark(body) * count


def folded(marks: list[Mark]) -> tuple[object, ...]:
    """What the marks say of the shell."""
    state = ShellState("/start", line_editor=True)
    for found in marks:
        state.apply(found)
    named = [m.cwd for m in marks if m.kind in (MarkKind.COMMAND_FINISHED, MarkKind.PROMPT_START)]
    # A shell names its directory almost always; of a mark that names none, any earlier one may be believed.
    cwd = state.cwd if named and named[-1].startswith("/") else ""
    return (state.up, state.ready, state.human_line, state.last_exit, state.flags, cwd, state.exit_code)


def ended(marks: list[Mark], seq: int) -> tuple[int | None, Mark | None]:
    """Where the command's output begins, and the mark that ends it."""
    begun = next((m for m in marks if m.kind is MarkKind.COMMAND_EXECUTED and m.seq == seq), None)
    ends = (m for m in marks if m.seq == seq and m.exit_code is not None and begun and m.start >= begun.end)
    return (begun.end if begun else None), next(ends, None)


def one_by_one(data: bytes, seq: int) -> list[Mark]:
    """As ``scan``, in chunks of so few marks that none is skimmed."""
    scanner = MarkScanner(NONCE)
    return [found for at in range(0, len(data), 900) for found in scanner.feed(data[at : at + 900], seq)]


many = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from([*BODIES, b"C;9;1.0", b"D;9;3;;;/nine", b"D;9;;;;", b"A;9;4;;;/"]), st.integers(1, 4)
        ),
        st.tuples(
            st.sampled_from([b"D;1;0;;;/x", b"B", b"P", b"A;;0;;;/y", b"R;1;5", b"D;9;x;;;"]), st.integers(20, 60)
        ),
    ).map(lambda made: flood(*made)),
    min_size=3,
    max_size=8,
).map(b"".join)


@given(many, st.binary(max_size=20))
@example(flood(b"D;1;0;;;/", 500) + mark(b"C;9;1") + flood(b"D;1;0;;;/", 500) + mark(b"D;9;0;;;/"), b"")
@example(mark(b"C;9;1") + flood(b"D;1;0;;;/", 20) + flood(b"A;9;130;;;/", 2) + mark(b"C;9;1"), b"")
@example(flood(b"B", 20) + flood(b"D;1;0;;;/x", 20) + mark(b"D;x;-1;nan;\xff;\xfe"), b"")
def test_of_a_flood_the_state_of_the_shell_and_the_end_of_the_command_are_known(data: bytes, between: bytes) -> None:
    data = mark(b"R;1;5") + data + between.replace(b"\x1b", b"") + mark(b"P")
    all_of_them, skimmed = one_by_one(data, 9), MarkScanner(NONCE).feed(data, 9)
    assert folded(skimmed) == folded(all_of_them)
    assert ended(skimmed, 9) == ended(all_of_them, 9)
    assert [m.start for m in skimmed] == sorted({m.start for m in skimmed})


@pytest.mark.parametrize("body", [b"D;1;0;;;/x", b"B", b"R;1;5", b"C;8;1", b"D;9;;;;", b"", b"Z"])
def test_what_a_flood_costs_does_not_grow_with_it(body: bytes) -> None:
    scanner = MarkScanner(NONCE)
    for _ in range(20):
        assert len(scanner.feed(flood(body, 20_000) + PREFIX + b"D;9", 9)) <= MOST_MARKS + 10
    assert [m.seq for m in scanner.feed(b";5;;;/end\x07", 9)] == [9]
    assert scanner.offset == 20 * (20_000 * len(mark(body)) + len(PREFIX) + 3) + 10


def test_a_flood_of_beginnings_hides_no_mark() -> None:
    beginnings = (PREFIX + b"D;9;0") * 5000
    scanner = MarkScanner(NONCE)
    assert [m.exit_code for m in scanner.feed(beginnings + mark(b"D;9;7;;;/") + beginnings, 9)] == [7]
    assert [m.exit_code for m in scanner.feed(b";;;/\x07", 9)] == [0]


def test_stripping_a_flood_is_as_stripping_each() -> None:
    parts = [flood(b"D;1;0;;;/x", 3000), b"one", PREFIX * 4000, mark(b"B"), b"two", PREFIX + b"x" * MAX_MARK_BYTES]
    left = strip_marks(b"".join(parts) + b"\x07", NONCE)
    assert left == b"one" + PREFIX * 4000 + b"two" + parts[-1] + b"\x07"
    assert b"".join(b"-abc"[a:b] for a, b in without_marks(b"-abc", NONCE)) == b"-abc"
