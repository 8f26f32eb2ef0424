"""The users there are in a box of root's: root, and 65,535 others of whom nobody outside is one.

Programs of root's give files to other users: tar what an archive says, package managers and services what they need.
So a box of root's has a user namespace of its own kind. Root in it is root outside, as ever, and every other number
stands for one that no user of the machine has. What a capability is good for in a user namespace ends with the ids in
it, so files of other users, in the workspace or elsewhere, are to root in a box what they were without any.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache

FIRST = 2147352576
"""systemd sets 65,536 ids from here on apart for files that came from other systems. The same in every box, or a file
that was given away in one would be a stranger's in the next."""
COUNT = 65_536
MAP = f"0 0 1\n1 {FIRST + 1} {COUNT - 1}\n"
CAPABILITIES = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER")
UNSHARE = "/usr/bin/unshare"


@cache
def namespace(uid: int) -> int:
    """A descriptor of a user namespace of that kind for boxes of this user's, one for all that a process makes.

    Raises OSError where there can be none. Blocks for 5 ms the first time.
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
