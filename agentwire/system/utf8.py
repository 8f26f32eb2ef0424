"""Texts as UTF-8, whatever the locale says: files, output and what others read are the same everywhere.

Standard library only.
"""

from __future__ import annotations

import os
import sys


def begin_anew_in_it() -> None:
    """Put this program in its own place with texts as UTF-8, where the locale has another encoding.

    Before anything was read or opened; in a UTF-8 locale, and in that of C, nothing happens.
    """
    if sys.getfilesystemencoding() != "utf-8" and sys.executable:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
