"""The command that installs a missing extra of this package into the running program's environment."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

BY_PIPX, BY_UV = "pipx_metadata.json", "uv-receipt.toml"
"""The files that these tools leave in an environment they created. Such an environment need not contain pip."""


def install(extra: str, prefix: str = sys.prefix, executable: str = sys.executable) -> str:
    """Return the command for a shell. It needs a package index only for what is not installed yet."""
    wanted = f"'ai-session[{extra}]'"
    if (Path(prefix) / BY_PIPX).exists():
        return f"pipx runpip ai-session install {wanted}"
    python = shlex.quote(executable)
    if (Path(prefix) / BY_UV).exists():
        return f"uv pip install --python {python} {wanted}"
    return f"{python} -m pip install {wanted}"
