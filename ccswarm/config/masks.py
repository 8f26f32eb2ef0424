"""Masks the values of variables whose names look secret. Does no input or output."""

from __future__ import annotations

import re
from collections.abc import Mapping

SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|PASS$|_PWD$|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|_KEY$|COOKIE|AUTH(?!OR|_SOCK)",
    re.IGNORECASE,
)

MIN_SECRET_CHARS = 6
"""The length below which a value is not masked, because it may occur anywhere as a word."""


class Masks:
    """A function that replaces each secret value of an environment in a text by ``[REDACTED:NAME]``."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        named = {
            value: name
            for name, value in variables.items()
            if SECRET_NAME.search(name) and len(value) >= MIN_SECRET_CHARS
        }
        longest_first = sorted(named, key=len, reverse=True)
        self._names = named
        self._find = re.compile("|".join(re.escape(value) for value in longest_first)) if named else None

    def __call__(self, text: str) -> str:
        return self._find.sub(lambda found: f"[REDACTED:{self._names[found[0]]}]", text) if self._find else text
