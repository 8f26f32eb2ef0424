"""Screens from bytes: chunking, redraw, answers, and reading on in a log."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_session.system.turns import finished
from ai_session.terminal.screen import QUERY_TAIL_BYTES, UNREAD_BYTES, Screen, has_query
from tests.support.products import first

RECORDINGS = {
    path.stem: path.read_bytes() for path in (Path(__file__).parents[3] / "data" / "recordings").glob("*.raw")
}
PIECES = [
    *(bytes((value,)) for value in b"\x1b[]P_^\\\x07\r\n\t\x08\x0e\x0f\x18?;:>=!$ \"'#()hlmHJKLM@PXrsuSTbcnpqZ0124567"),
    *(b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[44m", b"\x1b[2J", b"\x1b[K", b"\x1b[10;20H", b"\x1b[3;8r", b"\x1b(0"),
    *(b"\x1b]2;title", b"\x1b]8;;http://a\x07", b"\x1b[?25l", b"\x1bc", b"\x1b7", b"\x1b8", b"\x1bP+q", b"99999999999"),
    *(text.encode() for text in ("abc", "x" * 40, "世", "e\u0301", "\U0001f468\u200d\U0001f469", "❤\ufe0f")),
    *(b"\xff", b"\xe4\xb8", b"\x9b", b"\x00"),
]
SOUP = st.one_of(st.lists(st.sampled_from(PIECES), max_size=80).map(b"".join), st.binary(max_size=400))
SIZES = st.tuples(st.integers(1, 30), st.integers(1, 100))


def screen_of(data: bytes, rows: int = 24, cols: int = 80) -> Screen:
    screen = Screen(rows, cols)
    screen.feed(data)
    return screen


@settings(max_examples=35, deadline=None)
@given(SOUP, SIZES, st.data())
def test_any_chunking_of_any_bytes_gives_the_same_screen(
    data: bytes, size: tuple[int, int], draw: st.DataObject
) -> None:
    whole, parts = screen_of(data, *size), Screen(*size)
    at = 0
    while at < len(data):
        length = draw.draw(st.integers(1, len(data) - at))
        parts.feed(data[at : at + length])
        at += length
    assert parts.snapshot() == whole.snapshot()
    assert parts.ansi() == whole.ansi()
    assert parts.replies() == whole.replies()
    assert parts.offset == len(data)


@settings(max_examples=35, deadline=None)
@given(st.lists(st.tuples(SOUP, SIZES), max_size=4), SIZES)
def test_no_bytes_and_no_size_raise(steps: list[tuple[bytes, tuple[int, int]]], size: tuple[int, int]) -> None:
    screen = Screen(*size)
    for data, (rows, cols) in steps:
        screen.feed(data)
        screen.resize(rows, cols)
        found = screen.snapshot()
        assert (len(found.lines), found.rows, found.cols) == (rows, rows, cols)
        assert 0 <= found.cursor_row < rows
        assert 0 <= found.cursor_col < cols
        screen.ansi()


def redrawn(screen: Screen) -> Screen:
    other = Screen(screen.rows, screen.cols)
    other.feed(b"\x1b[?1049h\x1b[31;44mearlier\x1b[2;3r\x1b[4h\x1b[?6h\x1b[?7l\x1b[?25l\x1b[>1u\x1b]2;old")
    other.feed(screen.ansi())
    return other


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\x1b[1;31mred\x1b[0m x",
        b"a\x1b[?1049h\x1b[2;3Halt\x1b[?25l\x1b[?2004h\x1b[?1h\x1b=\x1b[?1000h\x1b[?1006h",
        b"\x1b]2;title\x07\x1b[2;4r\x1b[4h\x1b[?7l\x1b[>1u",
        b"\x1b[44m\x1b[2Jx\x1b[3;3Hy   \x1b[1mB\x1b[5;5H\x1b[48;2;1;2;3m\x1b[K\x1b[5;9H\x1b[0m\x1b[K",
        b"x" * 40,
        b"\x1b[32m" + b"x" * 40 + b"\x1b[0m",
        ("x" * 38 + "世").encode(),
        "世界 e\u0301 \U0001f468\u200d\U0001f469|".encode(),
        b"\x1b]8;;http://x\x07link",
        b".\x1b(0lqk",
        b"\x1b[2;4r\x1b[?6h\x1b[2;2Hz",
        b"abc\x1b[38;5",
        b"a\x1b[?1049hb\x1b]2;no",
        b"\xe4\xb8",
    ],
)
def test_a_redraw_carries_all_that_the_next_bytes_depend_on(data: bytes) -> None:
    screen = screen_of(data, 6, 40)
    other = redrawn(screen)
    assert other.snapshot() == screen.snapshot()
    assert redrawn(other).ansi() == other.ansi()
    for one in (screen, other):
        one.feed(b"AB\r\nC\x1b[?1049lD\nE")
    assert other.snapshot() == screen.snapshot()


def test_a_redraw_keeps_colours_of_cells_without_text() -> None:
    other = redrawn(screen_of(b"\x1b[44m\x1b[2J\x1b[3;1H\x1b[42m\x1b[K\x1b[3;10H\x1b[0m\x1b[K", 4, 20))
    drawn = other.ansi()
    assert drawn.count(b"48;5;4m\x1b[K") == 3
    assert b"48;5;2m\x1b[K\x1b[10G\x1b[0m\x1b[K" in drawn


def test_the_snapshot_tells_the_facts() -> None:
    found = screen_of("one\r\n\x1b]2;tïtle\x07\x1b[?1049h\x1b[2;3Htwo  \x1b[?25l".encode(), 3, 10).snapshot()
    assert found.lines == ("", "  two", "")
    assert (found.cursor_row, found.cursor_col, found.cursor_visible) == (1, 7, False)
    assert (found.title, found.alternate_screen) == ("tïtle", True)


def test_a_longer_line_is_wrapped_again_on_resize() -> None:
    screen = screen_of(b"a" * 15 + b"\r\nb", 4, 10)
    assert screen.snapshot().lines == ("a" * 10, "a" * 5, "b", "")
    screen.resize(4, 20)
    assert screen.snapshot().lines == ("a" * 15, "b", "", "")
    screen.resize(0, 0)
    assert (screen.rows, screen.cols) == (1, 1)


def test_our_marks_draw_nothing() -> None:
    nonce = "0123456789abcdef"
    marked = f"\x1b]7777;{nonce};A;;0;1;himBH;/tmp\x07$ \x1b]7777;{nonce};B\x07\x1b]7777;{nonce};C;1;2\x07out".encode()
    assert screen_of(marked).ansi() == screen_of(b"$ out").ansi()


ANSWERED = {
    b"\x1b[c": b"\x1b[?62;22c",
    b"\x1b[0c": b"\x1b[?62;22c",
    b"\x1bZ": b"\x1b[?62;22c",
    b"\x1b[>c": b"\x1b[>1;0;0c",
    b"\x1b[=c": b"\x1bP!|00000000\x1b\\",
    b"\x1b[5n": b"\x1b[0n",
    b"ab\x1b[6n": b"\x1b[1;3R",
    b"\x1b[>q": b"\x1bP>|libghostty\x1b\\",
    b"\x1b[>0q": b"\x1bP>|libghostty\x1b\\",
    b"\x1b[?2026$p": b"\x1b[?2026;2$y",
    b"\x1b[4$p": b"\x1b[4;2$y",
    b"\x1b]10;?\x07": b"\x1b]10;rgb:e5e5/e5e5/e5e5\x07",
    b"\x1b]11;?\x1b\\": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
    b"\x1b]4;1;?\x07": b"\x1b]4;1;rgb:cccc/6666/6666\x07",
    b"\x1bP$qm\x1b\\": b"\x1bP1$r0m\x1b\\",
    b"\x1bP$qr\x1b\\": b"\x1bP1$r1;24r\x1b\\",
}


@pytest.mark.parametrize("query", ANSWERED)
def test_a_question_is_seen_and_answered_once(query: bytes) -> None:
    screen = screen_of(query)
    assert has_query(query)
    assert screen.replies() == ANSWERED[query]
    assert screen.replies() == b""


@pytest.mark.parametrize("query", ANSWERED)
def test_a_question_in_two_chunks_is_seen(query: bytes) -> None:
    for cut in range(1, len(query)):
        before, chunk = b"before it " * 20 + query[:cut], query[cut:] + b" and after"
        assert has_query(before) or has_query(chunk, before[-QUERY_TAIL_BYTES:])


@pytest.mark.parametrize(
    "data",
    [
        b"plain text, 5n 6n [c\r\n" * 100,
        b"\x1b[0m\x1b[32mINFO\x1b[0m \x1b[1mmodule\x1b[22m: \x1b[38;5;208mvalue\x1b[0m\r\n" * 50,
        b"\x1b[38;2;255;128;0mx\x1b[48:2::1:2:3my\x1b[K\x1b[2J\x1b[10;20H\x1b[?25l\x1b[?25h\x1b[5 q\x1b[!p\x1b[u\x1b[s",
        b"\x1b]2;title?\x07\x1b]7777;n;C;1\x07\x1b]133;A\x07\x1b]8;;http://x?y\x07\x1b(B\x1b)0\x1b=\x1b>\x1b7\x1b8",
        b"\x1b[22;0;0t\x1b[?1049h\x1b[1;24r\x1b[?u\x1b[>4;2m\x1b[>1u",
    ],
)
def test_ordinary_output_is_not_a_question(data: bytes) -> None:
    assert not has_query(data)
    assert screen_of(data).replies() == b""


@settings(max_examples=35, deadline=None)
@given(SOUP)
def test_whatever_is_answered_was_seen_as_a_question(data: bytes) -> None:
    assert not screen_of(data).replies() or has_query(data)


def test_only_so_many_answers_are_kept() -> None:
    assert 4000 < len(screen_of(b"\x1b[6n" * 100_000).replies()) <= 4096


class Log:
    """A log whose bytes before ``first`` are gone; counts what is read."""

    def __init__(self, data: bytes, first: int = 0) -> None:
        self.data = data
        self.first = first
        self.bytes_read = 0

    def read(self, start: int, end: int) -> bytes:
        assert self.first <= start <= end <= len(self.data)
        self.bytes_read += end - start
        return self.data[start:end]


def test_a_log_is_read_on_from_where_it_was_left() -> None:
    log, screen = Log(RECORDINGS["vim"]), Screen(24, 80)
    for end in range(0, len(log.data), 777):
        finished(screen.catch_up(log.read, 0, end))
        assert screen.offset == end
    finished(screen.catch_up(log.read, 0, len(log.data)))
    finished(screen.catch_up(log.read, 0, len(log.data)))
    assert log.bytes_read == len(log.data)
    assert screen.snapshot() == screen_of(log.data).snapshot()


@cache
def lines() -> bytes:
    """8 MB."""
    return b"".join(b"\x1b[3%dmline\x1b[0m %d of some output\r\n" % (n % 8, n) for n in range(250_000))


LONG: dict[str, Callable[[], bytes]] = {
    "scrolled past": lines,
    "program ended long ago": lambda: (
        RECORDINGS["vim"] + b"\x1b[?1049l\x1b[?1l\x1b[?2004l\x1b[?25h\x1b[r" + lines()[: 5 << 20]
    ),
    "program begun just now": lambda: lines() + RECORDINGS["htop"],
    "program begun a while ago": lambda: lines() + RECORDINGS["vim"] + b"\x1b[24;1H~\x1b[K" * 60_000,
    "progress": lambda: b"".join(b"\rdone %7d\x1b[K" % n for n in range(150_000)),
    "wide text": lambda: "世界 wörld \U0001f600\r\n".encode() * 100_000,
}


@pytest.mark.parametrize("name", first(LONG, "program begun just now", "progress", "wide text"))
def test_far_behind_only_the_end_is_drawn(name: str) -> None:
    log, screen = Log(LONG[name]()), Screen(24, 80)
    finished(screen.catch_up(log.read, 0, len(log.data)))
    assert screen.snapshot().lines == screen_of(log.data).snapshot().lines
    assert screen.snapshot() == screen_of(log.data).snapshot()
    assert log.bytes_read < 10 << 20


@pytest.mark.parametrize("clear", [b"\x1bc", b"\x1b[2J", b"\x1b[H\x1b[J", b"\x1b[?1049h"])
def test_drawing_begins_at_the_last_clear_wherever_that_is_cut_by_a_piece_that_is_searched(clear: bytes) -> None:
    after = b"\x1b[1;1Hkept" + b"\x1b[0m" * 150_000
    for cut in range(1, len(clear)):
        behind = -(len(after) + cut) % (64 << 10)
        log = Log(lines()[: 1 << 20] + clear + after + b"\x00" * behind)
        screen = Screen(24, 80)
        finished(screen.catch_up(log.read, 0, len(log.data)))
        assert screen.snapshot().lines[0].startswith("kept")


@pytest.mark.parametrize("cut", random.Random(1).sample(range(2000, 8000), 8))
def test_where_drawing_begins_no_sequence_or_character_is_cut(cut: int) -> None:
    filler = "\x1b[1;31m世界\x1b[0m é\r\n".encode()
    log = Log(filler * (UNREAD_BYTES * 2 // len(filler)) + b"x" * cut + b"\r\n" + filler * 2000)
    screen = Screen(24, 80)
    finished(screen.catch_up(log.read, 0, len(log.data)))
    assert screen.snapshot() == screen_of(log.data).snapshot()


def test_bytes_that_are_gone_are_left_out() -> None:
    log = Log(lines()[: 400 << 10], first=3000)
    fresh, behind = Screen(24, 80), screen_of(b"\x1b]2;a title that never ends")
    for screen in (fresh, behind):
        finished(screen.catch_up(log.read, log.first, len(log.data)))
        assert screen.offset == len(log.data)
        assert screen.snapshot() == screen_of(log.data).snapshot()


def test_questions_that_someone_else_answered_are_not_answered_again() -> None:
    log, screen = Log(b"\x1b[6n" + b"x" * 100 + b"\x1b[c"), Screen(24, 80)
    finished(screen.catch_up(log.read, 0, len(log.data), answer_from=50))
    assert screen.replies() == b"\x1b[?62;22c"
    late = Screen(24, 80)
    finished(late.catch_up(log.read, 0, len(log.data), answer_from=len(log.data)))
    assert late.replies() == b""


def test_memory_is_bounded() -> None:
    """Nothing is kept of what scrolled away or of a string that never ends (measured in a process of its own)."""
    program = (
        "import resource; from ai_session.terminal.screen import Screen; screen = Screen(50, 200); screen.feed(b'x');"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "[screen.feed(b'a line of output 0123456789\\r\\n' * 10000) for _ in range(30)];"
        "[[screen.feed(start), [screen.feed(b'A' * 65536) for _ in range(110)], screen.feed(b'\\x07\\x1b\\\\')]"
        " for start in (b'\\x1b]2;', b'\\x1b]52;c;', b'\\x1b]7777;', b'\\x1bP+q', b'\\x1b_G', b'\\x1b_Ga=T,f=24;')];"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    assert int(run(program)) < 12_000  # KB; of each string more than a half of that is fed


def test_the_emulator_is_loaded_with_the_first_screen_only() -> None:
    program = "import sys, ai_session.terminal.screen; print('pyghostty' in sys.modules, 'cffi' in sys.modules)"
    assert run(program).split() == ["False", "False"]


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True, cwd=Path(__file__).parents[4]
    )
    return done.stdout
