"""How every verb ends: what went wrong is reported, and the process exits with a code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from agentwire.cli.output import EXIT_ERROR, EXIT_INTERRUPTED, Leave
from agentwire.cli.refusals import next_step, worded
from agentwire.errors import CodedError
from agentwire.system import interrupts


def wants_json(words: Sequence[str]) -> bool:
    """Whether a program reads what is said."""
    return "--json" in words[: words.index("--") if "--" in words else None]


def end(
    verb: Callable[[], object], report: Callable[[CodedError], int], refusal: type[CodedError], doctor: str
) -> NoReturn:
    """Run ``verb`` and exit with its code, or with the one that ``report`` gives for what went wrong: what the system
    refused as a ``refusal``, for which ``doctor`` looks where nothing else is known to help."""
    code, raised = 0, False
    try:
        raised = interrupts.raise_them()
        verb()
    except Leave as leaving:
        code = leaving.code
    except CodedError as error:
        code = report(error)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = EXIT_ERROR
    except OSError as error:
        code = report(refusal(worded(error), suggestion=next_step(error, doctor)))
    if raised:
        interrupts.end_by_them()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone; nobody is left to tell, and the exit must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = code or EXIT_ERROR
    sys.exit(code)
