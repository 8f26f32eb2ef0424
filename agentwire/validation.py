"""What a value should have been, in words for people and models; of pydantic's errors, which name its own types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_SHOULD = re.compile(r"^(?:Input|String|List|Tuple|Dictionary|Value|URL) should ")
_TYPES = {
    "string": "a text",
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "dict": "an object",
    "mapping": "an object",
    "model": "an object",
}
_KIND = re.compile(r"(?:_attributes)?_(?:type|parsing|parsing_size|from_float|unicode)$")
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def requirement(problem: Mapping[str, Any]) -> str:
    """Return what is wrong, to follow the name of the value: ``is missing``, ``should be at least 2``. ``problem`` is
    one of the ``errors()`` of a ValidationError, with its context."""
    kind, given = str(problem["type"]), problem.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is not known"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"should be {words} {str(given[name]).removesuffix('.0')}"
    if kind in ("string_too_short", "too_short"):
        least, what = given["min_length"], "characters" if kind.startswith("string") else "items"
        return "is empty" if least == 1 else f"should have at least {least} {what}"
    if kind in ("string_too_long", "too_long"):
        return f"should have at most {given['max_length']} {'characters' if kind.startswith('string') else 'items'}"
    if wanted := _TYPES.get(_KIND.sub("", kind)):
        return f"should be {wanted}"
    return _SHOULD.sub("should ", str(problem["msg"]).removeprefix("Value error, "))


def requirements(problems: Iterable[Mapping[str, Any]], whole: str = "") -> str:
    """Return all problems, each after the place of its value; ``whole`` is the name of the value without a place."""
    named = ((".".join(map(str, one["loc"])) or whole, requirement(one)) for one in problems)
    return "; ".join(f"{name}: {what}" if name else what for name, what in named)
