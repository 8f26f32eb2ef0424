"""Lines as people and foreign programs send them: a message over several lines, and lines of other protocols."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from agentwire.json_lines import Refused

REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ +\S+ +HTTP/\d", re.IGNORECASE)
TLS_HANDSHAKE = b"\x16"
"""The first byte of a client that takes this for a TLS port."""

STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')

BEGUN = re.compile(rb"\s*\{(?:.*[{\[])?\s*\Z", re.DOTALL)


class LineJoiner:
    """A joiner of messages that a person pasted over several lines. Such a message begins with a line that opens an
    object and ends within it. A complete message on a single line ends any incomplete one before it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._depth = 0

    def joined(self, lines: Iterable[bytes | Refused]) -> Iterator[bytes | Refused]:
        """Yield the lines, with each message as one line."""
        for line in lines:
            if self._parts:
                yield from self._add(line)
            elif isinstance(line, bytes) and BEGUN.match(line) and _depth(line) > 0:
                self._parts = [line]
                self._depth = _depth(line)
            else:
                yield line

    def rest(self) -> list[bytes | Refused]:
        """Return the incomplete message, if any."""
        parts = self._parts
        self._parts = []
        self._depth = 0
        return [b"\n".join(parts)] if parts else []

    def _add(self, line: bytes | Refused) -> Iterator[bytes | Refused]:
        if isinstance(line, Refused) or _is_message(line) or sum(map(len, self._parts)) + len(line) > self._limit:
            yield from self.rest()
            yield line
            return
        self._parts.append(line)
        self._depth += _depth(line)
        if self._depth <= 0:
            yield from self.rest()


def _depth(line: bytes) -> int:
    """Return how many more objects and lists the line opens than it closes."""
    bare = STRING.sub(b"", line)
    return sum(bare.count(one) for one in (b"{", b"[")) - sum(bare.count(one) for one in (b"}", b"]"))


def _is_message(line: bytes) -> bool:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "jsonrpc" in found


def is_foreign(line: bytes) -> bool:
    """Report whether a connection's first line, or its beginning, is HTTP or TLS, sent by a browser for a page."""
    return line.startswith(TLS_HANDSHAKE) or REQUEST_LINE.match(line) is not None
