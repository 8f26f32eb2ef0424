"""A recording as a tab plays it: from any time the screen is what whoever watched saw, and no piece is large."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ai_session.http.console.recordings import Recording
from ai_session.terminal.screen import Screen

BEGAN = 1000.25


def recorded(home: Path, events: Sequence[tuple[float, str, str]], **more: Any) -> Recording:
    """A recording of 3 rows by 20 columns, whose events each come so long after the one before."""
    path = home / "made.cast"
    header = {"version": 3, "term": {"rows": 3, "cols": 20}, "timestamp": int(BEGAN)}
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *events]))
    made = Recording(path, BEGAN, **more)
    assert not path.exists(), "nothing of it is left for others"
    return made


def lines(made: Recording, at: float) -> list[str]:
    facts, ansi = made.screen(at)
    screen = Screen(facts["rows"], facts["cols"])
    screen.feed(ansi)
    return [line for line in screen.snapshot().lines if line]


def test_a_pause_is_short_and_the_clock_tells_when_it_was(home: Path) -> None:
    events = [(0.0, "o", "one\r\n"), (60.0, "m", "make"), (0.0, "o", "two\r\n"), (1.0, "o", "three"), (9.0, "x", "0")]
    made = recorded(home, events)
    assert (made.facts()["seconds"], made.facts()["shown"]) == (5.0, 15)
    assert [lines(made, at) for at in (-1.0, 1.9, 2.0, 3.0, 99.0)] == [
        ["one"],
        ["one"],
        ["one", "two"],
        ["one", "two", "three"],
        ["one", "two", "three"],
    ]
    assert [made.screen(at)[0]["clock"] for at in (0.0, 2.5, 5.0)] == [BEGAN, BEGAN + 60.5, BEGAN + 70]
    clocks = [BEGAN + later for later in (-5.0, 0.0, 1.0, 30.0, 60.0, 60.5, 61.0, 62.0, 69.0, 70.0, 1e9)]
    assert made.positions(clocks) == [0.0, 0.0, 1.0, 2.0, 2.0, 2.5, 3.0, 4.0, 5.0, 5.0, 5.0]
    facts, data = made.piece(0)
    assert [event[::2] for event in facts["events"]] == [[0, "o"], [2, "m"], [2, "o"], [3, "o"], [5, "x"]]
    assert data == b"one\r\nmaketwo\r\nthree0"
    made.close()


def test_every_piece_goes_on_where_the_one_before_ends(home: Path) -> None:
    """Also where only few screens are kept, and the size changes on the way."""
    events = [(0.5, "r" if n == 50 else "o", "30x5" if n == 50 else f"\x1b[H\x1b[2Jline {n}\r\n") for n in range(100)]
    made, whole = recorded(home, events, piece_bytes=200, most_frames=4), Screen(3, 20)
    pieces = [made.piece(number) for number in range(made.facts()["pieces"])]
    assert len(pieces) > 10
    assert all(len(data) < 400 for _, data in pieces)
    flat = [event for facts, _ in pieces for event in facts["events"]]
    assert [event[0] for event in flat] == [0.5 * (n + 1) for n in range(100)]
    assert sum(event[3] for event in flat) == len(b"".join(data for _, data in pieces))
    for number, (gap, code, text) in enumerate(events):
        if code == "r":
            whole.resize(5, 30)
        else:
            whole.feed(text.encode())
        at = gap * (number + 1)
        facts, _ = made.screen(at)
        assert lines(made, at) == [line for line in whole.snapshot().lines if line]
        assert (facts["rows"], facts["cols"]) == (whole.rows, whole.cols)
        behind = sum(len(facts["events"]) for facts, _ in pieces[: facts["piece"]]) + facts["skip"]
        assert behind == number + 1, "what follows the screen is what was not drawn yet"
    with pytest.raises(IndexError):
        made.piece(len(pieces))
    made.close()


def test_a_command_is_found_where_it_begins_also_among_output_of_the_same_time(home: Path) -> None:
    events = [(float(n % 3 == 0), "m" if n % 2 else "o", f"{n} ") for n in range(40)]
    names = [f"cmd_{n}" for n in range(1, 40, 2)]
    made = recorded(home, events, commands=names, piece_bytes=100)
    assert [*made.facts()["commands"]] == names
    for n in range(1, 40, 2):
        facts, ansi = made.screen(0.0, f"cmd_{n}")
        whole = Screen(3, 20)
        whole.feed("".join(text for _, code, text in events[:n] if code == "o").encode())
        shown = Screen(3, 20)
        shown.feed(ansi)
        assert shown.snapshot().lines == whole.snapshot().lines
        assert facts["at"] == made.facts()["commands"][f"cmd_{n}"]
    with pytest.raises(KeyError):
        made.screen(0.0, "cmd_2")
    made.close()


def test_one_without_any_output_is_empty(home: Path) -> None:
    made = recorded(home, [])
    assert made.facts()["seconds"] == 0.0
    assert made.piece(0) == ({"events": []}, b"")
    assert made.screen(0.0)[0] | {"clock": 0} == {
        "at": 0.0,
        "clock": 0,
        "shown": 0,
        "piece": 0,
        "skip": 0,
        "rows": 3,
        "cols": 20,
    }
    made.close()
