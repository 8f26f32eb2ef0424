"""Plain values as TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

BARE = re.compile(r"[A-Za-z0-9_-]+")


def text_of(value: object) -> str:
    """Return a value on one line. None in tables and lists is left out, because TOML has no equivalent."""
    if isinstance(value, str):
        # A file can only contain valid UTF-8.
        valid = value.encode(errors="replace").decode()
        return json.dumps(valid, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        return "{ " + ", ".join(f"{_key(k)} = {text_of(v)}" for k, v in table.items() if v is not None) + " }"
    if isinstance(value, Sequence):
        return "[" + ", ".join(text_of(one) for one in cast("Sequence[object]", value) if one is not None) + "]"
    return repr(value) if isinstance(value, float) else json.dumps(value)


def tables(name: str, items: Sequence[Mapping[str, Any]], lists: Sequence[str] = ()) -> str:
    """Return ``[[name]]`` for each item; its keys in ``lists`` become tables of their own below it."""
    return "\n".join("\n".join(_lines(name, item, lists)) + "\n" for item in items)


def _lines(name: str, item: Mapping[str, Any], lists: Sequence[str]) -> Iterator[str]:
    yield f"[[{name}]]"
    for key, value in item.items():
        if value is not None and key not in lists:
            yield f"{_key(key)} = {text_of(value)}"
    for key in lists:
        for inner in item.get(key) or ():
            yield ""
            yield from _lines(f"{name}.{key}", inner, ())


def comment(text: str) -> str:
    """Return the text as TOML comment lines."""
    plain = re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", " ", text)
    return "".join(f"# {line}".rstrip() + "\n" for line in plain.splitlines())


def _key(name: str) -> str:
    return name if BARE.fullmatch(name) else text_of(name)
