"""How an extra of this package is installed where it is missing: beside the program, by what installed that."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

BY_PIPX, BY_UV = "pipx_metadata.json", "uv-receipt.toml"
"""What each leaves in an environment that it has made; neither has to have pip in it."""


def install(extra: str, prefix: str = sys.prefix, executable: str = sys.executable) -> str:
    """The command, which needs no index for what is there already."""
    wanted = f"'ai-session[{extra}]'"
    if (Path(prefix) / BY_PIPX).exists():
        return f"pipx runpip ai-session install {wanted}"
    python = shlex.quote(executable)
    if (Path(prefix) / BY_UV).exists():
        return f"uv pip install --python {python} {wanted}"
    return f"{python} -m pip install {wanted}"
