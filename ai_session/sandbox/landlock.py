"""A box without namespaces: Landlock for paths and signals, a seccomp filter, limits, and a supervisor.

It cannot protect single paths inside the workspace, mask files, prevent chmod or touch of the user's files outside, or
hide the processes of other users. Needs Linux 6.12 or newer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ai_session.models import SandboxProfile
from ai_session.sandbox import landlock_exec

LEAST_ABI = 6
"""Before ABI 6, a box could signal every process of its user; before 3, it could truncate any file."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/proc", "/sys/devices/system/cpu")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
OPEN_FILES = 4096


def prefix(
    profile: SandboxProfile,
    directory: Path,
    readable: Sequence[str],
    writable: Sequence[str],
    seccomp: bytes,
    env: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Return the words before a command that run it in the box. Writes the files they need into ``directory`` (0700).

    The command's environment is exactly ``env``, plus TERM from its terminal, with these changes: HOME is a private
    directory with links to the readable parts of the real home, TMPDIR and zsh's TMPPREFIX a private one that is
    removed with the box; all in ``directory``. There are no sockets unless the network is ``host``. Raises OSError.
    """
    scratch, home = directory / "tmp", directory / "home"
    for folder in (scratch, home):
        folder.mkdir(mode=0o700, exist_ok=True)
    filter_path = directory / "filter"
    filter_path.write_bytes(seccomp)
    shared = [profile.workspace, *profile.writable] if profile.workspace else [*profile.writable]
    writes = profile.name == "workspace"
    inside = {name: value for name, value in (env or {}).items() if name not in landlock_exec.OF_THE_TERMINAL}
    spec = {
        "filter": str(filter_path),
        "scratch": str(scratch),
        "readable": [*SYSTEM, *_link(profile, home), *profile.readable, *readable, *([] if writes else shared)],
        "writable": [*(shared if writes else []), *writable, str(scratch), str(home)],
        "devices": DEVICES,
        "network": profile.network == "host",
        "env": {**inside, "HOME": str(home), "TMPDIR": str(scratch), "TMPPREFIX": str(scratch / "zsh")},
        "limits": {
            "NPROC": profile.processes,
            "FSIZE": profile.file_bytes,
            "DATA": profile.memory_bytes,
            "NOFILE": OPEN_FILES,
        },
    }
    spec_path = directory / "SPEC.json"
    spec_path.unlink(missing_ok=True)
    spec_path.touch(0o600)
    spec_path.write_text(json.dumps(spec, indent=1))
    return (sys.executable, "-I", "-S", str(Path(landlock_exec.__file__).resolve()), str(spec_path), "--")


def _link(profile: SandboxProfile, home: Path) -> list[str]:
    """Link from the private home to the readable parts of the real one, and return where the links point."""
    linked: list[str] = []
    for name in profile.home_readable if profile.home else ():
        path = os.path.normpath(os.path.join(profile.home, name))
        if not path.startswith(profile.home.rstrip("/") + "/") or not os.path.exists(path):
            continue
        link = home / os.path.relpath(path, profile.home)
        link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(link):
            link.symlink_to(path)
        linked.append(path)
    return linked
