"""The output and exit codes of verbs: lines and text, and errors with the next step."""

# ruff: noqa: T201
from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from agentwire.cli.options import Json as Json  # of every verb
from agentwire.cli.output import EXIT_ERROR, EXIT_USAGE, remark, show_json, write_bytes
from agentwire.visible import visible
from ccswarm.errors import SwarmError
from ccswarm.models import RunStatus

EXIT_BLOCKED = 3
EXIT_BUDGET = 4
EXIT_CHANGED = 5

EXIT_CODES = (
    "Exit codes: 0 done, 1 failed, 2 wrong usage, plan or configuration, 3 blocked or waiting for approval, "
    "4 a budget is used up, 5 the configuration has changed and must be approved (ccswarm trust), "
    "130 Ctrl-C (ccswarm resume continues)."
)

_BY_ERROR = {
    **dict.fromkeys(
        (
            *("usage_invalid", "plan_invalid", "config_invalid", "invalid_arguments"),
            *("unknown_tool", "run_not_found", "question_not_found"),
        ),
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
"""Exit codes by the status of a run; 1 for all others."""


def show_json_line(value: Any) -> None:
    """Print one line of a stream of JSON documents and flush it."""
    print(json.dumps(value), flush=True)


def show_line(text: str) -> None:
    """Print one line of data, without control characters, and flush it."""
    print(visible(text), flush=True)


def show_lines(lines: Iterable[str]) -> None:
    """Print lines of data, which may begin with spaces, without control characters."""
    for line in lines:
        print(visible(line.expandtabs(8)))
    sys.stdout.flush()


def show_text(text: str) -> None:
    """Print text unchanged, such as a file's or a program's."""
    write_bytes(text.encode("utf-8", "replace"))


def report(error: SwarmError, *, as_json: bool, exit_code: int | None = None) -> int:
    """Print the error and its suggestion, and return the exit code."""
    if as_json:
        show_json({"error": {"code": error.code, "message": error.message, "suggestion": error.suggestion}})
    else:
        first, *more = error.message.split("; ") if error.code in _LISTED else [error.message]
        remark("\n  ".join((f"error {error.code}: {visible(first)}", *map(visible, more))))
        if error.suggestion:
            remark(f"next: {visible(error.suggestion)}")
    return _BY_ERROR.get(error.code, EXIT_ERROR) if exit_code is None else exit_code
