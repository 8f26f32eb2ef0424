"""Lines as people and strangers send them: a message printed over several lines, and what is another protocol's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from agentwire.json_lines import Refused

REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ +\S+ +HTTP/\d", re.IGNORECASE)
TLS_HANDSHAKE = b"\x16"
"""With which a client begins that takes this for a port of TLS."""

STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')

BEGUN = re.compile(rb"\s*\{(?:.*[{\[])?\s*\Z", re.DOTALL)


class Spread:
    """Joins what a person pasted: a message that is printed over several lines. Only a line that opens an object and
    ends in the middle of it begins one, and a whole message in a line of its own ends whatever was begun before."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._depth = 0

    def joined(self, lines: Iterable[bytes | Refused]) -> Iterator[bytes | Refused]:
        """The lines, and those of one message as one."""
        for line in lines:
            if self._held:
                yield from self._next(line)
            elif isinstance(line, bytes) and BEGUN.match(line) and _depth(line) > 0:
                self._held = [line]
                self._depth = _depth(line)
            else:
                yield line

    def rest(self) -> list[bytes | Refused]:
        """What was begun and never ended."""
        held = self._held
        self._held = []
        self._depth = 0
        return [b"\n".join(held)] if held else []

    def _next(self, line: bytes | Refused) -> Iterator[bytes | Refused]:
        if isinstance(line, Refused) or _is_message(line) or sum(map(len, self._held)) + len(line) > self._limit:
            yield from self.rest()
            yield line
            return
        self._held.append(line)
        self._depth += _depth(line)
        if self._depth <= 0:
            yield from self.rest()


def _depth(line: bytes) -> int:
    """How many objects and lists it opens more than it closes."""
    bare = STRING.sub(b"", line)
    return sum(bare.count(one) for one in (b"{", b"[")) - sum(bare.count(one) for one in (b"}", b"]"))


def _is_message(line: bytes) -> bool:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "jsonrpc" in found


def is_foreign(line: bytes) -> bool:
    """Whether the first line of a connection, or its beginning, is none of this protocol but HTTP's or TLS's: what a
    browser sends wherever a page wants it to."""
    return line.startswith(TLS_HANDSHAKE) or REQUEST_LINE.match(line) is not None
