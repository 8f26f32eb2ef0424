"""The verb completion: what makes a shell complete verbs, options and sessions."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.completion import get_completion_script  # pyright: ignore[reportPrivateImportUsage]

from ai_session.cli.output import write_text
from ai_session.errors import InvalidArguments


def completion(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print a shell's completion script. Use: source <(ai-session completion bash)"""
    if shell not in ("bash", "zsh", "fish"):
        raise InvalidArguments(f"no completion for {shell!r}", suggestion="use bash, zsh or fish")
    script = get_completion_script(prog_name="ai-session", complete_var="_AI_SESSION_COMPLETE", shell=shell)
    if shell == "zsh":  # where zsh itself loads the script, the first Tab has been pressed already
        script += '\n[[ $funcstack[1] != _ai-session ]] || _ai_session_completion "$@"'
    write_text(script + "\n")
