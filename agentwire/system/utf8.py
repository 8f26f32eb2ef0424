"""UTF-8 for all text, whatever the locale: files and output are the same everywhere.

Standard library only.
"""

from __future__ import annotations

import os
import sys


def restart_in_utf8() -> None:
    """Restart this program in the same process with UTF-8 as its encoding if the locale has another one.

    Call it before anything is read or opened. It does nothing in a UTF-8 locale, or in the C locale.
    """
    if sys.getfilesystemencoding() != "utf-8" and sys.executable:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
