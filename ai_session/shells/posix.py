"""dash, busybox, mksh, ksh and every other shell that reads ``$ENV``."""

from __future__ import annotations

import os

from ai_session.shells._posix import PosixShell


class Posix(PosixShell):
    """Whatever the system has as ``sh``, and its kind by their own names."""

    name = "posix"
    names = ("sh", "dash", "ash", "busybox", "ksh", "ksh93", "mksh")

    def options(self, executable: str) -> tuple[str, ...]:
        """Busybox is many programs."""
        return ("sh",) if os.path.basename(executable) == "busybox" else ()


PLUGIN = Posix()
