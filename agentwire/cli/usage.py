"""Options that were typed before the verb they belong to."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any


def meant(error: Any, words: Sequence[str], program: str) -> str:
    """Return the command line of ``program`` with the options after the verb; empty if misplaced options are not the
    problem. ``error`` is typer's error about ``words``."""
    if type(error).__name__ != "NoSuchOption" or not error.ctx:
        return ""
    ordered = in_order(error.ctx.find_root().command, words)
    return shlex.join((program, *ordered)) if ordered else ""


def in_order(command: Any, words: Sequence[str]) -> list[str] | None:
    """Return the words with the options after the verb that accepts them; None if no such order exists or is needed.
    ``command`` is the program's typer command."""
    return _reorder(command, words, (), ())


def _reorder(command: Any, words: Sequence[str], path: Sequence[str], before: Sequence[str]) -> list[str] | None:
    for at, word in enumerate(words):
        if word == "--":
            return None
        inner = None if word.startswith("-") else command.get_command(None, word)
        if inner is not None:
            rest, verb = words[at + 1 :], (*path, word)
            if hasattr(inner, "get_command"):
                found = _reorder(inner, rest, verb, before)
            else:
                found = [*verb, *before, *rest] if before and _accepts(inner, before) else None
            if found:
                return found
        before = (*before, word)  # the value of an option may have the name of a verb
    return None


def _accepts(verb: Any, words: Sequence[str]) -> bool:
    """Report whether the words are only options of the verb, with their values."""
    options = {name: param for param in verb.params for name in (*param.opts, *param.secondary_opts)}
    left = list(words)
    while left:
        name, equals, _ = left.pop(0).partition("=")
        joined = not name.startswith("--") and len(name) > 2  # -cFILE
        param = options.get(name[:2] if joined else name)
        if not name.startswith("-") or param is None:
            return False
        if not param.is_flag and not equals and not joined:
            if not left:
                return False
            left.pop(0)
        elif param.is_flag and (equals or joined):
            return False
    return True
