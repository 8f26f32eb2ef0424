"""Masks secrets in what is returned and stored: known values, and what looks like a secret. No I/O.

Never applied to what a person sees live. It is a safety net: a program can print a secret in an unknown form.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, takewhile
from typing import Any, NamedTuple, cast
from urllib.parse import quote, quote_plus

import re2 as _re2  # pyright: ignore[reportMissingTypeStubs]

from ai_session.errors import ConfigInvalid
from ai_session.gate.redaction.patterns import BEGINNING, KEY_END, KINDS, OVERLAP_BYTES, UNSURE, plausible
from ai_session.system.turns import Steps, finished

re2 = cast(Any, _re2)
MIN_KNOWN_CHARS = 8
"""Shorter values would be found in ordinary text."""

MAX_HELD_BYTES = 1 << 20
_CONTEXT_BYTES = 64
_BEGUN_BYTES, _LEAST_BEGUN = 16384, 6
_REMEMBERED, _REMEMBERED_CHARS = 1024, 128

_ONE_STEP_BYTES = 16384
_SPANS = 50
"""Secrets judged in one step: a millisecond."""

_SEQUENCE = re.compile(
    rb"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|\[[0-?]*[ -/]*[@-~]?|[ -/]*[0-~]?)"
)
_INSIDE_SEQUENCE = re.compile(rb"(?:\x1b|\\u001[bB])(?:\[[0-?]*)?[ -/]*\Z")
_REST_OF_SEQUENCE = re.compile(rb"\[?[0-?]*[ -/]*[0-~]")
_INSIDE_ESCAPE = re.compile(rb"(\\+)(?:u([0-9a-fA-F]{0,3}))?\Z")
_RUN = re.compile(rb"[A-Za-z0-9+/=_.~-]*")
_ENDS_WORD = re.compile(rb"[;&|<>()]")
_NAME = re.compile(r"[^A-Za-z0-9_-]")


class Span(NamedTuple):
    """A secret from ``start`` to ``end``."""

    start: int
    end: int
    kind: str


class Redactor:
    """Finds and masks secrets. Immutable; a new environment needs a new one (about 5 ms).

    ``environment`` has names and values to mask wherever they appear, also as JSON, URL or base64; ``patterns`` are
    further RE2 expressions; ``key`` makes the masks of equal secrets equal and reveals nothing about them. Raises
    ConfigInvalid for an invalid expression, or one that matches the empty text.
    """

    def __init__(self, environment: Iterable[tuple[str, str]], patterns: Sequence[str], key: bytes) -> None:
        self._key = key
        self._known: dict[bytes, tuple[str, str]] = {}
        for name, value in environment:
            if len(value) >= MIN_KNOWN_CHARS:
                kind = _NAME.sub("_", name)[:40]
                tag = self._tag(value.encode(errors="surrogatepass"))
                self._known |= dict.fromkeys(_forms(value) - self._known.keys(), (kind, tag))
        self._clean: set[str] = set()
        self._overlap = max(OVERLAP_BYTES, 2 * max(map(len, self._known), default=0))
        self._heads: dict[bytes, list[bytes]] = {}
        for form in sorted(self._known, key=len, reverse=True):
            self._heads.setdefault(form[:MIN_KNOWN_CHARS], []).append(form)
        # Whole values, or heads in another order, would exceed RE2's memory and make it 10,000 times slower.
        self._values = _either([re2.escape(head) for head in sorted(self._heads)], any_bytes=True)
        for pattern in patterns:
            _check(pattern)
        self._further = _either([pattern.encode() for pattern in patterns])
        starts = sorted({form[:_LEAST_BEGUN] for form in self._known})
        self._starts = _either([re2.escape(start) for start in starts], any_bytes=True)

    def redact_text(self, text: str) -> tuple[str, int]:
        """Return ``text`` with every secret masked, and how many were."""
        return finished(self.redacting(text))

    def is_clean(self, text: str) -> bool:
        """Report whether the text is already known to have no secret."""
        return text in self._clean

    def redacting(self, text: str) -> Steps[tuple[str, int]]:
        """Return ``text`` with every secret masked, and how many were, in steps."""
        short = len(text) <= _REMEMBERED_CHARS
        if short and text in self._clean:
            return text, 0  # names, ids and directories, most of what is masked, are the same in every call
        data = text.encode(errors="surrogatepass")
        if found := (yield from self.finding(data)):
            masked = yield from self._masking(data, 0, len(data), found)
            return masked.decode(errors="surrogatepass"), len(found)
        if short:
            if len(self._clean) >= _REMEMBERED:
                self._clean.clear()
            self._clean.add(text)
        return text, 0

    def redact_bytes(self, data: bytes) -> tuple[bytes, int]:
        """Return ``data`` with every secret masked, and how many were. The length changes."""
        found = self.spans(data)
        return (self.masked(data, 0, len(data), found), len(found)) if found else (data, 0)

    def stream(self) -> RedactionStream:
        """Return a stream for bytes that arrive in chunks; a secret is found wherever they are cut."""
        return RedactionStream(self, self._overlap)

    def spans(self, data: bytes, start: int = 0) -> list[Span]:
        """Return the secrets in ``data`` that begin at ``start`` or later, in order and not overlapping.

        Masking them leaves UTF-8, JSON and escape sequences intact.
        """
        return finished(self.finding(data, start))

    def finding(self, data: bytes, start: int = 0, before: int = sys.maxsize) -> Steps[list[Span]]:
        """Do the same for secrets that begin ``before``, in steps that apply at most one expression to all of
        ``data``."""
        if len(data) < MIN_KNOWN_CHARS and self._further is None:
            return []  # most values of a result are so short, no kind of secret is
        if self._has_none(data, start):
            return []  # true of most texts; what follows would take twice as long
        found: list[Span] = []
        for count, span in enumerate(self._raw(data, start, before), 1):
            if span:
                found.append(span)
            if count % _SPANS == 0:
                yield
        spans: list[Span] = []
        for count, span in enumerate(_merged(found), 1):
            spans += _without_escapes(data, span)
            if count % _SPANS == 0:
                yield
        return spans

    def _has_none(self, data: bytes, start: int) -> bool:
        """Report whether no expression finds anything, if the data is short enough for one step."""
        if len(data) - start > _ONE_STEP_BYTES or b"PRIVATE KEY" in data:
            return False
        expressions = (self._values, _any_kind(), self._further)
        return not any(one is not None and one.search(data, start) for one in expressions)

    def _raw(self, data: bytes, start: int, before: int) -> Iterator[Span | None]:
        """Yield secrets in any order, and None now and then if finding one takes long."""
        further = (_span(match, "pattern") for match in _all(self._further, data, start))
        for found in (self._values_in(data, start), self._patterned(data, start), further):
            yield from takewhile(lambda span: span.start < before, found)
        if b"PRIVATE KEY" in data:
            yield from (span for span in _ends_of_keys(data, start) if span is None or span.start < before)

    def beginning(self, data: bytes) -> Span | None:
        """Return what may become a secret at the end of ``data`` when more of it arrives."""
        begin = max(0, len(data) - _BEGUN_BYTES)
        last = data[begin:]
        match = _beginning().search(last)
        found = [match.start()] if match else []
        for match in _all(self._starts, last, 0):
            at = match.start()
            forms = (form for head, forms in self._heads.items() if head.startswith(match.group()) for form in forms)
            if any(form.startswith(last[at:]) for form in forms):
                found.append(at)
        return Span(begin + min(found), len(data), "unfinished") if found else None

    def label(self, data: bytes, span: Span) -> bytes:
        """Return what replaces a span of ``data``: ``[REDACTED:kind:tag]``."""
        secret = data[span.start : span.end]
        _, tag = self._known.get(unquoted(secret)) or self._known.get(secret) or ("", self._tag(secret))
        return f"[REDACTED:{span.kind}:{tag}]".encode()

    def _tag(self, secret: bytes) -> str:
        return hmac.new(self._key, secret, hashlib.sha256).hexdigest()[:6]

    def masked(self, data: bytes, start: int, end: int, found: Iterable[Span]) -> bytes:
        """Return the bytes of ``data`` from ``start`` to ``end``, with labels for the spans ``found`` there."""
        return finished(self._masking(data, start, end, found))

    def _masking(self, data: bytes, start: int, end: int, found: Iterable[Span]) -> Steps[bytes]:
        pieces: list[bytes] = []
        for count, span in enumerate(found, 1):
            pieces += (data[start : span.start], self.label(data, span))
            start = span.end
            if count % _SPANS == 0:
                yield
        return b"".join((*pieces, data[start:end]))

    def _values_in(self, data: bytes, start: int) -> Iterator[Span]:
        while self._values and (match := self._values.search(data, start)) is not None:
            start = match.start()
            forms = self._heads[data[start : start + MIN_KNOWN_CHARS]]
            if form := next((form for form in forms if data.startswith(form, start)), b""):
                yield Span(start, start + len(form), self._known[form][0])
            start += 1  # another value may begin within this one and end after it

    def _patterned(self, data: bytes, start: int) -> Iterator[Span]:
        for match in _all(_any_kind(), data, start):
            span = _classified(data, *match.span())
            if span.kind in UNSURE and not plausible(span.kind, data[span.start : span.end]):
                inner = _all(_sure_kinds(), data, span.start, span.end)
                yield from (_classified(data, *inside.span()) for inside in inner)
            else:
                yield span


class RedactionStream:
    """Masks secrets in bytes that arrive in chunks. What may still become a secret is held back."""

    def __init__(self, redactor: Redactor, overlap: int) -> None:
        self.count = 0
        self._redactor = redactor
        self._overlap = overlap
        self._data = b""
        self._begin = 0
        self._enough = 2 * overlap
        self._skipping_rest = False

    def feed(self, chunk: bytes) -> bytes:
        """Return what is certain after one more chunk."""
        if self._skipping_rest:
            rest = _RUN.match(chunk)
            chunk = chunk[rest.end() :] if rest else chunk
            self._skipping_rest = not chunk
        self._data += chunk
        return self._advance(final=False) if len(self._data) - self._begin >= self._enough else b""

    def finish(self) -> bytes:
        """Return the rest."""
        return self._advance(final=True)

    def _advance(self, *, final: bool) -> bytes:
        data, end = self._data, len(self._data)
        found = self._redactor.spans(data, self._begin)
        cut = end
        if not final:
            cut = max(self._begin, end - self._overlap)
            found = [span for span in found if span.start < cut]
            if found and found[-1].end > cut:
                cut = found[-1].end
            if cut == end and end - self._begin < MAX_HELD_BYTES:
                cut = found.pop().start
            self._skipping_rest = cut == end
        masked = self._redactor.masked(data, self._begin, cut, found)
        self.count += len(found)
        context_start = max(0, cut - _CONTEXT_BYTES)
        self._data = data[context_start:]
        self._begin = cut - context_start
        self._enough = end - cut + self._overlap
        return masked


def unquoted(secret: bytes) -> bytes:
    """Return a secret that its context reveals up to where an unquoted word of a shell, or base64, ends."""
    return _ENDS_WORD.split(secret, maxsplit=1)[0].rstrip(b"=")


def _forms(value: str) -> set[bytes]:
    """Return the spellings of a value: unchanged, in JSON, Python, a URL, shell quotes, CR LF lines or base64."""
    spelt = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], value.replace("\n", "\r\n")}
    data = value.encode(errors="surrogatepass")
    spelt |= {quote(data, safe=""), quote(data), quote_plus(data)}
    spelt |= {re.sub("%..", lambda escape: escape[0].lower(), form) for form in spelt if "%" in form}
    spelt |= {shlex.quote(value)[1:-1]} if "'" in value else set()
    spelt |= {repr(value)[1:-1], ascii(value)[1:-1]}
    forms = {form.encode(errors="surrogatepass") for form in spelt}
    for ahead in range(3):
        # Characters that also depend on the bytes before or after the value are left out.
        encoded = base64.b64encode(b"\0" * ahead + data)[(0, 2, 3)[ahead] : (ahead + len(data)) * 8 // 6]
        forms |= {encoded, encoded.replace(b"+", b"-").replace(b"/", b"_")}
    return {form for form in forms if len(form) >= MIN_KNOWN_CHARS}


def _compile(expression: bytes, *, any_bytes: bool = False) -> Any:
    options = re2.Options()
    options.never_capture = True
    if any_bytes:
        options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = 32 << 20
    return re2.compile(expression, options)


def _either(expressions: Sequence[bytes | str], *, any_bytes: bool = False) -> Any:
    """Return one expression for all, or None for none. With ``any_bytes``, they need not be whole characters."""
    joined = b"|".join(b"(?:%b)" % e for e in expressions)
    return _compile(joined, any_bytes=any_bytes) if expressions else None


def _check(pattern: str) -> None:
    try:
        empty = _compile(pattern.encode()).search(b"") is not None
    except (re2.error, UnicodeEncodeError) as error:
        raise ConfigInvalid(
            f"redaction.patterns: {pattern!r}: {error}",
            suggestion="write it for RE2: no look-around, no back-references",
        ) from None
    if empty:
        raise ConfigInvalid(
            f"redaction.patterns: {pattern!r} matches nothing at all", suggestion="let it match at least one character"
        )


def _all(pattern: Any, data: bytes, start: int, end: int | None = None) -> Iterator[Any]:
    return pattern.finditer(data, start, end) if pattern is not None else iter(())


# Each takes milliseconds, so it is compiled at first use.


@cache
def _any_kind() -> Any:
    return _either([pattern.encode() for pattern in KINDS.values()])


@cache
def _sure_kinds() -> Any:
    return _either([pattern.encode() for kind, pattern in KINDS.items() if kind not in UNSURE])


@cache
def _beginning() -> Any:
    return _compile(BEGINNING.encode())


@cache
def _end_of_key() -> Any:
    return _compile(KEY_END.encode())


@cache
def _classifier() -> tuple[re.Pattern[bytes], dict[int, tuple[str, range]]]:
    """Return an expression that classifies RE2's matches, ten times as fast as RE2 and applied to nothing else; and for
    the group of each kind its name and the groups inside it that are the secret."""
    widths = [1 + re.compile(pattern).groups for pattern in KINDS.values()]
    groups = {
        end - width + 1: (kind, range(end - width + 2, end + 1))
        for kind, width, end in zip(KINDS, widths, accumulate(widths), strict=True)
    }
    return re.compile("|".join(f"({pattern})" for pattern in KINDS.values()).encode()), groups


_KEY_LINE = re.compile(rb"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{2,168}(?:\s|\\[nrt]){1,4}\Z")


def _ends_of_keys(data: bytes, start: int) -> Iterator[Span | None]:
    """Yield the last lines of keys, as ``tail`` prints them, and None for each line."""
    for end in _all(_end_of_key(), data, start):
        begin = end.start()
        while line := _KEY_LINE.search(data[max(start, begin - 168) : begin]):
            begin -= len(line[0])
            yield None
        if begin < end.start():
            yield Span(begin, end.end(), "private-key")


def _span(match: Any, kind: str) -> Span:
    start, end = match.span()
    return Span(start, end, kind)


def _merged(found: Iterable[Span]) -> Iterator[Span]:
    """Yield the spans in order, overlapping ones merged with the kind of the first."""
    current: Span | None = None
    for span in sorted(found):
        if current is None or span.start >= current.end:
            if current is not None:
                yield current
            current = span
        else:
            current = current._replace(end=max(current.end, span.end))
    if current is not None:
        yield current


def _classified(data: bytes, start: int, end: int) -> Span:
    """Return the secret in what one of the kinds matched."""
    expression, groups = _classifier()
    match = expression.match(data, start, end)
    assert match is not None
    kind, within = groups[match.lastindex or 0]
    secret = next((group for group in within if match.start(group) >= 0), 0)
    return Span(*match.span(secret), kind)


def _without_escapes(data: bytes, span: Span) -> Iterator[Span]:
    """Yield ``span`` without partial escapes and escape sequences at its ends, split at those inside."""
    start = _after_escape(data, span.start)
    end = _before_escape(data, span.start, span.end)
    if data.find(b"\x1b", start, end) < 0:
        if start < end:
            yield Span(start, end, span.kind)
        return
    for sequence in _SEQUENCE.finditer(data, start, end):
        if start < sequence.start():
            yield Span(start, sequence.start(), span.kind)
        start = sequence.end()
    if start < end:
        yield Span(start, end, span.kind)


def _after_escape(data: bytes, start: int) -> int:
    """Return where text begins at ``start`` or after it, past the rest of ``\\u00e9``, ``\\n`` or a colour."""
    before = data[max(0, start - _CONTEXT_BYTES) : start]
    if _INSIDE_SEQUENCE.search(before) and (rest := _REST_OF_SEQUENCE.match(data, start)):
        return rest.end()
    escape = _INSIDE_ESCAPE.search(before)
    if escape is None or len(escape[1]) % 2 == 0:
        return start
    if escape[2] is not None:
        return start + 4 - len(escape[2])
    return start + (5 if data[start : start + 1] == b"u" else 1)


def _before_escape(data: bytes, start: int, end: int) -> int:
    """Return where text ends, without the beginning of an escape or a sequence."""
    inside = data[max(start, end - _CONTEXT_BYTES) : end]
    escape = _INSIDE_ESCAPE.search(inside)
    if escape is not None and len(escape[1]) % 2:
        return end - len(escape[0]) + len(escape[1]) - 1
    sequence = _INSIDE_SEQUENCE.search(inside)
    return end - len(sequence[0]) if sequence else end
