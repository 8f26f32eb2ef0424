"""Foreign JSON, read without trusting its structure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast


def table(value: object) -> Mapping[str, Any]:
    """Return ``value`` if it is an object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def items(value: object) -> list[Any]:
    """Return ``value`` if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def cut(text: str, most: int) -> str:
    """Return at most ``most`` characters of ``text``; an ellipsis is the last one if any are missing."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def object_in(text: str) -> Mapping[str, Any]:
    """Return the first JSON object in ``text``, else an empty one."""
    decoder, start = json.JSONDecoder(), text.find("{")
    for _ in range(100):
        if start < 0:
            break
        try:
            return table(decoder.raw_decode(text, start)[0])
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
    return {}
