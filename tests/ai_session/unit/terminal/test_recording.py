import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ai_session.models import CommandRecord
from ai_session.system.turns import Steps, finished
from ai_session.terminal.marks import strip_marks
from ai_session.terminal.recording import Source, export
from ai_session.terminal.timing import ENTRY, MAX_BYTES, Tick, Timing, read_ticks

NONCE = "0123456789abcdef"
MARK = f"\x1b]7777;{NONCE};D;1;0;;;/tmp\x07".encode()


def secrets(data: bytes, growing: bool = False, before: int = 0, /) -> Steps[Sequence[tuple[int, int, bytes]]]:
    yield
    return [(m.start(), m.end(), b"[masked]") for m in re.finditer(rb"s3cret\d+", data)]


def source(data: bytes, ticks: Sequence[Tick] = (), first: int = 0, **more: object) -> Source:
    return Source("main", NONCE, 24, 80, lambda a, b: data[a:b], first, len(data), ticks, **more)  # pyright: ignore[reportArgumentType]


def events(made: Source, window: int = 1 << 20) -> tuple[dict[str, object], list[tuple[float, str, str]]]:
    lines = [json.loads(line) for line in export(made, secrets, window_bytes=window)]
    return lines[0], [tuple(line) for line in lines[1:]]


def test_output_comes_at_its_time_with_sizes_commands_and_the_exit() -> None:
    ticks = [Tick(100.0, 3), Tick(100.5, 6), Tick(101.0, 6, 30, 90), Tick(102.0, 9)]
    record = CommandRecord("cmd_1", 1, "make s3cret5", "finished", 100.0, 3)
    header, reported = events(source(b"aaabbbccc", ticks, commands=[record], exit_code=2))
    assert header == {
        "version": 3,
        "term": {"cols": 80, "rows": 24, "type": "xterm-256color"},
        "timestamp": 100,
        "title": "main",
    }
    assert reported == [
        (0.0, "o", "aaa"),
        (0.0, "m", "make [masked]"),
        (0.5, "o", "bbb"),
        (0.5, "r", "90x30"),
        (1.0, "o", "ccc"),
        (0.0, "x", "2"),
    ]


def test_characters_cut_by_a_tick_stay_whole() -> None:
    data = "aé世b".encode()
    _, reported = events(source(data, [Tick(1.0 + n, n + 1) for n in range(len(data))]))
    assert "".join(text for _, _, text in reported) == "aé世b"
    assert all("�" not in text for _, _, text in reported)


def test_marks_are_left_out_and_a_secret_is_masked_also_where_a_tick_or_a_mark_cuts_it() -> None:
    data = b"x s3cr" + MARK + b"et123 y s3cret9 z"
    _, reported = events(source(data, [Tick(1.0, 4), Tick(2.0, len(data) - 5), Tick(3.0, len(data))]))
    assert "".join(text for _, _, text in reported) == "x [masked] y [masked] z"


@given(
    parts=st.lists(st.sampled_from([MARK, b"s3cret77", b"word ", "世".encode(), b"\r\n", b"\x1b[31m"]), max_size=60),
    cuts=st.lists(st.integers(0, 600), max_size=12),
    window=st.integers(40, 200),
)
def test_any_cut_gives_the_same_text(parts: list[bytes], cuts: list[int], window: int) -> None:
    data = b"".join(parts)
    ticks = [Tick(1.0 + n, min(cut, len(data))) for n, cut in enumerate(sorted(cuts))]
    reported = events(source(data, ticks), window)[1]
    text = "".join(text for _, code, text in reported if code == "o")
    assert text == re.sub(rb"s3cret\d+", b"[masked]", strip_marks(data, NONCE)).decode()
    assert all(gap >= 0 for gap, _, _ in reported)


def test_a_recording_begins_where_output_is_still_kept() -> None:
    ticks = [Tick(10.0, 2, 40, 100), Tick(11.0, 4), Tick(12.0, 8)]
    header, reported = events(source(b"aabbccdd", ticks, first=4))
    assert (header["term"], header["timestamp"]) == ({"cols": 100, "rows": 40, "type": "xterm-256color"}, 12)
    assert reported == [(0.0, "o", "ccdd")]


def test_the_line_that_is_cut_where_output_is_kept_no_further_back_is_left_out() -> None:
    _, reported = events(source(b"s3cret12345 is it\r\na line", [Tick(1.0, 25)], first=4))
    assert "".join(text for _, _, text in reported) == "a line"


def test_ticks_are_kept_apart_by_a_step_and_survive_a_torn_end(home: Path) -> None:
    timing = Timing(home / "times")
    timing.note(5)
    timing.note(9)
    timing.resized(9, 30, 90)
    timing.close()
    with (home / "times").open("ab") as file:
        file.write(b"torn")
    assert [(t.offset, t.rows) for t in finished(read_ticks(home / "times"))] == [(5, 0), (9, 30)]


def test_ticks_stay_bounded_and_the_newest_stay(home: Path) -> None:
    count = MAX_BYTES // ENTRY.size
    (home / "times").write_bytes(b"".join(ENTRY.pack(n * 20_000, n, 0, 0) for n in range(count)))
    timing = Timing(home / "times")
    timing.note(count)
    assert timing.full
    thinning = timing.thin(count // 4)
    next(thinning)
    timing.resized(count + 1, 30, 90)
    finished(thinning)
    assert not timing.full
    timing.resized(count + 2, 40, 90)
    timing.close()
    ticks = finished(read_ticks(home / "times"))
    assert [tick.rows for tick in ticks if tick.rows] == [30, 40]
    assert len(ticks) * ENTRY.size <= MAX_BYTES // 2 + ENTRY.size
    assert ticks[-1].offset >= count
    assert ticks[0].offset >= count // 4


def test_without_a_file_nothing_is_kept_and_nothing_fails(home: Path) -> None:
    timing = Timing(home / "gone" / "times")
    timing.note(1)
    timing.resized(1, 2, 3)
    timing.close()
    assert finished(read_ticks(home / "gone" / "times")) == []


def test_title_and_markers_are_masked_and_a_marker_ends_before_what_is_cut() -> None:
    made = source(b"x", [Tick(1.0, 1)], commands=[CommandRecord("c", 1, "a" * 190 + " s3cret123", "finished", 1.0, 0)])
    header, reported = events(replace(made, name="for-s3cret1"))
    assert header["title"] == "for-[masked]"
    assert reported[0][1:] == ("m", "a" * 190 + " [masked]")


def test_what_breaks_up_a_secret_stays_for_the_terminal() -> None:
    data = b"\x1b[31ms3c\x1b[mret\x1b[1m12\x1b[0m end"
    _, reported = events(source(data, [Tick(1.0, len(data))]))
    assert "".join(text for _, _, text in reported) == "\x1b[31m[masked]\x1b[m\x1b[1m\x1b[0m end"
