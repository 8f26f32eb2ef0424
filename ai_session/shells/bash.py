"""bash 4.4 and later. Its command file is rewritten in place, because bash reads a sourced file at once."""

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

SEES_ITSELF = re.compile(r"\b(?:DEBUG|ERR|RETURN|xtrace|eval)\b|\bset\s+-\w*x")
"""Texts that can notice how they are run, or whose errors show it."""

DOCUMENT = re.compile(r"(?<!<)<<(?!<)")
END = '\\__ais_e "${__ais_J:-$?}" "$_" "${PIPESTATUS[@]}"'
KEEP = '__ais_J=$? __ais_y=$_ __ais_Y="${PIPESTATUS[@]}"\n'
"""It has no parenthesis, which bash does not accept there after a nested evaluation that failed."""


class Bash:
    """bash, with no fork and no function call before most commands. Implements ``Shell``."""

    name = "bash"
    names = ("bash",)
    line_editor = True
    asks = ASK
    shows_command = False
    needs_visible_group = False
    reads_input = True
    copies_run = True
    exits_late = False
    silenced_by = "a DEBUG trap that fails under `shopt -s extdebug`"
    continues_elsewhere = False
    start_files = (".bashrc",)
    files = 5

    def find(self, wanted: str = "") -> str:
        """Accept a version after the name (``bash-5.2``)."""
        return find_executable(wanted or "bash", self.names)

    def install(
        self, directory: Path, nonce: str, *, executable: str, user_rc: bool, login_env: Mapping[str, str]
    ) -> Integration:
        """Read the person's start file from our own; bash itself reads the system's bash.bashrc first."""
        quoted = quote(str(directory))
        script = Path(__file__).with_name("integration.bash").read_text()
        write(directory / "integration", script.replace("@DIR@", quoted).replace("@N@", nonce))
        prepare_out(directory)
        env: dict[str, str] = {}
        start = f"{quoted}/integration"
        # A start file that fails halfway ends all of them; the prompt hook then still reads the integration.
        report_exit = f'builtin printf "\\e]7777;{nonce};X;;%s;;;\\a" "$?" >/dev/tty'
        # If a start file made the hook read-only it remains, and must not read the integration again.
        late = f"if [[ ${{__ais_n-}} ]]; then . {start}; fi"
        lines = [
            f"builtin trap {quote(report_exit)} EXIT",
            f"__ais_n=1 PROMPT_COMMAND[7777]={quote(late)}",
        ]
        own = "~/.bashrc"
        if "POSIXLY_CORRECT" in login_env:
            # Then bash ignores --rcfile and reads $ENV, which must not reach the shells started from this one.
            env["ENV"] = str(directory / "rc")
            before = login_env.get("ENV")
            lines.append("unset ENV" if before is None else f"export ENV={quote(before)}")
            own = '"$(builtin eval "builtin printf %s \\"${ENV-}\\"")"'
        if user_rc:
            lines += [f"if [[ -r {own} ]]; then . {own} || builtin :; fi"]
        else:
            # Without the person's HISTFILESIZE bash would cut the person's history to 500 lines.
            lines.append("unset HISTFILE")
        write(directory / "rc", "\n".join([*lines, f". {start}", ""]))
        return Integration((executable, "--rcfile", str(directory / "rc"), "-i"), env)

    def draws_before_ready(self, version: str) -> bool:
        return True

    def write_command(self, directory: Path, command: CommandText) -> bytes:
        flags, code = command.flags, command.last_exit_code & 255
        # eval fails on a text that ends with a backslash.
        text = command.text + ("\n\n" if command.text.endswith("\\") else "\n")
        files = redirections(command)
        title = title_of(command)
        traps = "\\__ais_t" if "trap" in text or "source" in text or ". " in text else ""
        # No reserved word is used where aliases are expanded, because any of them may be an alias.
        lines, more = [f"# {one_line(command.header)}"], b""
        traced = "".join(flag for flag in "xv" if flag in flags)
        begun = f"((__ais_r=={command.seq}))&&{undated(directory, BEGUN)}||__ais_r="
        # If there may be a DEBUG trap, which a file does not run of its own accord.
        trap = '__ais_U=$__ais_V;\\builtin eval "$__ais_V";' if command.as_typed else ""
        after = '&&\\builtin :\n\\builtin [ "$__ais_U" ]&&\\builtin eval "$__ais_G"\n\\__ais_z&&\\builtin :'
        after = after if command.as_typed else ""
        evaluated = quote(text + (KEEP if command.sound and not traced else ""))
        look = ""
        if command.check:
            replace(directory / "text", command.text + "\n")
            errors = f" 2>|{quote(command.stderr_path)}" if command.stderr_path else ""
            look = f"__ais_J= __ais_w={evaluated};\\__ais_look {quote(str(directory))}/text{errors};"
            evaluated, files = '"$__ais_w"', files.replace(" 2>|", " 2>>")
        # If the text must not be evaluated, the guard divides by zero, which ends the line before anything is expanded.
        guarded = f'"${{__ais_z:1/(__ais_r=={command.seq}),__ais_i}}"{evaluated}{files}'
        as_typed = command.as_typed or traced == "x" or SEES_ITSELF.search(text)
        # bash finds no here-document in an alias, and an incomplete text would continue with what is typed.
        if as_typed and command.sound and "v" not in traced and not DOCUMENT.search(text) and not files:
            # The second line ends all of it by a division by zero if the text must not run.
            known = f'\\builtin [ "$__ais_r,$__ais_J,$__ais_z" = {command.seq},, ]'
            begun = f"{known}&&{undated(directory, BEGUN)}||__ais_r="
            begun += f'\n\\builtin : "${{__ais_z:1/(__ais_r=={command.seq})}}"'
            run = f"{command.seq} {code} {quote(title)} '{traced}' '{traps}' {quote(begun)}"
            lines += [
                *(["\\__ais_off" if command.again else "{ \\__ais_off; } 2>/dev/null"] if traced else []),
                f"__ais_c={quote(text)}",
                f'\\__ais_a "$__ais_c" {run}',
            ]
            more = b" __ais_run%d\n" % command.seq
        elif traced:
            status = f"\\__ais_s {code}" if code and "e" not in flags else '\\builtin : "$__ais_z"'
            begin, end = ("", "") if command.again else ("{ ", "; } 2>/dev/null")
            lines += [
                f"{begin}\\__ais_b {command.seq} {quote(title)}{end}",
                f"{begun};{look}{trap}\\builtin eval '{begin}\\builtin set -{traced}$__ais_z; {status}{end};'{guarded}",
                f'\\__ais_e "{"${__ais_J:-$?}" if look else "$?"}" 2>/dev/null{after}',
                traps,
            ]
        else:
            mark = f"'%s\\e]7777;{command.nonce};C;{command.seq};%s\\a' {quote(title)} \"${{EPOCHREALTIME-}}\""
            # As the left side of || a failing status does not end a set -e shell.
            status = f'\\__ais_s {code} "$__ais_y"&&__ais_r=||' if code else '\\builtin : "$__ais_y";'
            private = '\\builtin export -n "${!__ais_@}";' if "a" in flags else ""
            # One list, because a failed assignment ends it; a builtin that a function hides sets nothing.
            names = f"__ais_r= __ais_J= __ais_w=. __ais_o=. __ais_le=0;\\builtin printf -v __ais_r %s {command.seq}"
            free = f'\\builtin [ "$__ais_r,$__ais_J,$__ais_z,$__ais_w,$__ais_o" = {command.seq},,,.,. ]'
            # What gives the text its status is tried before the text counts as begun.
            begun = f"{status.removesuffix('||')};{begun}" if code else begun
            lines += [
                f"{names};{private}{free}&&\\builtin printf {mark} >/dev/tty||__ais_r=",
                f"{begun};{look}{trap}{status}\\builtin eval {guarded}",
                ('\\__ais_e "${__ais_J:-$?}"' if command.sound else END) + after,
                traps,
            ]
        write(f"{directory}/c", "\n".join([*lines, ""]))
        return more

    def trigger(self, *, ready: bool, traced: bool = False) -> bytes:
        typed = b' \\. "${__ais_f:__ais_9}"\n' if traced else b' \\. "$__ais_f"\n'
        return b"\x1e" + typed if ready else typed

    def write_probe(self, directory: Path, seq: int, aborted: int | None, number: int) -> bytes:
        return os.fsencode(f"\x1e \\. {probe(directory, seq, aborted, number)}\n")

    def write_line_probe(self, directory: Path, *, status: bool) -> bytes:
        return os.fsencode(f"\x1e \\. {probe(directory, 0, '$?' if status else None)}\n")

    def reintegrate(self, directory: Path, *, restore: bool = False) -> bytes:
        # In POSIX mode no function hides unset.
        posix = " POSIXLY_CORRECT=1; \\unset -f builtin unset . source enable; \\unset POSIXLY_CORRECT;"
        posix += " \\enable builtin . eval return;"
        # The key comes before the line, because PS0 may end the line.
        key = "\x1b[7777y" if restore else ""
        return os.fsencode(f"{key}\x15{posix if restore else ''} \\. {quote(str(directory))}/integration\n")

    def strip_trace(self, output: bytes, nonce: str) -> bytes:
        ours = rb"(?:[^\n]*(?:__ais_|builtin |local |case \$- in|\[\[ |\(\( |" + nonce.encode() + rb")[^\n]*\n)*"
        # Our DEBUG trap is traced, too.
        output = re.sub(rb"[^\n]*case \$\{FUNCNAME-\}\$BASH_COMMAND in\r?\n\Z", b"", output)
        return re.sub(
            rb'[^\n]*(?:__ais_e "?(?:\d+|\$\?|\$\{__ais_J)|__ais_J=|__ais_p )[^\n]*\n' + ours + rb"\Z", b"", output
        )


def write(path: str | Path, text: str) -> None:
    """Replace the content of the file in place; a new file is readable by its owner only."""
    # Truncating afterwards takes 5 µs, O_TRUNC 7.5 µs.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        data = text.encode("utf-8", "surrogateescape")
        size = len(data)
        while data:
            data = data[os.write(fd, data) :]
        os.ftruncate(fd, size)
    finally:
        os.close(fd)


PLUGIN = Bash()
