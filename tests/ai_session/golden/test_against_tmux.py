"""The same bytes drawn by us and by a real tmux, now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ai_session.terminal.screen import Screen
from tests.ai_session.golden.tmux_reference import Drawn, TmuxReference, tmux_reference
from tests.support.products import first

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.raw"))
ROWS, COLS = 24, 80

PROBES = {
    "alternate screen": b"main\x1b[?1049hALT\x1b[?1049l-back",
    "alternate screen 47": b"main\x1b[?47hALT\x1b[?47l-back",
    "scroll region, IL, DL": b"".join(b"%d\r\n" % i for i in range(1, 24))
    + b"\x1b[5;10r\x1b[6;1H\x1b[2L\x1b[8;1H\x1b[M\x1b[r",
    "ICH, DCH, ECH": b"abcdefghij\x1b[1;3H\x1b[2@\x1b[1;8H\x1b[2P\x1b[1;2H\x1b[1X",
    "REP": b"ab\x1b[5bc",
    "SU, SD": b"1\r\n2\r\n3\r\n\x1b[2Sx\x1b[T",
    "RI, IND, NEL": b"a\x1bDb\x1bEc\x1bMd",
    "save and restore": b"abc\x1b7\x1b[10;10Hx\x1b8d\x1b[s\x1b[5;5Hy\x1b[ue",
    "no wrap": b"\x1b[?7l" + b"x" * 100 + b"Y\x1b[?7h",
    "wrap pending": b"x" * 80 + b"\rA\x1b[5;1H" + b"y" * 80 + b"B",
    "tabs": b"a\tb\tc\x1b[3g\r\n\td\x1bH\x1b[1;5H\x1bH\r\n\te",
    "CBT": b"abcdefghijklmnop\x1b[2Zx",
    "wide": "世界abc\x1b[2;80H世".encode(),
    "combining": "e\u0301a\u0308 न\u093f".encode(),
    "line drawing": b"\x1b(0lqqk\r\nx  x\r\nmqqj\x1b(B ok",
    "shift out": b"\x1b)0a\x0eqqq\x0fb",
    "origin": b"\x1b[5;10r\x1b[?6h\x1b[1;1HX\x1b[99;1HY\x1b[?6l\x1b[1;1HZ",
    "DECALN": b"\x1b#8\x1b[5;5Hx",
    "ED, EL": b"".join(b"%d line\r\n" % i for i in range(20))
    + b"\x1b[10;3H\x1b[1J\x1b[15;3H\x1b[K\x1b[12;4H\x1b[1K\x1b[18;1H\x1b[J",
    "titles": b"a\x1b]0;title\x1b\\b\x1b]2;t\x07c",
    "link": b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\.",
    "strings": b"a\x1bPq#0;1;1~\x1b\\b\x1b_Gi=1;AAAA\x1b\\c\x1b^pm\x1b\\d",
    "private SGR": b"a\x1b[>4;2mb\x1b[?4mc\x1b[>4md",
    "kitty keyboard": b"a\x1b[>1ub\x1b[<uc\x1b[=5ud\x1b[?ue",
    "SGR with colons": b"a\x1b[38:2::255:0:0ma\x1b[4:3mb\x1b[58:5:1mc\x1b[0md",
    "synchronized": b"a\x1b[?2026hA\x1b[?2026lB",
    "queries": b"a\x1b[22;0;0tb\x1b[cc\x1b[>cd\x1b[>qe\x1b[6nf\x1b[?25$pg",
    "cursor style": b"a\x1b[5 qb\x1b[?25l",
    "C0 inside CSI": b"a\x1b[1\x0a;3Hb",
    "cancel": b"a\x1b[31\x18b\x1b]0;x\x18c",
    "8-bit C1 in UTF-8": "a\x9b31mb".encode() + b"c",
    "HPA, VPA, CNL, CPL": b"\x1b[5`a\x1b[3db\x1b[2Ec\x1b[Fd\x1b[10Ge",
    "RIS": b"abc\x1b[5;5r\x1bcx",
    "insert": b"abcdef\x1b[1;3H\x1b[4hXY\x1b[4lZ",
    "marks": b"\x1b]133;A\x07$ \x1b]133;B\x07ls\x1b]7777;n;C;1;1.5\x07out\x1b]7777;n;D;1;0;1.6;himBH;/tmp\x07",
}

HABITS = {
    "an erase at a pending wrap spares the last cell": (b"\x1b[1;80HZ\x1b[K\rx", "x"),
    "a backspace at a pending wrap only takes it back": (b"y" * COLS + b"\x08B", "y" * 78 + "By"),
    "half of an overwritten wide character stays": ("世\x1b[1;2HX".encode(), " X"),
    "an emoji sequence is as wide as its first part": (
        "\U0001f468\u200d\U0001f469|\x1b[1;6HX".encode(),
        "\U0001f468\u200d\U0001f469|X",
    ),
    "bytes that are not UTF-8 vanish": (b"a\xff\xfeb", "a\ufffd\ufffdb"),
    "LNM is unknown": (b"\x1b[20hab\ncd\x1b[1;1Hx", "xb"),
}
"""Where tmux differs from xterm, and what xterm shows."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TmuxReference]:
    with tmux_reference(tmp_path_factory.mktemp("t")) as opened:
        yield opened


def drawn(screen: Screen) -> Drawn:
    found = screen.snapshot()
    return Drawn(found.lines, found.cursor_row, found.cursor_col, found.alternate_screen, found.cursor_visible)


@pytest.mark.parametrize("name", PROBES)
def test_a_feature_is_drawn_as_tmux_draws_it(name: str, reference: TmuxReference) -> None:
    screen = Screen(ROWS, COLS)
    screen.feed(PROBES[name])
    assert drawn(screen) == reference.draw(PROBES[name], ROWS, COLS)


@pytest.mark.parametrize("name", first(NAMES, "htop", "rich", "top", "zsh"))
def test_a_recording_cut_anywhere_is_drawn_as_tmux_draws_it(name: str, reference: TmuxReference) -> None:
    path = RECORDINGS / f"{name}.raw"
    rows, cols = (int(word) for word in path.with_suffix(".txt").read_text().split()[:2])
    data = path.read_bytes()
    for part in (1, 2, 3, 4):
        # A cut only where no sequence or character is open, so that tmux reads the title behind it.
        cut = data.find(b"\x1b[", len(data) * part // 5)
        screen = Screen(rows, cols)
        screen.feed(data[:cut])
        assert drawn(screen) == reference.draw(data[:cut], rows, cols)


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.raw")), ids=lambda path: path.stem)
def test_a_redraw_is_understood_by_tmux(path: Path, reference: TmuxReference) -> None:
    rows, cols = (int(word) for word in path.with_suffix(".txt").read_text().split()[:2])
    screen = Screen(rows, cols)
    screen.feed(path.read_bytes())
    earlier = b"\x1b[?1049h\x1b[31;44mearlier\x1b[2;3r\x1b[4h\x1b[?6h\x1b[?7l\x1b[?25l"
    assert drawn(screen) == reference.draw(earlier + screen.ansi(), rows, cols)


@pytest.mark.parametrize("name", HABITS)
def test_where_tmux_has_a_habit_of_its_own(name: str) -> None:
    data, line = HABITS[name]
    screen = Screen(ROWS, COLS)
    screen.feed(data)
    assert screen.snapshot().lines[0] == line
