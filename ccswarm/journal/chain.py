"""The records of the journal and their chain: one JSON object a line, each naming the hash of the previous one.

A line is the canonical JSON of its record (sorted names, no spaces, UTF-8), sealed by ``agentwire.chain``. The module
does no input or output.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agentwire import chain

GENESIS = "0" * 64
"""The hash that the first record of a file names as the previous one."""

TEXT_CHARS = 4096
"""The longest text in a record. A longer one is cut and ends in …"""

MOST_ITEMS = 256
"""The most items of a list or a mapping in a record."""

RECOVER = "journal.recover"

_MAX_DEPTH = 6
_EXACT_INTEGER = 1 << 63
_RECOVERING = f'{{"event":"{RECOVER}",'.encode()

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Record:
    """One record. ``at`` is a Unix time in seconds, never earlier than that of the previous record in the same file."""

    worker: str
    seq: int
    at: float
    event: str
    facts: Mapping[str, Any]

    @property
    def run_id(self) -> str:
        """The id of the run the record is about, or ``""``."""
        return str(self.facts.get("run", ""))


@dataclass(frozen=True, slots=True)
class Link:
    """A record with its position in the chain."""

    record: Record
    prev: str
    digest: str


def plain(value: Any, depth: int = 0) -> Any:
    """Convert ``value`` to JSON that reads back unchanged; other types become text. Cuts long ones. Never raises."""
    kind = type(cast("object", value))
    if isinstance(value, str):
        text = value if len(value) <= TEXT_CHARS else value[: TEXT_CHARS - 1] + "…"
        return text.encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < _EXACT_INTEGER else hex(value)[:64]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(float(value))
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        items = list(cast("Mapping[Any, Any]", value).items())[:MOST_ITEMS]
        return {str(plain(name, _MAX_DEPTH))[:200]: plain(item, depth + 1) for name, item in items}
    if isinstance(value, list | tuple) and depth < _MAX_DEPTH:
        return [plain(item, depth + 1) for item in cast("Sequence[Any]", value)[:MOST_ITEMS]]
    return f"({kind.__name__})"


def seal(record: Record, prev: str) -> tuple[bytes, str]:
    """Return the line of ``record``, which follows the one with hash ``prev``, and the line's own hash."""
    body = _encode(
        {
            "event": plain(record.event),
            "facts": plain(record.facts),
            "prev": prev,
            "seq": record.seq,
            "ts": round(record.at * 1e6),
            "v": 1,
            "worker": record.worker,
        }
    ).encode()
    return chain.seal(body)


def parse_line(line: bytes) -> Link | None:
    """Parse a whole line. Return None if its hash is wrong or it is not a record."""
    fields = chain.unseal(line)
    try:
        record = Record(fields["worker"], fields["seq"], fields["ts"] / 1e6, fields["event"], fields["facts"])
        prev = fields["prev"]
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError):
        return None
    shapes = ((record.worker, str), (record.seq, int), (record.event, str), (record.facts, dict), (prev, str))
    if not all(isinstance(value, kind) for value, kind in shapes):
        return None
    return Link(record, prev, fields["hash"])


def is_torn(left: bytes) -> bool:
    """Report whether interrupted writes may have left these bytes between two records. They are the beginning of a
    line, perhaps followed by beginnings of the records that were to report it. A whole line is never torn, whatever it
    contains."""
    _, *others = pieces = left.split(b"\n")
    begun = all(piece and piece.startswith(_RECOVERING[: len(piece)]) for piece in others)
    return bool(left) and begun and not any(piece[1 - chain.TAIL :].startswith(chain.HASH) for piece in pieces)
