"""Recordings of real programs: the screen is the one tmux made of the same bytes when they were recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai_session.models import ScreenSnapshot
from ai_session.terminal.screen import Screen
from tests.support.products import first

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.raw"))
EARLIER = b"\x1b[?1049h\x1b[31;44mearlier\x1b[2;3r\x1b[4h\x1b[?6h\x1b[?7l\x1b[?25l\x1b[?2004h\x1b(0\x1b]2;old"


def load(name: str) -> tuple[bytes, ScreenSnapshot]:
    """The bytes, and what they must show; titles are not compared."""
    facts, *lines = (RECORDINGS / f"{name}.txt").read_text().removesuffix("\n").split("\n")
    rows, cols, row, col, alternate, visible = facts.split()
    shown = ScreenSnapshot(
        rows=int(rows),
        cols=int(cols),
        lines=tuple(lines),
        cursor_row=int(row),
        cursor_col=int(col),
        cursor_visible=visible == "True",
        title="",
        alternate_screen=alternate == "True",
    )
    return (RECORDINGS / f"{name}.raw").read_bytes(), shown


def without_title(found: ScreenSnapshot) -> ScreenSnapshot:
    names = (name for name in found.__dataclass_fields__ if name != "title")
    return ScreenSnapshot(title="", **{name: getattr(found, name) for name in names})


def test_there_are_recordings_of_each_kind() -> None:
    assert {"bash", "fish", "htop", "less", "progress", "python", "rich", "top", "vim", "zsh"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_screen_is_the_recorded_one(name: str) -> None:
    data, shown = load(name)
    screen = Screen(shown.rows, shown.cols)
    screen.feed(data)
    assert without_title(screen.snapshot()) == shown


@pytest.mark.parametrize("name", NAMES)
def test_bytes_that_come_one_by_one_draw_the_same(name: str) -> None:
    data, shown = load(name)
    screen = Screen(shown.rows, shown.cols)
    for value in data:
        screen.feed(bytes((value,)))
    assert without_title(screen.snapshot()) == shown


@pytest.mark.parametrize("name", first(NAMES, "fish", "htop", "less", "progress", "vim"))  # the rest is drawn above
def test_a_redraw_at_any_time_gives_the_same_screen_then_and_later(name: str) -> None:
    data, shown = load(name)
    for cut in range(0, len(data), max(1, len(data) // 40)):
        screen, viewer = Screen(shown.rows, shown.cols), Screen(shown.rows, shown.cols)
        screen.feed(data[:cut])
        viewer.feed(EARLIER)
        viewer.feed(screen.ansi())
        assert viewer.snapshot() == screen.snapshot()
        viewer.feed(data[cut:])
        screen.feed(data[cut:])
        assert viewer.snapshot() == screen.snapshot()
