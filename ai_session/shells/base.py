"""The interface of a shell: it starts with our marks, runs commands from a file, and restores its state.

The integration script writes marks to the terminal, which ``marks`` reads. The nonce is per session, the sequence
number per command::

    ESC ] 7777 ; NONCE ; KIND [; FIELDS] BEL
    R;pid;version              the shell is up (end of its start files)
    C;seq;t0                   the output of command seq begins after this mark
    D;seq;status;t1;flags;cwd  ... and ends before this one; without a seq, an answer: how the last typed line ended
    Q[;p]                      an answer of the line editor: no command of ours reads; p: nothing else does, this is
                               the prompt, and B follows
    U;seq;number               an answer of the shell: it knows no command seq; number: of the question
    P                          a line typed by a person begins to run
    A;seq;status;t;flags;cwd   a prompt is about to be drawn (a seq here means D for a command that was aborted)
    B[;t]                      the prompt is drawn and the line editor is ready; t: there are traps that notice how
                               a command is run
    L                          the line so far is incomplete; this is the prompt for the rest of it
    X;seq;status;t;flags;cwd   the shell exits

The session itself prints ``S;number`` to learn when it has read all earlier output.

Only a short trigger is typed. The command's text is in a file, so it is not echoed, cut at 4096 bytes or expanded by
history.
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

from agentwire import plugins
from ai_session.config import config
from ai_session.errors import ShellUnavailable

ASK = b"\x1b[7777z"
"""A key that no keyboard sends. Line editors with our integration answer it at their prompt, and only there."""

BEGUN = "out/__ais_begun"
"""The file that the shell truncates right before the text of a command, so that the kernel sets its time. A command
whose text was reached is never typed again."""

ANSWERED = "out/__ais_answered"
"""The file that the shell truncates once it has answered what became of a command."""

SILENCED = "silenced"
"""A file that says to a shell that ends: it executed nothing of what was typed. It then saves no functions or aliases,
with which the next one could fare no better."""

KIND = "ai_session.shells"

WHOLE = b"# end of state\n"
"""The last line of a saved state."""


@dataclass(frozen=True, slots=True)
class Integration:
    """How to start the shell: ``argv[0]`` is an absolute path; ``env`` is added to the session's."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CommandText:
    """One command for the shell.

    ``header`` becomes a comment on the file's first line, which an adopting daemon reads. ``last_exit_code`` and
    ``flags`` come from the latest mark and choose the cheapest prologue that keeps ``$?`` and ``set -x`` right.
    ``title`` (one line, printable) is shown to an attached person in place of the trigger, below a notice of the
    ``dropped`` line, which was half typed; empty shows nothing.
    ``check``: another process first checks that the text is complete; if it is not, nothing of it runs.
    ``sound``: it is known to be complete. ``line``: a text that starts something in the background, as one line, if
    that is possible. ``as_typed``: it would notice that it is not a line typed at the prompt. ``again``: the shell was
    given it before and did not reach it, perhaps because a reserved word is an alias.
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
    """One family of shells. Stateless: everything about a session is passed as an argument."""

    name: str
    names: tuple[str, ...]
    """Names of its executables: the last part of ``$SHELL`` or of the path that a caller requests."""
    line_editor: bool
    """Whether it sends PromptReady marks, so that a half-typed line can be cleared before the trigger."""
    asks: bytes
    """The key that asks the line editor whether it is at its prompt; empty if it cannot be asked."""
    shows_command: bool
    """Whether the shell has the command file open for as long as it runs the command."""
    needs_visible_group: bool
    """Whether it gives the terminal back, at ``exec``, to the process group that had it first. That group must exist
    for the shell: in a process namespace, only one that was made inside it does."""
    reads_input: bool
    """Whether it reads lines from its standard input, wherever ``exec`` has redirected that from."""
    copies_run: bool
    """Whether a copy of it in its own process group may be what a command left running (``set +m; (…) &``); if not,
    such a copy is a fork that is about to execute a program for the prompt."""
    exits_late: bool
    """Whether ``exit`` in a command ends the command first, and the shell only at its next prompt."""
    silenced_by: str
    """An example of what keeps it from executing typed lines, for the reason of its end; empty if none is known."""
    continues_elsewhere: bool
    """Whether it reads the rest of an incomplete command at another position in its program than the first line, or
    its line editor holds all of it."""
    start_files: tuple[str, ...]
    """Files below a home that it reads at each start, the usual one first; none where ``$ENV`` decides."""
    files: int
    """How many open files it must be allowed to have to run a command and to report how it ended."""

    def find(self, wanted: str = "") -> str:
        """Return the absolute path of the executable ``wanted``, a name or path. Raises ShellUnavailable."""
        ...

    def install(
        self, directory: Path, nonce: str, *, executable: str, user_rc: bool, login_env: Mapping[str, str]
    ) -> Integration:
        """Write the integration into ``directory`` (private, 0700) and return how to start the shell.

        The shell itself writes only below ``directory/out``. With ``user_rc`` the person's own start files are read
        first. If an exit left ``out/state``, directory, exports, functions and aliases are restored from it.
        """
        ...

    def draws_before_ready(self, version: str) -> bool:
        """Report whether the prompt is complete at its mark, so that background processes print what follows it."""
        ...

    def write_command(self, directory: Path, command: CommandText) -> bytes:
        """Write the command file without disturbing a shell that reads the previous one.

        The shell carries out what ``undated`` returns for ``BEGUN`` when it reaches the command's text, and only then.
        Return what is to be typed after the trigger, which is mostly nothing.
        """
        ...

    def trigger(self, *, ready: bool, traced: bool = False) -> bytes:
        """Return what to type to run the command file.

        ``ready``: the line editor was seen ready, so a half-typed line is cleared first. ``traced``: the shell has
        ``set -x``.
        """
        ...

    def write_probe(self, directory: Path, seq: int, aborted: int | None, number: int) -> bytes:
        """Write a file that only reports what became of command ``seq``, and return what to type to run it.

        The line editor, if there is one, must be ready. An earlier report is repeated. ``aborted`` is the exit code of
        a command that was begun and did not end, None if it is unknown. ``number`` is part of the answer that the
        command was never begun.
        """
        ...

    def write_line_probe(self, directory: Path, *, status: bool) -> bytes:
        """Write a file that reports how the last typed line ended, and return what to type to run it.

        With ``status`` the answer has the shell's present status, which must be that of the line; else it has none.
        """
        ...

    def reintegrate(self, directory: Path, *, restore: bool = False) -> bytes:
        """Return what to type into a bare shell of the same kind (after ``exec bash``) to get the marks back.

        ``restore``: the person's functions that hide required builtins are removed first.
        """
        ...

    def strip_trace(self, output: bytes, nonce: str) -> bytes:
        """Return ``output`` without the trace of our own trailer, which ``set -x`` in the command caused."""
        ...


def find_executable(wanted: str, names: tuple[str, ...]) -> str:
    """Return the absolute path of ``wanted``, a name or path, if its name without a version is one of ``names``.

    busybox replaces a missing ``ash``. Raises ShellUnavailable, which names the installed shells.
    """
    name = os.path.basename(wanted)
    if name in names or re.sub(r"[-.0-9]+\Z", "", name) in names:
        for candidate in (wanted, "busybox") if name == "ash" else (wanted,):
            if found := _found(candidate):
                return os.path.abspath(found)
    path = config.outside_path()
    installed: list[str] = []
    for plugin in plugins.names(KIND):
        shell: Shell = plugins.load(KIND, plugin)
        installed += [name for name in shell.names if shutil.which(name, path=path)]
    raise ShellUnavailable(f"no {names[0]} at {wanted!r}", suggestion=f"installed shells: {', '.join(installed)}")


def _found(program: str) -> str | None:
    """Return the path of a program, or None. Names are not looked up in directories that agents can write to."""
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
"""Programs of most systems that can begin a process group and give it the terminal, with the arguments for that."""


def group_leader() -> tuple[str, ...]:
    """Return the arguments before a command line that run it as the leader of a new foreground process group.

    Empty if no program can do that. Only programs in directories that every box shows are used.
    """
    for name, arguments in LEADER.items():
        if found := shutil.which(name, path="/usr/bin:/bin"):
            return (found, *arguments)
    return ()


def quote(text: str) -> str:
    """Return ``text`` quoted as one word of a POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def redirections(command: CommandText) -> str:
    """Return the redirections of ``command`` to its files, for a shell of the Bourne family."""
    stdin = f" <{quote(command.stdin_path)}" if command.stdin_path else ""
    return stdin + (f" 2>|{quote(command.stderr_path)}" if command.stderr_path else "")


def checked(directory: Path, command: CommandText, run: str) -> str:
    """Return ``run`` for a bash, preceded by a check, if ``command`` wants it, by another bash that it is complete."""
    if not command.check:
        return run
    replace(directory / "text", command.text + "\n")
    errors = f" 2>|{quote(command.stderr_path)}" if command.stderr_path else ""
    look = f'BASH_ENV= "$BASH" -O extglob -n <{quote(str(directory))}/text{errors}'
    return f"{{ {look} || case $? in 2) __ais_s 2 ;; esac; }} && {{ {run}; }}"


def probe(directory: Path, seq: int, aborted: int | str | None, number: int = 0) -> str:
    """Write the file that asks what became of command ``seq``, 0 for a typed line, and return its path, quoted.

    The file is not that of the command: a shell that read one by the trigger of the other would run a command twice.
    """
    path = directory / "p"
    undated(directory, ANSWERED)
    replace(path, f'__ais_pr {seq} "{"" if aborted is None else aborted}" {number}\n')
    return quote(str(path))


def undated(directory: Path, file: str) -> str:
    """Reset the time of ``file`` to 0 and return a redirection with which the shell sets it again.

    It is only a redirection, because no function or alias of the person can hide that.
    """
    path = f"{directory}/{file}"
    # The shell may have replaced the file by a link, which is not followed.
    with contextlib.suppress(OSError):
        try:
            os.utime(path, ns=(0, 0), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            make_again(Path(path).parent)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            os.utime(path, ns=(0, 0), follow_symlinks=False)
    return f"3>|{quote(path)}"


def make_again(directory: Path) -> None:
    """Make a private directory again after a command removed it or replaced it. Raises OSError."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        directory.unlink()
        directory.mkdir(mode=0o700)


def dated(directory: Path, file: str) -> bool:
    """Report whether the shell may have reached ``file`` since ``undated``; False proves that it has not."""
    try:
        return os.lstat(directory / file).st_mtime_ns != 0
    except OSError:
        return True


def one_line(text: str) -> str:
    """Return ``text`` with a space in place of every character that is not printable."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def title_of(command: CommandText) -> str:
    """Return what a person sees in place of the trigger; empty without a title."""
    if not command.title:
        return ""
    dropped = f"\x1b[2mhalf-typed line dropped: {one_line(command.dropped)}\x1b[22m\r\n" if command.dropped else ""
    return f"\x1b[A\r\x1b[2K{dropped}\x1b[2m❯\x1b[22m {one_line(command.title)}\r\n"


def replace(path: Path, text: str) -> None:
    """Replace ``path`` by a new file, atomically; it is readable by its owner only."""
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
    """Make ``directory/out``, to which the shell writes, and remove a saved state that is incomplete.

    A boxed shell may have put anything there, so links are not followed and pipes are not waited for.
    """
    path = directory / "out" / "state"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    (directory / SILENCED).unlink(missing_ok=True)
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
