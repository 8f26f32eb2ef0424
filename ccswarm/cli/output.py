"""How verbs speak: tables for people, tabs for pipes, JSON for programs; errors with the next step."""

# ruff: noqa: T201
from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, cast

from agentwire.cli.options import Json as Json  # of every verb
from agentwire.visible import visible
from ccswarm.errors import SwarmError
from ccswarm.models import RunStatus

EXIT_ERROR, EXIT_USAGE, EXIT_BLOCKED, EXIT_BUDGET, EXIT_CHANGED, EXIT_INTERRUPTED = 1, 2, 3, 4, 5, 130

EXIT_CODES = (
    "Exit codes: 0 done, 1 failed, 2 wrong usage, plan or configuration, 3 blocked or waiting for approval, "
    "4 a budget is used up, 5 the configuration changed and nobody agreed (ccswarm trust), "
    "130 Ctrl-C (ccswarm resume continues)."
)

_BY_ERROR = {
    **dict.fromkeys(
        ("usage_invalid", "plan_invalid", "invalid_arguments", "unknown_tool", "run_not_found", "config_invalid"),
        EXIT_USAGE,
    ),
    **dict.fromkeys(("approval_needed", "conflict", "work_refused"), EXIT_BLOCKED),
    "budget_exhausted": EXIT_BUDGET,
    "config_changed": EXIT_CHANGED,
}

_LISTED = ("plan_invalid", "config_invalid")
"""Errors whose message may name many problems: people get each on a line of its own."""

BY_STATUS = {
    RunStatus.SUCCEEDED: 0,
    RunStatus.BLOCKED: EXIT_BLOCKED,
    RunStatus.WAITING_APPROVAL: EXIT_BLOCKED,
    RunStatus.EXHAUSTED: EXIT_BUDGET,
}
"""Exit codes of what a run came to; 1 for all others."""


class Leave(Exception):
    """Ends a verb that has said all it had to."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def to_person() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def show_json(value: Any) -> None:
    """The one document of ``--json``."""
    print(json.dumps(value, indent=2 if to_person() else None))


def show_json_line(value: Any) -> None:
    """One line of a stream of documents, told at once."""
    print(json.dumps(value), flush=True)


def show_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """A table on a terminal; lines of tab-separated values, no heading, in a pipe."""
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    if not to_person():
        for line in cells:
            print("\t".join(line))
        return
    from agentwire.cli import table as cli_table

    headings = [column.replace("_", " ").upper() for column in columns]
    width, coloured = cli_table.terminal_width(), cli_table.wants_colour()
    for line in cli_table.draw(headings, cells, width, coloured=coloured):
        print(line)


def when(at: float) -> str:
    """A time for people: how long ago on a terminal, to the second in a pipe; empty for never."""
    if not at:
        return ""
    if not to_person():
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    from agentwire.cli import table as cli_table

    return cli_table.ago(at, time.time())


def show_facts(facts: Mapping[str, Any]) -> None:
    """Names and values, one a line: aligned on a terminal, with a tab between in a pipe."""
    flat = {name: _cell(value) for name, value in facts.items()}
    width = max(map(len, flat), default=0)
    for name, value in flat.items():
        print(f"{name.replace('_', ' '):<{width}}  {value}" if to_person() else f"{name}\t{value}")


def show_line(text: str) -> None:
    """One line of data, without control characters, told at once."""
    print(printable(text), flush=True)


def show_lines(lines: Iterable[str]) -> None:
    """Lines of data, which may begin with spaces, each without control characters."""
    for line in lines:
        print(visible(line.expandtabs(8)))
    sys.stdout.flush()


def show_text(text: str) -> None:
    """Text as it is, of a file or a program."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def show_bytes(data: bytes) -> None:
    """Data of a file or a program, for a pipe."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def say(message: str) -> None:
    """A remark for a person; a pipe gets only data."""
    if to_person():
        print(message, flush=True)


def remark(message: str) -> None:
    """A remark beside the output, on standard error, such as what to do where there is nothing to show."""
    print(message, file=sys.stderr, flush=True)


def confirm(question: str) -> bool:
    """The person's yes; without a terminal there is nobody to ask, and the caller meant it."""
    if not (sys.stdin.isatty() and to_person()):
        return True
    import typer

    return typer.confirm(question)


def report(error: SwarmError, *, as_json: bool, exit_code: int | None = None) -> int:
    """Tell what went wrong and what to do; the exit code for it."""
    if as_json:
        show_json({"error": {"code": error.code, "message": error.message, "suggestion": error.suggestion}})
    else:
        first, *more = error.message.split("; ") if error.code in _LISTED else [error.message]
        remark("\n  ".join((f"error {error.code}: {printable(first)}", *map(printable, more))))
        if error.suggestion:
            remark(f"next: {printable(error.suggestion)}")
    return _BY_ERROR.get(error.code, EXIT_ERROR) if exit_code is None else exit_code


def leave(code: int) -> NoReturn:
    """End the verb with an exit code."""
    raise Leave(code)


def printable(text: str) -> str:
    """``text`` on one line, with an escape for what a name or an answer could hide in it or steer a terminal by."""
    return visible(text)


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
    return printable(str(value))
