"""What of a program's output reaches a person's terminal: it draws, and does nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ai_session.terminal.filter import LEAVE, LIVE_MODES, MAX_SEQUENCE, TerminalFilter, harmless
from ai_session.terminal.screen import Screen
from tests.ai_session.support.terminal_sequences import ACTING, DRAWING, LIVE, draws, tokens
from tests.support.processor_time import computing_seconds, once_within

RECORDINGS = sorted((Path(__file__).parents[3] / "data/recordings").glob("*.raw"))
FINALS = [chr(code) for code in range(0x40, 0x7F)]
WAYS = pytest.mark.parametrize("live", [False, True])


def whole(data: bytes, *, live: bool = False) -> bytes:
    return TerminalFilter(live=live).feed(data)


@WAYS
@pytest.mark.parametrize("data", ACTING, ids=ascii)
def test_what_acts_is_dropped(data: bytes, live: bool) -> None:
    shown = whole(b"before" + data + b"after", live=live)
    assert shown.startswith(b"before")
    assert shown.endswith(b"after")
    assert all(draws(token, live=live) for token in tokens(shown))


@pytest.mark.parametrize("data", DRAWING, ids=ascii)
def test_what_draws_is_kept(data: bytes) -> None:
    assert whole(data) == whole(data, live=True) == data


@pytest.mark.parametrize("data", LIVE, ids=ascii)
def test_how_keys_are_sent_is_for_whoever_takes_keys(data: bytes) -> None:
    assert whole(data, live=True) == data
    assert whole(data) == b""


def generated() -> Iterator[bytes]:
    """Every control sequence by its letters, with the parameters that make some dangerous."""
    parameters = [b"", b"0", b"5", b"6", b"21", b"14;2", b"1;1;1;1;1", b"2;9999;9999", b"1049", b"38:2::1:2:3"]
    for prefix, middle, final in product(
        ["", "?", ">", "<", "="], ["", " ", "!", '"', "$", "#", "'", "*", "+"], FINALS
    ):
        for numbers in parameters:
            yield f"\x1b[{prefix}".encode() + numbers + f"{middle}{final}".encode()
    for middle, final in product(["", " ", "#", "%", "(", ")", "*", "+", "-", "."], range(0x30, 0x7F)):
        if middle or chr(final) not in "[]PX^_k":
            yield f"\x1b{middle}{chr(final)}".encode()
    for number, end in product([*range(200), 633, 777, 1337, 3008, 7777], [b"\x07", b"\x1b\\", b"\xc2\x9c"]):
        for body in (b"", b";?", b";x", b";c;aGk=", b";File=inline=1:aGk=", b";notify;a;b", b";file:///etc/passwd"):
            yield b"\x1b]%d" % number + body + end
    for kind, body in product(
        b"PX^_k", [b"", b"$qm", b"+q544e", b"q#0!10~", b"Ga=T,t=f;L2V0Yw==", b"tmux;\x1b\x1b]52;c;aGk=\x07"]
    ):
        yield b"\x1b" + bytes([kind]) + body + b"\x1b\\"
    for mode, switch in product(range(3000), [b"h", b"l"]):
        yield b"\x1b[?%d" % mode + switch
    for code in range(0x20):
        yield bytes([code])
    for code in range(0x80, 0xA0):
        yield chr(code).encode() + b"52;c;aGk=\x07"
        yield bytes([code]) + b"52;c;aGk=\x07"


@WAYS
@pytest.mark.either("live")
def test_of_every_sequence_only_what_draws_gets_through(live: bool) -> None:
    for data in generated():
        shown = whole(b"a" + data + b"b", live=live)
        assert shown.startswith(b"a"), data
        wrong = [token for token in tokens(shown) if not draws(token, live=live)]
        assert not wrong, (data, shown)


PIECES = st.lists(
    st.one_of(
        st.sampled_from([*ACTING, *DRAWING, *LIVE]),
        st.binary(max_size=8),
        st.sampled_from(
            [b"\x1b", b"\x1b[", b"\x1b]", b"\x1bP", b"\x07", b"\x1b\\", b"\x18", b"\xc2\x9b", b"\xc2", b"0" * 5000]
        ),
        st.text(max_size=5).map(lambda text: text.encode("utf-8", "replace")),
    ),
    max_size=12,
).map(b"".join)


@given(PIECES, st.lists(st.integers(0, 6000), max_size=8), st.booleans())
@example(b"\x1b]" + b"0" * 5000 + b"\xc2\x80 ", [4999], False)
def test_any_bytes_in_any_chunks_give_the_same_and_only_what_draws(data: bytes, cuts: list[int], live: bool) -> None:
    at_once = TerminalFilter(live=live)
    wanted = at_once.feed(data)
    piecewise = TerminalFilter(live=live)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [piecewise.feed(data[start:end]) for start, end in pairwise(edges)]
    assert b"".join(pieces) == wanted
    assert all(draws(token, live=live) for token in tokens(wanted))


@given(PIECES)
def test_what_went_through_goes_through_again(data: bytes) -> None:
    shown = whole(data)
    assert whole(shown) == shown
    assert harmless(shown.decode()) == shown.decode()


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_real_programs_draw_the_same_screen(path: Path) -> None:
    data = path.read_bytes()
    for live in (False, True):
        plain, filtered = Screen(50, 200), Screen(50, 200)
        plain.feed(data)
        shown = whole(data, live=live)
        assert all(draws(token, live=live) for token in tokens(shown))
        filtered.feed(shown)
        assert filtered.snapshot().lines == plain.snapshot().lines
        assert filtered.snapshot().alternate_screen == plain.snapshot().alternate_screen


def test_a_string_without_an_end_takes_no_memory_and_ends_like_any_other() -> None:
    filtering = TerminalFilter(live=True)
    assert filtering.feed(b"a\x1b]52;c;") == b"a"
    for _ in range(100):
        assert filtering.feed(b"QUFB" * 10_000) == b""
        assert len(filtering._held) <= MAX_SEQUENCE  # pyright: ignore[reportPrivateUsage]
    assert filtering.feed(b"QUFB\x07b") == b"b"


def test_what_went_through_is_undone_by_leaving() -> None:
    for mode in LIVE_MODES:
        assert b"\x1b[?%dl" % int(mode) in LEAVE
    screen = Screen(24, 80)
    screen.feed(LEAVE)
    before = screen.ansi()
    screen.feed(b"".join(LIVE) + b"\x1b[31;7m\x1b[4h\x1b[20h\x1b[?5h\x1b[?6h\x1b[?7l\x1b[?25l\x1b(0\x0e\x1b[3 q")
    screen.feed(b"\x1b]8;;https://example.org\x1b\\" + LEAVE + b"\x1b[H")
    assert screen.ansi() == before


def test_it_is_fast_enough_to_watch_a_flood() -> None:
    text = b"\x1b[38;5;12mword\x1b[0m and more of the line\r\n" * 2_500
    assert whole(text, live=True) == text
    once_within(0.175, lambda: computing_seconds(lambda: whole(text, live=True)))
    once_within(0.125, lambda: computing_seconds(lambda: whole(b"plain text\r\n" * 50_000)))
    for hostile in (
        b"\x1b[" * 50_000,
        b"\x1b]" * 50_000,
        b"\x1b" * 100_000,
        b"\x1b]" + b"0;" * 50_000,
        b"\x1b " * 50_000,
    ):
        once_within(0.5, lambda hostile=hostile: computing_seconds(lambda: whole(hostile)))


def test_the_second_judge_is_one() -> None:
    """It sees what it must: the test above would be worth nothing otherwise."""
    assert [token for token in tokens(b"".join(ACTING)) if not draws(token, live=True)]
    assert all(re.fullmatch(rb".+", data, re.DOTALL) for data in ACTING)
