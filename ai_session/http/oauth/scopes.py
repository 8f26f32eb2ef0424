"""What a token may allow, in the protocol's words and in those for people. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

SCOPES = {
    "sessions:read": "See your sessions: their screens, output and recordings",
    "sessions:write": "Resize and close sessions, interrupt commands",
    "sessions:execute": "Open sessions, type into them, run commands",
    "admin": "See and use everybody's sessions",
}
"""Every scope, and its meaning for the person who grants it."""

USUAL = ("sessions:read", "sessions:write", "sessions:execute")
"""The scopes that a client is advised to request first, and gets if it requests none."""


def known(words: Iterable[str]) -> tuple[str, ...]:
    """Return those of ``words`` that are scopes, each once, in the order above."""
    wanted = set(words)
    return tuple(scope for scope in SCOPES if scope in wanted)
