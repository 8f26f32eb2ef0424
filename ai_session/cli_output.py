"""How verbs speak: tables for people, tabs for pipes, one JSON document for programs; errors with the next step."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NoReturn

import typer

from ai_session.errors import AiSessionError
from ai_session.terminal_filter import harmless
from ai_session.visible import visible

EXIT_ERROR, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_UNAVAILABLE = 1, 2, 3, 4
EXIT_RUNNING, EXIT_EXEC_FAILED, EXIT_INTERRUPTED = 124, 125, 130

EXIT_CODES = (
    "Exit codes: 0 done, 1 error, 2 wrong usage, 3 no such session or command, 4 the daemon cannot be reached, "
    "130 Ctrl-C. exec gives the command's own, 124 still running after --timeout, 125 when ai-session itself failed."
)

_BY_ERROR = {
    "invalid_arguments": EXIT_USAGE,
    "session_not_found": EXIT_NOT_FOUND,
    "command_not_found": EXIT_NOT_FOUND,
    "daemon_unavailable": EXIT_UNAVAILABLE,
    "runtime_directory_unsafe": EXIT_UNAVAILABLE,
}

_HINTS = {
    "session_not_found": "ai-session ls shows them, ai-session new opens one",
    "session_busy": "ai-session logs -f shows it, ai-session interrupt ends it; or use another session",
    "session_exited": "ai-session new with its name starts it again where it left off",
    "session_exists": "use it, or choose another name: ai-session ls",
    "nothing_running": "ai-session send SESSION -k C-c reaches a program a person started",
    "command_not_found": "ai-session logs SESSION shows all it printed",
    "limit_reached": "ai-session kill ends sessions",
    "integration_lost": "ai-session attach shows what the shell does",
}
"""The next step in verbs, where the daemon's suggestion names tools."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def to_person() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def show_json(value: Any) -> None:
    """The one document of ``--json``."""
    print(json.dumps(value, indent=2 if to_person() else None))


def show_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """A table on a terminal; lines of tab-separated values, no heading, in a pipe."""
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    if not to_person():
        for line in cells:
            print("\t".join(line))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " ").upper(), overflow="fold")
    for line in cells:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in line))
    Console().print(table)


def show_facts(facts: Mapping[str, Any]) -> None:
    """Names and values, one a line: aligned on a terminal, with a tab between in a pipe."""
    flat = {name: _cell(value) for name, value in facts.items()}
    width = max(map(len, flat), default=0)
    for name, value in flat.items():
        print(f"{name.replace('_', ' '):<{width}}  {value}" if to_person() else f"{name}\t{value}")


def say(message: str) -> None:
    """A remark for a person; a pipe gets only data."""
    if to_person():
        print(message)


def remark(message: str) -> None:
    """A remark beside the output, on standard error."""
    print(message, file=sys.stderr, flush=True)


def confirm(question: str) -> bool:
    """The person's yes; without a terminal there is nobody to ask, and the caller meant it."""
    return not (sys.stdin.isatty() and to_person()) or typer.confirm(question)


def write_raw(data: bytes) -> None:
    """Bytes as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_text(text: str) -> None:
    """Output of a session at once: in a pipe as it is, on a terminal what only draws."""
    write_raw((harmless(text) if to_person() else text).encode("utf-8", "replace"))


def write_error_text(text: str) -> None:
    """Standard error of a command, as ``write_text``."""
    sys.stderr.flush()
    sys.stderr.buffer.write((harmless(text) if sys.stderr.isatty() else text).encode("utf-8", "replace"))
    sys.stderr.buffer.flush()


def report(error: AiSessionError, *, as_json: bool, exit_code: int | None = None) -> int:
    """Tell what went wrong and what to do; the exit code for it."""
    suggestion = _HINTS.get(error.code, error.suggestion)
    if as_json:
        show_json({"error": {"code": error.code, "message": error.message, "suggestion": suggestion}})
    else:
        remark(f"error: {visible(error.message)}")
        if suggestion:
            remark(f"hint: {visible(suggestion)}")
    return _BY_ERROR.get(error.code, EXIT_ERROR) if exit_code is None else exit_code


def leave(code: int) -> NoReturn:
    """End the verb with an exit code."""
    raise typer.Exit(code)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        table: Mapping[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return " ".join(f"{name}={_cell(inner)}" for name, inner in table.items())
    return visible(str(value))


_STYLES = {
    **dict.fromkeys(("ready", "ok", "installed"), "green"),
    **dict.fromkeys(("running", "waiting_input", "starting", "stopped", "warn"), "yellow"),
    **dict.fromkeys(("exited", "lost", "fail"), "red"),
}
