"""What is masked now: the redactor in force, which learns the secrets of each client's environment."""

from __future__ import annotations

import fnmatch
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from ai_session.redaction import Redactor

KEY_BYTES = 32
MAX_SEEN = 64
MAX_KNOWN = 512
"""Values kept; more would slow every call, and no person has so many."""


class Masking:
    """One per daemon. ``names`` are patterns of variables whose values are secret; ``key_path`` holds the key of the
    masks, made when there is none. Without ``enabled`` nothing is masked. Raises ConfigInvalid, OSError."""

    def __init__(self, key_path: Path, names: Sequence[str], patterns: Sequence[str], *, enabled: bool = True) -> None:
        self._names, self._patterns = tuple(names), tuple(patterns)
        self._enabled = enabled
        self._known: dict[str, str] = {}
        self._seen: dict[int, Mapping[str, str]] = {}
        self._key = _key(key_path)
        self._redactor = Redactor((), self._patterns, self._key)

    def learn(self, environment: Mapping[str, str]) -> None:
        """The values of its secret variables are masked from now on."""
        if not self._enabled or id(environment) in self._seen:
            return
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        self._seen[id(environment)] = environment  # held, so that its id stays its own
        found = {v: k for k, v in environment.items() if any(fnmatch.fnmatchcase(k, name) for name in self._names)}
        fresh = {value: name for value, name in found.items() if value not in self._known}
        if fresh and len(self._known) + len(fresh) <= MAX_KNOWN:
            self._known |= fresh
            pairs = [(name, value) for value, name in self._known.items()]
            self._redactor = Redactor(pairs, self._patterns, self._key)

    def mask(self, text: str) -> tuple[str, int]:
        """``text`` without secrets, and how many were masked."""
        return self._redactor.redact_text(text) if self._enabled else (text, 0)

    def masked(self, text: str) -> str:
        """``text`` without secrets."""
        return self.mask(text)[0]

    def spans(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Where secrets lie in ``data``, in order and apart, and what to show instead of each."""
        if not self._enabled:
            return []
        redactor = self._redactor
        return [(span.start, span.end, redactor.label(data, span)) for span in redactor.spans(data)]


def _key(path: Path) -> bytes:
    try:
        key = path.read_bytes()
        if len(key) == KEY_BYTES:
            return key
    except FileNotFoundError:
        pass
    key = secrets.token_bytes(KEY_BYTES)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(key)
    return key
