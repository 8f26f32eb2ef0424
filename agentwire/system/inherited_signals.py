"""Ignored and blocked signals, which exec passes on: a script's background job ignores Ctrl-C, and so does all it
starts.

Standard library only.
"""

from __future__ import annotations

import signal

SETTABLE = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
SET_BY_PYTHON = frozenset((signal.SIGPIPE, signal.SIGXFSZ))
"""Ignored by the interpreter for itself; subprocess restores the default for programs."""

TO_DEFAULT = frozenset((signal.SIGCHLD, signal.SIGTTIN, signal.SIGTTOU))
"""A process that ignores SIGCHLD cannot wait for its children; under a handler for the others, reading a terminal is
retried for ever, while their default stops the process."""


def reset() -> None:
    """Restore the default of every signal and block none, for a process that is about to become another program."""
    for number in SETTABLE:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def unblock() -> None:
    """Block no signal, and restore SIGCHLD so that children can be waited for; other ignored signals remain ignored."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def keep_from_programs() -> None:
    """Make programs that this process starts find every signal at its default and none blocked, whatever this process
    inherited; what it ignores still has no effect on it. Call it in the main thread before any other is started.

    exec resets signals that have a handler, so an ignored one gets a handler that does nothing.
    """
    for number in SETTABLE - SET_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL if number in TO_DEFAULT else _ignore)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def is_ignored(number: signal.Signals) -> bool:
    """Report whether this process was started with the signal ignored, as by nohup: then it must not react to it."""
    return signal.getsignal(number) in (signal.SIG_IGN, _ignore)


def _ignore(*_: object) -> None: ...
