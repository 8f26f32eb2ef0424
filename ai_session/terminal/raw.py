"""The unchanged bytes that one command printed, apart from our marks and secrets."""

from __future__ import annotations

from dataclasses import dataclass

from ai_session.models import CommandRecord
from ai_session.system.turns import Steps
from ai_session.terminal.log import OutputLog, require_kept
from ai_session.terminal.marks import strip_marks, unfinished_mark
from ai_session.terminal.masking import CONTEXT_BYTES, Spans, secret_spans


@dataclass(frozen=True, slots=True)
class Raw:
    """``data`` of the log from the requested offset to ``next``. A possible secret or mark is held back."""

    data: bytes
    next: int


def raw(log: OutputLog, record: CommandRecord, offset: int, most: int, nonce: str, spans: Spans | None) -> Steps[Raw]:
    """Return about ``most`` bytes of what the command printed, from its byte ``offset`` on. Raises OutputExpired."""
    growing = record.end_offset is None
    position = record.start_offset + offset
    last = log.end if record.end_offset is None else record.end_offset
    stop = min(last, position + most)
    far = min(last, stop + CONTEXT_BYTES)
    begin = min(position, max(record.start_offset, log.first, position - CONTEXT_BYTES))
    require_kept(offset, max(0, min(log.first, last) - record.start_offset))
    data = log.read(begin, far) if begin < far else b""
    growing = growing and far == last
    if growing:
        stop -= len(unfinished_mark(data, nonce))
    found = (yield from secret_spans(data, spans, growing)) if spans else []
    parts: list[bytes] = []
    for first, after, label in ((begin + a, begin + b, label) for a, b, label in found):
        if growing and after == far:
            stop = min(stop, first)
        if after <= position or first >= stop:
            continue
        parts.append(data[position - begin : max(first, position) - begin])
        if first >= position:
            parts.append(label)
        position = after
    parts.append(data[position - begin : max(stop, position) - begin])
    return Raw(strip_marks(b"".join(parts), nonce), max(stop, position))
