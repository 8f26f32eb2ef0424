"""Verbs that only read runs, run without the parser's library, whose import takes longer than they do; and the end of
every verb.

Only lines that are clearly valid are read here. Everything else is left to ``cli``: help, completion, mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

from agentwire.cli import ending
from agentwire.cli.lines import read, verb_in
from agentwire.cli.output import Leave
from ccswarm.cli.output import report
from ccswarm.errors import OperatorError, SwarmError

QUICK: dict[str, Callable[[], Any]] = {
    "status": lambda: import_module("ccswarm.cli.runs").status,
    "ps": lambda: import_module("ccswarm.cli.runs").ps,
    "runs": lambda: import_module("ccswarm.cli.runs").app,
    "logs": lambda: import_module("ccswarm.cli.logs").logs,
    "transcript": lambda: import_module("ccswarm.cli.transcript").transcript,
    "result": lambda: import_module("ccswarm.cli.transcript").result,
    "diff": lambda: import_module("ccswarm.cli.diff").diff,
    "approvals": lambda: import_module("ccswarm.cli.approvals").approvals,
}


def main(words: Sequence[str]) -> None:
    """Run the command line and exit with its code; return if it has to be parsed completely."""
    if words and words[0] in QUICK:
        verb, rest = verb_in(QUICK[words[0]](), words[1:])
        if verb is not None and (given := read(verb, rest)) is not None:
            end(lambda: verb(**given), words)


def end(verb: Callable[[], object], words: Sequence[str]) -> NoReturn:
    """Run ``verb``, report its errors, and exit with its code."""

    def run_verb() -> None:
        try:
            verb()
        except (Leave, SwarmError, OSError):
            raise
        except Exception as error:  # a defect: its location is printed too, and programs get their document
            import traceback

            traceback.print_exc()
            raise SwarmError(f"{type(error).__name__}: {error}", suggestion="please report it") from error

    as_json = ending.wants_json(words)
    ending.end(run_verb, lambda error: report(error, as_json=as_json), OperatorError, "ccswarm doctor")
