"""The directory of the daemon: its socket, its log and its sessions.

HOME and the user's id alone decide where it is, so that every client finds the same daemon. Standard library only:
every verb needs it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress

SOCKET_PATH_LIMIT = 100
"""Bytes; sun_path has 107, and the longest name of another socket in the directory is 6 bytes longer than ``sock``."""


class Unusable(Exception):
    """A directory is not the user's alone, or cannot be used."""

    def __init__(self, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


def home(environ: Mapping[str, str]) -> str:
    """Return HOME, or the directory in the password database if a client passes none."""
    if named := environ.get("HOME"):
        return named
    from pwd import getpwuid

    try:
        return getpwuid(os.getuid()).pw_dir
    except KeyError:  # a user of a container without an entry
        return "/"


def candidates(home: str, uid: int) -> Iterator[str]:
    """Yield where the directory may be, best first: in the home, or else in /tmp."""
    state = os.path.join(home, ".local/state/ai-session")
    if len(os.fsencode(os.path.join(state, "sock"))) <= SOCKET_PATH_LIMIT:
        yield state
    from hashlib import sha256  # 2 ms, saved by a usable state directory

    yield f"/tmp/ai-session-{uid}-{sha256(os.fsencode(home)).hexdigest()[:8]}"


def usable(home: str, uid: int) -> str:
    """Return the first candidate that can be created and written; it is created with mode 0700.

    Raises Unusable if an existing one cannot be used although it is the user's: it may hold sessions.
    """
    reasons: list[str] = []
    for directory in candidates(home, uid):
        reason = "not writable"
        try:
            os.makedirs(os.path.dirname(directory), exist_ok=True)
            os.mkdir(directory, 0o700)
        except OSError as error:
            reason = error.strerror or reason
        if is_private(directory, uid) and os.access(directory, os.W_OK | os.X_OK):
            return directory
        reasons.append(f"{directory}: {reason}")
    raise Unusable(
        f"no runtime directory can be created ({'; '.join(reasons)})", "set HOME to a directory you can write to"
    )


def is_private(directory: str, uid: int) -> bool:
    """Report whether the directory exists. Raises Unusable if it is not a real directory of ``uid`` with mode 0700: the
    socket of another user might only pretend to be the daemon's."""
    try:
        found = os.lstat(directory)
    except PermissionError:
        _require_of_others(os.path.dirname(directory), uid)
        return False
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode):
        raise Unusable(f"{directory} is not a directory", f"check who made {directory}, then remove it")
    if found.st_uid != uid:
        raise Unusable(
            f"{directory} belongs to uid {found.st_uid}, not {uid}", f"check who made {directory}, then remove it"
        )
    if (mode := stat.S_IMODE(found.st_mode) & 0o777) != 0o700:
        what = "is open to others" if mode & 0o077 else "cannot be used"
        raise Unusable(f"{directory} {what} (mode {mode:04o})", f"chmod 700 {directory}")
    return True


def _require_of_others(directory: str, uid: int) -> None:
    """Raise Unusable if what cannot be entered on the way to the directory is the user's own."""
    with suppress(PermissionError):
        found = os.lstat(directory)
        if found.st_uid == uid:
            mode = stat.S_IMODE(found.st_mode)
            raise Unusable(f"{directory} cannot be entered (mode {mode:04o})", f"chmod u+rwx {directory}")
        return
    _require_of_others(os.path.dirname(directory), uid)
