"""The user whom this process belongs to."""

from __future__ import annotations

import os
import pwd


def user_name() -> str:
    """Return the user's name; ``uid-`` and the number for a user without one, as in a container."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"
