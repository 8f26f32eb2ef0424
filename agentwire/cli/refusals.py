"""Messages and suggestions for an OSError that no verb expects."""

from __future__ import annotations

import errno
import os

_STEPS = {
    errno.ENOSPC: "free disk space",
    errno.EDQUOT: "free disk space, or have your quota raised",
    errno.EROFS: "use a directory that can be written, or mount its file system writable",
}


def describe(error: OSError) -> str:
    """Return the file, if the error names one, and what is wrong."""
    if _directory_removed(error):
        return "the directory you are in no longer exists"
    what = error.strerror or str(error)
    return f"{os.fsdecode(error.filename)}: {what}" if isinstance(error.filename, str | bytes) else what


def next_step(error: OSError, otherwise: str) -> str:
    """Return what helps against the error; ``otherwise`` if nothing is known that does."""
    return "cd" if _directory_removed(error) else _STEPS.get(error.errno or 0, otherwise)


def _directory_removed(error: OSError) -> bool:
    """Report whether the current directory was removed; the system reports that for every relative name."""
    if error.errno != errno.ENOENT:
        return False
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    except OSError:
        pass
    return False
