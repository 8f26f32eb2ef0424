"""JSON lines that carry their own hash, from which a chain of records is built, and the problems found in such a chain.

A line is the JSON of an object with one additional member at its end, ``hash``: the SHA-256 of that JSON without the
member. Lines are therefore verified as the bytes they are.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar

HASH = b',"hash":"'
TAIL = len(HASH) + 64 + len(b'"}\n')
WINDOW_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. ``location`` is a file and a line, a file, or the id of a call."""

    location: str
    what: str


@dataclass(slots=True)
class Findings:
    """The problems that a verification found. The first ``most_problems`` are stored; ``broken`` counts all."""

    most_problems: ClassVar[int] = 100
    problems: list[Problem] = field(default_factory=list[Problem])
    broken: int = 0

    @property
    def sound(self) -> bool:
        """Whether no problem was found."""
        return not self.broken

    def add(self, location: str, what: str) -> None:
        """Record a problem."""
        self.broken += 1
        if len(self.problems) < self.most_problems:
            self.problems.append(Problem(location, what))


def ends(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Yield longer and longer ends of a file, and with each whether it is the whole file. Raises OSError."""
    size = file.seek(0, os.SEEK_END)
    window, start = WINDOW_BYTES, size
    while start:
        start = file.seek(max(0, size - window))
        yield file.read(size - start), start == 0
        window *= 4
    if not size:
        yield b"", True


def seal(body: bytes) -> tuple[bytes, str]:
    """Return the line for an object's JSON, and the hash in it."""
    digest = hashlib.sha256(body).hexdigest()
    return body[:-1] + HASH + digest.encode() + b'"}\n', digest


def unseal(line: bytes) -> Any:
    """Return the JSON value of a line whose hash is correct; None for any other line, and for invalid JSON."""
    if line[-TAIL : -TAIL + len(HASH)] != HASH or line[-3:] != b'"}\n':
        return None
    if hashlib.sha256(line[:-TAIL] + b"}").hexdigest().encode() != line[-TAIL + len(HASH) : -3]:
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
