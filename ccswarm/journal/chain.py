"""Records of the journal and how they hang together: one JSON object a line, each naming the hash of the last. Pure.

A line is the canonical JSON of its record (sorted names, no spaces, UTF-8), sealed as ``agentwire.chain`` does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agentwire import chain

GENESIS = "0" * 64
"""What the first record of a file names as the one before it."""

TEXT_CHARS = 4096
"""Longest text a record carries; longer ones end in …"""

MOST_ITEMS = 256
"""Of a list or a mapping."""

RECOVER = "journal.recover"

_MAX_DEPTH = 6
_EXACT_INTEGER = 1 << 63
_RECOVERING = f'{{"event":"{RECOVER}",'.encode()

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Record:
    """One record. ``at``: seconds since 1970, never less than that of the record before it in the same file."""

    worker: str
    seq: int
    at: float
    event: str
    facts: Mapping[str, Any]

    @property
    def run_id(self) -> str:
        """The run it is about, or ``""``."""
        return str(self.facts.get("run", ""))


@dataclass(frozen=True, slots=True)
class Link:
    """A record and its place in the chain."""

    record: Record
    prev: str
    digest: str


def plain(value: Any, depth: int = 0) -> Any:
    """``value`` as JSON that is read back alike: what JSON does not have as text, long things cut. Never raises."""
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
    """The line of ``record`` after the one whose hash is ``prev``, and its own hash."""
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


def opened(line: bytes) -> Link | None:
    """What a whole line says, if its hash is its own and it is a record."""
    said = chain.unseal(line)
    try:
        record = Record(said["worker"], said["seq"], said["ts"] / 1e6, said["event"], said["facts"])
        prev = said["prev"]
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError):
        return None
    shapes = ((record.worker, str), (record.seq, int), (record.event, str), (record.facts, dict), (prev, str))
    if not all(isinstance(value, kind) for value, kind in shapes):
        return None
    return Link(record, prev, said["hash"])


def is_torn(left: bytes) -> bool:
    """Whether writes that were cut off may have left these bytes between two records: the beginning of a line, perhaps
    with beginnings of the records that were to report it. A whole line never counts as that, whatever its content."""
    _, *others = pieces = left.split(b"\n")
    begun = all(piece and piece.startswith(_RECOVERING[: len(piece)]) for piece in others)
    return bool(left) and begun and not any(piece[1 - chain.TAIL :].startswith(chain.HASH) for piece in pieces)
