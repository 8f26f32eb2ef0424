"""A description of a call's arguments that leaves out their contents."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any, cast

Mask = Callable[[str], str]
"""A function that returns a text without its secrets."""

TEXT_CHARS = 4096
"""The number of characters of a command that are recorded at most."""

GUESSABLE_CHARS = 32
"""The length up to which a value gets no digest: it could be found by brute force."""

MOST_NAMES = 64

MOST_MASKED_CHARS = 64 * TEXT_CHARS
"""The length up to which texts are masked: masking takes time, and cutting first could split a secret."""


def not_json(arguments: object) -> str:
    """Return why ``arguments`` cannot be sent as a JSON object; ``""`` if they can."""
    if not isinstance(arguments, Mapping):
        return f"a {type(arguments).__name__}"
    try:
        json.dumps(dict(cast("Mapping[Any, Any]", arguments)), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return "an unpaired surrogate in a string" if isinstance(error, UnicodeError) else str(error)[:100]
    named = all(isinstance(name, str) for name in cast("Mapping[Any, Any]", arguments))
    return "" if named else "a name that is not a string"


def shape(arguments: object, mask: Mask) -> dict[str, Any]:
    """Return names, types, sizes and digests of ``arguments``, and the masked text of ``command``. Never raises."""
    if not isinstance(arguments, Mapping):
        return {}
    given = list(cast("Mapping[Any, Any]", arguments).items())[:MOST_NAMES]
    return {masked(name, mask, 64): _describe(name, value, mask) for name, value in given if isinstance(name, str)}


def masked(text: str, mask: Mask, chars: int = TEXT_CHARS) -> str:
    """Return the first ``chars`` characters of ``text``, masked, or a remark if that fails. Never raises."""
    if len(text) > MOST_MASKED_CHARS:
        return "(too long to be masked)"
    try:
        return mask(text)[:chars]
    except Exception:
        return "(could not be masked)"  # an unmasked text is not safe


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
    if name == "command" and (words := _command_text(value)):
        facts["text"] = masked(words, mask)
    return facts


def _command_text(value: object) -> str:
    if isinstance(value, str):
        return value
    words = cast("list[object]", value) if isinstance(value, list) else []
    return shlex.join(word for word in words if isinstance(word, str))
