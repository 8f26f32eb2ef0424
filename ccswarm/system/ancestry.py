"""Whether a program runs in a session of ai-session, where an agent may have started it and no person can consent.

The evidence is the variable with which ai-session marks the shells of its sessions, in this process's environment or
the one an ancestor was started with. It keeps an agent from consenting with its own tools. It does not stop a program
outside of any box that sets out to deceive: that one could edit the records as well. Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

SESSION_VARIABLE = "AI_SESSION_ID"
MOST_ANCESTORS = 64


def in_session(environ: Mapping[str, str], folder: Path = Path("/proc")) -> bool:
    """Report whether this process or one of its ancestors carries the mark. ``folder`` is the process file system;
    where there is none (macOS), only ``environ`` counts."""
    return SESSION_VARIABLE in environ or any(_marked(process) for process in _ancestors(folder))


def _ancestors(folder: Path) -> Iterator[Path]:
    number = os.getpid()
    for _ in range(MOST_ANCESTORS):
        process = folder / str(number)
        yield process
        try:
            # The program's name is in parentheses and may contain anything.
            number = int((process / "stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
        if number <= 0:
            return


def _marked(process: Path) -> bool:
    try:
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it belongs to another user, such as a login program
        return False
    return any(one.startswith(SESSION_VARIABLE.encode() + b"=") for one in variables)
