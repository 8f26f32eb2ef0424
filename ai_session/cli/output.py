"""The exit codes and messages of verbs: the output of sessions, and errors with the next step."""

from __future__ import annotations

import sys

from agentwire.cli.output import EXIT_ERROR, EXIT_USAGE, remark, show_json, to_person, write_bytes
from agentwire.visible import visible
from ai_session.errors import AiSessionError, InvalidArguments

EXIT_NOT_FOUND = 3
EXIT_UNAVAILABLE = 4
EXIT_RUNNING = 124
EXIT_EXEC_FAILED = 125

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
    "session_busy": "ai-session logs -f shows it, ai-session send answers it, ai-session interrupt ends it; or use"
    " another session",
    "session_exited": "ai-session new with its name starts it again where it left off",
    "nothing_running": "ai-session send SESSION -k C-c reaches a program a person started",
    "command_not_found": "ai-session logs SESSION shows all it printed",
    "limit_reached": "ai-session kill ends sessions",
    "integration_lost": "ai-session attach shows what the shell does",
}
"""The next step in terms of verbs, for errors whose suggestion names tools."""


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
"""The argument or option of verbs for each argument of tools."""


def write_text(text: str) -> None:
    """Print output of a session immediately: unchanged in a pipe; on a terminal, only sequences that draw."""
    write_bytes((_harmless(text) if to_person() else text).encode("utf-8", "replace"))


def write_error_text(text: str) -> None:
    """Print a command's standard error, like ``write_text``."""
    sys.stderr.flush()
    sys.stderr.buffer.write((_harmless(text) if sys.stderr.isatty() else text).encode("utf-8", "replace"))
    sys.stderr.buffer.flush()


def _harmless(text: str) -> str:
    from ai_session.terminal.filter import harmless  # compiling its patterns takes longer than all that pipes need

    return harmless(text)


def report(error: AiSessionError, *, as_json: bool, exit_code: int | None = None) -> int:
    """Print the error and its suggestion; return the exit code."""
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
