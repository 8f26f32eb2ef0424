"""How verbs speak: tables for people, tabs for pipes, one JSON document for programs; errors with the next step."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from agentwire.visible import visible
from ai_session.errors import AiSessionError, InvalidArguments

EXIT_ERROR, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_UNAVAILABLE = 1, 2, 3, 4
EXIT_RUNNING, EXIT_EXEC_FAILED, EXIT_INTERRUPTED = 124, 125, 130

EXIT_CODES = (
    "Exit codes: 0 done, 1 error, 2 wrong usage, 3 no such session, command or question, "
    "4 the daemon cannot be reached, 130 Ctrl-C. exec gives the command's own, "
    "124 still running after --timeout, 125 when ai-session itself failed."
)

_BY_ERROR = {
    "invalid_arguments": EXIT_USAGE,
    "session_not_found": EXIT_NOT_FOUND,
    "command_not_found": EXIT_NOT_FOUND,
    "question_not_found": EXIT_NOT_FOUND,
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


class Leave(Exception):
    """Ends a verb that has said all it had to."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


TYPED_AS = {
    "session_id": "SESSION",
    "session": "SESSION",
    "question_id": "ID",
    "name": "NAME",
    "working_directory": "--cwd",
    "shell": "--shell",
    "backend": "--backend",
    "env": "--env",
    "rows": "--rows",
    "cols": "--cols",
    "command": "COMMAND",
    "timeout_seconds": "--timeout",
    "stdin": "standard input",
    "text": "TEXT",
    "keys": "--key",
    "command_id": "--command",
    "tail_lines": "--tail",
}
"""How a person gives what a tool calls by this name."""


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


def say(message: str) -> None:
    """A remark for a person; a pipe gets only data."""
    if to_person():
        print(message)


def remark(message: str) -> None:
    """A remark beside the output, on standard error, such as what to do where there is nothing to show."""
    print(message, file=sys.stderr, flush=True)


def confirm(question: str) -> bool:
    """The person's yes; without a terminal there is nobody to ask, and the caller meant it."""
    if not (sys.stdin.isatty() and to_person()):
        return True
    import typer

    try:
        return typer.confirm(question)
    except typer.Abort:
        raise KeyboardInterrupt from None


def write_raw(data: bytes) -> None:
    """Bytes as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_text(text: str) -> None:
    """Output of a session at once: in a pipe as it is, on a terminal what only draws."""
    write_raw((_harmless(text) if to_person() else text).encode("utf-8", "replace"))


def write_error_text(text: str) -> None:
    """Standard error of a command, as ``write_text``."""
    sys.stderr.flush()
    sys.stderr.buffer.write((_harmless(text) if sys.stderr.isatty() else text).encode("utf-8", "replace"))
    sys.stderr.buffer.flush()


def _harmless(text: str) -> str:
    from ai_session.terminal.filter import harmless  # what it compiles takes longer than what pipes need at all

    return harmless(text)


def report(error: AiSessionError, *, as_json: bool, exit_code: int | None = None) -> int:
    """Tell what went wrong and what to do; the exit code for it."""
    suggestion = _HINTS.get(error.code, error.suggestion)
    message = error.message
    if isinstance(error, InvalidArguments) and error.fields:
        message = "; ".join(f"{TYPED_AS.get(name, name)}: {problem}" for name, problem in error.fields.items())
        suggestion = f"ai-session {' '.join(sys.argv[1:2])} --help"
    if as_json:
        show_json({"error": {"code": error.code, "message": message, "suggestion": suggestion}})
    else:
        remark(f"error: {visible(message)}")
        if suggestion:
            remark(f"hint: {visible(suggestion)}")
    return _BY_ERROR.get(error.code, EXIT_ERROR) if exit_code is None else exit_code


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
    return visible(str(value))
