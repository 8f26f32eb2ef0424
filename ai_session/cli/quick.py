"""Verbs that start often, parsed without typer, whose import takes longer than most of them.

Only lines that are certainly valid are parsed here. All others are left to ``cli``: help, completion, errors.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import NoReturn

from agentwire.cli import ending
from agentwire.cli.lines import read, verb_in
from agentwire.cli.output import EXIT_ERROR
from ai_session import __version__
from ai_session.cli.output import EXIT_EXEC_FAILED, report, write_text
from ai_session.cli.verbs import VERBS
from ai_session.errors import AiSessionError

RUNNING = ("exec", "sandbox")
"""Verbs whose exit code is that of a command; only EXIT_EXEC_FAILED is their own."""


def main(words: Sequence[str]) -> None:
    """Run the verb and exit with its code; return if the line has to be parsed by typer."""
    if list(words) == ["--version"]:
        end(lambda: write_text(__version__ + "\n"), words)
    verb, rest = find(words)
    if verb is not None and (given := read(verb, rest)) is not None:
        end(lambda: verb(**given), words)


def find(words: Sequence[str]) -> tuple[types.FunctionType | None, Sequence[str]]:
    """Return the function of the verb, and the words after it."""
    return verb_in(VERBS[words[0]]() if words and words[0] in VERBS else None, words[1:])


def end(verb: Callable[[], object], words: Sequence[str]) -> NoReturn:
    """Run ``verb``, report its error, and exit with its code."""
    refused = EXIT_EXEC_FAILED if words and words[0] in RUNNING else EXIT_ERROR
    as_json = ending.wants_json(words)
    ending.end(verb, lambda error: report(error, as_json=as_json), AiSessionError, "ai-session doctor", refused=refused)
