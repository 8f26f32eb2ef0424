"""JSON of others, read without trusting its shape. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast


def table(value: object) -> Mapping[str, Any]:
    """The object it is; empty where it is none."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def items(value: object) -> list[Any]:
    """The list it is; empty where it is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def cut(text: str, most: int) -> str:
    """At most that many characters; where some are missing, the last one says so."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def object_in(text: str) -> Mapping[str, Any]:
    """The first JSON object that stands in a text; empty where there is none."""
    decoder, start = json.JSONDecoder(), text.find("{")
    for _ in range(100):
        if start < 0:
            break
        try:
            return table(decoder.raw_decode(text, start)[0])
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
    return {}
