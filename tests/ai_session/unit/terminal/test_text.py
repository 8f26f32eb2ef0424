"""Clean text: what a person would have seen, for any bytes, in linear time."""

from __future__ import annotations

import time
import unicodedata
from pathlib import Path

import pyghostty
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ai_session.terminal.text import clean

CASES = {
    "plain": (b"one\r\ntwo\r\n", "one\ntwo\n"),
    "no final newline": (b"one", "one"),
    "a program's own CRLF": (b"one\r\r\ntwo\r\n", "one\ntwo\n"),
    "colours": (b"\x1b[1;38;5;208mred\x1b[0m and \x1b[38:2::1:2:3mblue\x1b[m", "red and blue"),
    "tabs stay": (b"a\tb\r\n", "a\tb\n"),
    "title and hyperlink": (b"\x1b]0;title\x07x\x1b]8;;http://a/\x1b\\link\x1b]8;;\x1b\\", "xlink"),
    "title without end": (b"\x1b]0;title\r\nnext", "\nnext"),
    "title cut off by another sequence": (b"\x1b]0;title\x1b[31mred", "red"),
    "our marks": (b"\x1b]7777;5f0c;D;1;0;;;/\x07text\x1b]7777;5f0c;B\x07", "text"),
    "sixel, APC, PM": (b"a\x1bPq#0\r\n!\x1b\\b\x1b_Gi=1;AA\x1b\\c\x1b^x\x1b\\d", "abcd"),
    "DCS without end": (b"a\x1bPtmux;\r\nb", "a\nb"),
    "charsets, keypad, modes": (b"\x1b(B\x1b=\x1b[?25l\x1b[?2004h\x1b[>4;2m\x1b[!px", "x"),
    "a query": (b"\x1b[6n\x1b[c\x1b[>qx", "x"),
    "sequence cut off": (b"text\x1b[12", "text"),
    "escape at the end": (b"text\x1b", "text"),
    "NUL, BEL, DEL, SO, SI, FF": (b"a\0b\x07c\x7fd\x0ee\x0ff\x0c", "abcdef"),
    "C1 in UTF-8": ("a\x85b\x9bc".encode(), "abc"),
    "not UTF-8": (b"caf\xe9 \xff\xc3", "caf\ufffd \ufffd\ufffd"),
    "an encoded surrogate": (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
    "unusual separators": ("a\u2028b\u2029c\ufeff".encode(), "a\u2028b\u2029c\ufeff"),
    "a prompt's blank": (b"out\r\n\r\x1b[0m\x1b[J\x1b[1mvm\x1b[0m# \x1b[K\x1b[?2004h", "out\nvm# "),
    "a prompt drawn over another": (b"old prompt> \r\x1b[2Kvm# ", "vm# "),
    "a prompt after CR": (b"  \rvm# ", "vm# "),
    "blanks behind the cursor": (b"abc   \x1b[3D", "abc"),
    "blanks on a line that was ended": (b"abc \x1b[K\r\n$ ", "abc\n$ "),
    "overwritten by CR": (b"  1%\r 50%\r100%\r\n", "100%\n"),
    "shorter over longer": (b"downloading\rdone\r\n", "doneloading\n"),
    "CR, then erase": (b"downloading\r\x1b[Kdone\r\n", "done\n"),
    "erase, then CR": (b"downloading\x1b[2K\rdone\r\n", "done\n"),
    "erase the rest": (b"downloading\rdone\x1b[K\r\n", "done\n"),
    "erase by column": (b"| spin\x1b[1G\x1b[0K/ spin\x1b[1G\x1b[0Kok\r\n", "ok\n"),
    "CR left at the end": (b"12%\r", "12%"),
    "blanks that wipe": (b"working...\r          \rok\r\n", "ok\n"),
    "blanks that end a plain line stay": (b"trailing  \r\n", "trailing  \n"),
    "struck over": (b"N\bNA\bA _\bf_\bi", "NA fi"),
    "spinner": (b"|\b/\b-\b\\\bok\r\n", "ok\n"),
    "rubbed out": (b"pasX\b \bs\r\n", "pass\n"),
    "backspace at the margin": (b"\b\b\bx", "x"),
    "wide characters overwritten": ("世界\rab".encode(), "ab界"),
    "half a wide character": ("世界\ra".encode(), "a 界"),
    "cursor over a wide character": ("世\x1b[1Dx".encode(), " x"),
    "two lines redrawn": (b"a: 1\r\nb: 1\r\n\x1b[2A\x1b[2Ka: 2\r\n\x1b[2Kb: 2\r\n", "a: 2\nb: 2\n"),
    "redrawn and shorter": (b"log\r\n[==  ]\r\nwait\r\n\x1b[2A\x1b[Jdone\r\n", "log\ndone\n"),
    "line inserted above a bar": (b"[=  ]\r\n\x1b[1A\x1b[Lnews\r\n\x1b[1B", "news\n[=  ]\n"),
    "reverse index": (b"one\r\ntwo\x1bM\rONE", "ONE\ntwo"),
    "saved cursor": (b"\x1b7status 1\x1b8\x1b[Kstatus 2", "status 2"),
    "delete and insert characters": (b"abcdef\r\x1b[2P\x1b[3@\x1b[1X", "   cdef"),
    "repeated character": (b"-\x1b[4b|", "-----|"),
    "erased to the left": (b"abcdef\x1b[3D\x1b[1K", "    ef"),
    "cursor to the far right": (b"name\x1b[999C\x1b[10D[ ok ]", "name" + " " * 66 + "[ ok ]"),
    "clear, then output": (b"before\r\n\x1b[H\x1b[2J\x1b[3Jafter\r\n", "before\nafter\n"),
    "repainted by clearing": (b"\x1b[2J\x1b[Htick 1\r\n\x1b[2J\x1b[Htick 2\r\n", "tick 2\n"),
    "repainted from home": (b"\x1b[H\x1b[Jtick 1\r\nx\r\n\x1b[H\x1b[Jtick 2\r\n", "tick 2\n"),
    "placed text": (b"\x1b[2;3Hb\x1b[1;1Ha", "a\n  b"),
    "status line below a region": (b"\x1b7\x1b[0;49r\x1b8a\r\n\x1b7\x1b[50;0f[## ]\x1b8b\r\n", "a\nb\n"),
    "alternate screen": (b"before\r\n\x1b[?1049h\x1b[Hvim~\r\n~\x1b[?1049lafter\r\n", "before\nafter\n"),
    "alternate screen still on": (b"before\r\n\x1b[?1h\x1b[?1049;25h\x1b[2Jmenu", "before\n"),
    "left without being entered": (b"kept\x1b[?1049l\r\n", "kept\n"),
}


@pytest.mark.parametrize(("data", "text"), CASES.values(), ids=CASES.keys())
def test_what_a_person_would_have_seen(data: bytes, text: str) -> None:
    assert clean(data) == text


def test_a_spinner_over_many_layers_ends_in_its_last_state() -> None:
    frames = b"".join(
        b"\x1b[3A" + b"".join(b"\x1b[2K\x1b[1mlayer %d\x1b[0m: %d%%\r\n" % (layer, step) for layer in range(3))
        for step in range(101)
    )
    assert clean(b"pulling\r\n" + b"\r\n" * 3 + frames) == "pulling\n" + "".join(f"layer {n}: 100%\n" for n in range(3))


def test_a_log_next_to_a_progress_bar_keeps_every_line() -> None:
    lines = b"".join(
        b"\r\x1b[K\x1b[1;32m   Compiling\x1b[0m crate%d\r\n\x1b[36m    Building\x1b[0m [%d/300]" % (n, n)
        for n in range(300)
    )
    expected = "".join(f"   Compiling crate{n}\n" for n in range(300))
    assert clean(lines + b"\r\x1b[K    Finished\r\n") == expected + "    Finished\n"


NUMBERS = (b"", b"0", b"1", b"2", b"7", b"999999999", b"3;4", b"?1049")
PIECES = st.sampled_from(
    [b"a", b"word", b"\r", b"\n", b"\r\n", b"\b", b"\t", b"\x1b", b"\x1b[", b"\x1b]", b"\x1bP", b"\x07", b"\x1b\\"]
    + [
        b"\x1b[%s%c" % (n, c)
        for n in (b"", b"0", b"1", b"2", b"7", b"999999999", b"3;4", b"?1049")
        for c in range(64, 127)
    ]
    + ["世".encode(), "é".encode(), b"\xe4\xb8", b"\xff", b"\x1b7", b"\x1b8", b"\x1bM", b"\x1bc"]
)


@given(st.lists(st.one_of(PIECES, st.binary(max_size=4)), max_size=60).map(b"".join))
@example(bytes(range(256)) * 2)
@settings(max_examples=60)
def test_any_bytes_give_harmless_text(data: bytes) -> None:
    text = clean(data)
    text.encode("utf-8")
    assert not {c for c in text if unicodedata.category(c) in ("Cc", "Cs")} - {"\t", "\n"}
    assert len(text) <= 5 * len(data) + 4200


@given(st.lists(st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=20), max_size=8))
def test_plain_text_comes_out_as_it_went_in(lines: list[str]) -> None:
    assert clean("\r\n".join(lines).encode()) == "\n".join(lines)


def motions(letters: str, *more: bytes) -> st.SearchStrategy[bytes]:
    numbered = st.tuples(st.sampled_from(letters), st.integers(1, 5))
    written = [b"x", b"abc", b"hello world", b"\r", b"\r\n", b"\b", b"\x1b[1;31m", b"\x1b]0;t\x07", b"\x1bE", *more]
    erased = [b"\x1b[K", b"\x1b[1K", b"\x1b[2K", b"\x1b[J"]
    moved = numbered.map(lambda motion: b"\x1b[%d%c" % (motion[1], ord(motion[0])))
    return st.lists(st.one_of(st.sampled_from(written), st.sampled_from(erased), moved), max_size=40).map(b"".join)


@given(st.one_of(motions("ABCDEFG@PXLM"), motions("ABCDEFGXLM", "世".encode(), "界 ok".encode())))
@settings(max_examples=50, deadline=None)
def test_the_same_as_a_terminal_shows(data: bytes) -> None:
    assert lines_of(clean(data)) == lines_of(shown_by_a_terminal(data))


LOGS = sorted((Path(__file__).parents[3] / "data" / "logs").glob("*.raw"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_recorded_logs_read_as_a_terminal_shows_them(path: Path) -> None:
    data = path.read_bytes()
    assert lines_of(clean(data)) == lines_of(shown_by_a_terminal(data))


def test_there_are_recorded_logs() -> None:
    assert {path.stem for path in LOGS} >= {"cargo", "ls", "npm", "pip", "pytest", "uv"}


def shown_by_a_terminal(data: bytes) -> str:
    terminal = pyghostty.Terminal(cols=500, rows=800)
    terminal.feed(data)
    text = terminal.text()
    terminal.close()
    return text


def lines_of(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


HARD = {
    "one line": b"x" * 999,
    "one line, coloured": b"\x1b[31mx\x1b[0m" * 99,
    "small overwrites of a long line": b"y" * 30 + b"\r\x1b[5Cz\x1b[99999C",
    "erased and appended": b"ab\b\x1b[K",
    "erased to the left": b"ab\x1b[1K",
    "far movements": b"\x1b[99999999999B\x1b[99999999999Cx",
    "near movements": b"\x1b[190B\x1b[190Cx",
    "inserted lines": b"\x1b[A\x1b[500La\r\n",
    "deleted lines": b"a\r\n\x1b[Ab\x1b[M",
    "inserted characters": b"a\r\x1b[900@",
    "deleted characters": b"abc\r\x1b[1P",
    "repeats": b"a\x1b[90000b",
    "erased characters": b"abc\x1b[90000X",
    "titles without end": b"\x1b]0;",
    "numbers without end": b"\x1b[1;",
    "opened alternate screens": b"\x1b[?1049h\x1b[?1;",
    "saved and restored": b"\x1b7a\r\n\r\n\x1b8b\x1b[J",
    "clears": b"\x1b[2Ja\r\n",
    "wide": "\r世".encode(),
}


@pytest.mark.parametrize("chars", [6_000, pytest.param(20_000, marks=pytest.mark.torture)])
@pytest.mark.parametrize("piece", HARD.values(), ids=HARD.keys())
def test_work_grows_no_faster_than_the_input(piece: bytes, chars: int) -> None:
    small, large = piece * (chars // len(piece)), piece * (16 * chars // len(piece))
    before = min(cleaned(small)[1] for _ in range(3))
    length, after = cleaned(large)
    assert length <= 5 * len(large) + 4200
    assert after < 16 * 4 * max(before, 0.0005)


def cleaned(data: bytes) -> tuple[int, float]:
    """The length of its text, and the processor time that it takes."""
    start = time.process_time()
    text = clean(data)
    return len(text), time.process_time() - start
