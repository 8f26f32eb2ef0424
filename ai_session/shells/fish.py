"""fish 3.0 and later. A command file is read whole, then evaluated; each is a new inode."""

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
    replace,
    title_of,
    undated,
)


class Fish:
    """fish, which reads the person's configuration itself and then our integration, its init command.

    Implements ``Shell``.
    """

    name = "fish"
    names = ("fish",)
    line_editor = True
    asks = ASK
    shows_command = False
    needs_visible_group = False
    reads_input = False
    copies_run = False
    exits_late = True
    silenced_by = ""
    continues_elsewhere = True
    start_files = (".config/fish/config.fish",)
    files = 12

    def find(self, wanted: str = "") -> str:
        """Accept a version after the name (``fish-3.6``)."""
        return find_executable(wanted or "fish", self.names)

    def install(
        self, directory: Path, nonce: str, *, executable: str, user_rc: bool, login_env: Mapping[str, str]
    ) -> Integration:
        quoted = quote(str(directory))
        script = Path(__file__).with_name("integration.fish").read_text()
        replace(directory / "integration", script.replace("@DIR@", quoted).replace("@N@", nonce))
        prepare_out(directory)
        begin = [f"set -g __ais_n 1; source {quoted}/integration"]
        if user_rc:
            return Integration((executable, "-i", "--init-command", begin[0]), {})
        # --no-config exists since 3.4; an empty configuration directory has the same effect in every version.
        before = login_env.get("XDG_CONFIG_HOME")
        begin.insert(0, "set -e XDG_CONFIG_HOME" if before is None else f"set -gx XDG_CONFIG_HOME {quote(before)}")
        argv = (executable, "-i", "--private", "--init-command", "; ".join(begin))
        return Integration(argv, {"XDG_CONFIG_HOME": str(directory / "out/config")})

    def draws_before_ready(self, version: str) -> bool:
        return False

    def write_command(self, directory: Path, command: CommandText) -> bytes:
        redirections = f" <{quote(command.stdin_path)}" if command.stdin_path else ""
        redirections += f" 2>{quote(command.stderr_path)}" if command.stderr_path else ""
        # The text is erased once it is read, or a trigger that cannot read would run the last command once more.
        begun = f"builtin set -eg __ais_t\nbuiltin true {undated(directory, BEGUN)}".replace(">|", ">")
        begin = f"__ais_b {command.seq} {quote(title_of(command))}"
        text, before = command.text + ("\n" if command.text.endswith("\\") else ""), ""
        if command.sound:
            text, before = f"{text}\nbuiltin set -g __ais_J $status $pipestatus", "$__ais_P"
        if command.sound and "x" in command.flags:
            run = f"eval $__ais_I{quote(begin)}' '$__ais_L\\n{quote(text)}"
        else:
            run = f"{begin} {command.last_exit_code & 255}\neval {before}{quote(text)}"
        replace(directory / "c", f"# {one_line(command.header)}\n{begun}\n{run}{redirections}\n__ais_e $status\n")
        return b""

    def trigger(self, *, ready: bool, traced: bool = False) -> bytes:
        # The file is not sourced, because `exit` in a sourced file only ends the file.
        typed = b" read -zg __ais_t <$__ais_f; eval $__ais_t\n"
        return b"\x1e" + typed if ready else typed

    def write_probe(self, directory: Path, seq: int, aborted: int | None, number: int) -> bytes:
        return os.fsencode(f"\x1e builtin source {probe(directory, seq, aborted, number)}\n")

    def write_line_probe(self, directory: Path, *, status: bool) -> bytes:
        return os.fsencode(f"\x1e builtin source {probe(directory, 0, '$status' if status else None)}\n")

    def reintegrate(self, directory: Path, *, restore: bool = False) -> bytes:
        """Restore nothing, because no function hides a builtin that is called with ``builtin``."""
        return os.fsencode(f"\x15 builtin source {quote(str(directory))}/integration\n")

    def strip_trace(self, output: bytes, nonce: str) -> bytes:
        ours = rb"(?:[^\n]*(?:__ais_|-> set -l fish_trace|" + nonce.encode() + rb")[^\n]*\n)*"
        return re.sub(
            rb"-*> (?:__ais_e|builtin set -g __ais_J|set -g __ais_J) \d+[^\n]*\n" + ours + rb"\Z", b"", output
        )


def quote(text: str) -> str:
    """Return ``text`` quoted as one word of fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


PLUGIN = Fish()
