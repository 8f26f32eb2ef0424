"""One command's output: bounded, exact in its accounting, readable page by page and searchable."""

from __future__ import annotations

import re
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ai_session.errors import InvalidArguments, OutputExpired
from ai_session.models import CommandRecord
from ai_session.system.turns import Result, Steps, finished, pausing
from ai_session.terminal.log import READ_BYTES, MappedLog
from ai_session.terminal.raw import raw
from ai_session.terminal.text import clean
from ai_session.terminal.transcript import SEARCH_BYTES, WINDOW_BYTES, Page, Transcript

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ai_session.terminal.masking import Spans

NONCE = "5f0c9a7be1d2"
MARK = b"\x1b]7777;5f0c9a7be1d2;D;1;0;;;/\x07"
MARKER = re.compile(r"\n?… \[(\d+) bytes omitted(?:, the first (\d+) no longer kept)?; read_output offset=(\d+)\] …\n")


class Output:
    """A real log, with something before the command so that its offsets are not the log's."""

    def __init__(self, folder: Path, data: bytes, retain_bytes: int) -> None:
        self.log = MappedLog(folder / "log", retain_bytes=retain_bytes)
        self.add(b"prompt $ \x1b]")
        self.start = self.log.end
        self.add(data)

    def add(self, data: bytes) -> None:
        for begin in range(0, len(data), READ_BYTES):
            piece = data[begin : begin + READ_BYTES]

            def source(room: memoryview, piece: bytes = piece) -> int:
                room[: len(piece)] = piece
                return len(piece)

            self.log.fill(source)

    def running(self) -> Transcript:
        return Transcript(self.log, self.start, None, NONCE)

    def finished(self) -> Transcript:
        end = self.log.end
        self.add(MARK + b"\x1b[2Jprompt $ ")
        return Transcript(self.log, self.start, end, NONCE)


@contextmanager
def output(data: bytes = b"", retain_bytes: int = 64 << 20) -> Iterator[Output]:
    with tempfile.TemporaryDirectory() as folder:
        made = Output(Path(folder), data, retain_bytes)
        yield made
        made.log.close()


def numbered(count: int) -> bytes:
    return b"".join(b"line %d of the output\r\n" % number for number in range(count))


LINES = numbered(100_000)


def no_secrets(data: bytes, growing: bool = False, before: int = 0, /) -> Steps[list[tuple[int, int, bytes]]]:
    yield
    return []


def flooded(made: Output, steps: Steps[Result]) -> Result:
    """The result of ``steps``, between any two of which the terminal prints more."""
    going = pausing(steps)
    while True:
        try:
            next(going)
        except StopIteration as end:
            return end.value
        made.add(bytes(READ_BYTES))


def test_short_output_is_whole() -> None:
    with output(b"\x1b[32mok\x1b[0m\r\n") as made:
        rendering = finished(made.finished().render(7000))
    assert (rendering.text, rendering.omitted_bytes, rendering.next_offset) == ("ok\n", 0, 13)
    assert not rendering.truncated


def test_no_output_at_all() -> None:
    with output() as made:
        transcript = made.finished()
        assert finished(transcript.render(7000)).text == finished(transcript.tail(5, 100)).text == ""
        page = finished(transcript.page(0, 100))
        assert (page.text, page.next_offset, page.at_end) == ("", 0, True)
        assert finished(transcript.search("x", 5, 1, 500)).complete


def test_long_output_is_head_and_tail_of_whole_lines() -> None:
    data = numbered(10_000)
    with output(data) as made:
        rendering = finished(made.finished().render(7000))
    assert 6000 < len(rendering.text) <= 7000
    head, omitted, _, offset, tail = MARKER.split(rendering.text)
    assert head.startswith("line 0 of the output\nline 1 ")
    assert tail.endswith("line 9999 of the output\n")
    assert 0.3 < len(head) / len(tail) < 0.8
    assert (int(omitted), int(offset)) == (rendering.omitted_bytes, rendering.next_offset)
    rest = data[rendering.next_offset + rendering.omitted_bytes :]
    assert head + "\n" == clean(data[: rendering.next_offset])
    assert tail == clean(rest)
    assert re.match(r"line \d+ of", tail)


def test_progress_that_collapses_is_not_cut() -> None:
    bar = b"".join(b"\r\x1b[K%d of 3000 files" % number for number in range(3000)) + b"\r\n"
    layers = b"".join(b"\x1b[2A\x1b[2Ka %d\r\n\x1b[2Kb %d\r\n" % (step, step) for step in range(2000))
    with output(bar + b"\r\n\r\n" + layers) as made:
        rendering = finished(made.finished().render(200))
    assert rendering.text == "2999 of 3000 files\na 1999\nb 1999\n"


def test_one_long_line() -> None:
    data = ("é世x" * 400_000).encode()
    with output(data) as made:
        transcript = made.finished()
        rendering = finished(transcript.render(5000))
        assert 4000 < len(rendering.text) <= 5000
        assert "\ufffd" not in rendering.text
        assert finished(transcript.tail(3, 500)).text in "é世x" * 400_000


def test_a_full_screen_program_leaves_no_garbage() -> None:
    frames = b"".join(b"\x1b[H\x1b[2Kframe %d\r\n%s" % (number, b"~\r\n" * 40) for number in range(2000))
    data = numbered(3) + b"\x1b[?1049h" + frames + b"\x1b[?1049l" + b"left\r\n"
    with output(data) as made:
        transcript = made.finished()
        assert "~" not in finished(transcript.render(2000)).text
        assert finished(transcript.render(2000)).text.endswith("left\n")
        assert finished(transcript.tail(3, 1000)).text == "left\n"
        assert finished(transcript.search("frame 1999", 5, 0, 1000)).count == 0
        assert "~" not in finished(transcript.page(data.index(b"frame 9\r"), 1000)).text


def test_expired_output_says_so() -> None:
    data = numbered(200_000)
    with output(data, retain_bytes=1 << 20) as made:
        transcript = made.finished()
        first = transcript.first_offset
        assert first > 1 << 20
        rendering = finished(transcript.render(1000))
        head, omitted, gone, offset, tail = MARKER.split(rendering.text)
        assert (head, int(gone), int(offset)) == ("", first, first)
        assert tail == clean(data[int(omitted) :])
        with pytest.raises(OutputExpired, match=str(first)):
            finished(transcript.page(first - 1, 1000))
        assert finished(transcript.page(first, 1000)).text
        found = finished(transcript.search("line 1 of", 5, 0, 1000))
        assert (found.count, found.complete) == (0, True)


@pytest.mark.parametrize("spans", [None, no_secrets])
def test_output_let_go_of_between_two_steps_of_a_reader_is_never_misread(spans: Spans | None) -> None:
    """With each step more comes, and so less is kept of the beginning."""
    with output(LINES, retain_bytes=1 << 20) as made:
        transcript = Transcript(made.log, made.start, made.log.end, NONCE, spans)
        offset = transcript.first_offset
        advice = list[tuple[int, str]]()
        while offset < transcript.end_offset:
            try:
                page = flooded(made, transcript.page(offset, 30_000))
            except OutputExpired as error:
                offset = transcript.first_offset
                advice.append((offset, error.suggestion))
                continue
            # A line whose beginning is not kept may be the end of a secret.
            assert page.text.split("\n")[1:] == clean(LINES[page.offset : page.next_offset]).split("\n")[1:]
            assert page.next_offset > offset
            offset = page.next_offset
        assert advice
        assert all(said.startswith(f"read from offset {first} on;") for first, said in advice)


@pytest.mark.parametrize("spans", [None, no_secrets])
def test_a_reader_of_the_end_begins_again_where_more_was_let_go_of(spans: Spans | None) -> None:
    with output(LINES, retain_bytes=1 << 20) as made:
        transcript = Transcript(made.log, made.start, made.log.end, NONCE, spans)
        end = transcript.end_offset
        while transcript.first_offset < end:
            tail = flooded(made, transcript.tail(30_000, 1 << 20))
            assert tail.text.split("\n")[1:] == clean(LINES[tail.offset : end]).split("\n")[1:]
            assert clean(LINES).endswith(MARKER.split(flooded(made, transcript.render(1 << 20)).text)[-1])
            found = flooded(made, transcript.search("9 of", 2000, 2, 100_000))
            assert all(LINES[match.offset :].startswith(b"line ") for match in found.matches)


def test_a_pattern_is_looked_for_no_longer_where_all_there_was_is_let_go_of() -> None:
    with output(LINES, retain_bytes=1 << 20) as made:
        cursor = Transcript(made.log, made.start, None, NONCE, no_secrets).pattern_cursor("line 7 of another output")
        looking = pausing(cursor.find())
        next(looking)
        made.add(bytes(4 << 20))
        for _ in looking:
            pass
        made.add(b"\r\nline 7 of another output\r\n")
        assert finished(cursor.find())


def test_output_of_which_nothing_is_kept_has_an_end() -> None:
    with output(numbered(100), retain_bytes=1 << 20) as made:
        transcript, end = made.finished(), len(numbered(100))
        made.add(bytes(4 << 20))
        assert transcript.first_offset == end
        assert finished(transcript.render(1000)).omitted_bytes == end
        with pytest.raises(OutputExpired) as expired:
            finished(transcript.page(0, 1000))
        assert f"read from offset {end} on" in expired.value.suggestion
        for page in (transcript.page(end, 1000), transcript.tail(5, 1000)):
            assert finished(page) == Page("", end, end, end, at_end=True)
        assert finished(transcript.search("line", 5, 0, 1000)).next_offset == end
        record = CommandRecord("c1", 1, "seq", "finished", 0.0, made.start, made.start + end)
        with pytest.raises(OutputExpired) as expired:
            finished(raw(made.log, record, 0, 1000, NONCE, None))
        assert f"read from offset {end} on" in expired.value.suggestion
        assert finished(raw(made.log, record, end, 1000, NONCE, None)).data == b""


def test_a_running_command_holds_back_what_is_not_whole() -> None:
    with output(b"caf\xc3") as made:
        transcript = made.running()
        assert finished(transcript.render(100)).text == "caf"
        page = finished(transcript.page(0, 100))
        made.add(b"\xa9\r\n\x1b[3")
        following = finished(transcript.page(page.next_offset, 100))
        assert page.text + following.text == "café\n"
        made.add(b"1mred" + MARK[:9])
        assert finished(transcript.page(following.next_offset, 100)).text == "red"
        assert finished(transcript.render(100)).text == "café\nred"


def test_our_marks_are_cut_where_they_split_others() -> None:
    with output(b"\x1b[3" + MARK + b"1mred\x1b[0m") as made:
        assert finished(made.finished().render(100)).text == "red"


def test_the_last_lines() -> None:
    data = numbered(5000)
    with output(data) as made:
        transcript = made.finished()
        page = finished(transcript.tail(2, 7000))
        assert page.text == "line 4998 of the output\nline 4999 of the output\n"
        assert page.offset == data.index(b"line 4998")
        assert (page.next_offset, page.end_offset, page.at_end) == (len(data), len(data), True)
        assert 160 < len(finished(transcript.tail(1000, 200)).text) <= 200
        assert finished(transcript.page(page.offset, 7000)).text == page.text


def test_the_last_line_may_be_unfinished() -> None:
    with output(b"one\r\ntwo\r\nthree") as made:
        assert finished(made.running().tail(2, 100)).text == "two\nthree"
        assert finished(made.running().tail(9, 100)).text == "one\ntwo\nthree"


@pytest.mark.parametrize("size", [3, WINDOW_BYTES // 20 - 2, 90_000])
def test_search_says_where(size: int) -> None:
    data = numbered(size) + b"\x1b[31mERR\x1b[1mOR\x1b[0m: it broke\r\n" + numbered(3)
    with output(data) as made:
        transcript = made.finished()
        found = finished(transcript.search("^ERROR: .*ke$", 10, 1, 1000))
        assert [match.line for match in found.matches] == ["ERROR: it broke"]
        assert (found.count, found.complete, found.next_offset) == (1, True, len(data))
        (offset,) = [match.offset for match in found.matches]
        assert finished(transcript.page(offset, 200)).text.startswith("ERROR: it broke\nline 0 ")
        before, line, after = found.text.split("\n")
        assert before == f"{data.index(b'line %d of' % (size - 1))}-line {size - 1} of the output"
        assert line == f"{offset}:ERROR: it broke"
        assert after.endswith("-line 0 of the output")


def test_search_lists_neighbours_once_and_gaps_as_such() -> None:
    with output(b"a\r\nhit 1\r\nb\r\nhit 2\r\nc\r\nd\r\ne\r\nhit 3\r\n") as made:
        found = finished(made.finished().search("hit", 10, 1, 1000))
    assert found.text.split("\n") == ["0-a", "3:hit 1", "10-b", "13:hit 2", "20-c", "--", "26-e", "29:hit 3"]


def test_search_can_be_continued() -> None:
    data = numbered(4_000)
    lines: list[str] = []
    with output(data) as made:
        transcript = made.finished()
        offset, complete = 0, False
        while not complete:
            found = finished(transcript.search("7 of", 100, 2, 2000, offset))
            assert len(found.text) <= 2000
            assert found.count <= 100
            lines += [match.line for match in found.matches]
            offset, complete = found.next_offset, found.complete
    assert lines == [f"line {number} of the output" for number in range(4_000) if number % 10 == 7]


def test_search_is_bounded_in_bytes() -> None:
    with output(numbered(450_000)) as made:
        transcript = made.finished()
        found = finished(transcript.search("line 449999", 10, 0, 1000))
        assert (found.count, found.complete) == (0, False)
        assert SEARCH_BYTES <= found.next_offset <= SEARCH_BYTES + WINDOW_BYTES
        assert finished(transcript.search("line 449999", 10, 0, 1000, found.next_offset)).count == 1


def test_a_match_in_a_very_long_line_is_shown_in_part() -> None:
    with output(b"x" * 100_000 + b"needle" + b"y" * 100_000) as made:
        found = finished(made.finished().search("needle", 10, 0, 1000))
    assert 6 < len(found.matches[0].line) <= 500
    assert "xneedley" in found.matches[0].line


def test_matches_do_not_reach_over_lines() -> None:
    with output(b"one\r\ntwo\r\n") as made:
        transcript = made.finished()
        assert finished(transcript.search(r"one\s+two", 10, 0, 1000)).count == 0
        assert finished(transcript.search(r"\w+\s*", 10, 0, 1000)).count == 2


@pytest.mark.parametrize("pattern", ["(", r"(?=x)", r"\1", "a{9999}", "\ud800"])
def test_a_bad_pattern_is_the_callers_to_mend(pattern: str) -> None:
    with output(b"text") as made:
        for look in (
            lambda: finished(made.running().search(pattern, 1, 0, 100)),
            lambda: made.running().pattern_cursor(pattern),
        ):
            with pytest.raises(InvalidArguments) as caught:
                look()
            assert "look-around" in caught.value.suggestion
            assert "(?m)" not in caught.value.message
            caught.value.message.encode()


def test_a_seeker_sees_what_comes_later() -> None:
    with output(b"starting\r\n") as made:
        cursor = made.running().pattern_cursor(r"^ready on port \d+")
        assert not finished(cursor.find())
        made.add(b"\x1b[1mready\x1b[0m on ")
        assert not finished(cursor.find())
        made.add(b"port 80")
        assert finished(cursor.find())
        assert finished(cursor.find())


def test_a_search_starts_at_the_given_offset() -> None:
    with output(b"done\r\nworking\r\n") as made:
        cursor = made.running().pattern_cursor("done", 6)
        assert not finished(cursor.find())
        made.add(numbered(50_000) + b"done\r\n" + numbered(50_000))
        assert finished(cursor.find())


pieces = st.one_of(
    st.binary(max_size=30),
    st.text(max_size=30).map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from(
        [
            b"\r\n",
            b"\r",
            b"\b",
            b"\x1b[31m",
            b"\x1b[2A",
            b"\x1b[K",
            b"\x1b[200C",
            b"\x1b]0;title\x07",
            b"\x1b]",
            b"\x1b[",
        ]
    ),
    st.sampled_from([MARK, b"\x1b[?1049h", b"\x1b[?1049l", b"word " * 40, "世界".encode() * 20, b"\x1b[0m" * 60]),
)
streams = st.lists(pieces, max_size=60).map(b"".join)


@given(streams, st.integers(0, 700))
@example(b"\x1b[190C" * 300, 300)
@example(b"\x1b]" + b"x" * 3000, 300)
@settings(max_examples=50, deadline=None)
def test_a_rendering_keeps_its_bound_and_accounts_for_every_byte(data: bytes, max_chars: int) -> None:
    with output(data) as made:
        rendering = finished(made.finished().render(max_chars))
    assert len(rendering.text) <= max_chars
    rendering.text.encode()
    assert rendering.truncated == (rendering.omitted_bytes > 0)
    assert 0 <= rendering.next_offset <= rendering.next_offset + rendering.omitted_bytes <= len(data)
    if not rendering.truncated:
        assert rendering.next_offset == len(data)


@given(streams, st.integers(1, 200), st.integers(0, 500))
@settings(max_examples=50, deadline=None)
def test_pages_follow_each_other_to_the_end(data: bytes, max_chars: int, offset: int) -> None:
    with output(data) as made:
        transcript = made.finished()
        offset = min(offset, len(data))
        while True:
            page = finished(transcript.page(offset, max_chars))
            assert page.offset == offset
            assert len(page.text) <= max_chars
            assert page.end_offset == len(data)
            if page.at_end:
                break
            assert page.next_offset > offset
            offset = page.next_offset
        assert page.next_offset == len(data)


@given(
    st.lists(st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=80), max_size=60),
    st.integers(1, 300),
    st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_pages_of_plain_text_put_together_are_the_whole(lines: list[str], max_chars: int, colour: bool) -> None:
    data = "\r\n".join(f"\x1b[31m{line}\x1b[0m" if colour else line for line in lines).encode()
    texts: list[str] = []
    with output(data) as made:
        transcript = made.finished()
        offset, at_end = 0, False
        while not at_end:
            page = finished(transcript.page(offset, max_chars))
            texts.append(page.text)
            offset, at_end = page.next_offset, page.at_end
        assert "".join(texts) == "\n".join(lines)
        tail = finished(transcript.tail(10**6, max_chars))
        assert "\n".join(lines).endswith(tail.text)


@given(streams, st.integers(0, 5), st.integers(0, 400), st.sampled_from(["w", "$", "", "[^a]", r"\s"]))
@settings(max_examples=50, deadline=None)
def test_search_keeps_its_bounds(data: bytes, context: int, max_chars: int, pattern: str) -> None:
    with output(data) as made:
        found = finished(made.finished().search(pattern, 5, context, max_chars))
    assert len(found.text) <= max_chars
    assert found.count <= 5
    assert 0 <= found.next_offset <= len(data)
    assert all(0 <= match.offset <= len(data) for match in found.matches)


@pytest.mark.parametrize(
    "line", ["{number} of many lines", "{number} schöne Zeilen, 終わりなき行", "{number}" + "x" * 70000]
)
def test_a_page_is_as_long_as_it_may_be(line: str) -> None:
    text = "".join(line.format(number=number) + "\n" for number in range(900_000 // len(line)))
    with output(text.replace("\n", "\r\n").encode()) as made:
        transcript = made.finished()
        page = finished(transcript.page(0, 200_000))
        assert 199_000 < len(page.text) <= 200_000
        assert text.startswith(page.text)
        following = finished(transcript.page(page.next_offset, 200_000))
        assert text.startswith(page.text + following.text)
        tail = finished(transcript.tail(100_000, 200_000))
        assert 100_000 < len(tail.text) <= 200_000
        assert text.endswith(tail.text)
