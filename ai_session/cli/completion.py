"""The verb completion: the script with which a shell completes verbs, options and sessions."""

from __future__ import annotations

from typing import Annotated

import typer

from agentwire.cli.completion import SHELLS, completion_script
from ai_session.cli.output import write_text
from ai_session.errors import InvalidArguments


def completion(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print a shell's completion script. Use: source <(ai-session completion bash)"""
    if shell not in SHELLS:
        raise InvalidArguments(f"no completion for {shell!r}", suggestion="use bash, zsh or fish")
    write_text(completion_script("ai-session", shell))
