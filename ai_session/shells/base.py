"""What a shell must be able to do: start with our marks, take a command from a file, give its state back.

Protocol on the wire (written to the terminal by the integration, read by ``marks``), nonce per session, sequence per
command::

    ESC ] 7777 ; NONCE ; KIND [; FIELDS] BEL
    R;pid;version              the shell is up (end of its rc)
    C;seq;t0                   output of command seq begins after this mark
    D;seq;status;t1;flags;cwd  ... and ends before this one
    P                          a line typed by a person starts to run
    A;seq;status;t;flags;cwd   a prompt is about to be drawn (a seq here means D for a command that was aborted)
    B                          the prompt is drawn and the line editor is ready
    X;seq;status;t;flags;cwd   the shell exits

Only a short trigger is typed; the command's text lies in a file, so nothing is echoed, cut at 4096 bytes or expanded
by history.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ai_session.errors import ShellUnavailable

WHOLE = b"# end of state\n"
"""The last line of a saved state."""

COMMON = ("bash", "zsh", "fish", "dash", "busybox", "ksh", "mksh", "sh")


@dataclass(frozen=True, slots=True)
class Integration:
    """How to start the shell: ``argv[0]`` is an absolute path; ``env`` is added to the session's."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CommandText:
    """One command for the shell.

    ``header`` becomes a comment on the file's first line, read back by an adopting daemon. ``last_exit_code`` and
    ``flags`` come from the latest mark and choose the cheapest prologue that keeps ``$?`` and ``set -x`` right.
    ``title`` (one line, printable) is shown to an attached person in place of the trigger; empty shows nothing.
    """

    seq: int
    text: str
    nonce: str
    header: str = ""
    stdin_path: str = ""
    stderr_path: str = ""
    last_exit_code: int = 0
    flags: str = ""
    title: str = ""


class Shell(Protocol):
    """One shell family. Stateless: everything about a session comes in as arguments."""

    name: str
    names: tuple[str, ...]
    """Names of the executables it drives, the last part of ``$SHELL`` or of what a caller asks for."""
    line_editor: bool
    """True when PromptReady marks are sent, so that a half-typed line can be cleared before the trigger."""

    def find(self, wanted: str = "") -> str:
        """Absolute path of the executable (``wanted`` may name one, e.g. ``/bin/dash``); raises ShellUnavailable."""
        ...

    def install(
        self, directory: Path, nonce: str, *, executable: str, user_rc: bool, login_env: Mapping[str, str]
    ) -> Integration:
        """Write the integration into ``directory`` (private, 0700) and say how to start the shell.

        The shell itself writes only below ``directory/out``. With ``user_rc`` the person's own start files are read
        first. If ``out/state`` exists (left by an exit), directory, exports, functions and aliases are restored.
        """
        ...

    def write_command(self, directory: Path, command: CommandText) -> None:
        """Put the command file in place so that a shell reading the previous one is not disturbed."""
        ...

    def trigger(self, *, ready: bool) -> bytes:
        """What to type. ``ready``: the line editor was seen ready, so a half-typed human line is cleared first."""
        ...

    def write_probe(self, directory: Path, exit_code: int) -> None:
        """Put a command file that only reports the end of an aborted command."""
        ...

    def reintegrate(self, directory: Path) -> bytes:
        """What to type into a bare shell of the same kind (after ``exec bash``) to get the marks back."""
        ...

    def strip_trace(self, output: bytes, nonce: str) -> bytes:
        """``output`` without the trace lines of our own trailer that ``set -x`` in the command itself caused."""
        ...


def find_executable(wanted: str, names: tuple[str, ...]) -> str:
    """Absolute path of ``wanted`` (a name or path; a version may follow: ``bash-5.2``) if it is one of ``names``.

    busybox stands in for a missing ``ash``. Raises ShellUnavailable naming what is installed.
    """
    name = os.path.basename(wanted)
    if name in names or re.sub(r"[-.0-9]+\Z", "", name) in names:
        for candidate in (wanted, "busybox") if name == "ash" else (wanted,):
            if found := shutil.which(candidate) or shutil.which(candidate, path=os.defpath):
                return os.path.abspath(found)
    installed = [name for name in COMMON if shutil.which(name)]
    raise ShellUnavailable(f"no {names[0]} at {wanted!r}", suggestion=f"installed shells: {', '.join(installed)}")


def quote(text: str) -> str:
    """``text`` as one word of a POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def one_line(text: str) -> str:
    """``text`` with a blank for every character that is not printable."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def title_of(command: CommandText) -> str:
    """What a person sees in place of the trigger; nothing without a title."""
    return f"\x1b[A\r\x1b[2K\x1b[2m❯\x1b[22m {one_line(command.title)}\r\n" if command.title else ""


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


def prepare_out(directory: Path) -> None:
    """Make the part that the shell writes to, ``directory/out``, and drop a saved state whose shell was killed while
    it wrote. A boxed shell may have put anything there: links and pipes are not followed or waited for."""
    path = directory / "out" / "state"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError:
        whole = False
    else:
        with open(fd, "rb"):
            info = os.fstat(fd)
            whole = stat.S_ISREG(info.st_mode) and os.pread(fd, len(WHOLE), max(0, info.st_size - len(WHOLE))) == WHOLE
    if not whole:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
