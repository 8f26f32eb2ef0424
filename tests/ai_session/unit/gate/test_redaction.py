"""Planted secrets are masked wherever they stand; ordinary text, JSON, UTF-8 and escape sequences stay as they are."""

from __future__ import annotations

import base64
import json
import random
import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_session.errors import ConfigInvalid
from ai_session.gate.redaction.redactor import MAX_HELD_BYTES, RedactionStream, Redactor, Span
from ai_session.terminal.text import clean
from tests.ai_session.support.example_secrets import NAMED, SECRETS

LOGS = Path(__file__).parents[3] / "data" / "logs"


ORDINARY = [
    'token = request.headers.get("Authorization")',
    "password = getpass.getpass()",
    'secret_key=os.environ["SECRET_KEY"]',
    "def login(user: str, password: str = None) -> Token:",
    "    private_key: rsa.RSAPrivateKey,",
    "TOKEN=$(gcloud auth print-access-token)",
    "API_KEY=${API_KEY:-}",
    "password: ********",
    'token: "your-token-here"',
    "PASSWORD=<your password>",
    "GOOGLE_APPLICATION_CREDENTIALS=/home/me/keys/service-account.json",
    "error: unexpected token: identifier_expected",
    "max_tokens: 1638400000",
    "token_expires: 2026-11-20T10:11:12Z",
    "https://registry.npmjs.org/lodash/-/lodash-4.17.21.tgz",
    "http://localhost:8080/path@2x.png",
    "ssh://git@github.com:22/owner/name.git",
    "integrity sha512-" + base64.b64encode(random.Random(8).randbytes(64)).decode(),
    "commit 9bdd1fcae2f1bd39f5aa0c1e8b6e3f4d2a1c0b9e",
    "task-force-one-two-three-four disk-usage-of-some-volume-name",
    "sk-learn-contrib-some-package-name",
    "550e8400-e29b-41d4-a716-446655440000",
    "ssh-rsa " + base64.b64encode(random.Random(7).randbytes(279)).decode() + " me@host",
    '"-----BEGIN RSA PRIVATE ' + 'KEY-----" begins a key',
]
REDACTOR = Redactor([("DB_PASSWORD", 'p"ä ss\\wörd\n+/'), ("ci-token", "tok&en=1234")], [r"ACME-[0-9]{4}"], b"key")
LABEL = re.compile(r"\[REDACTED:[A-Za-z0-9_-]+:[0-9a-f]{6}\]")


PLACES = [
    *(("", ""), ("a ", " b"), ("é\n", "\r\nü"), ('x="', '"'), ("\x1b[1;31m", "\x1b[0m"), ("cp ", ",")),
    *(("token=", "\n"), ("\x1b]8;;https://x/?k=", "\x1b\\"), ('{"a": "\\n', '\\nb"}'), ("\\u001b[0m", "\\u001b")),
]


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_secret_is_masked_wherever_it_stands(secret: str) -> None:
    for before, after in PLACES:
        spelt = json.dumps(secret)[1:-1] if "\\" in before else secret
        text, count = REDACTOR.redact_text(before + spelt + after)
        assert (before, count) == (before, 1)
        assert text.startswith(before)
        assert text.endswith(after)
        assert LABEL.fullmatch(text[len(before) : len(text) - len(after)])


@pytest.mark.parametrize(("before", "secret", "after"), NAMED.values(), ids=NAMED)
def test_a_secret_is_known_by_its_place(before: str, secret: str, after: str) -> None:
    text, count = REDACTOR.redact_text(before + secret + after)
    assert count == 1
    assert text.startswith(before)
    assert secret not in text
    assert text.endswith(after.lstrip("="))


def test_ordinary_lines_stay() -> None:
    for line in ORDINARY:
        assert REDACTOR.redact_text(f"{line}\n") == (f"{line}\n", 0)


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.raw")), ids=lambda path: path.stem)
def test_ordinary_logs_stay(path: Path) -> None:
    raw = path.read_bytes()
    assert REDACTOR.redact_bytes(raw) == (raw, 0)
    assert REDACTOR.redact_text(clean(raw)) == (clean(raw), 0)


def test_sources_of_this_project_stay() -> None:
    found = {
        path.name: [path.read_bytes()[span.start : span.end] for span in REDACTOR.spans(path.read_bytes())]
        for path in (Path(__file__).parents[4] / "ai_session").rglob("*.py")
    }
    assert {name: spans for name, spans in found.items() if spans} == {}


def test_known_values_are_masked_in_every_spelling() -> None:
    value = 'p"ä ss\\wörd\n+/'
    spellings = [
        value,
        json.dumps(value),
        json.dumps(value, ensure_ascii=False),
        quote(value),
        quote(value, safe="").lower(),
        value.replace("\n", "\r\n"),
        *(base64.b64encode(b"x" * ahead + value.encode() + b"yz").decode() for ahead in range(4)),
        *(base64.urlsafe_b64encode(b"x" * ahead + value.encode()).decode() for ahead in range(4)),
    ]
    masks = set[str]()
    for spelling in spellings:
        text, count = REDACTOR.redact_text(f"<{spelling}>")
        assert count == 1, spelling
        masks |= set(LABEL.findall(text))
    assert len(masks) == 1
    assert masks.pop().startswith("[REDACTED:DB_PASSWORD:")


@pytest.mark.parametrize("kind", ["rsa", "openssh", "pgp"])
def test_the_last_lines_of_a_key_are_masked(kind: str) -> None:
    lines = SECRETS[kind].split("\n")
    for count in (2, 3, 9):
        tail = "\n".join(lines[-count:])
        for text in (tail, tail.replace("\n", "\r\n"), json.dumps(tail)):
            masked, found = REDACTOR.redact_text(f"# tail:\n\n{text}\nmore\n")
            assert found == 1
            assert lines[-2] not in masked
            assert masked.startswith("# tail:\n\n")
            assert masked.endswith("\nmore\n")
    assert REDACTOR.redact_text(lines[-1]) == (lines[-1], 0)


def test_a_known_value_counts_more_than_the_place_it_overlaps() -> None:
    redactor = Redactor([("K", "first part, second part")], [], b"")
    text, count = redactor.redact_text('password=abc4ef12,first part, second part"')
    assert count == 2
    assert "part" not in text
    text, _ = redactor.redact_text("TOKEN=1first part, second part;")
    assert "part" not in text


@settings(max_examples=35, deadline=None)
@given(
    values=st.lists(st.text(alphabet="abé", min_size=8, max_size=12), min_size=1, max_size=30),
    parts=st.lists(st.text(alphabet="abé ", max_size=12), max_size=8),
    seed=st.integers(0, 1000),
)
def test_no_character_of_any_known_value_is_left(values: list[str], parts: list[str], seed: int) -> None:
    """However values overlap, begin alike and hold each other."""
    chance = random.Random(seed)
    data = "".join(part + chance.choice([*values, ""])[chance.choice([0, 0, 3]) :] for part in parts).encode()
    spans = Redactor([("K", value) for value in values], [], b"").spans(data)
    covered = {at for span in spans for at in range(span.start, span.end)}
    for value in values:
        spelt = value.encode()
        for at in range(len(data)):
            if data.startswith(spelt, at):
                assert covered.issuperset(range(at, at + len(spelt))), (data, spelt, at)


def test_short_values_are_not_looked_for() -> None:
    assert Redactor([("A", "1234567"), ("B", "")], [], b"").redact_text("1234567") == ("1234567", 0)


def test_masks_say_which_secrets_are_equal_to_the_holder_of_the_key_only() -> None:
    one, two = SECRETS["github"], SECRETS["gitlab"]
    text, _ = REDACTOR.redact_text(f"{one} {two} {one}")
    first, second, third = LABEL.findall(text)
    assert first == third != second
    assert Redactor([], [], b"other").redact_text(one)[0] != first


def test_masking_twice_changes_nothing() -> None:
    text = " ".join(["password:", *SECRETS.values(), *("".join(parts) for parts in NAMED.values())])
    once, count = REDACTOR.redact_text(text)
    assert count >= len(SECRETS)
    assert REDACTOR.redact_text(once) == (once, 0)


def test_colours_within_a_secret_are_gone_in_clean_text() -> None:
    secret = SECRETS["github"]
    raw = f"\x1b[32m{secret[:10]}\x1b[0m\x1b[1m{secret[10:]}\x1b[0m".encode()
    assert LABEL.fullmatch(REDACTOR.redact_text(clean(raw))[0])


def test_further_patterns_are_masked_whole_and_between_sequences() -> None:
    text, count = REDACTOR.redact_text("id ACME-1234.")
    assert (LABEL.sub("#", text), count) == ("id #.", 1)
    redactor = Redactor([], ["begin(?s:.*)end"], b"")
    text, count = redactor.redact_text("begin \x1b[31mred\x1b]0;title\x07 end")
    assert (LABEL.sub("#", text), count) == ("#\x1b[31m#\x1b]0;title\x07#", 3)


@pytest.mark.parametrize("pattern", ["(", "(?=x)", "x*", "\ud800"])
def test_patterns_that_cannot_work_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigInvalid):
        Redactor([], [pattern], b"")


def test_spans_are_in_order_and_begin_where_asked() -> None:
    data = f"{SECRETS['npm']} {SECRETS['vault']}".encode()
    first, second = REDACTOR.spans(data)
    assert (first.start, first.kind, second.end, second.kind) == (0, "packages", len(data), "cloud")
    assert REDACTOR.spans(data, first.end) == [second]
    assert REDACTOR.label(data, Span(0, first.end, "x")).startswith(b"[REDACTED:x:")


PARTS = st.one_of(
    st.sampled_from([*SECRETS.values(), *("".join(parts) for parts in NAMED.values()), 'p"ä ss\\wörd\n+/']),
    st.text(max_size=12),
    st.text(alphabet='\\nrtueyJ"AKIAsk-_:= /ä\n', max_size=12),
)
SEQUENCES = st.sampled_from(
    ["\x1b[31m", "\x1b[0m", "\x1b[1;2H", "\x1b[K", "\x1b]0;a title\x07", "\x1b]8;;https://u:pass12@h\x1b\\", "\x1b7"]
)
SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z]|\]0;a title\x07|\]8;;.*?\x1b\\|[0-9])")


@settings(max_examples=75, deadline=None)
@given(st.lists(PARTS, max_size=6))
def test_json_stays_json(parts: list[str]) -> None:
    value = {"a": parts, "b": "".join(parts), "".join(parts): 1}
    for document in (json.dumps(value), json.dumps(value, ensure_ascii=False), json.dumps(json.dumps(value))):
        text, _ = REDACTOR.redact_text(document)
        assert type(json.loads(text)) is type(json.loads(document))


@settings(max_examples=75, deadline=None)
@given(st.lists(st.one_of(PARTS.filter(lambda part: "\x1b" not in part), SEQUENCES), max_size=8))
def test_escape_sequences_stay(parts: list[str]) -> None:
    text = "".join(parts)
    masked, _ = REDACTOR.redact_text(text)
    before = [sequence.replace("pass12", "") for sequence in SEQUENCE.findall(text)]
    assert [LABEL.sub("", sequence).replace("pass12", "") for sequence in SEQUENCE.findall(masked)] == before


@settings(max_examples=75, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=9), PARTS.map(lambda part: part.encode(errors="replace"))), max_size=6))
def test_bytes_outside_the_spans_stay(parts: list[bytes]) -> None:
    data = b"".join(parts)
    spans = REDACTOR.spans(data)
    assert all(one.end <= two.start for one, two in pairwise(spans))
    expected, at = b"", 0
    for span in spans:
        assert span.start < span.end
        expected += data[at : span.start] + REDACTOR.label(data, span)
        at = span.end
    assert REDACTOR.redact_bytes(data) == (expected + data[at:], len(spans))
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    assert REDACTOR.redact_bytes(data)[0].decode() == REDACTOR.redact_text(data.decode())[0]


@settings(max_examples=50, deadline=None)
@given(st.lists(PARTS, max_size=8), st.integers(0, 2**32), st.sampled_from([1, 7, 100, 4000]))
def test_chunks_may_be_cut_anywhere(parts: list[str], seed: int, longest: int) -> None:
    data = " \n".join(parts).encode(errors="replace")
    stream, chance, out, at = RedactionStream(REDACTOR, 4096), random.Random(seed), b"", 0
    while at < len(data):
        size = chance.randint(1, longest)
        out += stream.feed(data[at : at + size])
        at += size
    assert (out + stream.finish(), stream.count) == REDACTOR.redact_bytes(data)


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_secret_that_lies_on_any_cut_of_a_stream_is_masked(secret: str) -> None:
    for before in range(0, len(secret) + 8, 4 + len(secret) // 4):
        data = b"." * (32768 - before) + b" " + secret.encode() + b" " + b"." * 20_000
        for size in (4096, 100_000):
            stream = REDACTOR.stream()
            out = b"".join(stream.feed(data[at : at + size]) for at in range(0, len(data), size)) + stream.finish()
            assert secret.encode()[8:20] not in out
            assert stream.count == 1
            assert len(LABEL.sub("", out.decode())) == len(data) - len(secret)


def test_a_secret_without_end_is_masked_and_not_kept() -> None:
    stream = REDACTOR.stream()
    head = SECRETS["jwt"].encode()
    chunks = [b"a " + head, *[b"x" * 65536] * (4 * MAX_HELD_BYTES // 65536), b" the end ", head]
    text = (b"".join(map(stream.feed, chunks)) + stream.finish()).decode()
    assert LABEL.sub("#", text) == "a # the end #"
    assert stream.count == 2
