"""Command lines read without the parser's library: only those that are plainly right, by the verb's own signature."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from agentwire.cli.options import Argument, Group, Option

REQUIRED = object()
"""The default of a parameter that has none."""


def verb_in(found: object, words: Sequence[str]) -> tuple[types.FunctionType | None, Sequence[str]]:
    """The function that the first of ``words`` name in a group, or ``found`` itself where it is one, and the rest."""
    rest = words
    while isinstance(found, Group):
        found, rest = found.verbs.get(rest[0]) if rest else None, rest[1:]
    return (found, rest) if isinstance(found, types.FunctionType) else (None, rest)


class Parameter(NamedTuple):
    """One parameter of a verb, as its signature declares it."""

    name: str
    said: Argument | Option
    kind: Callable[[str], Any]
    several: bool
    default: Any

    def value(self, text: str) -> Any:
        """What the function takes for ``text``; raises ValueError."""
        value = self.kind(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(text)
        if isinstance(self.said, Option) and self.said.least is not None and value < self.said.least:
            raise ValueError(text)
        return value


def parameters(verb: types.FunctionType) -> list[Parameter]:
    """What a verb takes, from its signature; raises ValueError where that needs typer to be read."""
    annotations = get_type_hints(verb, include_extras=True)
    names = verb.__code__.co_varnames[: verb.__code__.co_argcount]
    defaults = verb.__defaults__ or ()
    values = [REQUIRED] * (len(names) - len(defaults)) + list(defaults)
    return [_parameter(name, annotations[name], value) for name, value in zip(names, values, strict=True)]


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    kind, said = get_args(annotation)
    if not isinstance(said, Argument | Option):
        raise ValueError(name)
    if get_origin(kind) in (types.UnionType, Union):
        kind = next(each for each in get_args(kind) if each is not types.NoneType)
    several = get_origin(kind) is list
    kind = get_args(kind)[0] if several else kind
    if not isinstance(kind, type):
        raise ValueError(name)
    return Parameter(name, said, kind, several, default)


def read(verb: types.FunctionType, words: Sequence[str]) -> dict[str, Any] | None:
    """What the function is called with; None for a line that is not plainly right."""
    try:
        known = parameters(verb)
        options = {name: each for each in known if isinstance(each.said, Option) for name in each.said.names}
        given, others = _sorted(options, words)
        given |= _handed_out([each for each in known if isinstance(each.said, Argument)], others)
    except ValueError:
        return None
    given = {each.name: given.get(each.name, each.default) for each in known}
    return None if any(value is REQUIRED for value in given.values()) else given


def _sorted(options: dict[str, Parameter], words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Values of options, and the other words. Raises ValueError for a word that begins like an option and is none."""
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


def _handed_out(arguments: list[Parameter], words: list[str]) -> dict[str, Any]:
    """Words in order, the rest to the last argument where it takes several; raises ValueError for a word too many."""
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
