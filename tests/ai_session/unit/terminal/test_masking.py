"""Secrets are hidden wherever what is read is cut, nothing else changes, and no offset moves."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_session.gate.redaction.known_secrets import Masking
from ai_session.gate.redaction.redactor import Redactor
from ai_session.sessions.report import cut, read_stderr
from ai_session.system.turns import Steps, finished
from ai_session.terminal.log import READ_BYTES, MappedLog
from ai_session.terminal.masking import CONTEXT_BYTES, LEAST_CHARS, Hiding, breaks, on_screen, secret_spans
from ai_session.terminal.text import clean
from ai_session.terminal.transcript import Transcript
from tests.ai_session.support.example_secrets import NAMED, SECRETS

LEAST = 8
"""So much of a secret in a row counts as told."""

KNOWN = "correct-horse battery%staple"
REDACTOR = Redactor([("MY_PASSWORD", KNOWN)], [], b"k" * 32)


def spans(data: bytes, growing: bool = False, before: int = 0, /) -> Steps[list[tuple[int, int, bytes]]]:
    assert not growing
    yield
    return [(span.start, span.end, REDACTOR.label(data, span)) for span in REDACTOR.spans(data)]


def label(secret: str) -> str:
    return REDACTOR.redact_text(secret)[0]


def reported(secret: str, text: str) -> bool:
    """Whether ``text`` holds a part of the secret that is no part of every secret of its kind."""
    body = secret[-60:] if "PRIVATE" in secret else secret[12:] if len(secret) > 30 else secret
    plain = text.replace("\n", "").replace("\r", "")
    body = body.replace("\n", "")
    return any(body[at : at + LEAST] in plain for at in range(len(body) - LEAST + 1))


def coloured(secret: str) -> str:
    """In pieces, each of another colour, as ls and grep print what they found."""
    third = len(secret) // 3
    return f"\x1b[32m{secret[:third]}\x1b[1;31m{secret[third : 2 * third]}\x1b[0m{secret[2 * third :]}\x1b[m"


@contextmanager
def transcript(data: bytes) -> Generator[Transcript]:
    with tempfile.TemporaryDirectory() as folder:
        log = MappedLog(Path(folder) / "log")
        for begin in range(0, len(data), READ_BYTES):
            piece = data[begin : begin + READ_BYTES]

            def source(room: memoryview, piece: bytes = piece) -> int:
                room[: len(piece)] = piece
                return len(piece)

            log.fill(source)
        yield Transcript(log, 0, log.end, "n", spans)
        log.close()


def test_what_is_left_of_a_secret_where_output_is_kept_no_further_back_is_hidden() -> None:
    secret = PLANTED["github"]
    data = f"{secret} is it\r\na line\r\n".encode()
    for first in range(1, len(secret)):
        hiding = Hiding(spans)
        piece = finished(hiding.piece(lambda a, b: data[a:b], first, len(data), first, len(data), False))
        assert hiding.labelled(clean(piece)) == "\na line\n"


@pytest.mark.parametrize("dress", [pytest.param(str, marks=pytest.mark.torture), coloured])
def test_output_that_comes_in_drops_tells_no_beginning_of_a_secret(home: Path, dress: type) -> None:
    """Whoever reads each time a few bytes have come sees no more than who reads all at the end."""
    masking = Masking(home / "redaction.key", ["MY_*"], [])
    masking.learn({"MY_VALUE": KNOWN})
    placed = {kind: "".join(parts).strip() for kind, parts in NAMED.items()}
    for number, (kind, secret) in enumerate({**PLANTED, **BLOCKS, **placed}.items()):
        known_from = {"discord": 26, "known": 0}.get(kind, 8)
        body = NAMED[kind][1] if kind in NAMED else secret[40:-40] if kind in BLOCKS else secret[known_from:]
        log = MappedLog(home / f"log{number}")
        seen, offset = "", 0
        step = 47 if kind in BLOCKS else 5 + number % 3
        for at in range(0, len(shown := dress(f"a key: {secret} b")), step):
            drop = shown[at : at + step].encode()
            log.fill(lambda room, drop=drop: copied(room, drop))
            text = Transcript(log, 0, None, "n", masking.spans)
            page = finished(text.page(offset, 400))
            seen, offset = seen + page.text, page.next_offset
            for whole in (finished(text.render(5000)).text, finished(text.tail(3, 400)).text, seen):
                assert not reported(body, masking.masked(whole)), (kind, whole)
        log.close()


@pytest.mark.parametrize(
    "end",
    [
        *("Password: ", "user@host:~$ ", ">>> ", "Continue? [Y/n] ", "on http://localhost:8080", "12:30:45", "sk-"),
        *("eyes", "the token is", "basic", "task-list", "https://example.com/path", "key=", "[==>  ] 45%", "correct"),
    ],
)
def test_the_end_of_ordinary_output_that_goes_on_is_shown(home: Path, end: str) -> None:
    masking = Masking(home / "redaction.key", ["MY_*"], [])
    masking.learn({"MY_VALUE": "correcting" + KNOWN})
    log = MappedLog(home / "log")
    log.fill(lambda room: copied(room, f"a line\r\n{end}".encode()))
    shown = finished(Transcript(log, 0, None, "n", masking.spans).page(0, 400)).text
    log.close()
    assert shown == f"a line\n{end}" if end != "correct" else "[REDACTED:unfinished:" in shown


def copied(room: memoryview, data: bytes) -> int:
    room[: len(data)] = data
    return len(data)


def lines(count: int, seed: int) -> str:
    chance = random.Random(seed)
    return "".join(f"line {number} {chance.choice(['ok', 'done', 'née', '世界'])}\r\n" for number in range(count))


PLANTED = {**{kind: secret for kind, secret in SECRETS.items() if "\n" not in secret}, "known": KNOWN}
BLOCKS = {kind: secret.replace("\n", "\r\n") for kind, secret in SECRETS.items() if "\n" in secret}


@pytest.mark.parametrize("dress", [str, coloured])
def test_no_cut_of_a_page_tells_any_of_it(dress: type) -> None:
    """Offsets inside each secret, and lengths of pages that end inside of it; others for the next kind."""
    before, after = lines(3, 1), lines(3, 2)
    start = len((before + "key ").encode())
    for number, secret in enumerate(PLANTED.values()):
        shown = dress(secret)
        with transcript(f"{before}key {shown} end\r\n{after}".encode()) as text:
            for offset in range(start - 2 + number % 3, start + len(shown) + 2, 3):
                page = finished(text.page(offset, 200))
                assert not reported(secret, page.text), (secret, offset, page.text)
                first = finished(text.page(0, max(1, offset - 4)))
                rest = finished(text.page(first.next_offset, 500))
                assert not reported(secret, first.text), (secret, offset, first.text)
                assert not reported(secret, rest.text), (secret, offset, rest.text)
                assert not reported(secret, finished(text.tail(6, max(1, offset))).text)


def test_keys_of_many_lines_are_hidden_at_every_cut() -> None:
    for secret in BLOCKS.values():
        before = lines(3, 1)
        with transcript(f"{before}{secret}\r\n{lines(3, 2)}".encode()) as text:
            for offset in range(len(before.encode()), len((before + secret).encode()), 37):
                assert not reported(secret, finished(text.page(offset, 200)).text)
                assert not reported(secret, finished(text.page(0, offset)).text)
                assert not reported(secret, finished(text.tail(5, offset)).text)


DRESSES = st.sampled_from([str, coloured])


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_pages_that_follow_each_other_are_the_masked_whole(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(PLANTED)), min_size=1, max_size=6))
    parts = [
        lines(data.draw(st.integers(0, 30)), number) + f"x {data.draw(DRESSES)(PLANTED[kind])} y\r\n"
        for number, kind in enumerate(kinds)
    ]
    raw = "".join(parts).encode()
    with transcript(raw) as text:
        whole, offset = "", 0
        while offset < len(raw):
            page = finished(text.page(offset, data.draw(st.integers(60, 400))))
            whole, offset = whole + page.text, page.next_offset
    assert whole == REDACTOR.redact_text(clean(raw))[0]


def test_head_and_tail_hide_what_their_borders_cut() -> None:
    secret = PLANTED["github"]
    raw = "".join(f"{'.' * (number % 40)} {secret} tail\r\n" for number in range(200)).encode()
    with transcript(raw) as text:
        for room in range(300, 900, 7):
            rendering = finished(text.render(room))
            assert rendering.truncated
            assert not reported(secret, rendering.text)
            assert label(secret) in rendering.text


def test_a_search_finds_lines_and_tells_no_secret_letter_by_letter() -> None:
    secret = PLANTED["github"]
    with transcript((lines(50, 3) + f"key={secret} used by line 7\r\n" + lines(50, 4)).encode()) as text:
        found = finished(text.search("used by", 5, 2, 3000))
        assert found.count == 1
        assert label(secret) in found.text
        for length in (3, 5, 20, 36):
            assert finished(text.search(secret[4 : 4 + length] + ".* used", 5, 2, 3000)).count == 0, length
            assert not finished(text.pattern_cursor(secret[: 4 + length]).find())
        assert finished(text.pattern_cursor("used by").find())


def test_a_match_in_a_long_line_is_cut_without_halves() -> None:
    secret = PLANTED["jwt"]
    for gap in range(0, 700, 7):
        with transcript(f"{'a ' * gap}{secret} needle {'b ' * 300}\r\n".encode()) as text:
            assert not reported(secret, finished(text.search("needle", 5, 0, 3000)).text)


def test_lines_around_a_match_are_hidden_too() -> None:
    secret = PLANTED["openai"]
    long = "c " * 230 + secret + "\r\n"
    with transcript(f"{long}needle\r\n{long}".encode()) as text:
        found = finished(text.search("needle", 5, 1, 3000))
    assert found.text.count("\n") == 2
    assert not reported(secret, found.text)


@given(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 300))
def test_what_holds_no_secret_is_as_it_was_and_lengths_always_stay(data: bytes, a: int, b: int) -> None:
    start, end = sorted((min(a, len(data)), min(b, len(data))))
    piece = finished(Hiding(spans).piece(lambda x, y: data[x:y], start, end, 0, len(data), False))
    assert len(piece) == end - start
    if not spans(data):
        assert piece == data[start:end]


def test_a_secret_further_away_than_the_context_is_left_alone() -> None:
    secret = PLANTED["github"].encode()
    data = b"x" * 10 + b" " + secret + b" " * (2 * CONTEXT_BYTES)
    assert (
        finished(Hiding(spans).piece(lambda x, y: data[x:y], len(data) - 5, len(data), 0, len(data), False)) == b"     "
    )


def test_characters_used_as_marks_stay_where_nothing_is_hidden() -> None:
    text = "\U00100000 and \U0010fffd"
    assert Hiding(spans).labelled(text) == text


def test_text_is_cut_without_halves() -> None:
    for secret in PLANTED.values():
        command = f"curl -u me --token {secret} https://x.example"
        for stop in range(len(command)):
            assert not reported(secret, cut(command, 0, stop, spans)), stop
        assert cut(command, 0, 9999, spans) == REDACTOR.redact_text(command)[0]
    assert cut("née 世界", 1, 5, spans) == "ée 世"


def test_the_end_of_standard_error_is_kept_without_halves(tmp_path: Path) -> None:
    secret = PLANTED["stripe"]
    path = tmp_path / "e"
    path.write_text(f"first\nkey {secret}\nlast\n")
    for chars in range(1, path.stat().st_size):
        kept, omitted = finished(read_stderr(str(path), chars, spans))
        assert not reported(secret, kept)
        assert omitted == max(0, path.stat().st_size - chars)


BROKEN: list[Callable[[str, str], str]] = [
    lambda a, b: f"\x1b[01;31m\x1b[K{a}\x1b[m\x1b[K{b}",  # grep --color
    lambda a, b: f"{a} \x08{b}",  # less at the right edge
    lambda a, b: f"{a[:-1]}{a[-1]} \r\x1b[K{b[0]}\r{b}",  # zsh there
    lambda a, b: f"{a} \r{b}",  # readline there
    lambda a, b: f"{a}\x1b[3;1H{b}",  # a full-screen program
    lambda a, b: f"{a}\x1b]133;A\x07{b}",
]


@pytest.mark.parametrize("broken", BROKEN)
def test_what_a_terminal_does_not_show_breaks_no_secret(broken: Callable[[str, str], str]) -> None:
    for number, secret in enumerate(PLANTED.values()):
        for cut_at in range(1 + number % 20, len(secret), 20):
            shown = broken(secret[:cut_at], secret[cut_at:])
            data = f"a line\r\nkey {shown} end\r\n".encode()
            found = finished(secret_spans(data, spans))
            assert found[0][:2] == (12, 12 + len(shown)) or not reported(secret, without(data, found)), (secret, shown)
            with transcript(data) as text:
                for offset in range(12, 12 + len(shown), 19):
                    assert not reported(secret, clean(finished(text.page(offset, 200)).text.encode()))


def without(data: bytes, found: list[tuple[int, int, bytes]]) -> str:
    for a, b, told_instead in reversed(found):
        data = data[:a] + told_instead + breaks(data[a:b]) + data[b:]
    return clean(data)


def test_the_end_of_a_secret_whose_beginning_has_left_the_screen_is_hidden() -> None:
    secret = PLANTED["jwt"]
    printed = f"one\r\n{secret[:50]} \x08{secret[50:]}\r\n".encode()
    for cut_at in range(1, len(secret) - LEAST_CHARS):
        rows = [secret[cut_at:][at : at + 20] for at in range(0, len(secret) - cut_at, 20)] + ["next"]
        shown = finished(on_screen(rows, 20, spans, printed))
        assert [len(row) for row in shown] == [len(row) for row in rows]
        assert shown[-1] == "next"
        assert not reported(secret, "".join(shown)), cut_at
    assert finished(on_screen(["plain text here", "b"], 20, spans, printed)) == ["plain text here", "b"]


@pytest.mark.parametrize("cols", [10, 17, 20, 33, 80])
def test_a_screen_keeps_its_columns_and_hides_what_goes_on_in_the_next_row(cols: int) -> None:
    for secret in PLANTED.values():
        text = f"$ echo {secret}"
        rows = [text[at : at + cols] for at in range(0, len(text), cols)] + ["", "née 世界"]
        shown = finished(on_screen(rows, cols, spans))
        assert [len(row) for row in shown] == [len(row) for row in rows]
        assert shown[-1] == rows[-1]
        assert not reported(secret, "".join(shown)), (cols, shown)
