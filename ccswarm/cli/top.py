"""The verb top: runs, questions and terminals on one screen, which ai-session draws."""

from __future__ import annotations

import os
import sys
from shutil import which

from agentwire.cli.options import Json
from agentwire.system import program_path
from ccswarm.config import config as files
from ccswarm.errors import ServerUnavailable


def top(as_json: Json = False) -> None:
    """Watch runs, questions and terminals on one screen.

    This is `ai-session top`, which requests the runs from this program. Piped, or with --json, it prints the current
    state once.
    """
    program = which("ai-session", path=os.path.dirname(sys.executable)) or which(
        "ai-session", path=program_path.environment(files.server_environment())["PATH"]
    )
    if program is None:
        raise ServerUnavailable("ai-session, which draws it, is not installed here", suggestion="ccswarm ps")
    os.execv(program, [program, "top", *(["--json"] if as_json else [])])
