"""Checks that the data which references insert into commands stays data.

A plan only knows the names of tools, so an argument's name decides whether it is a command. Text from elsewhere
(outputs, results, a task's text) may be inserted in a command only as a quoted word, and never in a program's text or
typed input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import cast

from ccswarm.config.settings import PlanStep
from ccswarm.errors import PlanInvalid
from ccswarm.models import Json
from ccswarm.plan.references import QUOTED, TOKEN, Reference, as_text, parse, tokens
from ccswarm.plan.shell_text import Location, Spot, locate, move_out_of_quotes

COMMANDS = frozenset({"command", "commands", "cmd", "command_line", "commandline", "shell_command", "script"})
"""The names of arguments whose text a shell reads."""
PROGRAMS = frozenset({"code"})
"""The names of arguments whose text an interpreter reads."""
TYPING = {"send_input": "text"}
"""The tools that type, each with the argument whose line ends and control characters are keys."""

NAMES = {"run.id", "task.id", "task.attempt", "agent.name"}
"""The references whose values consist of letters, digits, -, _ and . only."""
PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")
SHOWN = 400


class Kind(Enum):
    """The reader of an argument's text."""

    SHELL = "a command"
    PROGRAM = "the text of a program"
    TYPED = "typed input"


def problems(step: PlanStep) -> Iterator[str]:
    """Yield the problems of the references in a step's commands, and of quoted references outside of commands. Each
    names its argument. Invalid references are skipped here."""
    for value, name in ((step.when, "when"), (step.for_each, "for_each")):
        for token in tokens(value):
            if token.startswith(QUOTED):
                yield f"{name}: {token} is quoted for a shell, but no shell reads it: write ${{{token[len(QUOTED) :]}"
    typed = TYPING.get(step.tool.partition(".")[2], "")
    for where, text, kind in _texts(step.args, "args", "", typed):
        try:
            found = [(match.span(), parse(match[0])) for match in TOKEN.finditer(text) if not match[1]]
        except PlanInvalid:
            continue
        data = {span: one for span, one in found if _is_data(one, step)}
        if kind is Kind.SHELL:
            yield from (f"{where}: {problem}" for problem in _command_problems(step, text, dict(found), data))
        else:
            advice = "give it as the stdin of a command, or in a file"
            yield from (f"{where}: {one.text} would become part of {kind.value}: {advice}" for one in data.values())


def _texts(value: Json, where: str, key: str, typed: str) -> Iterator[tuple[str, str, Kind]]:
    if isinstance(value, str):
        kind = _kind(key, typed)
        if kind:
            yield where, value, kind
    elif isinstance(value, Mapping):
        for name, item in cast("Mapping[str, Json]", value).items():
            yield from _texts(item, f"{where}.{name}", name, typed)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(cast("Sequence[Json]", value)):
            # A list may be a program and its arguments: an item that is only a reference is not read by a shell.
            if not (isinstance(item, str) and key.lower() != "commands" and _is_reference(item)):
                yield from _texts(item, f"{where}[{number}]", key, typed)


def _kind(key: str, typed: str) -> Kind | None:
    name = key.lower()
    if name in COMMANDS:
        return Kind.SHELL
    if name in PROGRAMS:
        return Kind.PROGRAM
    return Kind.TYPED if typed and key == typed else None


def _is_reference(text: str) -> bool:
    whole = TOKEN.fullmatch(text)
    return bool(whole) and not whole[1]


def _is_data(reference: Reference, step: PlanStep) -> bool:
    """Report whether others than the author of the plan may decide its value."""
    if reference.scope == "item":
        return not _is_literal(step.for_each)
    return reference.text[2:-1] not in NAMES


def _is_literal(for_each: Json) -> bool:
    return isinstance(for_each, (list, tuple)) and not any(tokens(cast("Json", for_each)))


def _command_problems(
    step: PlanStep,
    text: str,
    references: Mapping[tuple[int, int], Reference],
    data: Mapping[tuple[int, int], Reference],
) -> Iterator[str]:
    opaque = _is_literal(step.for_each) and not _is_plain(step.for_each)
    unknown = [start for (start, _), one in references.items() if opaque and one.scope == "item" and not one.quoted]
    locations = {(one.start, one.end): one for one in locate(text, list(references), unknown)}
    checked = {**data, **{span: one for span, one in references.items() if one.quoted}}
    wrong = sorted(span for span, one in checked.items() if not one.quoted or locations[span].spot is not Spot.WORD)
    correction = _correction(text, [(locations[span], checked[span]) for span in wrong])
    for span in wrong:
        reference, spot = checked[span], locations[span]
        if spot.spot is Spot.UNCLEAR:
            why = f"comes after {spot.why}, where shells quote differently: pass it as stdin"
        elif spot.spot is Spot.COMMENT:
            why = "is in a comment, which its first line would end: leave it out"
        elif reference.quoted:
            why = f"is in quotes, where it is not one word{correction}"
        else:
            why = f"would be read as part of the command{correction}"
        yield f"{reference.text} {why}"


def _is_plain(value: Json) -> bool:
    """Report whether no text in it has a special character of the shell."""
    if isinstance(value, Mapping):
        return all(map(_is_plain, cast("Mapping[str, Json]", value).values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, cast("Sequence[Json]", value)))
    return bool(PLAIN.fullmatch(as_text(value)))


def _correction(text: str, wrong: Sequence[tuple[Location, Reference]]) -> str:
    """Return ``: write …`` with the corrected command, if it can be determined."""
    for spot, reference in reversed(wrong):
        written = reference.text if reference.quoted else f"{QUOTED}{reference.text[2:]}"
        corrected = move_out_of_quotes(text, spot, written)
        if corrected is None:
            return f": write {written} outside of quotes"
        text = corrected
    now = [match.span() for match in TOKEN.finditer(text) if not match[1]]
    right = all(one.spot is Spot.WORD for one in locate(text, now))
    return f": write {text}" if right and len(text) <= SHOWN else f": write {QUOTED}…}} outside of quotes"
