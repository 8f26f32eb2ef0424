"""The end of every verb: an error is reported, and the process exits with a code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from agentwire.cli.output import EXIT_ERROR, EXIT_INTERRUPTED, Leave, remark
from agentwire.cli.refusals import describe, next_step
from agentwire.errors import CodedError
from agentwire.system import interrupts
from agentwire.visible import visible


def wants_json(words: Sequence[str]) -> bool:
    """Report whether the command line asks for JSON output."""
    return "--json" in words[: words.index("--") if "--" in words else None]


def end(
    verb: Callable[[], object],
    report: Callable[[CodedError], int],
    refusal: type[CodedError],
    doctor: str,
    *,
    refused: int = EXIT_ERROR,
) -> NoReturn:
    """Run ``verb`` and exit with its code, or with the one that ``report`` returns for an error. An OSError is reported
    as a ``refusal`` that suggests ``doctor`` if nothing more specific is known, and exits with ``refused``."""
    code, raised = 0, False
    _open_closed_streams()
    try:
        raised = interrupts.raise_exception()
        verb()
    except Leave as leaving:
        code = leaving.code
    except CodedError as error:
        code = _report_error(report, error)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = refused
    except OSError as error:
        _report_error(report, refusal(describe(error), suggestion=next_step(error, doctor)))
        code = refused
    if raised:
        interrupts.end_process()
    if problem := _output_problem():
        if not isinstance(problem, BrokenPipeError):
            remark(f"error: {describe(problem)}")
        code = code or refused
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open standard streams that the caller closed on /dev/null, so that no other file gets their numbers."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.fstat(number)
                continue
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def _report_error(report: Callable[[CodedError], int], error: CodedError) -> int:
    """Return the result of ``report``. If standard output cannot be written, print the error on standard error."""
    code, problem = EXIT_ERROR, _output_problem()
    if problem is None:
        with suppress(OSError):
            code = report(error)
        problem = _output_problem()
    if problem and not isinstance(problem, BrokenPipeError):
        remark(f"error: {visible(error.message)}")
        if error.suggestion:
            remark(f"hint: {visible(error.suggestion)}")
    return code


def _output_problem() -> OSError | None:
    """Return why standard output cannot be written; it then leads to /dev/null, so that the exit does not retry."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return error
    return None
