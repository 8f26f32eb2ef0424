"""Lines of JSON that carry their own hash, of which a chain of records is made. Pure.

A line is the JSON of an object with one member more at its end, ``hash``: SHA-256 of that JSON without it. So lines are
judged as the bytes they are.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

HASH = b',"hash":"'
TAIL = len(HASH) + 64 + len(b'"}\n')


def seal(body: bytes) -> tuple[bytes, str]:
    """The line of an object's JSON, and its hash."""
    digest = hashlib.sha256(body).hexdigest()
    return body[:-1] + HASH + digest.encode() + b'"}\n', digest


def unseal(line: bytes) -> Any:
    """What a line says whose hash is its own; None for any other, and where it is no JSON."""
    if line[-TAIL : -TAIL + len(HASH)] != HASH or line[-3:] != b'"}\n':
        return None
    if hashlib.sha256(line[:-TAIL] + b"}").hexdigest().encode() != line[-TAIL + len(HASH) : -3]:
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
