"""zsh 5 and later. It reads a sourced file piece by piece, so each command file is a new inode."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ai_session.shells.base import (
    ASK,
    BEGUN,
    CommandText,
    Integration,
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

OURS = (
    '&&\\builtin \\trap >|"$__ais_d/out/trap"&&\\builtin \\trap - DEBUG&&\\__ais_debug'
    '&&\\builtin \\trap "$__ais_D" DEBUG||\\builtin \\:'
)
"""The rest of a list that has seen a DEBUG trap of the person's: ours takes its place, and runs it."""
KEEP = f'\\builtin "${{(e)__ais_K}}"{OURS}\n__ais_r=${{__ais_j:+$__ais_r}}\n'
"""The commands that store the status; it is unknown if they fail."""

EVALUATED = re.compile(r"\bset|trap|TRAP|xtrace|verbose")
"""Texts that are not run as lines of their own, because they would change what follows them."""

NEST = 9
"""The least FUNCNEST, in place of one that is too small to run commands."""


class Zsh:
    """zsh, whose ``ZDOTDIR`` leads to our start files; they read the person's with the person's own ``ZDOTDIR``.

    Implements ``Shell``.
    """

    name = "zsh"
    names = ("zsh",)
    line_editor = True
    asks = ASK
    shows_command = True
    needs_visible_group = False
    reads_input = False
    copies_run = True
    exits_late = False
    silenced_by = "a DEBUG trap that returns"
    continues_elsewhere = True
    start_files = (".zshrc", ".zshenv")
    files = 16

    def find(self, wanted: str = "") -> str:
        """Accept a version after the name (``zsh-5.9``)."""
        return find_executable(wanted or "zsh", self.names)

    def install(
        self, directory: Path, nonce: str, *, executable: str, user_rc: bool, login_env: Mapping[str, str]
    ) -> Integration:
        quoted = quote(str(directory))
        script = Path(__file__).with_name("integration.zsh").read_text()
        replace(directory / "integration", script.replace("@DIR@", quoted).replace("@N@", nonce))
        prepare_out(directory)
        before = login_env.get("ZDOTDIR")
        own = "builtin unset ZDOTDIR" if before is None else f"builtin export ZDOTDIR={quote(before)}"
        begin, last = "__ais_n=1", f". {quoted}/integration"
        if not user_rc:
            (directory / ".zshenv").unlink(missing_ok=True)
            replace(directory / ".zshrc", f"{own}\n{begin}\n{last}\n")
            return Integration((executable, "-d", "-i"), {"ZDOTDIR": str(directory)})
        back = [
            "__ais_back() {",
            "  if (( __ais_z )); then ZDOTDIR=$__ais_y; else builtin unset ZDOTDIR; fi",
            f"  if [[ ${{HISTFILE-}} == {quoted}/* ]]; then HISTFILE=${{ZDOTDIR:-$HOME}}/${{HISTFILE:t}}; fi",
            "}",
            # The first file may switch off the reading of the others; the prompt hook then reads the integration.
            f"__ais_late() {{ builtin : ${{(e)__ais_0-}}; if (( $+__ais_n )); then __ais_back; {last}; fi; }}",
            "precmd_functions=(__ais_late)",
        ]
        keep = "__ais_z=$+ZDOTDIR __ais_y=${ZDOTDIR-}"
        first = [own, read_safely(".zshenv"), keep, begin, *back, f"ZDOTDIR={quoted}", ""]
        replace(directory / ".zshenv", "\n".join(first))
        replace(directory / ".zshrc", "\n".join(["__ais_back", read_safely(".zshrc"), last, ""]))
        return Integration((executable, "-i"), {"ZDOTDIR": str(directory)})

    def draws_before_ready(self, version: str) -> bool:
        return False

    def write_command(self, directory: Path, command: CommandText) -> bytes:
        code = command.last_exit_code & 255
        text = command.text + ("\n\n" if command.text.endswith("\\") else "\n")
        text = on_one_line(text + (KEEP if command.sound else ""))
        text += redirections(command)
        title = title_of(command)
        # The line is run as an alias. If the shell does not expand it, the command is given again without one.
        own_line = (
            command.line
            and not command.again
            and not {"x", "v"} & set(command.flags)
            and not EVALUATED.search(command.text)
        )
        if own_line and not (command.stdin_path or command.stderr_path):
            return self._as_line(directory, command, title)
        arguments = f"{command.seq} {0 if 'e' in command.flags else code} {on_one_line(title)}"
        begin = f"\\__ais_b {arguments}||\\builtin \\return 1"
        if "v" in command.flags:
            # A function cannot switch `verbose` off for its caller.
            begin = f"{{ \\__ais_b {arguments}; \\builtin \\set +v; }} 2>/dev/null"
        # Until the text is evaluated, everything is read without aliases, because a reserved word may be one.
        begin = f"__ais_A=${{options[aliases]}}${{${{options[aliases]::=off}}:+}}\n{begin}"
        # An error that ends the whole file leaves no other trace of the status.
        always = f'\\builtin "${{${{__ais_V:+false}}:-${{(e)__ais_K}}}}"{OURS}'
        # After an interrupt nothing else of this file switches tracing on again.
        if "x" in command.flags:
            aborted = "${TRY_BLOCK_ERROR:#0}${TRY_BLOCK_INTERRUPT:#0}"
            always += f"; {{ }} 2>/dev/null${{${{${{:-{aborted}}}:+${{options[xtrace]::=$__ais_X}}}}:+}}"
        aliases = '\\builtin \\: "${${options[aliases]::=${__ais_A:-$options[aliases]}}:+}"'
        # The brace may be no reserved word, and so the command that the first redirection belongs to.
        run = f'{aliases}&&\\builtin \\: {undated(directory, BEGUN)}&&\\builtin \\eval "$__ais_t"{text}'
        run = f"{{ {run}\n}} always {{ {always}; }}"
        end = '\\__ais_e "$__ais_j${${(e)__ais_0}:+}"&&\\builtin \\:'
        if "x" in command.flags or "set" in text or "xtrace" in text:
            end = f"__ais_E=${{options[aliases]}}${{${{options[aliases]::=off}}:+}}\n{end}"
            back = "${${options[aliases]::=$__ais_E}:+}"
            end += f"\nif [[ $__ais_X == on ]]; then {{ }} 2>/dev/null{back}${{${{options[xtrace]::=on}}:+}}"
            end += f"; else {{ }} 2>/dev/null{back}; fi"
        trap = '\\builtin \\eval "$__ais_c"\n' if "trap" in command.text.lower() else ""
        begin += f"\n{known(command)}"
        replace(directory / "c", f"# {one_line(command.header)}\n{begin}\n{run}\n{end}\n{trap}")
        return b""

    def _as_line(self, directory: Path, command: CommandText, title: str) -> bytes:
        status = 0 if "e" in command.flags else command.last_exit_code & 255
        begin = f"\\__ais_b {command.seq} {status} {on_one_line(title)}||\\builtin \\return 1;"
        begin += f"{known(command)};\\builtin \\: {undated(directory, BEGUN)}||\\builtin \\return 1;"
        text = command.line + (" " if command.line.endswith("&") else ";") + KEEP.strip().replace("\n", ";")
        end = '\\__ais_e "$__ais_j${${(e)__ais_0}:+}"&&\\builtin \\:'
        run = f"\\__ais_n {command.seq} {status} {on_one_line(begin)} {on_one_line(f'{text};{end}')} '{title and 1}'"
        replace(directory / "c", f"# {one_line(command.header)}\n{run}\n")
        return b" __ais_run%d\n" % command.seq

    def trigger(self, *, ready: bool, traced: bool = False) -> bytes:
        typed = b' \\. "$__ais_f${(e)__ais_0}"\n' if traced else b' \\. "$__ais_f"\n'
        return b"\x1e" + typed if ready else typed

    def write_probe(self, directory: Path, seq: int, aborted: int | None, number: int) -> bytes:
        return os.fsencode(f"\x1e \\. {probe(directory, seq, aborted, number)}\n")

    def write_line_probe(self, directory: Path, *, status: bool) -> bytes:
        return os.fsencode(f"\x1e \\. {probe(directory, 0, '$?' if status else None)}\n")

    def reintegrate(self, directory: Path, *, restore: bool = False) -> bytes:
        bare = " \\unfunction \\builtin \\. \\source 2>/dev/null; \\enable \\builtin \\. \\source;" if restore else ""
        # Hooks call our functions, which call others.
        bare += f" [[ ${{FUNCNEST:-{NEST}}} == [01] ]]&&FUNCNEST={NEST};" if restore else ""
        # A redirection that finds no free descriptor leaves the shell's three closed or redirected, and a failed write,
        # as to /dev/full or a pipe without a reader, ends a sourced file.
        theirs = "[[ -t {0} || -f /dev/fd/{0} ]]||\\exec {0}<>/dev/tty;"
        opened = "".join(f" {theirs.format(number)}" for number in range(3))
        return os.fsencode(f"\x15{bare}{opened} \\. {quote(str(directory))}/integration\n")

    def strip_trace(self, output: bytes, nonce: str) -> bytes:
        ours = rb"(?:[^\n]*(?:__ais_|builtin |local |emulate |\[\[ |\(\( |" + nonce.encode() + rb")[^\n]*\n)*"
        return re.sub(rb'[^\n]*(?:__ais_e "?(?:\d+|\$)|__ais_[AE]=)[^\n]*\n' + ours + rb"\Z", b"", output)


def known(command: CommandText) -> str:
    """Return a line that continues only if ``command`` is recorded as the one to begin, in variables that hold text."""
    held = f'"$__ais_r,$__ais_j,${{${{(t)__ais_t}}%-export}}" = {command.seq},,scalar'
    return f"\\builtin \\[ {held} ]||\\builtin \\return 1"


def on_one_line(text: str) -> str:
    """Return ``text`` as one word without line ends, which ``csh_junkie_quotes`` does not allow in quotes."""
    return quote(text).replace("\n", "'$'\\n''")


def read_safely(name: str) -> str:
    """Return a line that reads the person's file ``name``; an error in it does not end our own file."""
    path = f'"${{ZDOTDIR:-$HOME}}/{name}"'
    return f"if [[ -r {path} ]]; then {{ . {path} || builtin :; }} always {{ TRY_BLOCK_ERROR=0; }}; fi"


PLUGIN = Zsh()
