"""The directory of the daemon: its socket, its log and its sessions.

HOME, however it is spelled, and the user's id alone decide where it is, so that every client finds the same daemon.
Standard library only: every verb needs it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NoReturn

STATE = ".local/state/ai-session"
SOCKET_PATH_LIMIT = 100
"""Bytes; sun_path has 107, and the longest name of another socket in the directory is 6 bytes longer than ``sock``."""


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
    """Yield where the directory may be, best first: in the home, or else in /tmp, the same for all its spellings."""
    if _fits(state := os.path.join(home, STATE)) or _fits(state := os.path.join(_real(home), STATE)):
        yield state
    from hashlib import sha256  # 2 ms, saved by a usable state directory

    yield f"/tmp/ai-session-{uid}-{sha256(os.fsencode(_real(home))).hexdigest()[:8]}"


def _fits(directory: str) -> bool:
    return len(os.fsencode(os.path.join(directory, "sock"))) <= SOCKET_PATH_LIMIT


def _real(home: str) -> str:
    # Joined, because a relative one would depend on the current directory, which may have been removed.
    return os.path.realpath(os.path.join("/", home))


def usable(home: str, uid: int) -> str:
    """Return the first candidate that can be created and written; it is created with mode 0700.

    Raises RuntimeDirectoryUnsafe if an existing one cannot be used although it is the user's: it may hold sessions.
    """
    reasons: list[str] = []
    for directory in candidates(home, uid):
        reason = "not writable"
        try:
            os.makedirs(os.path.dirname(directory), exist_ok=True)
            os.mkdir(directory, 0o700)
        except OSError as error:
            reason = error.strerror or reason
        if is_there(directory, uid) and os.access(directory, os.W_OK | os.X_OK):
            return directory
        reasons.append(f"{directory}: {reason}")
    from ai_session.errors import RuntimeDirectoryUnsafe

    raise RuntimeDirectoryUnsafe(
        f"no runtime directory can be created ({'; '.join(reasons)})",
        suggestion="set HOME to a directory you can write to",
    )


def is_there(directory: str, uid: int) -> bool:
    """Report whether the directory exists. Raises RuntimeDirectoryUnsafe if it is not a real directory of ``uid`` with
    mode 0700: the socket of another user might only pretend to be the daemon's."""
    try:
        found = os.lstat(directory)
    except PermissionError:
        _require_of_others(os.path.dirname(directory), uid)
        return False
    except OSError:
        return False
    mode = stat.S_IMODE(found.st_mode) & 0o777
    if not stat.S_ISDIR(found.st_mode):
        _refuse(directory, "is not a directory")
    if found.st_uid != uid:
        _refuse(directory, f"belongs to uid {found.st_uid}, not {uid}")
    if mode == 0o700:
        return True
    from ai_session.errors import RuntimeDirectoryUnsafe  # 1 ms

    what = "is open to others" if mode & 0o077 else "cannot be used"
    raise RuntimeDirectoryUnsafe(f"{directory} {what} (mode {mode:04o})", suggestion=f"chmod 700 {directory}")


@contextmanager
def refusing_foreign(directory: str) -> Generator[None]:
    """Raise RuntimeDirectoryUnsafe for an OSError that shows that something in the directory is not what belongs there.

    Any other OSError is raised as it is.
    """
    try:
        yield
    except (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
        if not path.startswith(f"{directory}/"):
            raise
        while not os.path.lexists(path):
            path = os.path.dirname(path)
        if os.path.islink(path) and not os.path.exists(path):
            _refuse(path, "is a link that leads nowhere")
        if isinstance(error, FileNotFoundError):
            raise
        _refuse(path, "is a directory" if os.path.isdir(path) else "is not a directory")


def _refuse(path: str, why: str) -> NoReturn:
    from ai_session.errors import RuntimeDirectoryUnsafe  # 1 ms

    raise RuntimeDirectoryUnsafe(f"{path} {why}", suggestion=f"check who made {path}, then remove it") from None


def make_way(directory: str) -> str:
    """Return the path for the daemon's socket, after removing what an earlier daemon left there.

    Raises RuntimeDirectoryUnsafe if something else is there, OSError if it cannot be removed.
    """
    path = os.path.join(directory, "sock")
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:
        if not os.path.isdir(path):
            raise
        _refuse(path, "is a directory")
    return path


def _require_of_others(directory: str, uid: int) -> None:
    """Raise RuntimeDirectoryUnsafe if what cannot be entered on the way to the directory is the user's own."""
    with suppress(PermissionError):
        found = os.lstat(directory)
        if found.st_uid != uid:
            return
        from ai_session.errors import RuntimeDirectoryUnsafe

        mode = stat.S_IMODE(found.st_mode)
        raise RuntimeDirectoryUnsafe(
            f"{directory} cannot be entered (mode {mode:04o})", suggestion=f"chmod u+rwx {directory}"
        )
    _require_of_others(os.path.dirname(directory), uid)
