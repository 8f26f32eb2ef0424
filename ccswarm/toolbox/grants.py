"""Which tools an agent may use: patterns of their full names. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate


class Grants:
    """Patterns as shells have them (``*``, ``?``, ``[…]``; upper and lower case differ), of ``SERVER.TOOL``."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._match = re.compile("|".join(translate(pattern) for pattern in patterns)).match if patterns else None
        # Up to the first special character a pattern says what names begin with, without one what they are.
        self._heads = [(re.split(r"[*?\[]", pattern, maxsplit=1)[0], pattern) for pattern in patterns]

    def allows(self, tool: str) -> bool:
        """Whether a tool of this full name is granted."""
        return self._match is not None and self._match(tool) is not None

    def covers_server(self, server: str) -> bool:
        """Whether a tool of this server could be: where not, nobody has to ask the server."""
        begin = f"{server}."
        return any(
            head.startswith(begin) or (begin.startswith(head) and head != pattern) for head, pattern in self._heads
        )
