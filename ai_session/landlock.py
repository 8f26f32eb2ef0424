"""A box without namespaces: Landlock for paths and signals, a seccomp filter, limits, and a supervisor for the tree.

It cannot protect single paths inside the workspace, mask files, stop chmod or touch of files outside that the user
owns, or hide who else runs what. Linux 6.12 or newer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ai_session import landlock_exec
from ai_session.landlock_exec import abi as abi
from ai_session.models import SandboxProfile

LEAST_ABI = 6
"""Before it a box could signal every process of its user; before 3 it could truncate any file."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/proc", "/sys/devices/system/cpu")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
OPEN_FILES = 4096


def prefix(
    profile: SandboxProfile, directory: Path, readable: Sequence[str], writable: Sequence[str], seccomp: bytes
) -> tuple[str, ...]:
    """The words before a command's own that put it in the box; writes what they need into ``directory`` (0700).

    Inside, HOME is a private one that shows what of the real home is readable, and TMPDIR a private directory; both lie
    in ``directory`` and TMPDIR goes with the box. Only the network ``host`` has sockets at all. Raises OSError.
    """
    scratch, home = directory / "tmp", directory / "home"
    for folder in (scratch, home):
        folder.mkdir(mode=0o700, exist_ok=True)
    _link(profile, home)
    workspace = (profile.workspace,) if profile.workspace else ()
    write_workspace = profile.name == "workspace"
    filter_path = directory / "filter"
    filter_path.write_bytes(seccomp)
    spec = {
        "filter": str(filter_path),
        "scratch": str(scratch),
        "readable": [
            *SYSTEM,
            *profile.home_readable,
            *profile.readable,
            *readable,
            *(() if write_workspace else workspace),
        ],
        "writable": [
            *(workspace if write_workspace else ()),
            *(profile.writable if write_workspace else ()),
            *writable,
            str(scratch),
            str(home),
        ],
        "devices": DEVICES,
        "network": profile.network == "host",
        "env": {"HOME": str(home), "TMPDIR": str(scratch)},
        "limits": {
            "NPROC": profile.processes,
            "FSIZE": profile.file_bytes,
            "DATA": profile.memory_bytes,
            "NOFILE": OPEN_FILES,
        },
    }
    spec_path = directory / "SPEC.json"
    spec_path.write_text(json.dumps(spec, indent=1))
    return (sys.executable, "-I", "-S", str(Path(landlock_exec.__file__).resolve()), str(spec_path), "--")


def _link(profile: SandboxProfile, home: Path) -> None:
    """Puts links to what may be read of the real home into the private one."""
    for name in profile.home_readable:
        path = Path(name)
        if profile.home and path.is_relative_to(profile.home) and path != Path(profile.home):
            link = home / path.relative_to(profile.home)
            link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.path.lexists(link):
                link.symlink_to(path)
