"""A description of a call's arguments without their contents."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any, cast

Mask = Callable[[str], str]
"""Takes a text and returns it without its secrets."""

TEXT_CHARS = 4096
"""Most characters of a command that are recorded."""

GUESSABLE_CHARS = 32
"""Values up to this length get no digest, which would let them be found by brute force."""

MOST_NAMES = 64

MOST_MASKED_CHARS = 64 * TEXT_CHARS
"""Longer texts are omitted: masking takes time, and a piece could end within a secret."""


def not_json(arguments: object) -> str:
    """Why this is no JSON object that can be sent; ``""`` where it is."""
    if not isinstance(arguments, Mapping):
        return f"a {type(arguments).__name__}"
    try:
        json.dumps(dict(cast("Mapping[Any, Any]", arguments)), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return "an unpaired surrogate in a string" if isinstance(error, UnicodeError) else str(error)[:100]
    named = all(isinstance(name, str) for name in cast("Mapping[Any, Any]", arguments))
    return "" if named else "a name that is not a string"


def shape(arguments: object, mask: Mask) -> dict[str, Any]:
    """Names, types, sizes and digests of arguments; the text of one named ``command``, masked. Never raises."""
    if not isinstance(arguments, Mapping):
        return {}
    given = list(cast("Mapping[Any, Any]", arguments).items())[:MOST_NAMES]
    return {masked(name, mask, 64): _describe(name, value, mask) for name, value in given if isinstance(name, str)}


def masked(text: str, mask: Mask, chars: int = TEXT_CHARS) -> str:
    """The beginning of ``text`` without its secrets. Never raises."""
    if len(text) > MOST_MASKED_CHARS:
        return "(too long to be masked)"
    try:
        return mask(text)[:chars]
    except Exception:
        return "(could not be masked)"  # then no text is the safe text


def _describe(name: str, value: object, mask: Mask) -> dict[str, Any]:
    facts: dict[str, Any] = {"type": type(value).__name__}
    if value is None or isinstance(value, bool | int | float):
        return facts
    try:
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return facts
    facts["chars"] = len(text)
    if len(text) > GUESSABLE_CHARS:
        facts["sha256"] = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    if name == "command" and (words := _words(value)):
        facts["text"] = masked(words, mask)
    return facts


def _words(value: object) -> str:
    if isinstance(value, str):
        return value
    words = cast("list[object]", value) if isinstance(value, list) else []
    return shlex.join(word for word in words if isinstance(word, str))
