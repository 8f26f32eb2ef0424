"""Where programs are looked for that run outside of any box: PATH, without the directories in which agents write.

An activated virtual environment, ``node_modules/.bin`` or ``bin`` of a project stands before the system's directories,
and whoever works in the project may put a ``git`` there. Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

MARK_OF_ENVIRONMENT = "pyvenv.cfg"
PACKAGES = "node_modules"


def directories(path: str, written: Iterable[str] = ()) -> str:
    """``path``, a value of PATH, without what is relative, belongs to a virtual environment or to ``node_modules``, or
    lies in one of the ``written`` directories or the current one. Of these ``/`` and such as hold the home do not
    count: no agent is given them, and programs of the person's own lie below."""
    homes = {os.path.abspath(home) for home in (os.path.expanduser("~"), "/")}
    homes |= {os.path.realpath(home) for home in homes}
    ours = {form for one in (*written, *_here()) for form in (os.path.abspath(one), os.path.realpath(one))}
    ours = {own for own in ours if not any(_below(home, own) for home in homes)}
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if _is_apart(entry, ours))


def environment(environ: Mapping[str, str], written: Iterable[str] = ()) -> dict[str, str]:
    """``environ`` with such a PATH; that of the system where nothing is left."""
    return {**environ, "PATH": directories(environ.get("PATH", os.defpath), written) or os.defpath}


def _here() -> tuple[str, ...]:
    try:
        return (os.getcwd(),)
    except OSError:  # it was removed
        return ()


def _is_apart(entry: str, ours: Iterable[str]) -> bool:
    if not os.path.isabs(entry):
        return False
    for form in dict.fromkeys((os.path.abspath(entry), os.path.realpath(entry))):
        if PACKAGES in form.split("/") or os.path.lexists(os.path.join(os.path.dirname(form), MARK_OF_ENVIRONMENT)):
            return False
        if any(_below(form, one) for one in ours):
            return False
    return True


def _below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
