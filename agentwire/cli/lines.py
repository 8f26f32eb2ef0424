"""Command lines parsed without typer, by the verb's signature: only those that are certainly valid."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from agentwire.cli.options import Argument, Group, Option

REQUIRED = object()
"""The default of a parameter that has none."""


def verb_in(found: object, words: Sequence[str]) -> tuple[types.FunctionType | None, Sequence[str]]:
    """Return the function that the first ``words`` name in ``found``, unless that is one itself, and the other
    words."""
    rest = words
    while isinstance(found, Group):
        found, rest = found.verbs.get(rest[0]) if rest else None, rest[1:]
    return (found, rest) if isinstance(found, types.FunctionType) else (None, rest)


class Parameter(NamedTuple):
    """One parameter of a verb, as its signature declares it."""

    name: str
    declared: Argument | Option
    kind: Callable[[str], Any]
    several: bool
    default: Any

    def value(self, text: str) -> Any:
        """Return ``text`` as the value for the function. Raises ValueError."""
        value = self.kind(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(text)
        if isinstance(self.declared, Option) and self.declared.least is not None and value < self.declared.least:
            raise ValueError(text)
        return value


def parameters(verb: types.FunctionType) -> list[Parameter]:
    """Return the parameters in a verb's signature. Raises ValueError for a signature that only typer can parse."""
    annotations = get_type_hints(verb, include_extras=True)
    names = verb.__code__.co_varnames[: verb.__code__.co_argcount]
    defaults = verb.__defaults__ or ()
    values = [REQUIRED] * (len(names) - len(defaults)) + list(defaults)
    return [_parameter(name, annotations[name], value) for name, value in zip(names, values, strict=True)]


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    kind, declared = get_args(annotation)
    if not isinstance(declared, Argument | Option):
        raise ValueError(name)
    if get_origin(kind) in (types.UnionType, Union):
        kind = next(each for each in get_args(kind) if each is not types.NoneType)
    several = get_origin(kind) is list
    kind = get_args(kind)[0] if several else kind
    if not isinstance(kind, type):
        raise ValueError(name)
    return Parameter(name, declared, kind, several, default)


def read(verb: types.FunctionType, words: Sequence[str]) -> dict[str, Any] | None:
    """Return the arguments for the function; None for a line that is not certainly valid."""
    try:
        known = parameters(verb)
        options = {name: each for each in known if isinstance(each.declared, Option) for name in each.declared.names}
        given, others = _split(options, words)
        given |= _assign([each for each in known if isinstance(each.declared, Argument)], others)
    except ValueError:
        return None
    given = {each.name: given.get(each.name, each.default) for each in known}
    return None if any(value is REQUIRED for value in given.values()) else given


def _split(options: dict[str, Parameter], words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the values of options, and the other words. Raises ValueError for a word that is an unknown option."""
    given: dict[str, Any] = {}
    others: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return given, others + left
        if word == "-" or not word.startswith("-"):
            others.append(word)
            continue
        name, equals, text = word.partition("=")
        option = options.get(name)
        if option is None or (equals and (option.kind is bool or not name.startswith("--"))):
            raise ValueError(word)
        if option.kind is bool:
            given[option.name] = True
            continue
        if not equals:
            if not left or left[0].startswith("-"):
                raise ValueError(word)
            text = left.pop(0)
        value = option.value(text)
        given[option.name] = [*given.get(option.name, ()), value] if option.several else value
    return given, others


def _assign(arguments: list[Parameter], words: list[str]) -> dict[str, Any]:
    """Assign words in order, the rest to a last argument that accepts several. Raises ValueError for excess words."""
    given: dict[str, Any] = {}
    left = list(words)
    for argument in arguments:
        if argument.several and left:
            given[argument.name], left = [argument.value(word) for word in left], []
        elif left:
            given[argument.name] = argument.value(left.pop(0))
    if left:
        raise ValueError(left[0])
    return given
