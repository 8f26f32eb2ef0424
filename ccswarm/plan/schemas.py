"""Validation by a tool's input schema as its server wrote it, possibly wrong, endless or hostile. Uses no network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, cast

import re2 as _re2  # pyright: ignore[reportMissingTypeStubs]
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend, validator_for  # pyright: ignore[reportUnknownVariableType]
from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs]

re2 = cast("Any", _re2)

MOST_PROBLEMS = 20

MOST_STEPS = 10_000
"""The number of keywords evaluated in one check at most, 0.05 to 0.5 s: a few lines of schema can require billions."""

UNKNOWN: Any = object()
"""Stands in arguments for a value that is not known yet. It, and what depends on it, counts as valid."""

TEXT: Any = object()
"""Stands for a text that is not known yet."""

_SHOWN_CHARS = 120
_MESSAGE_CHARS = 4000
_NAMES_ONLY = frozenset({"required", "additionalProperties", "unevaluatedProperties", "dependentRequired"})
"""Keywords whose messages contain names of properties, and no values."""

_UNDECIDED = frozenset({"not", "disallow", "if", "enum", "const", "contains", "uniqueItems"}) | {
    "unevaluatedItems",
    "unevaluatedProperties",
}
"""Keywords by which an object or a list may be valid or not depending on one value in it."""

_FOR_TEXT = frozenset({"type", "anyOf", "allOf", "oneOf", "$ref", "$dynamicRef"})
"""Keywords by which a text may be invalid whatever it says."""

Keyword = Callable[..., Iterator[ValidationError] | None]


class _TooManySteps(Exception):
    """The check exceeds ``MOST_STEPS``."""


class Schema:
    """A schema compiled once, for the draft it names, else for 2020-12. If it cannot be used, ``unusable`` says why,
    and nothing is checked: the server checks too. Regular expressions are RE2's; any other is left to the server."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.unusable = ""
        self._steps = 0
        self._partial = False
        try:
            draft: Any = validator_for(schema, default=Draft202012Validator)
            draft.check_schema(schema, format_checker=None)
            known: dict[str, Keyword] = draft.VALIDATORS
            ours = {name: keyword for name, keyword in _SAFE.items() if name in known}
            if "patternProperties" in (text := json.dumps(schema)) and '"unevaluated' in text:
                ours |= {"unevaluatedProperties": _unchecked, "unevaluatedItems": _unchecked}
            keywords = {name: self._counted(name, keyword, known) for name, keyword in {**known, **ours}.items()}
            types = draft.TYPE_CHECKER.redefine("number", _is_number)
            self._validator: Any = cast("Any", extend(draft, keywords, type_checker=types))(schema, registry=REGISTRY)
        except Exception as error:  # anything may be wrong with a foreign schema
            self._fail(error)

    def problem(self, arguments: Mapping[str, Any]) -> str:
        """Return what is wrong with ``arguments``, with positions and none of the values; ``""`` if nothing is."""
        return "; ".join(self.problems(arguments))[:_MESSAGE_CHARS]

    def problems(self, arguments: Mapping[str, Any], *, partial: bool = False) -> list[str]:
        """Return the same as a list. If ``partial``, some values may be ``UNKNOWN`` or ``TEXT``."""
        if self.unusable:
            return []
        self._steps, self._partial = 0, partial
        try:
            found = sorted({_describe(error) for error in self._validator.iter_errors(dict(arguments))})
        except _TooManySteps:
            return []
        except Exception as error:  # references that lead nowhere, or in circles
            self._fail(error)
            return []
        if len(found) > MOST_PROBLEMS:
            found[MOST_PROBLEMS:] = [f"and {len(found) - MOST_PROBLEMS} more"]
        return found

    def _fail(self, error: Exception) -> None:
        words = str(getattr(error, "message", "") or error)[:_SHOWN_CHARS]
        self.unusable = f"its input schema cannot be used ({type(error).__name__}: {words}): arguments are not checked"

    def _counted(self, name: str, keyword: Keyword, known: Mapping[str, Keyword]) -> Keyword:
        def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise _TooManySteps
            chosen = keyword
            if self._partial and (name in _UNDECIDED or name == "oneOf") and has_unknown(instance):
                if name != "oneOf":
                    return None
                chosen = known["anyOf"]  # which of them match may change, and not that none does
            if instance is UNKNOWN or (instance is TEXT and name not in _FOR_TEXT):
                return None
            return chosen(validator, value, "" if instance is TEXT and name == "type" else instance, schema)

        return counted


def has_unknown(value: Any) -> bool:
    """Report whether ``UNKNOWN`` or ``TEXT`` is in the value."""
    if isinstance(value, Mapping):
        return any(map(has_unknown, cast("Mapping[str, Any]", value).values()))
    return any(map(has_unknown, cast("list[Any]", value))) if isinstance(value, list) else value in (UNKNOWN, TEXT)


def _is_number(_: Any, value: Any) -> bool:
    """Report whether JSON has the number, as it has no infinite ones."""
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


@lru_cache(maxsize=64)
def compiled(schema: str) -> Schema:
    """Return the Schema of this JSON text."""
    return Schema(json.loads(schema))


def _describe(error: Any) -> str:
    return f"{error.json_path[:200]}: {_requirement(error)}"


def _requirement(error: Any) -> str:
    keyword, value = str(error.validator), error.validator_value
    if keyword in _NAMES_ONLY:
        return str(error.message)[:1000]
    if keyword == "type":
        return f"must be {' or '.join([value] if isinstance(value, str) else value)}"
    if keyword in ("anyOf", "oneOf"):
        if not error.context:
            return "matches more than one of the alternatives"
        return "matches none of these: " + " | ".join(dict.fromkeys(_describe(each) for each in error.context[:8]))
    if keyword in ("enum", "const"):
        return f"must be {'one of ' if keyword == 'enum' else ''}{_abbreviated(value)}"
    return "nothing is allowed here" if error.validator is None else f"must match {keyword} {_abbreviated(value)}"


def _abbreviated(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


def _matches(pattern: str, text: str) -> bool | None:
    """Report whether the pattern occurs in ``text``; None if RE2 cannot compile it."""
    compiled = _compile(pattern)
    return None if compiled is None else compiled.search(text) is not None


def _pattern(validator: Any, pattern: str, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and _matches(pattern, instance) is False:
        yield ValidationError("")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, schema in patterns.items():
            for name, value in instance.items():
                if _matches(pattern, name):
                    yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    patterns = schema.get("patternProperties", {})
    extras = [
        name
        for name in instance
        if name not in schema.get("properties", {}) and all(_matches(pattern, name) is False for pattern in patterns)
    ]
    if validator.is_type(allowed, "object"):
        for name in extras:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extras:
        yield ValidationError(f"has no {', '.join(repr(name[:64]) for name in extras[:20])}")


def _unchecked(*_: Any) -> None:
    """Check nothing: this would match names by the server's own expressions, without a bound."""


_SAFE: dict[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}
