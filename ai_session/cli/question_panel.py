"""A question on an attached terminal: drawn over its last lines, answered with one key.

Keys typed for the program must not answer by accident, so it accepts keys only after a second without any. A question
that does not fit the terminal can only be denied or postponed: no person should agree to what they did not see.
"""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from agentwire.visible import visible

QUIET_SECONDS = 1.0
"""The time that browsers wait before a dialog accepts keys."""

REVERSE = "\x1b[0;7m"
BOLD = "\x1b[0;1m"
PLAIN = "\x1b[0m"
KEYS: Mapping[str, Mapping[str, Any]] = {
    "y": {"allowed": True, "scope": "once"},
    "s": {"allowed": True, "scope": "session"},
    "a": {"allowed": True, "scope": "always"},
    "p": {"allowed": True, "scope": "prefix"},
    "f": {"allowed": True, "scope": "folder"},
    "n": {"allowed": False},
    "\x1b": {"later": True},
}
ENCODED = re.compile(rb"\x1b\[(\d+)(?:;1)?u\Z")
"""Plain keys in an encoding that a program may have requested from the terminal."""

CHOICES = {
    "once": "y once",
    "session": "s this session",
    "always": "a always",
    "prefix": "p {prefix} …",
    "folder": "f this folder and all below",
}
OTHERS = "n deny · Esc later"
FEWER = "n deny · Esc later · the rest is not shown here: ai-session approvals"
UNSIGNED = "n deny · Esc later · sign a yes: ai-session approve {}"
NOT_YET = "takes a key when you have stopped typing"


class QuestionPanel:
    """One question on the terminal."""

    def __init__(self, facts: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.question_id: str = facts["question_id"]
        self._allows: bool = facts.get("answer", "unsigned") == "unsigned"
        self._message: str = facts["message"]
        self._scopes: list[str] = facts["scopes"]
        self._prefix: str = facts["prefix"]
        self._clock = clock
        self._armed_at = clock() + QUIET_SECONDS
        self._answered = False
        self._whole = False

    @property
    def arms_in(self) -> float | None:
        """Seconds until it accepts keys; None if it does already, or was answered."""
        left = self._armed_at - self._clock()
        return left if left > 0 and not self._answered else None

    def handle_keys(self, data: bytes) -> bytes | None:
        """Return the frame that answers, empty for keys without meaning, None for keys that are for the program."""
        if self.arms_in is not None:
            self._armed_at = self._clock() + QUIET_SECONDS
            return None
        encoded = ENCODED.match(data)
        key = chr(int(encoded[1])) if encoded and int(encoded[1]) < 128 else data.decode("latin-1")
        word = KEYS.get(key)
        if self._answered or word is None:
            return b""
        if word.get("allowed") and not (self._allows and self._whole and word["scope"] in self._scopes):
            return b""
        self._answered = True
        return json.dumps({"question_id": self.question_id, **word}).encode()

    def _choices(self) -> str:
        if not self._allows:
            return UNSIGNED.format(self.question_id)
        return " · ".join([*(CHOICES[scope].format(prefix=self._prefix) for scope in self._scopes), OTHERS])

    def draw(self, rows: int, cols: int) -> bytes:
        """Return the output that draws it over the last lines of a terminal of that size."""
        lines = [part for line in self._message.split("\n") for part in _wrapped(line, cols)]
        room = max(rows - 3, 1)
        self._whole = len(lines) <= room
        shown = lines if self._whole else [*lines[: room - 1], f"… {len(lines) - room + 1} more lines"]
        last = NOT_YET if self.arms_in is not None else self._choices() if self._whole else FEWER
        panel = [(REVERSE, " ai-session asks"), *((PLAIN, line) for line in shown), (BOLD, last)]
        top = rows - len(panel) + 1
        drawn = "".join(
            f"\x1b[{max(top + number, 1)};1H{style}{_cut(text, cols)}\x1b[K"
            for number, (style, text) in enumerate(panel)
        )
        return f"\x1b(B\x0f\x1b[?25l{drawn}{PLAIN}".encode(errors="replace")


def _wrapped(line: str, cols: int) -> list[str]:
    parts = [""]
    width = 0
    for char in visible(line):
        if width + _width(char) > cols:
            parts.append("")
            width = 0
        parts[-1] += char
        width += _width(char)
    return parts


def _cut(text: str, cols: int) -> str:
    return _wrapped(text, cols)[0]


def _width(char: str) -> int:
    """Return the columns that it may take; never too few."""
    return 2 if unicodedata.east_asian_width(char) in "WFA" else 1
