"""The output of verbs: tables for people, tabs for pipes, one JSON document for programs; remarks for people only."""

# ruff: noqa: T201
from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from agentwire.visible import visible

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class Leave(Exception):
    """Ends a verb early, with an exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def to_person() -> bool:
    """Report whether standard output is a terminal."""
    return sys.stdout.isatty()


def show_json(value: Any) -> None:
    """Print the one document of ``--json``."""
    print(json.dumps(value, indent=2 if to_person() else None))


def show_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print a table on a terminal; lines of tab-separated values without a heading in a pipe."""
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    if not to_person():
        for line in cells:
            print("\t".join(line))
        return
    from agentwire.cli.table import draw, terminal_width, wants_colour

    headings = [column.replace("_", " ").upper() for column in columns]
    width, coloured = terminal_width(), wants_colour()
    for line in draw(headings, cells, width, coloured=coloured):
        print(line)


def when(at: float) -> str:
    """Return a time for people: how long ago on a terminal, to the second in a pipe; empty for 0."""
    if not at:
        return ""
    if not to_person():
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    from agentwire.cli.table import ago

    return ago(at, time.time())


def show_facts(facts: Mapping[str, Any]) -> None:
    """Print names and values, one per line: aligned on a terminal, separated by a tab in a pipe."""
    flat = {name: _cell(value) for name, value in facts.items()}
    width = max(map(len, flat), default=0)
    for name, value in flat.items():
        print(f"{name.replace('_', ' '):<{width}}  {value}" if to_person() else f"{name}\t{value}")


def say(message: str) -> None:
    """Print a remark on a terminal; a pipe gets only data."""
    if to_person():
        print(message, flush=True)


def remark(message: str) -> None:
    """Print a remark on standard error, such as what to do if there is nothing to show."""
    print(message, file=sys.stderr, flush=True)


def confirm(question: str) -> bool:
    """Ask for a yes and report whether it was given. True without a terminal: there the call itself is the consent."""
    if not (sys.stdin.isatty() and to_person()):
        return True
    import typer

    from agentwire.system import typed_ahead

    typed_ahead.discard(sys.stdin.fileno())
    try:
        return typer.confirm(question)
    except typer.Abort:
        raise KeyboardInterrupt from None


def write_bytes(data: bytes) -> None:
    """Write bytes unchanged, after everything that was printed before."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def leave(code: int) -> NoReturn:
    """End the verb with an exit code."""
    raise Leave(code)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        table: Mapping[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return " ".join(f"{name}={_cell(inner)}" for name, inner in table.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, cast("Sequence[Any]", value)))
    return visible(str(value))
