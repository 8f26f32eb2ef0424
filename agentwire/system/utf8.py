"""UTF-8 for all text, whatever the locale: files and output are the same everywhere.

Standard library only.
"""

from __future__ import annotations

import os
import sys


def restart_in_utf8() -> None:
    """Start this program again in its own process, with texts as UTF-8, if the locale has another encoding.

    Before anything was read or opened; in a UTF-8 locale, and in that of C, nothing happens.
    """
    if sys.getfilesystemencoding() != "utf-8" and sys.executable:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
