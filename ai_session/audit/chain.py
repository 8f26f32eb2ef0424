"""Records of the audit log and how they hang together: one JSON object a line, each naming the hash of the last. Pure.

A line is the canonical JSON of its record (sorted names, no spaces, UTF-8, whole numbers only), sealed as
``agentwire.chain`` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from agentwire import chain

GENESIS = "0" * 64
"""What the first record names as the one before it."""

CHECKPOINT_RECORDS = 64
"""No more records than these follow each other without a signed checkpoint."""

TEXT_CHARS = 4096
"""Longest text a record carries."""

MOST_PROBLEMS = 20
_MAX_DEPTH = 6
_EXACT_INTEGER = 1 << 53

_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
).encode


def canonical(record: Mapping[str, Any]) -> bytes:
    """The one way to write ``record``, whatever values are in it; never raises."""
    shown: dict[str, Any] = {}
    for name, value in record.items():
        kind = value.__class__
        # Most are such; a call for each takes as long as writing them.
        if (kind is str and len(value) <= TEXT_CHARS) or (kind is int and -_EXACT_INTEGER < value < _EXACT_INTEGER):
            shown[str(name)] = value
        elif value is not None:
            shown[str(name)] = plain(value)
    return _encode(shown).encode("utf-8", "replace")


def plain(value: Any, depth: int = 0) -> Any:
    """``value`` as JSON that every reader writes back alike: fractions and huge numbers as text, long text cut."""
    kind = value.__class__
    if (kind is str and len(value) <= TEXT_CHARS) or kind is bool or value is None:
        return value
    if kind is int and -_EXACT_INTEGER < value < _EXACT_INTEGER:
        return value
    if kind is dict and depth < _MAX_DEPTH:
        return {str(k)[:200]: plain(v, depth + 1) for k, v in value.items() if v is not None}
    return _plain_rest(value, depth)


def _plain_rest(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        text = str(value)
        return text if len(text) <= TEXT_CHARS else text[: TEXT_CHARS - 1] + "…"
    if isinstance(value, int):
        return int(value) if abs(value) < _EXACT_INTEGER else hex(value)[:64]
    if isinstance(value, float):
        return repr(float(value))
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return plain(dict(cast("Mapping[Any, Any]", value)), depth)
    if depth < _MAX_DEPTH and isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in cast("Sequence[Any]", value)]
    return f"({type(value).__name__})"


def seal(record: Mapping[str, Any]) -> tuple[bytes, str]:
    """The line of ``record``, which has ``seq`` and ``prev``, and its hash."""
    return chain.seal(canonical(record))


def opened(line: bytes) -> dict[str, Any] | None:
    """The record of a line whose hash is its own, or None."""
    record = chain.unseal(line)
    return record if isinstance(record, dict) and isinstance(record.get("seq"), int) and "prev" in record else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def statement(event: str, size: int, root: str) -> bytes:
    """What a signature is over: that ``root`` is the hash of record ``size``, for a checkpoint or a tombstone."""
    return f"ai-session {event}\n{size}\n{root}".encode()


@dataclass(frozen=True, slots=True)
class Anchor:
    """What somebody outside remembers: the hash of a record, and perhaps the public key (hex) of the log."""

    seq: int
    head: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """``place`` is file and line, or the file alone."""

    place: str
    what: str


@dataclass(slots=True)
class Report:
    """What verifying found. Sound when ``problems`` is empty; at most 20 are kept, ``broken`` counts all."""

    problems: list[Problem] = field(default_factory=list[Problem])
    broken: int = 0
    records: int = 0
    first_seq: int = 0
    last_seq: int = 0
    head: str = GENESIS
    key: str = ""
    checkpoints: int = 0
    signed_seq: int = 0
    anchored_seq: int = 0
    calls: int = 0
    open_calls: int = 0
    recoveries: int = 0
    lost_records: int = 0
    torn_bytes: int = 0


class Verifier:
    """Takes the lines of all segments in order. ``check`` judges a signature: public key, message, signature (hex)."""

    def __init__(self, check: Callable[[str, bytes, str], bool], *, key: str = "", anchors: Sequence[Anchor] = ()):
        self.report = Report(key=key)
        self._check = check
        self._anchors = list(anchors)
        self._heads: dict[int, set[str]] = {}
        for anchor in anchors:
            self._heads.setdefault(anchor.seq, set()).add(anchor.head)
        self._expected: tuple[int, str] | None = None
        self._unsigned = 0
        self._begun: set[int] = set()
        self._before: tuple[int, str] = (0, GENESIS)
        self._tombstones: set[tuple[int, str]] = set()

    def line(self, location: str, line: bytes) -> None:
        """One line with its newline."""
        record = opened(line)
        if record is None:
            self._problem(location, "the record does not match its hash: it was changed")
            self._expected = (self._expected[0] + 1, "") if self._expected else None
            return
        report = self.report
        seq = record["seq"]
        prev = record["prev"]
        digest = record["hash"]
        if self._expected is None and not report.records:
            self._before = (seq - 1, prev)
            report.first_seq = seq
        elif self._expected and (seq != self._expected[0] or (self._expected[1] and prev != self._expected[1])):
            self._problem(
                location, f"record {seq} does not follow record {self._expected[0] - 1}: {_why(record, report)}"
            )
        self._judge(location, record, seq, prev)
        self._expected = (seq + 1, digest)
        report.records += 1
        report.last_seq = seq
        report.head = digest
        if seq in self._heads:
            report.anchored_seq = max(report.anchored_seq, seq)
            if self._heads[seq] != {digest}:
                self._problem(location, f"record {seq} is not the one that was anchored: the log was rebuilt")

    def torn(self, location: str, size: int, *, last: bool) -> None:
        """What follows the last newline of a file: what a crash leaves, in the last one."""
        self.report.torn_bytes += size
        if not last:
            self._problem(location, f"{size} bytes at its end are not a record")

    def finish(self) -> Report:
        """The report, including problems that only the whole log shows."""
        report = self.report
        if self._before not in ((0, GENESIS), *self._tombstones):
            self._problem("", f"records 1 to {self._before[0]} are gone, and no signed tombstone says so")
        for anchor in self._anchors:
            if anchor.seq > report.last_seq:
                what = f"record {anchor.seq} was anchored, the log ends with {report.last_seq}: its tail was cut"
                self._problem("", what)
            elif anchor.seq == self._before[0] and anchor.head != self._before[1]:
                self._problem("", f"record {anchor.seq} is not the one that was anchored: the log was rebuilt")
            if anchor.key and report.key and anchor.key != report.key:
                self._problem("", "the log is signed with another key than the one remembered")
        report.open_calls = len(self._begun)
        return report

    def _judge(self, location: str, record: dict[str, Any], seq: int, prev: str) -> None:
        report, event = self.report, record.get("event")
        self._unsigned += 1
        if event == "tool.start":
            self._begun.add(seq)
            report.calls += 1
        elif event == "tool.end":
            start = _whole(record.get("start"))
            # The begin of an older one has expired with the segment it was in.
            if start > self._before[0] and start not in self._begun:
                self._problem(location, f"record {seq} ends a call that did not begin, or ended before")
            self._begun.discard(start)
        elif event == "audit.checkpoint":
            if self._signed(location, record, seq) and (record["size"], record["root"]) == (seq - 1, prev):
                report.checkpoints += 1
                report.signed_seq = seq - 1
            elif not self.report.problems or self.report.problems[-1].place != location:
                self._problem(location, f"checkpoint {seq} is not about the record before it")
            self._unsigned = 0
        elif event == "audit.tombstone":
            if self._signed(location, record, seq):
                self._tombstones.add((record["size"], record["root"]))
        elif event == "audit.recover":
            report.recoveries += 1
        elif event == "audit.lost":
            report.lost_records += _whole(record.get("records"))
        if self._unsigned == CHECKPOINT_RECORDS + 1:
            self._problem(location, f"more than {CHECKPOINT_RECORDS} records without a signed checkpoint")

    def _signed(self, location: str, record: dict[str, Any], seq: int) -> bool:
        key = str(record.get("key", ""))
        size = _whole(record.get("size"))
        root = str(record.get("root", ""))
        self.report.key = self.report.key or key
        message = statement(str(record["event"]), size, root)
        if key == self.report.key and self._check(key, message, str(record.get("sig", ""))):
            return True
        self._problem(location, f"the signature of record {seq} is not by the log's key")
        return False

    def _problem(self, location: str, what: str) -> None:
        self.report.broken += 1
        if len(self.report.problems) < MOST_PROBLEMS:
            self.report.problems.append(Problem(location, what))


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _why(record: dict[str, Any], report: Report) -> str:
    missing = record["seq"] - report.last_seq - 1
    if missing > 0:
        return f"{missing} missing"
    return "records were changed, added, moved or removed here"
