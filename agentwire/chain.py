"""JSON lines that carry their own hash, from which a chain of records is built. No I/O.

A line is the JSON of an object with one additional member at its end, ``hash``: the SHA-256 of that JSON without the
member. Lines are therefore verified as the bytes they are.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

HASH = b',"hash":"'
TAIL = len(HASH) + 64 + len(b'"}\n')


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
