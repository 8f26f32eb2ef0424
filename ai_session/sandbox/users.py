"""The users in a box of root's: root, and 65,535 others that exist nowhere outside.

Programs of root give files to other users: tar to those named in an archive, package managers and services to those
they need. So a box of root's has a user namespace in which root is root outside, and every other id maps to one that no
user of the machine has. A capability in a user namespace applies only to the ids mapped into it, so root in a box has
no more access to files of other users, in the workspace or elsewhere, than without capabilities.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache

FIRST = 2147352576
"""systemd reserves 65,536 ids from here on for files of other systems. It is the same in every box, so that a file
given away in one box has the same owner in the next."""
COUNT = 65_536
MAP = f"0 0 1\n1 {FIRST + 1} {COUNT - 1}\n"
CAPABILITIES = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER")
UNSHARE = "/usr/bin/unshare"


@cache
def namespace(uid: int) -> int:
    """Return a descriptor of that user namespace, one for all boxes this process makes.

    Raises OSError if the namespace cannot be made. Blocks for 5 ms the first time.
    """
    if uid != 0:
        raise PermissionError("only boxes of root have other users")
    with subprocess.Popen(
        (UNSHARE, "--user", "--", "/bin/sh", "-c", "echo && read -r _"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
    ) as helper:
        assert helper.stdout is not None
        if helper.stdout.readline() != b"\n":
            raise PermissionError("no user namespace can be made")
        for kind in ("uid_map", "gid_map"):
            with open(f"/proc/{helper.pid}/{kind}", "w") as table:
                table.write(MAP)
        return os.open(f"/proc/{helper.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
