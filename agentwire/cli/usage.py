"""Options that stand before the verb they are for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any


def meant(error: Any, words: Sequence[str], program: str) -> str:
    """The command line of ``program`` with its options behind the verb, where one was not known since it stands before
    it. ``error`` is what typer says of ``words``."""
    if type(error).__name__ != "NoSuchOption" or not error.ctx:
        return ""
    ordered = in_order(error.ctx.find_root().command, words)
    return shlex.join((program, *ordered)) if ordered else ""


def in_order(command: Any, words: Sequence[str]) -> list[str] | None:
    """The words of a command line with the options behind the verb that takes them, where they stand before it; None
    where that is not what is wrong. ``command`` is the program, as typer has it."""
    return _in_order(command, words, (), ())


def _in_order(command: Any, words: Sequence[str], path: Sequence[str], before: Sequence[str]) -> list[str] | None:
    for at, word in enumerate(words):
        if word == "--":
            return None
        inner = None if word.startswith("-") else command.get_command(None, word)
        if inner is not None:
            rest, verb = words[at + 1 :], (*path, word)
            if hasattr(inner, "get_command"):
                found = _in_order(inner, rest, verb, before)
            else:
                found = [*verb, *before, *rest] if before and _takes(inner, before) else None
            if found:
                return found
        before = (*before, word)  # the value of an option may be called like a verb
    return None


def _takes(verb: Any, words: Sequence[str]) -> bool:
    """Whether these are options of the verb with their values, and nothing else."""
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
