"""dash, busybox, mksh, ksh and every other POSIX shell. They read a sourced file piece by piece, so each command file
is a new inode. Functions are not taken over by a next shell: POSIX cannot list them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from ai_session.errors import ShellUnavailable
from ai_session.shells.base import CommandText, Integration

COMMON = ("bash", "zsh", "fish", "dash", "busybox", "ksh", "mksh", "sh")


class Posix:
    """The shell reads ``$ENV``, which is ours first and reads the person's."""

    name = "posix"
    names = ("sh", "dash", "ash", "busybox", "ksh", "ksh93", "mksh")
    line_editor = False

    def find(self, wanted: str = "") -> str:
        """See ``Shell.find``; a version may follow the name, and busybox stands in for a missing ``ash``."""
        wanted = wanted or "sh"
        name = os.path.basename(wanted)
        if name in self.names or re.sub(r"[-.0-9]+\Z", "", name) in self.names:
            for candidate in (wanted, "busybox") if name == "ash" else (wanted,):
                if found := shutil.which(candidate) or shutil.which(candidate, path=os.defpath):
                    return os.path.abspath(found)
        installed = [name for name in COMMON if shutil.which(name)]
        raise ShellUnavailable(f"no POSIX shell at {wanted!r}", suggestion=f"installed shells: {', '.join(installed)}")

    def install(
        self, directory: Path, nonce: str, *, executable: str, user_rc: bool, login_env: Mapping[str, str]
    ) -> Integration:
        """See ``Shell.install``."""
        quoted = quote(str(directory))
        script = Path(__file__).with_name("integration.sh").read_text()
        for name, value in (("DIR", quoted), ("N", nonce), ("ESC", "\x1b"), ("BEL", "\a"), ("KILL", "\x15")):
            script = script.replace(f"@{name}@", value)
        replace(directory / "integration", script)
        drop_torn_state(directory / "state")
        before = login_env.get("ENV")
        lines = ["unset ENV" if before is None else f"ENV={quote(before)}; export ENV"]
        lines += ["__ais_n=1", f". {quoted}/integration"]
        if user_rc:
            # As the shell itself would: $ENV is expanded; without it the Korn shells have files of their own.
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
            # The shells with a history cannot leave the trigger out of it; busybox would take 20 ms to write each line.
            "unset HISTFILE; HISTFILE=",
            f"if [ -f {quoted}/state ]; then . {quoted}/state 2>/dev/null || :; fi",
            "unset __ais_n; __ais_h; __ais_t; __ais_i",
            "",
        ]
        replace(directory / "rc", "\n".join(lines))
        applet = ("sh",) if os.path.basename(executable) == "busybox" else ()
        return Integration((executable, *applet, "-i"), {"ENV": str(directory / "rc")})

    def write_command(self, directory: Path, command: CommandText) -> None:
        """See ``Shell.write_command``."""
        code = command.last_exit_code & 255
        text = quote(command.text + ("\n\n" if command.text.endswith("\\") else "\n"))
        if command.stdin_path:
            text += f" <{quote(command.stdin_path)}"
        if command.stderr_path:
            text += f" 2>|{quote(command.stderr_path)}"
        title = f"\x1b[A\r\x1b[2K\x1b[2m❯\x1b[22m {one_line(command.title)}\r\n" if command.title else ""
        # As the left side of || a failing status does not end a set -e shell.
        status = f"__ais_s {code}||" if code else ""
        begin = f"{{ __ais_b {command.seq} {0 if 'e' in command.flags else code} {quote(title)}; }} 2>/dev/null"
        run = f'{status}eval "$__ais_t"{text}'
        replace(directory / "c", f"# {one_line(command.header)}\n{begin}\n{run}\n__ais_e $? 2>/dev/null\n")

    def trigger(self, *, ready: bool) -> bytes:
        """See ``Shell.trigger``. ^U clears a half-typed line, by the kernel where the shell has no line editor."""
        return b'\x15 . "$__ais_f"\n'

    def write_probe(self, directory: Path, exit_code: int) -> None:
        """See ``Shell.write_probe``."""
        replace(directory / "c", f"__ais_e {exit_code}\n")

    def reintegrate(self, directory: Path) -> bytes:
        """See ``Shell.reintegrate``."""
        return os.fsencode(f" . {quote(str(directory))}/integration\n")

    def strip_trace(self, output: bytes, nonce: str) -> bytes:
        """See ``Shell.strip_trace``."""
        # mksh traces redirections on lines of their own.
        ours = rb"(?:[^\n]*(?:__ais_|> ?/dev/|" + nonce.encode() + rb")[^\n]*\n)*"
        end = rb"(?:[^\n]* 2>/dev/null *\r?\n)?[^\n]*__ais_e (?:\d+|\$\?)[^\n]*\n"
        return re.sub(end + ours + rb"\Z", b"", output)


def quote(text: str) -> str:
    """``text`` as one word of a POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def one_line(text: str) -> str:
    """``text`` with a blank for every character that is not printable."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def replace(path: Path, text: str) -> None:
    """Put a new file, readable for its owner only, in the place of ``path``."""
    new = path.with_name(path.name + ".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = text.encode("utf-8", "surrogateescape")
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)
    os.rename(new, path)


def drop_torn_state(path: Path) -> None:
    """Remove a saved state whose shell was killed while it wrote."""
    if path.exists() and not path.read_bytes().endswith(b"# end of state\n"):
        path.unlink()


PLUGIN = Posix()
