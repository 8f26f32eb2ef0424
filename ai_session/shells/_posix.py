"""The base of shells that offer no more than POSIX.

They read a sourced file piece by piece, so each command file is a new inode. Functions do not survive a restart of the
shell, because POSIX cannot list them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ai_session.shells.base import (
    BEGUN,
    CommandText,
    Integration,
    checked,
    find_executable,
    one_line,
    prepare_out,
    probe,
    quote,
    redirections,
    replace,
    title_of,
    undated,
)


class PosixShell:
    """A shell that reads ``$ENV``: first our file, which then reads the person's own. Implements ``Shell``.

    Subclasses set ``name`` and ``names``, and override ``options`` if the shell needs arguments.
    """

    name: str
    names: tuple[str, ...]
    line_editor = False
    asks = b""
    shows_command = True
    needs_visible_group = True
    reads_input = True
    copies_run = False
    exits_late = False
    silenced_by = "`set -n`"
    continues_elsewhere = False
    start_files: tuple[str, ...] = ()
    files = 16

    def find(self, wanted: str = "") -> str:
        """Accept a version after the name, and use busybox if ``ash`` is missing."""
        return find_executable(wanted or self.names[0], self.names)

    def install(
        self, directory: Path, nonce: str, *, executable: str, user_rc: bool, login_env: Mapping[str, str]
    ) -> Integration:
        quoted = quote(str(directory))
        script = Path(__file__).with_name("integration.sh").read_text()
        # These shells cannot switch aliases off, and an alias would change what is defined.
        names = " ".join(sorted(set(re.findall(r"__ais_\w+", script))))
        script = f"\\unalias {names} 2>/dev/null\n{script}"
        for name, value in (("DIR", quoted), ("N", nonce), ("ESC", "\x1b"), ("BEL", "\a"), ("KILL", "\x15")):
            script = script.replace(f"@{name}@", value)
        replace(directory / "integration", script)
        prepare_out(directory)
        before = login_env.get("ENV")
        lines = ["unset ENV" if before is None else f"ENV={quote(before)}; export ENV"]
        lines += ["__ais_n=1", f". {quoted}/integration"]
        if user_rc:
            # As the shell itself does: $ENV is expanded; without it the Korn shells read files of their own.
            lines += [
                "case ${ENV-}${KSH_VERSION-} in",
                "*MIRBSD*|*LEGACY*) __ais_q=${ENV:-$HOME/.mkshrc} ;;",
                "*93u*) __ais_q=${ENV:-$HOME/.kshrc} ;;",
                "*) __ais_q=${ENV-} ;;",
                "esac",
                'eval "__ais_q=\\"$__ais_q\\""',
                'if [ -f "$__ais_q" ]; then . "$__ais_q" || :; fi',
            ]
        lines += [
            # The shells with a history cannot exclude the trigger from it; busybox would take 20 ms to write each line.
            "unset HISTFILE; HISTFILE=",
            f"if [ -f {quoted}/out/state ]; then . {quoted}/out/state 2>/dev/null || :; fi",
            'if [ -n "${AI_SESSION_CWD-}" ]; then cd -- "$AI_SESSION_CWD" 2>/dev/null || :; fi',
            "unset __ais_n; __ais_h; __ais_t; __ais_i",
            "",
        ]
        replace(directory / "rc", "\n".join(lines))
        return Integration((executable, *self.options(executable), "-i"), {"ENV": str(directory / "rc")})

    def options(self, executable: str) -> tuple[str, ...]:
        """Return the arguments between the shell's path and ``-i``."""
        return ()

    def draws_before_ready(self, version: str) -> bool:
        """Return False for the shells that report a version: they have a line editor, and print the mark first."""
        return not version

    def write_command(self, directory: Path, command: CommandText) -> bytes:
        code = command.last_exit_code & 255
        text = quote(command.text + ("\n\n" if command.text.endswith("\\") else "\n"))
        limits = "ulimit" in command.text
        text += ('"${__ais_K% 2>*}"' if limits else '"$__ais_K"') if command.sound else ""
        text += redirections(command)
        title = title_of(command)
        status = 0 if "e" in command.flags else code
        begin = f"{{ \\__ais_b {command.seq} {status} {quote(title)}; }} 2>/dev/null||{{ __ais_r=; \\return 1; }}"
        if limits:
            begin = f"__ais_f_=2; {begin}"
        refuse = "__ais_r=; \\return 1"
        # The code around the text is as it was written: no attribute of these variables changes letters or cuts it.
        around = r"*__ais_[cs]\ *,*__ais_J=*2\>/dev/null)"
        begun = f"{command.seq},,{around} {undated(directory, BEGUN)}||{{ {refuse}; }} ;;"
        begin += f"\ncase $__ais_r,$__ais_J,$__ais_t,$__ais_K in {begun} *) {refuse} ;; esac"
        if command.again:
            # If `_` must not change, each command fails after it was carried out, and what follows it is not read.
            begin = f"__ais_r={command.seq} __ais_J= __ais_v=1 __ais_t= __ais_z="
            begin += f"\ncase $(__ais_n {command.seq} {quote(title)} 2>/dev/null),$__ais_t,$__ais_K in"
            begin += f" ok,,*__ais_J=*2\\>/dev/null) {undated(directory, BEGUN)}||__ais_r= ;; *) __ais_r= ;; esac"
        run = checked(directory, command, f'\\eval "$__ais_t"{text}')
        if command.again:
            run = f"case $__ais_r in {command.seq}) {run} ;; esac"
        # If no redirection is possible, it is still known how the text ended.
        end = '__ais_J=${__ais_J:-$?}\n\\__ais_e "$__ais_J"' + ("&&:" if limits else " 2>/dev/null&&:")
        replace(directory / "c", f"# {one_line(command.header)}\n{begin}\n{run}\n{end}\n")
        return b""

    def trigger(self, *, ready: bool, traced: bool = False) -> bytes:
        """Begin with ^U, which clears a half-typed line; without a line editor, the kernel does so."""
        return b'\x15 \\. "$__ais_f"\n'

    def write_probe(self, directory: Path, seq: int, aborted: int | None, number: int) -> bytes:
        return os.fsencode(f"\x15 \\. {probe(directory, seq, aborted, number)}\n")

    def write_line_probe(self, directory: Path, *, status: bool) -> bytes:
        return os.fsencode(f"\x15 \\. {probe(directory, 0, '$?' if status else None)}\n")

    def reintegrate(self, directory: Path, *, restore: bool = False) -> bytes:
        """Restore little, because no function can hide a special builtin of these shells."""
        # mksh executes lines after `set -n`, and nothing else.
        bare = " \\set +n; \\unset -f command printf print stty;" if restore else ""
        return os.fsencode(f"\x15{bare} \\. {quote(str(directory))}/integration\n")

    def strip_trace(self, output: bytes, nonce: str) -> bytes:
        # mksh traces redirections on lines of their own.
        ours = rb"(?:[^\n]*(?:__ais_|> ?/dev/| set (?:[-+]a|\+x)\r?$| -ef \. '?\]|" + nonce.encode() + rb")[^\n]*\n)*"
        end = (
            rb'(?:[^\n]* \d?>/dev/(?:null|tty) *\r?\n)*[^\n]*(?:__ais_[ekp] "?(?:\d+|\$)|__ais_J=|__ais_[aS]\b)[^\n]*\n'
        )
        return re.sub(end + ours + rb"\Z", b"", output, flags=re.MULTILINE)
