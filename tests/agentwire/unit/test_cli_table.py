"""Tables on terminals of any width."""

from __future__ import annotations

import re

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
    assert lines[3:] == [" a      /home/ada/proje", "        cts/x", ""]


def test_times_are_told_by_their_largest_unit() -> None:
    told = {
        0.5: "now",
        1: "1 s ago",
        59.9: "59 s ago",
        60: "1 min ago",
        7199: "1 h ago",
        90_000: "1 d ago",
        -90: "in 1 min",
    }
    assert {before: ago(1_000_000 - before, 1_000_000) for before in told} == told


@given(st.lists(st.tuples(CELL, CELL, CELL), max_size=4), st.integers(1, 100))
def test_nothing_is_left_out_and_nothing_wider_than_the_terminal(rows: list[tuple[str, ...]], width: int) -> None:
    lines = plain(list(draw(["A", "B", "C"], rows, width)))
    shown = sorted(char for line in lines[3:] for char in line if char != " ")
    assert shown == sorted(char for row in rows for cell in row for char in cell)
    if width > 3 * LEAST + 8:
        assert all(len(line) < width for line in lines)
