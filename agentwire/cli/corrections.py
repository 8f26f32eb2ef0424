"""Corrections of wrong command lines: the line that was most likely meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

NEAR = 0.75
NO_COMMAND = re.compile(r"No such command '([\w-]+)'")
NOT_ONE_OF = re.compile(r"[Ii]nvalid value for '(--[\w-]+)'[^:]*: '(.*)' is not one of (.*)\.", re.DOTALL)


def nearest(word: str, names: Iterable[str]) -> str:
    """Return the name of which ``word`` is most likely a misspelling; empty if there is none."""
    known = list(names)
    swapped = (name for name in known if sorted(name) == sorted(word))
    return next(swapped, "") or next(iter(get_close_matches(word, known, 1, NEAR)), "")


def corrected(error: Any, words: Sequence[str], program: str, instead: Mapping[str, str]) -> tuple[str, str] | None:
    """Return what is wrong with a line and what to type instead; None if typer's own message, in ``error``, is best.

    ``instead`` maps what other programs call a verb or a first option to the line that does it here; a key for a verb
    of a group, or for an option of a verb, begins with the name of that group or verb.
    """
    path = error.ctx.command_path.split() if getattr(error, "ctx", None) else [program]
    if found := NO_COMMAND.match(error.format_message()):
        return _verb(found[1], words, path, error, instead)
    if type(error).__name__ == "NoSuchOption":
        return _option(error, words, path, instead)
    if type(error).__name__ == "MissingParameter" and (param := getattr(error, "param", None)):
        return _missing(param, path, error.ctx)
    if found := NOT_ONE_OF.search(error.format_message()):
        option, value, choices = found.groups()
        if meant := nearest(value.lower(), re.findall(r"'([^']+)'", choices)):
            return f"{option} is not {value!r}, but one of {choices}", _line([program], _replaced(words, value, meant))
    return None


def _verb(
    word: str, words: Sequence[str], path: Sequence[str], error: Any, instead: Mapping[str, str]
) -> tuple[str, str]:
    group = path[1:]
    problem = f"there is no verb {' '.join([*group, word])!r} here"
    elsewhere = {name.split()[-1]: line for name, line in instead.items() if name.split()[:-1] == group}
    verbs: list[str] = list(error.ctx.command.commands) if getattr(error, "ctx", None) else []
    topic = next(iter(words[len(group) + 1 :]), "")
    if word == "help" and topic in verbs:
        return problem, _line(path, [topic, "--help"])
    if word in elsewhere:
        return problem, elsewhere[word]
    near = nearest(word, [*verbs, *(name for name in elsewhere if not name.startswith("-"))])
    if near in verbs:
        return problem, _line([path[0]], _replaced(words, word, near))
    return problem, elsewhere.get(near) or f"{' '.join(path)} --help"


def _option(
    error: Any, words: Sequence[str], path: Sequence[str], instead: Mapping[str, str]
) -> tuple[str, str] | None:
    name: str = words[0] if len(path) == 1 and words and words[0] in instead else error.option_name
    if line := instead.get(" ".join([*path[1:], name])):
        return f"there is no option {name} here", line
    options = [one[2:] for param in error.ctx.command.params for one in param.opts if one.startswith("--")]
    if name.startswith("--") and (near := nearest(name[2:], [*options, "help"])):
        return f"there is no option {name}", _line([path[0]], _replaced(words, name, f"--{near}"))
    return None


def _missing(param: Any, path: Sequence[str], ctx: Any) -> tuple[str, str]:
    """Return a line with the missing parameter; an option whose help lists its values gets the first of them."""
    verb = " ".join(path)
    if param.param_type_name == "option":
        first, *others = (param.help or "").split(", ")
        more = f", or another of: {', '.join(others)}" if others else ""
        return f"{param.opts[0]} is missing", f"{verb} {param.opts[0]} {first}{more}"
    name = param.make_metavar(ctx).removesuffix("...")
    return (
        f"{name} is missing",
        f"{verb} {' '.join(ctx.command.collect_usage_pieces(ctx)[1:])}; {verb} --help says more",
    )


def _replaced(words: Sequence[str], wrong: str, right: str) -> list[str]:
    """Return the words with the first ``wrong`` one replaced, also in --option=wrong and --wrong=value."""
    for at, word in enumerate(words):
        if word == wrong:
            return [*words[:at], right, *words[at + 1 :]]
        left, equals, value = word.partition("=")
        if equals and wrong in (left, value):
            joined = f"{right}={value}" if left == wrong else f"{left}={right}"
            return [*words[:at], joined, *words[at + 1 :]]
    return list(words)


def _line(program: Sequence[str], words: Sequence[str]) -> str:
    return shlex.join([*program, *words])
