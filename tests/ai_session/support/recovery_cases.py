"""Commands after which a session's shell reports nothing, or does not read its input."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lost:
    """A case. ``exit_code`` is the command's, None if it cannot be known; the session continues in ``shell``.

    One that is ``alike`` is of a kind that another shows, of this shell or of one that reports in the same way.
    """

    command: str
    exit_code: int | None = 0
    shell: str = ""
    alike: bool = False


OUTPUT_OFF = "python3 -c 'import termios; termios.tcflow(0, termios.TCOOFF)'"
"""A program that stops its terminal's output and does not resume it."""

OF_SHELL: dict[str, tuple[Lost, ...]] = {
    "bash": (
        Lost("exec bash", None),
        Lost("exec bash -l", None, alike=True),
        Lost("exec zsh", None, "zsh", alike=True),
        Lost("exec dash", None, "dash", alike=True),
        Lost("exec fish", None, "fish"),
        Lost("IFS=1; (exit 101)", 101, alike=True),
        Lost("IFS=0123456789; (exit 21)", 21),
        Lost("enable -n printf; (exit 5)", 5, alike=True),
        Lost("alias builtin=false; (exit 5)", 5, alike=True),
        Lost("builtin() { :; }; (exit 5)", 5),
        Lost("alias .=false; (exit 5)", 5, alike=True),
        Lost(".() { :; }; (exit 5)", 5, alike=True),
        Lost("ulimit -Sn 3; (exit 5)", 5),
        Lost("kill -STOP $$; (exit 5)", 5),
        Lost("suspend; (exit 5)", 5, alike=True),
        Lost("PS0='$(kill -INT $$)'; (exit 5)", 5),
        Lost("unset __ais_f; (exit 5)", 5, alike=True),
        Lost("unset -f __ais_e __ais_p __ais_m", None),
        Lost("bind -r '\\C-^'; (exit 5)", 5),
        Lost("stty kill a erase ' '; (exit 5)", 5, alike=True),
        Lost(f"{OUTPUT_OFF}; (exit 5)", 5),
        Lost('rm -rf "$(dirname "$__ais_f")"; (exit 5)', 5),
        Lost('rm -rf "$(dirname "$__ais_f")/out"; (exit 5)', 5, alike=True),
    ),
    "zsh": (
        Lost("exec zsh", None),
        Lost("exec zsh -i", None, alike=True),
        Lost("exec bash", None, "bash", alike=True),
        Lost("setopt sh_word_split; IFS=0123456789; (exit 21)", 21),
        Lost("disable printf; (exit 5)", 5, alike=True),
        Lost("alias builtin=false; (exit 5)", 5, alike=True),
        Lost("builtin() { :; }; (exit 5)", 5, alike=True),
        Lost("ulimit -Sn 3", alike=True),
        Lost("ulimit -Sn 8; sh -c 'exit 5'", 5),
        Lost("ulimit -Sn 12; (exit 5)", 5, alike=True),
        Lost("kill -STOP $$; (exit 5)", 5, alike=True),
        Lost("exec >/dev/full 2>&1"),
        Lost("FUNCNEST=0", None),
        Lost('rm -rf "$(dirname "$__ais_f")/out"; (exit 5)', 5, alike=True),
        Lost("unfunction __ais_e", None),
    ),
    "dash": (
        Lost("exec dash", None),
        Lost("exec dash -i", None, alike=True),
        Lost("exec bash", None, "bash", alike=True),
        Lost("IFS=0123456789; (exit 21)", 21),
        Lost("alias eval=false; (exit 5)", 5),
        Lost("ulimit -Sn 3; (exit 5)", 5),
        Lost("ulimit -Sn 12; (exit 5)", 5, alike=True),
        Lost("unset -f __ais_e __ais_b __ais_p; (exit 5)", 5),
        Lost('rm -rf "$(dirname "$__ais_f")"; (exit 5)', 5),
        Lost('rm -rf "$(dirname "$__ais_f")/out"; (exit 5)', 5, alike=True),
        Lost("kill -STOP $$; (exit 5)", 5, alike=True),
        Lost(f"{OUTPUT_OFF}; (exit 5)", 5, alike=True),
    ),
    "fish": (
        Lost("exec fish", None),
        Lost("exec bash", None, "bash", alike=True),
        Lost("kill -STOP $fish_pid; sh -c 'exit 5'", 5, alike=True),
        Lost("functions -e __ais_e", None, alike=True),
        Lost("functions -e (functions -a)", None),
        Lost("ulimit -Sn 5"),
        Lost("functions -e __fish_reload_key_bindings; set -g fish_key_bindings fish_vi_key_bindings"),
    ),
    "mksh": (
        Lost("ulimit -Sn 3; (exit 5)", 5, alike=True),
        Lost("ulimit -Sn 12; (exit 5)", 5, alike=True),
        Lost("alias set=: eval=:; (exit 5)", 5),
        Lost("set -n"),
    ),
    "busybox": (
        Lost("ulimit -Sn 3; (exit 5)", 5),
        Lost("ulimit -Sn 12; (exit 5)", 5, alike=True),
    ),
}
