"""Whether a program runs in a session of ai-session: then an agent may have started it, and nobody there can agree to
something for a person.

The evidence is the variable with which ai-session marks the shells of its sessions, here or in the environment that an
ancestor was started with. It keeps an agent from agreeing with the tools it has. It is no wall against a program
outside of any box that sets out to deceive, because that one could edit the records as well. Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

SESSION_VARIABLE = "AI_SESSION_ID"
MOST_ANCESTORS = 64


def in_session(environ: Mapping[str, str], folder: Path = Path("/proc")) -> bool:
    """Whether this process, or one above it, carries the mark. ``folder`` is where processes are shown; where they are
    not (macOS), only ``environ`` counts."""
    return SESSION_VARIABLE in environ or any(_marked(process) for process in _upwards(folder))


def _upwards(folder: Path) -> Iterator[Path]:
    """This process, its parent, and so on, as far as it can be seen."""
    number = os.getpid()
    for _ in range(MOST_ANCESTORS):
        process = folder / str(number)
        yield process
        try:
            # The name of the program is in brackets and may contain anything.
            number = int((process / "stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
        if number <= 0:
            return


def _marked(process: Path) -> bool:
    try:
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:  # of another user: what a person signed in with
        return False
    return any(one.startswith(SESSION_VARIABLE.encode() + b"=") for one in variables)
