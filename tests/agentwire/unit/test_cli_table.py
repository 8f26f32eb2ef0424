"""Tables on terminals of any width."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwire.cli.table import COLOURS, LEAST, PLAIN, ago, draw

CELL = st.text(st.characters(categories=["L", "Nd", "Pd"]), max_size=30)


def plain(lines: list[str]) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]


def test_a_table_has_a_heading_a_rule_and_aligned_rows() -> None:
    lines = list(draw(["NAME", "STATE"], [["build", "ready"], ["日本", "x"]], 80))
    assert plain(lines) == ["", " NAME    STATE", " ─────────────", " build   ready", " 日本    x", ""]
    assert f"{COLOURS['ready']}ready{PLAIN}" in lines[3]
    assert list(draw(["NAME", "STATE"], [["build", "ready"], ["日本", "x"]], 80, coloured=False)) == plain(lines)


def test_a_cell_that_does_not_fit_goes_on_below() -> None:
    lines = plain(list(draw(["NAME", "DIRECTORY"], [["a", "/home/ada/projects/x"]], 24)))
    assert lines[3:] == [" a      /home/ada/", "        projects/x", ""]


def test_a_short_word_is_not_broken() -> None:
    headings, row = ["NAME", "CAPABILITIES", "WORKSPACE"], ["coordinator", "analysis", "shared"]
    reported = [plain(list(draw(headings, [row], width))) for width in (42, 30)]
    assert all({*headings, *row} <= {word for line in lines for word in line.split()} for lines in reported)
    assert ["─" in "".join(lines) for lines in reported] == [True, False]


def test_times_are_shown_in_their_largest_unit() -> None:
    reported = {
        0.5: "now",
        1: "1 s ago",
        59.9: "59 s ago",
        60: "1 min ago",
        7199: "1 h ago",
        90_000: "1 d ago",
        -90: "in 1 min",
    }
    assert {before: ago(1_000_000 - before, 1_000_000) for before in reported} == reported


RUN = "run_9c723405324c22341f2341b6cb074e52"
RUNS = (["RUN", "STATUS", "TASKS"], [[RUN, "waiting_approval", "1 succeeded, 2 failed"], [RUN[:12], "ok", "1"]])


@pytest.mark.parametrize("width", [20, 40, 60, 72, 80])
def test_an_id_stays_in_one_piece_on_any_terminal(width: int) -> None:
    lines = plain(list(draw(*RUNS, width)))
    words = [word for line in lines for word in line.split()]
    assert {RUN, "waiting_approval", RUN[:12]} <= set(words), "each can be copied"
    assert [word for word in words if word in ("1", "2", "failed")] == ["1", "2", "failed", "1"]
    table = any("─" in line for line in lines)
    assert table == (width > 68), "side by side where there is room for it"
    assert all(len(line) < width for line in lines) or width < 60


def test_a_row_without_room_is_a_list_of_its_cells() -> None:
    assert plain(list(draw(["RUN", "STATUS", "WHY"], [[RUN, "waiting_approval", ""], ["run_1", "ok", "a b"]], 52))) == [
        "",
        f" RUN      {RUN}",
        " STATUS   waiting_approval",
        "",
        " RUN      run_1",
        " STATUS   ok",
        " WHY      a b",
        "",
    ]


@given(st.lists(st.tuples(CELL, CELL, CELL), max_size=4), st.integers(1, 100))
def test_nothing_is_left_out_and_nothing_wider_than_the_terminal(rows: list[tuple[str, ...]], width: int) -> None:
    lines = plain(list(draw(["A", "B", "C"], rows, width)))
    table = any("─" in line for line in lines) or not rows
    reported = lines[3:] if table else [line[2:] for line in lines]
    shown = sorted(char for line in reported for char in line if char != " ")
    assert shown == sorted(char for row in rows for cell in row for char in cell)
    if width > 3 * LEAST + 8:
        assert all(len(line) < max(width, 0 if table else 40) for line in lines)
