"""What resolving a path goes through: every directory and every link, one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator

MAX_LINKS = 40


def steps(path: str) -> Iterator[str]:
    """Every directory and link on the way of an absolute path, without links in its own part; the end is the last.

    Raises OSError for more links than the system follows.
    """
    left, at, links = path.split("/")[::-1], "/", 0
    yield at
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        at = os.path.dirname(at) if name == ".." else os.path.join(at, name)
        yield at
        try:
            target = "" if name == ".." else os.readlink(at)
        except (OSError, ValueError):
            continue
        if not target:
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(f"too many links: {path}")
        at = "/" if target.startswith("/") else os.path.dirname(at)
        left += target.split("/")[::-1]
        yield at
