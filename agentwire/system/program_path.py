"""The PATH for programs that run outside of any box, without directories in which agents write.

An activated virtual environment, ``node_modules/.bin`` or the ``bin`` of a project precedes the system's directories,
and anyone who works in the project may put a ``git`` there. Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

MARK_OF_ENVIRONMENT = "pyvenv.cfg"
PACKAGES = "node_modules"


def directories(path: str, written: Iterable[str] = ()) -> str:
    """Return ``path``, a value of PATH, without entries that are relative, belong to a virtual environment or to
    ``node_modules``, or are in one of the ``written`` directories or the current one. ``/``, the home and the
    directories above it do not count as written: no agent gets them, and programs of the person's own are below."""
    homes = {os.path.abspath(home) for home in (os.path.expanduser("~"), "/")}
    homes |= {os.path.realpath(home) for home in homes}
    ours = {form for one in (*written, *_current_directory()) for form in (os.path.abspath(one), os.path.realpath(one))}
    ours = {own for own in ours if not any(_is_below(home, own) for home in homes)}
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if _is_trusted(entry, ours))


def environment(environ: Mapping[str, str], written: Iterable[str] = ()) -> dict[str, str]:
    """Return ``environ`` with such a PATH, or the system's default if nothing is left of it."""
    return {**environ, "PATH": directories(environ.get("PATH", os.defpath), written) or os.defpath}


def _current_directory() -> tuple[str, ...]:
    try:
        return (os.getcwd(),)
    except OSError:  # it was removed
        return ()


def _is_trusted(entry: str, ours: Iterable[str]) -> bool:
    if not os.path.isabs(entry):
        return False
    for form in dict.fromkeys((os.path.abspath(entry), os.path.realpath(entry))):
        if PACKAGES in form.split("/") or os.path.lexists(os.path.join(os.path.dirname(form), MARK_OF_ENVIRONMENT)):
            return False
        if any(_is_below(form, one) for one in ours):
            return False
    return True


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
