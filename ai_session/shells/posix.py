"""The shells that read ``$ENV``: dash, busybox, ksh, mksh and others."""

from __future__ import annotations

import os

from ai_session.shells._posix import PosixShell


class Posix(PosixShell):
    """The system's ``sh``, and shells of its kind under their own names."""

    name = "posix"
    names = ("sh", "dash", "ash", "busybox", "ksh", "ksh93", "mksh", "lksh")

    def options(self, executable: str) -> tuple[str, ...]:
        """Return the argument that makes busybox a shell; none for others."""
        return ("sh",) if os.path.basename(executable) == "busybox" else ()


PLUGIN = Posix()
