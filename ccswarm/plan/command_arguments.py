"""Which arguments of steps are commands, and whether the data that references put into them stays data.

A plan knows tools by their names only, so what an argument is called decides. Text that comes from elsewhere (outputs,
results, what a task says) may stand in a command as a quoted word only, and not at all in program text or in what is
typed.
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
from ccswarm.plan.shell_text import Found, Spot, moved_out, spots

COMMANDS = frozenset({"command", "commands", "cmd", "command_line", "commandline", "shell_command", "script"})
"""Names of arguments whose text a shell reads."""
PROGRAMS = frozenset({"code"})
"""Those whose text an interpreter reads."""
TYPING = {"send_input": "text"}
"""Tools that type, and the argument that says what: a line end or a control character in it is a key."""

NAMES = {"run.id", "task.id", "task.attempt", "agent.name"}
"""Of letters, digits, - _ and . only."""
PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")
SHOWN = 400


class Kind(Enum):
    """What reads the text of an argument."""

    SHELL = "a command"
    PROGRAM = "the text of a program"
    TYPED = "typed input"


def problems(step: PlanStep) -> Iterator[str]:
    """What is wrong with the references in a step's commands, each with its argument; and with quoted ones where there
    is no command. What is no reference at all is not looked at."""
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
            yield from (f"{where}: {problem}" for problem in _of_command(step, text, dict(found), data))
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
            # A list may be a program and its arguments: one that is a reference and nothing else is no shell's.
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
    """Whether others than who wrote the plan may decide what it stands for."""
    if reference.scope == "item":
        return not _is_spelled_out(step.for_each)
    return reference.text[2:-1] not in NAMES


def _is_spelled_out(for_each: Json) -> bool:
    return isinstance(for_each, (list, tuple)) and not any(tokens(cast("Json", for_each)))


def _of_command(
    step: PlanStep,
    text: str,
    references: Mapping[tuple[int, int], Reference],
    data: Mapping[tuple[int, int], Reference],
) -> Iterator[str]:
    opaque = _is_spelled_out(step.for_each) and not _is_plain(step.for_each)
    unknown = [start for (start, _), one in references.items() if opaque and one.scope == "item" and not one.quoted]
    placed = {(one.start, one.end): one for one in spots(text, list(references), unknown)}
    looked_at = {**data, **{span: one for span, one in references.items() if one.quoted}}
    wrong = sorted(span for span, one in looked_at.items() if not one.quoted or placed[span].spot is not Spot.WORD)
    correction = _correction(text, [(placed[span], looked_at[span]) for span in wrong])
    for span in wrong:
        reference, spot = looked_at[span], placed[span]
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
    """Whether no text in it means anything to a shell."""
    if isinstance(value, Mapping):
        return all(map(_is_plain, cast("Mapping[str, Json]", value).values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, cast("Sequence[Json]", value)))
    return bool(PLAIN.fullmatch(as_text(value)))


def _correction(text: str, wrong: Sequence[tuple[Found, Reference]]) -> str:
    """``: write …``, the command as it would be right, where that can be said."""
    for spot, reference in reversed(wrong):
        written = reference.text if reference.quoted else f"{QUOTED}{reference.text[2:]}"
        moved = moved_out(text, spot, written)
        if moved is None:
            return f": write {written} outside of quotes"
        text = moved
    now = [match.span() for match in TOKEN.finditer(text) if not match[1]]
    right = all(one.spot is Spot.WORD for one in spots(text, now))
    return f": write {text}" if right and len(text) <= SHOWN else f": write {QUOTED}…}} outside of quotes"
