"""Ignored and blocked signals, which exec passes on: a script's background job ignores Ctrl-C, and all it starts would.

Standard library only.
"""

from __future__ import annotations

import signal

SETTABLE = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
SET_BY_PYTHON = frozenset((signal.SIGPIPE, signal.SIGXFSZ))
"""The interpreter ignores them for itself; subprocess gives programs the default back."""

NEVER_OF_USE = frozenset((signal.SIGCHLD, signal.SIGTTIN, signal.SIGTTOU))
"""Whoever ignores the first cannot wait for its children; reading a terminal under a handler for the others repeats
for ever, where the default stops."""


def reset() -> None:
    """Every signal at its default and none blocked, for a process that is about to become another program."""
    for number in SETTABLE:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def unblock() -> None:
    """None blocked, and children can be waited for; what else is ignored is passed on."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def keep_from_programs() -> None:
    """Programs that this process starts find every signal at its default and none blocked, whatever it was given
    itself; what it ignores still does nothing to it. For the main thread, before any other is started.

    exec resets what has a handler, so what is ignored gets one that does nothing.
    """
    for number in SETTABLE - SET_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL if number in NEVER_OF_USE else _outlive)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def outlived(number: signal.Signals) -> bool:
    """Whether this process was started to ignore it, as by nohup: then it is not for it to act on."""
    return signal.getsignal(number) in (signal.SIG_IGN, _outlive)


def _outlive(*_: object) -> None: ...
