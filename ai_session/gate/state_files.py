"""JSON files of the daemon's own state, each with one writer."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write(path: Path, value: Any, *, durable: bool = False) -> None:
    """Replace the file by ``value``, atomically; if ``durable``, it is on the disk afterwards. Raises OSError."""
    temporary = path.with_suffix(".new")
    fd = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "w") as file:
        json.dump(value, file)
        if durable:
            file.flush()
            os.fsync(fd)
    temporary.rename(path)
