"""The records of the audit log and their chain: one JSON object per line with the hash of the previous one. No I/O.

A line is the canonical JSON of its record (sorted names, no spaces, UTF-8, whole numbers only), sealed as
``agentwire.chain`` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agentwire import chain

GENESIS = "0" * 64
"""The hash of the previous record in the first one."""

CHECKPOINT_RECORDS = 64
"""The most records between two signed checkpoints."""

TEXT_CHARS = 4096
"""The longest text in a record."""


_MAX_DEPTH = 6
_EXACT_INTEGER = 1 << 53

_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
).encode


def canonical(record: Mapping[str, Any]) -> bytes:
    """Return the canonical JSON of ``record``, whatever values it contains; never raises."""
    shown: dict[str, Any] = {}
    for name, value in record.items():
        kind = value.__class__
        # Most values are like this; a function call for each would take as long as encoding them.
        if (kind is str and len(value) <= TEXT_CHARS) or (kind is int and -_EXACT_INTEGER < value < _EXACT_INTEGER):
            shown[str(name)] = value
        elif value is not None:
            shown[str(name)] = plain(value)
    return _encode(shown).encode("utf-8", "replace")


def plain(value: Any, depth: int = 0) -> Any:
    """Return ``value`` as JSON that every reader encodes alike: fractions and huge numbers as text, long text cut."""
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
    """Return the line of ``record``, which has ``seq`` and ``prev``, and its hash."""
    return chain.seal(canonical(record))


def unseal(line: bytes) -> dict[str, Any] | None:
    """Return the record in a line whose hash is correct, else None."""
    record = chain.unseal(line)
    return record if isinstance(record, dict) and isinstance(record.get("seq"), int) and "prev" in record else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def statement(event: str, size: int, root: str) -> bytes:
    """Return the text to be signed: that ``root`` is the hash of record ``size``, in a checkpoint or a tombstone."""
    return f"ai-session {event}\n{size}\n{root}".encode()


@dataclass(frozen=True, slots=True)
class Anchor:
    """A fact about the log that is stored elsewhere: the hash of a record, and possibly the log's public key (hex)."""

    seq: int
    head: str
    key: str = ""


@dataclass(slots=True)
class Report(chain.Findings):
    """The result of a verification."""

    most_problems = 20
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
    """Checks the lines of all segments in order. ``check`` verifies a signature: public key, message, signature."""

    def __init__(self, check: Callable[[str, bytes, str], bool], *, key: str = "", anchors: Sequence[Anchor] = ()):
        self.report = Report(key=key)
        self._check = check
        self._anchors = list(anchors)
        self._heads: dict[int, set[str]] = {}
        for anchor in anchors:
            self._heads.setdefault(anchor.seq, set()).add(anchor.head)
        self._expected: tuple[int, str] | None = None
        self._unsigned = 0
        self._open_calls: set[int] = set()
        self._predecessor: tuple[int, str] = (0, GENESIS)
        self._tombstones: set[tuple[int, str]] = set()

    def line(self, location: str, line: bytes) -> None:
        """Check one line with its newline."""
        record = unseal(line)
        if record is None:
            self.report.add(location, "the record does not match its hash: it was changed")
            self._expected = (self._expected[0] + 1, "") if self._expected else None
            return
        report = self.report
        seq = record["seq"]
        prev = record["prev"]
        digest = record["hash"]
        if self._expected is None and not report.records:
            self._predecessor = (seq - 1, prev)
            report.first_seq = seq
        elif self._expected and (seq != self._expected[0] or (self._expected[1] and prev != self._expected[1])):
            self.report.add(
                location, f"record {seq} does not follow record {self._expected[0] - 1}: {_why(record, report)}"
            )
        self._check_record(location, record, seq, prev)
        self._expected = (seq + 1, digest)
        report.records += 1
        report.last_seq = seq
        report.head = digest
        if seq in self._heads:
            report.anchored_seq = max(report.anchored_seq, seq)
            if self._heads[seq] != {digest}:
                self.report.add(location, f"record {seq} is not the one that was anchored: the log was rebuilt")

    def torn(self, location: str, size: int, *, last: bool) -> None:
        """Check the bytes after a file's last newline: a crash leaves some in the last file only."""
        self.report.torn_bytes += size
        if not last:
            self.report.add(location, f"{size} bytes at its end are not a record")

    def finish(self) -> Report:
        """Return the report, including problems that only the whole log shows."""
        report = self.report
        if self._predecessor not in ((0, GENESIS), *self._tombstones):
            self.report.add("", f"records 1 to {self._predecessor[0]} are gone, and no signed tombstone says so")
        for anchor in self._anchors:
            if anchor.seq > report.last_seq:
                what = f"record {anchor.seq} was anchored, the log ends with {report.last_seq}: its tail was cut"
                self.report.add("", what)
            elif anchor.seq == self._predecessor[0] and anchor.head != self._predecessor[1]:
                self.report.add("", f"record {anchor.seq} is not the one that was anchored: the log was rebuilt")
            if anchor.key and report.key and anchor.key != report.key:
                self.report.add("", "the log is signed with another key than the one remembered")
        report.open_calls = len(self._open_calls)
        return report

    def _check_record(self, location: str, record: dict[str, Any], seq: int, prev: str) -> None:
        report, event = self.report, record.get("event")
        self._unsigned += 1
        if event == "tool.start":
            self._open_calls.add(seq)
            report.calls += 1
        elif event == "tool.end":
            start = _whole(record.get("start"))
            # The begin record of an older call was removed with its segment.
            if start > self._predecessor[0] and start not in self._open_calls:
                self.report.add(location, f"record {seq} ends a call that did not begin, or ended before")
            self._open_calls.discard(start)
        elif event == "audit.checkpoint":
            if self._signed(location, record, seq) and (record["size"], record["root"]) == (seq - 1, prev):
                report.checkpoints += 1
                report.signed_seq = seq - 1
            elif not self.report.problems or self.report.problems[-1].location != location:
                self.report.add(location, f"checkpoint {seq} is not about the record before it")
            self._unsigned = 0
        elif event == "audit.tombstone":
            if self._signed(location, record, seq):
                self._tombstones.add((record["size"], record["root"]))
        elif event == "audit.recover":
            report.recoveries += 1
        elif event == "audit.lost":
            report.lost_records += _whole(record.get("records"))
        if self._unsigned == CHECKPOINT_RECORDS + 1:
            self.report.add(location, f"more than {CHECKPOINT_RECORDS} records without a signed checkpoint")

    def _signed(self, location: str, record: dict[str, Any], seq: int) -> bool:
        key = str(record.get("key", ""))
        size = _whole(record.get("size"))
        root = str(record.get("root", ""))
        self.report.key = self.report.key or key
        message = statement(str(record["event"]), size, root)
        if key == self.report.key and self._check(key, message, str(record.get("sig", ""))):
            return True
        self.report.add(location, f"the signature of record {seq} is not by the log's key")
        return False


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _why(record: dict[str, Any], report: Report) -> str:
    missing = record["seq"] - report.last_seq - 1
    if missing > 0:
        return f"{missing} missing"
    return "records were changed, added, moved or removed here"
