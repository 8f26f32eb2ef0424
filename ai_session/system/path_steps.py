"""The steps of resolving a path: every directory and every link in order."""

from __future__ import annotations

import os
from collections.abc import Iterator

MAX_LINKS = 40


def links_below(path: str, root: str) -> tuple[list[str], str]:
    """Return the links below ``root`` that a path passes, and its target; that is empty if outside. Raises OSError."""
    way = list(steps(path))
    inside = [one for one in way if one.startswith(root.rstrip("/") + "/")]
    return [one for one in inside if one != way[-1] and os.path.islink(one)], way[-1] if way[-1] in inside else ""


def steps(path: str) -> Iterator[str]:
    """Yield every directory and link that an absolute path passes, each without links in its own path; the target is
    last.

    Raises OSError for more links than the system follows.
    """
    left = path.split("/")[::-1]
    at = "/"
    links = 0
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
