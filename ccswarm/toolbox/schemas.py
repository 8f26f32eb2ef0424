"""A tool's input schema as its server wrote it: a wrong, endless or hostile one harms nobody. No network, pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

import re2 as _re2  # pyright: ignore[reportMissingTypeStubs]
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend, validator_for  # pyright: ignore[reportUnknownVariableType]
from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs]

re2 = cast("Any", _re2)

MOST_PROBLEMS = 20

MOST_STEPS = 10_000
"""Keywords looked at in one check, 0.05 to 0.5 s: a few lines of schema can ask for billions."""

_SHOWN_CHARS = 120
_MESSAGE_CHARS = 4000
_NAMES_ONLY = frozenset({"required", "additionalProperties", "unevaluatedProperties", "dependentRequired"})
"""Whose messages have names of properties in them, and no values."""

Keyword = Callable[..., Iterator[ValidationError] | None]


class _TooMuch(Exception):
    """Checking would take too long."""


class Schema:
    """Compiled once, of the draft it names, else 2020-12. Where it cannot be used ``unusable`` says why, and nothing
    is checked: the server does that too. Regular expressions are RE2's; others are left to the server."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.unusable = ""
        self._steps = 0
        try:
            draft: Any = validator_for(schema, default=Draft202012Validator)
            draft.check_schema(schema, format_checker=None)
            known: dict[str, Keyword] = draft.VALIDATORS
            ours = {name: keyword for name, keyword in _SAFE.items() if name in known}
            if "patternProperties" in (text := json.dumps(schema)) and '"unevaluated' in text:
                ours |= {"unevaluatedProperties": _let_be, "unevaluatedItems": _let_be}
            keywords = {name: self._counted(keyword) for name, keyword in {**known, **ours}.items()}
            self._validator: Any = cast("Any", extend(draft, keywords))(schema, registry=REGISTRY)
        except Exception as error:  # libraries meet what they never met before
            self._fail(error)

    def problem(self, arguments: Mapping[str, Any]) -> str:
        """What is wrong with the arguments, every place of it and none of the values; ``""`` where nothing is."""
        if self.unusable:
            return ""
        self._steps = 0
        try:
            found = sorted({_described(error) for error in self._validator.iter_errors(dict(arguments))})
        except _TooMuch:
            return ""
        except Exception as error:  # references to nowhere, or in circles
            self._fail(error)
            return ""
        if len(found) > MOST_PROBLEMS:
            found[MOST_PROBLEMS:] = [f"and {len(found) - MOST_PROBLEMS} more"]
        return "; ".join(found)[:_MESSAGE_CHARS]

    def _fail(self, error: Exception) -> None:
        words = str(getattr(error, "message", "") or error)[:_SHOWN_CHARS]
        self.unusable = f"its input schema cannot be used ({type(error).__name__}: {words}): arguments are not checked"

    def _counted(self, keyword: Keyword) -> Keyword:
        def counted(*given: Any) -> Iterator[ValidationError] | None:
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise _TooMuch
            return keyword(*given)

        return counted


def _described(error: Any) -> str:
    return f"{error.json_path[:200]}: {_wanted(error)}"


def _wanted(error: Any) -> str:
    keyword, value = str(error.validator), error.validator_value
    if keyword in _NAMES_ONLY:
        return str(error.message)[:1000]
    if keyword == "type":
        return f"must be {' or '.join([value] if isinstance(value, str) else value)}"
    if keyword in ("anyOf", "oneOf"):
        if not error.context:
            return "matches more than one of the alternatives"
        return "matches none of these: " + " | ".join(dict.fromkeys(_described(each) for each in error.context[:8]))
    if keyword in ("enum", "const"):
        return f"must be {'one of ' if keyword == 'enum' else ''}{_shown(value)}"
    return "nothing is allowed here" if error.validator is None else f"must match {keyword} {_shown(value)}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


def _found(pattern: str, text: str) -> bool | None:
    """None if RE2 cannot decide."""
    compiled = _compiled(pattern)
    return None if compiled is None else compiled.search(text) is not None


def _pattern(validator: Any, pattern: str, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and _found(pattern, instance) is False:
        yield ValidationError("")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, schema in patterns.items():
            for name, value in instance.items():
                if _found(pattern, name):
                    yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    patterns = schema.get("patternProperties", {})
    extras = [
        name
        for name in instance
        if name not in schema.get("properties", {}) and all(_found(pattern, name) is False for pattern in patterns)
    ]
    if validator.is_type(allowed, "object"):
        for name in extras:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extras:
        yield ValidationError(f"has no {', '.join(repr(name[:64]) for name in extras[:20])}")


def _let_be(*_: Any) -> None:
    """Would match names by expressions of the server's, without a bound."""


_SAFE: dict[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}
