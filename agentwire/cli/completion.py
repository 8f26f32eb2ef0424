"""The script with which a shell completes the verbs, options and arguments of a program."""

from __future__ import annotations

from typer.completion import get_completion_script  # pyright: ignore[reportPrivateImportUsage]

SHELLS = ("bash", "zsh", "fish")


def completion_script(program: str, shell: str) -> str:
    """Return the script for one of ``SHELLS``, for use as ``source <(PROGRAM completion SHELL)``."""
    name = program.replace("-", "_")
    script = get_completion_script(prog_name=program, complete_var=f"_{name.upper()}_COMPLETE", shell=shell)
    if shell == "zsh":  # if zsh autoloads the script, that is because of the first Tab, which must be answered
        script += f'\n[[ $funcstack[1] != _{program} ]] || _{name}_completion "$@"'
    return script + "\n"
