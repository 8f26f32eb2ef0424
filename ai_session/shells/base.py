"""What a shell must be able to do: start with our marks, take a command from a file, give its state back.

Protocol on the wire (written to the terminal by the integration, read by ``marks``), nonce per session, sequence per
command::

    ESC ] 7777 ; NONCE ; KIND [; FIELDS] BEL
    R;pid;version              the shell is up (end of its rc)
    C;seq;t0                   output of command seq begins after this mark
    D;seq;status;t1;flags;cwd  ... and ends before this one; without a seq, asked: how the line typed last ended
    Q[;p]                      asked, the line editor says that no command of ours reads; p: nor anything else, this is
                               the prompt. There B follows
    U;seq;number               asked, the shell says that it knows no command seq; number: of the question
    P                          a line typed by a person starts to run
    A;seq;status;t;flags;cwd   a prompt is about to be drawn (a seq here means D for a command that was aborted)
    B[;t]                      the prompt is drawn and the line editor is ready; t: there are traps that notice how
                               a command is run
    L                          the line so far is not complete: the prompt for the rest of it
    X;seq;status;t;flags;cwd   the shell exits

The session itself prints ``S;number`` to learn when it has read all that was printed before.

Only a short trigger is typed; the command's text lies in a file, so nothing is echoed, cut at 4096 bytes or expanded
by history.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ai_session.config import config
from ai_session.errors import ShellUnavailable

ASK = b"\x1b[7777z"
"""What no keyboard sends; line editors that know it answer at their prompt, and only there."""

BEGUN = "out/__ais_begun"
"""The file that the shell empties right before the text of a command: the kernel then dates it. So a command whose text
was reached is never typed again."""

ANSWERED = "out/__ais_answered"
"""The same when it has answered what became of a command."""

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
    ``title`` (one line, printable) is shown to an attached person in place of the trigger, below what became of the
    ``dropped`` line, which was half typed; empty shows nothing.
    ``check``: another process looks first whether the text ends where it should. Where not, nothing of it runs.
    ``sound``: it surely ends there. ``line``: of a text that starts something in the background, the same in one line,
    where that is possible. ``as_typed``: it would notice that it is not a line of the prompt. ``again``: the shell
    was given it before and did not come to it, maybe because a reserved word is an alias.
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
    dropped: str = ""
    check: bool = False
    as_typed: bool = False
    sound: bool = False
    line: str = ""
    again: bool = False


class Shell(Protocol):
    """One shell family. Stateless: everything about a session comes in as arguments."""

    name: str
    names: tuple[str, ...]
    """Names of the executables it drives, the last part of ``$SHELL`` or of what a caller asks for."""
    line_editor: bool
    """True when PromptReady marks are sent, so that a half-typed line can be cleared before the trigger."""
    asks: bytes
    """What to type to ask the line editor whether it is at its prompt; empty: it cannot be asked."""
    shows_command: bool
    """True when the shell has the command file open for as long as it runs the command."""
    needs_visible_group: bool
    """True when it gives the terminal back, at ``exec``, to the process group that had it first, which must be one that
    exists for it: in a process namespace of its own that is so only for a group made inside."""
    reads_input: bool
    """True when it reads lines from its standard input, wherever ``exec`` has that come from."""
    copies_run: bool
    """True when a copy of it in its own process group may be what a command left running (``set +m; (…) &``); else it
    is one that its prompt was just about to run a program from."""
    exits_late: bool
    """True when ``exit`` in a command ends the command first, and the shell where its next prompt would be."""
    silenced_by: str
    """An example of what keeps it from executing typed lines, for the reason of its end; empty if none is known."""
    continues_elsewhere: bool
    """True when it reads the rest of an incomplete command in another place in its program than its first line, or its
    line editor holds all of it."""
    files: int
    """How many files it must be allowed to have open to take a command and to report how it ended."""

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

    def draws_before_ready(self, version: str) -> bool:
        """Whether the prompt is whole at its mark, so that what is printed after that is of background processes."""
        ...

    def write_command(self, directory: Path, command: CommandText) -> bytes:
        """Put the command file in place so that a shell reading the previous one is not disturbed.

        The shell does what ``undated`` gives for ``BEGUN`` before it comes to the command's text, and not otherwise.

        Gives what is to be typed after the trigger, mostly nothing.
        """
        ...

    def trigger(self, *, ready: bool, traced: bool = False) -> bytes:
        """What to type. ``ready``: the line editor was seen ready, so a half-typed human line is cleared first.

        ``traced``: the shell would trace it.
        """
        ...

    def write_probe(self, directory: Path, seq: int, aborted: int | None, number: int) -> bytes:
        """Put a file that only reports what became of command ``seq``, once more if it was reported before; what to
        type, for a line editor that is ready.

        ``aborted`` is the exit code of one that was begun and did not end; None where nobody can know it. ``number``
        comes back with the answer that it was never begun.
        """
        ...

    def write_line_probe(self, directory: Path, *, status: bool) -> bytes:
        """The same for the line that was typed last and has ended: ``status`` if the shell's present status is that
        line's; otherwise the answer has none."""
        ...

    def reintegrate(self, directory: Path, *, restore: bool = False) -> bytes:
        """What to type into a bare shell of the same kind (after ``exec bash``) to get the marks back.

        ``restore``: functions of the person's own that hide what this needs are taken away first.
        """
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
            if found := _found(candidate):
                return os.path.abspath(found)
    path = config.outside_path()
    installed = [name for name in COMMON if shutil.which(name, path=path)]
    raise ShellUnavailable(f"no {names[0]} at {wanted!r}", suggestion=f"installed shells: {', '.join(installed)}")


def _found(program: str) -> str | None:
    """A path that was given is meant; a name is not looked up where agents leave programs."""
    if os.path.dirname(program):
        return shutil.which(program)
    return shutil.which(program, path=config.outside_path()) or shutil.which(program, path=os.defpath)


LEADER = {
    "python3": (
        "-IS",
        "-c",
        """import os, sys, signal
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
try:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
except OSError:
    pass
for number in (signal.SIGTTOU, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
""",
    ),
    "perl": (
        "-e",
        """$SIG{TTOU} = 'IGNORE';
eval { require POSIX; POSIX::setpgid(0, 0); POSIX::tcsetpgrp(0, $$) };
$SIG{TTOU} = 'DEFAULT';
exec { $ARGV[0] } @ARGV;
""",
    ),
}
"""Programs of most systems that can begin a process group and give it the terminal, and how."""


def group_leader() -> tuple[str, ...]:
    """Arguments before others that begin a process group with the terminal and continue as these; none without the
    means.

    Only what lies where every box shows it is named.
    """
    for name, arguments in LEADER.items():
        if found := shutil.which(name, path="/usr/bin:/bin"):
            return (found, *arguments)
    return ()


def quote(text: str) -> str:
    """``text`` as one word of a POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def checked(directory: Path, command: CommandText, run: str) -> str:
    """``run``, for a bash, after another one has read ``command`` without executing it and found its end."""
    if not command.check:
        return run
    replace(directory / "text", command.text + "\n")
    errors = f" 2>|{quote(command.stderr_path)}" if command.stderr_path else ""
    look = f'BASH_ENV= "$BASH" -O extglob -n <{quote(str(directory))}/text{errors}'
    return f"{{ {look} || case $? in 2) __ais_s 2 ;; esac; }} && {{ {run}; }}"


def probe(directory: Path, seq: int, aborted: int | str | None, number: int = 0) -> str:
    """Write the file that asks what became of command ``seq``, 0 for a line that was typed, and return its path; the
    same in every shell.

    It is another than the command's: whoever reads one of them by what was typed for the other would run a command
    twice.
    """
    path = directory / "p"
    undated(directory, ANSWERED)
    replace(path, f'__ais_pr {seq} "{"" if aborted is None else aborted}" {number}\n')
    return quote(str(path))


def undated(directory: Path, file: str) -> str:
    """From this call on the shell has not come to ``file``, until it carries out what is given: a redirection alone,
    which no name of the person's can hide."""
    path = f"{directory}/{file}"
    # What is the shell's to change is never followed.
    with contextlib.suppress(OSError):
        try:
            os.utime(path, ns=(0, 0), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            make_again(Path(path).parent)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            os.utime(path, ns=(0, 0), follow_symlinks=False)
    return f"3>|{quote(path)}"


def make_again(directory: Path) -> None:
    """A private directory, where a command removed it, or put something else there. Raises OSError."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        directory.unlink()
        directory.mkdir(mode=0o700)


def dated(directory: Path, file: str) -> bool:
    """Whether the shell may have come to ``file`` since; False is proof that it has not."""
    try:
        return os.lstat(directory / file).st_mtime_ns != 0
    except OSError:
        return True


def one_line(text: str) -> str:
    """``text`` with a blank for every character that is not printable."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def title_of(command: CommandText) -> str:
    """What a person sees in place of the trigger; nothing without a title."""
    if not command.title:
        return ""
    dropped = f"\x1b[2mhalf-typed line dropped: {one_line(command.dropped)}\x1b[22m\r\n" if command.dropped else ""
    return f"\x1b[A\r\x1b[2K{dropped}\x1b[2m❯\x1b[22m {one_line(command.title)}\r\n"


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
