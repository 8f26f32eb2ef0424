"""What makes a shell complete the verbs, options and arguments of a program."""

from __future__ import annotations

from typer.completion import get_completion_script  # pyright: ignore[reportPrivateImportUsage]

SHELLS = ("bash", "zsh", "fish")


def completion_script(program: str, shell: str) -> str:
    """The script of one of ``SHELLS``, for ``source <(PROGRAM completion SHELL)``."""
    name = program.replace("-", "_")
    script = get_completion_script(prog_name=program, complete_var=f"_{name.upper()}_COMPLETE", shell=shell)
    if shell == "zsh":  # where zsh itself loads the script, the first Tab has been pressed already
        script += f'\n[[ $funcstack[1] != _{program} ]] || _{name}_completion "$@"'
    return script + "\n"
