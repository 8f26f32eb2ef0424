"""Which tools an agent may use, as patterns of their full names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate


class Grants:
    """Shell patterns (``*``, ``?``, ``[…]``; case-sensitive) that match full names, ``SERVER.TOOL``."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._match = re.compile("|".join(translate(pattern) for pattern in patterns)).match if patterns else None
        # The text before the first special character is what names begin with; without such a character it is the name.
        self._heads = [(re.split(r"[*?\[]", pattern, maxsplit=1)[0], pattern) for pattern in patterns]

    def allows(self, tool: str) -> bool:
        """Report whether the tool with this full name is granted."""
        return self._match is not None and self._match(tool) is not None

    def covers_server(self, server: str) -> bool:
        """Report whether any tool of this server could be granted; if not, the server need not be asked."""
        begin = f"{server}."
        return any(
            head.startswith(begin) or (begin.startswith(head) and head != pattern) for head, pattern in self._heads
        )
