"""How every verb ends: what went wrong is reported, and the process exits with a code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from agentwire.cli.output import EXIT_ERROR, EXIT_INTERRUPTED, Leave, remark
from agentwire.cli.refusals import next_step, worded
from agentwire.errors import CodedError
from agentwire.system import interrupts
from agentwire.visible import visible


def wants_json(words: Sequence[str]) -> bool:
    """Whether a program reads what is said."""
    return "--json" in words[: words.index("--") if "--" in words else None]


def end(
    verb: Callable[[], object],
    report: Callable[[CodedError], int],
    refusal: type[CodedError],
    doctor: str,
    *,
    refused: int = EXIT_ERROR,
) -> NoReturn:
    """Run ``verb`` and exit with its code, or with the one that ``report`` gives for what went wrong: what the system
    refused as a ``refusal``, for which ``doctor`` looks where nothing else is known to help, and with ``refused``."""
    code, raised = 0, False
    _open_closed_streams()
    try:
        raised = interrupts.raise_them()
        verb()
    except Leave as leaving:
        code = leaving.code
    except CodedError as error:
        code = _reported(report, error)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = refused
    except OSError as error:
        _reported(report, refusal(worded(error), suggestion=next_step(error, doctor)))
        code = refused
    if raised:
        interrupts.end_by_them()
    if unwritten := _unwritten():
        if not isinstance(unwritten, BrokenPipeError):
            remark(f"error: {worded(unwritten)}")
        code = code or refused
    sys.exit(code)


def _open_closed_streams() -> None:
    """Standard streams that the caller closed lead to nothing, so that no file of ours takes their place."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.fstat(number)
                continue
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def _reported(report: Callable[[CodedError], int], error: CodedError) -> int:
    """What ``report`` gives; where standard output takes no document, what went wrong is said without one."""
    code, unwritten = EXIT_ERROR, _unwritten()
    if unwritten is None:
        with suppress(OSError):
            code = report(error)
        unwritten = _unwritten()
    if unwritten and not isinstance(unwritten, BrokenPipeError):
        remark(f"error: {visible(error.message)}")
        if error.suggestion:
            remark(f"hint: {visible(error.suggestion)}")
    return code


def _unwritten() -> OSError | None:
    """Why standard output takes nothing. From then on it leads nowhere, and the exit does not try again."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return error
    return None
