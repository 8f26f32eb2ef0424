"""What the system refused, as a verb says it: an OSError that nobody foresaw, in words, with what to do."""

from __future__ import annotations

import errno
import os

_STEPS = {
    errno.ENOSPC: "free disk space",
    errno.EDQUOT: "free disk space, or have your quota raised",
    errno.EROFS: "use a directory that can be written, or mount its file system writable",
}


def worded(error: OSError) -> str:
    """The file, where there is one, and what is wrong with it."""
    if _directory_gone(error):
        return "the directory you are in no longer exists"
    what = error.strerror or str(error)
    return f"{os.fsdecode(error.filename)}: {what}" if isinstance(error.filename, str | bytes) else what


def next_step(error: OSError, otherwise: str) -> str:
    """What helps against it; ``otherwise`` where nothing is known that does."""
    return "cd" if _directory_gone(error) else _STEPS.get(error.errno or 0, otherwise)


def _directory_gone(error: OSError) -> bool:
    """Whether relative names have no meaning, which the system says of each of them in turn."""
    if error.errno != errno.ENOENT:
        return False
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    except OSError:
        pass
    return False
