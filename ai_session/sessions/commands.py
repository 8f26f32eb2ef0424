"""The commands of one session: the running one, and the records of those that ended.

The log with its marks decides what became of a command. The history file only saves an adopting daemon from scanning
all of the log, and the header of the command file records which command was begun last.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections import OrderedDict
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ai_session.errors import (
    IntegrationLost,
    LimitReached,
    NothingRunning,
    SessionBusy,
    SessionExited,
    SessionTakenOver,
)
from ai_session.models import CommandRecord, CommandStatus, ExitStatus
from ai_session.sessions.recovery import Recovery
from ai_session.shells.base import CommandText
from ai_session.shells.base import replace as replace_file
from ai_session.system.shell_words import in_one_line, is_whole, may_be_cut_off
from ai_session.system.turns import resolve, within
from ai_session.terminal.marks import Mark

KEPT = 256
"""The number of records in memory. Agents ask for recent commands, and 10,000 must not make the daemon grow."""

STORED_COMMAND_CHARS = 4000
BRIEF_CHARS = 80

LOST_TRACK = "the shell started it, but its exit status is unknown"
NOT_SEEN = "the shell is at its prompt, and did not report that it ran this"
NEVER_BEGUN = "it was never started"
"""The note of a command that the shell does not know and whose start was not seen."""
MISSING = "some of its output is missing: it could not be stored"
TITLE_CHARS = 150
TYPED = "typed"
"""The file with the header of the latest line typed at the prompt."""

_FIELDS = tuple(f.name for f in fields(CommandRecord))
_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(slots=True)
class RunningCommand:
    """A command from its trigger to its end. ``finished`` resolves to the final record.

    ``quiet_end``: the end of its output before the shell was asked what became of it.
    ``dropped``: the half-typed line that stood at the prompt before. ``never_ran``: its shell ended before it began.
    ``begun_ticks``: when it began, by the kernel's clock; ``newest_pid``: the newest process id then.
    ``concurrent``: what earlier commands had left running then; ``late``: what those printed after the last prompt.
    ``adopted`` from an earlier daemon: its text may be cut, and what it read is not known.
    ``typed``: it consists of lines that were typed at the prompt; ``prompt`` is the mark of the prompt that followed,
    if any; ``prompt_owed``: the next prompt may belong to what was typed before them.
    ``unbegun``: the shell reported how it ended without having reached it. ``before``: the exit code before it.
    ``cramped``: the shell's limit of open files was raised. ``asks``: how often the shell was asked what became of it.
    ``reached``: when it was last asked, it may have come to the command's text already.
    """

    record: CommandRecord
    finished: asyncio.Future[CommandRecord]
    trigger_offset: int
    started: bool = False
    interrupted: bool = False
    stopped_by_key: bool = False
    dropped: str = ""
    never_ran: bool = False
    begun_ticks: int = 0
    newest_pid: int = 0
    concurrent: tuple[LeftRunning, ...] = ()
    late: str = ""
    adopted: bool = False
    typed: bool = False
    prompt: Mark | None = None
    prompt_owed: bool = False
    retries: int = 0
    unbegun: bool = False
    before: int = 0
    asks: int = 0
    reached: bool = False
    cramped: bool = False
    quiet_end: int | None = None
    stdin_path: str = ""
    note: str = ""
    recovery: Recovery = field(default_factory=Recovery, repr=False)
    watchdog: asyncio.TimerHandle | None = field(default=None, repr=False)
    waiters: list[asyncio.Future[bool]] = field(default_factory=list[asyncio.Future[bool]], repr=False)

    async def ends(self, seconds: float) -> bool:
        """Wait up to ``seconds`` and report whether it has ended."""
        if self.finished.done() or seconds <= 0:
            return self.finished.done()
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            # The time may run out at the very moment in which it ends.
            return await within(waiter, seconds) or self.finished.done()
        finally:
            self.waiters.remove(waiter)

    def start_at(self, offset: int) -> None:
        """Record that the start mark was seen and its output begins at ``offset``."""
        self.started = True
        self.record = replace(self.record, start_offset=offset)

    def lose(self, end: int) -> None:
        """Record that output was lost. The start mark may have been in it, so the command must not be begun again."""
        if not self.started:
            self.start_at(min(self.trigger_offset, end))

    def miss(self) -> None:
        """Record that some of its output could not be stored."""
        self.record = replace(self.record, note=MISSING)

    def finish(self, status: CommandStatus, end: int, exit_code: int | None, cwd: str, seconds: float) -> CommandRecord:
        """Complete the record, resolve ``finished`` and return the record, which is final."""
        if self.watchdog:
            self.watchdog.cancel()
            self.watchdog = None
        self.record = replace(
            self.record,
            status=status,
            end_offset=end,
            exit_code=exit_code,
            cwd=cwd,
            duration_seconds=round(seconds, 6),
            note="; ".join(filter(None, (self.record.note, self.note))),
        )
        if not self.finished.done():
            self.finished.set_result(self.record)
            for waiter in self.waiters:
                resolve(waiter, True)
        return self.record


@dataclass(frozen=True, slots=True)
class LeftRunning:
    """A process that a command left running with the terminal as its output."""

    command_id: str
    command: str
    pid: int
    started: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name or 'a process'} of {self.command_id} ({brief(self.command)!r})"


class CommandHistory:
    """The ended commands, newest last. Each is appended to ``directory/history.jsonl`` when it ends."""

    def __init__(self, directory: Path) -> None:
        self._fd = -1
        self._records: OrderedDict[str, CommandRecord] = OrderedDict()
        self.count = 0
        # Without the file, records are in memory only; that is no reason to refuse a session.
        with contextlib.suppress(OSError):
            flags = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(directory / "history.jsonl", flags, 0o600)
            self._load()

    def _load(self) -> None:
        size = os.fstat(self._fd).st_size
        data = os.pread(self._fd, size, 0)
        if data and not data.endswith(b"\n"):
            os.write(self._fd, b"\n")
        lines = data.splitlines()
        self.count = len(lines)
        for line in lines[-KEPT:]:
            try:
                record = CommandRecord(**json.loads(line))
            except (ValueError, TypeError):
                continue
            self._records[record.command_id] = record

    def append(self, record: CommandRecord) -> None:
        """Store ``record`` in memory and, unless the disk is full, in the file."""
        self._records[record.command_id] = record
        self.count += 1
        if len(self._records) > KEPT:
            self._records.popitem(last=False)
        stored = {name: getattr(record, name) for name in _FIELDS}
        stored["command"] = record.command[:STORED_COMMAND_CHARS]
        try:
            os.write(self._fd, _encode(stored).encode() + b"\n")
        except OSError:
            return

    def get(self, command_id: str) -> CommandRecord | None:
        """Return the record of an ended command, or None if it is unknown or no longer in memory."""
        return self._records.get(command_id)

    def by_key(self, call_key: str) -> CommandRecord | None:
        """Return the latest ended command that was started with this call key, or None."""
        return next((r for r in reversed(self._records.values()) if r.call_key == call_key), None)

    def reaches(self, moment: float) -> bool:
        """Report whether every command that was begun since ``moment`` and has ended is in memory."""
        oldest = next(iter(self._records.values()), None)
        forgotten = self.count > len(self._records)
        return self._fd >= 0 and (not forgotten or (oldest is not None and oldest.started_at < moment))

    def all(self) -> list[CommandRecord]:
        """Return the commands in memory, oldest first."""
        return list(self._records.values())

    @property
    def last(self) -> CommandRecord | None:
        """The command that ended last, or None."""
        return next(reversed(self._records.values()), None)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def brief(command: str, chars: int = BRIEF_CHARS) -> str:
    """Return the beginning of a command, cut between words, because half a secret would not be recognized."""
    return command if len(command) <= chars else command[: command.rfind(" ", 0, chars) + 1] + "…"


def ended(name: str, status: ExitStatus | None) -> SessionExited:
    """Return the error for a session whose shell has ended with ``status``, None if that is unknown."""
    message = f"session {name!r} has ended ({status or 'lost'})"
    if status is not None and status.reason:
        return SessionExited(
            message, suggestion=f"create_session with name {name!r} starts its shell again in its directory"
        )
    return SessionExited(
        message, suggestion=f"create_session with name {name!r} starts its shell again where it left off"
    )


def busy(name: str, running: RunningCommand | None) -> SessionBusy:
    """Return the error for a session that runs a command, or with None is about to start one."""
    if running is None:
        return SessionBusy(
            f"session {name!r} is just starting another command", suggestion="retry, or use another session"
        )
    return SessionBusy(
        f"session {name!r} is still running {brief(running.record.command)!r} ({running.record.command_id})",
        suggestion="wait with read_output(wait_for='finish'), answer it with send_input, stop it with"
        " interrupt_command, or use another session",
    )


def taken_over(name: str, who: str) -> SessionTakenOver:
    """Return the error for input to a session that ``who`` has taken over."""
    return SessionTakenOver(
        f"{who} has taken over session {name!r} and is the only one to type in it",
        suggestion="watch with read_screen or read_output, and try again once get_session_info shows no typing_by; or"
        " use another session",
    )


def occupied(name: str, program: str) -> SessionBusy:
    """Return the error for a session whose terminal belongs to a ``program`` that no command of the session is."""
    return SessionBusy(
        f"{program!r}, started by a person or left behind, holds the terminal of {name!r}",
        suggestion="look with read_screen; end it with send_input or interrupt_command, or use another session",
    )


def at_prompt_work(name: str, seconds: float) -> SessionBusy:
    """Return the error for a session whose shell has been busy between two commands for so many seconds."""
    return SessionBusy(
        f"the shell of {name!r} has been preparing its prompt for {seconds:.0f} s",
        suggestion="wait if its prompt takes that long; if it never appears, for example because PROMPT_COMMAND or PS1 "
        "fails or loops, use close_session and create the session again",
    )


def line_open(name: str) -> SessionBusy:
    """Return the error for a session with a line typed at its prompt that has not ended or is incomplete."""
    return SessionBusy(
        f"a line typed at the prompt of {name!r} is still running, waiting for input or incomplete",
        suggestion="look with read_screen; answer it with send_input, drop it with send_input(keys=['C-c']), or use "
        "another session",
    )


def fed_elsewhere(name: str, source: str) -> SessionBusy:
    """Return the error for a session whose shell reads its commands from ``source``, not from the terminal."""
    return SessionBusy(
        f"the shell of {name!r} reads its commands from {source[:200]!r}, not from its terminal",
        suggestion="after `exec <` it does so until that input ends; if it never ends, close_session and create"
        " another",
    )


def unread(name: str, waiting_bytes: int) -> LimitReached:
    """Return the error for input to a session whose program has not read earlier input."""
    return LimitReached(
        f"the program in session {name!r} has not read {waiting_bytes} bytes that were typed before",
        suggestion="wait until it does (read_output, read_screen), or stop it with interrupt_command",
    )


def became(name: str, program: str) -> IntegrationLost:
    """Return the error for a session whose start files replaced the shell by a ``program`` that is not a shell."""
    return IntegrationLost(
        f"the start files of {name!r} turned its shell into {program!r}",
        suggestion="make them do so only if AI_SESSION_ID is not set, or set session.user_rc = false in the"
        " configuration",
    )


def asked_at_prompt(name: str) -> SessionBusy:
    """Return the error for a session whose shell asks for input before it shows its prompt."""
    return SessionBusy(
        f"what draws the prompt of {name!r} waits for input",
        suggestion="look with read_screen and answer with send_input",
    )


def asked_at_start(name: str) -> IntegrationLost:
    """Return the error for a session whose start files wait for input."""
    return IntegrationLost(
        f"the start files of {name!r} wait for input",
        suggestion="look with read_screen and answer with send_input, or set session.user_rc = false in the"
        " configuration",
    )


def not_started(name: str, seconds: float) -> IntegrationLost:
    """Return the error for a session whose start files have run for so many seconds."""
    return IntegrationLost(
        f"the shell of {name!r} has not finished its start files after {seconds:.0f} s",
        suggestion="look with read_screen; a start file may be waiting for input or running something long",
    )


def not_running(name: str, command_id: str, state: str) -> NothingRunning:
    """Return the error for an interrupt, signal or input when the command, or any command, does not run."""
    which = f"command {command_id[:60]!r} does not run" if command_id else "no command is running"
    return NothingRunning(
        f"{which} in session {name!r} (state {state})",
        suggestion="for a program a person started, use send_input with keys ['C-c']",
    )


def header_of(record: CommandRecord, trigger_offset: int) -> str:
    """Return the line of the command file from which ``parse_header`` restores the record and the offset."""
    return "ai-session " + _encode(
        {
            "id": record.command_id,
            "seq": record.seq,
            "offset": trigger_offset,
            "at": record.started_at,
            "key": record.call_key,
            "stderr": record.stderr_path,
            "cwd": record.cwd,
            "command": record.command[:400],
        }
    )


def note_typed(directory: Path, record: CommandRecord) -> None:
    """Store what is about to be typed at the prompt for ``begun_last``. Does nothing if the disk is full."""
    with contextlib.suppress(OSError):
        replace_file(directory / TYPED, f"# {header_of(record, record.start_offset)}\n")


def begun_last(directory: Path) -> tuple[CommandRecord, int, bool] | None:
    """Return the latest command of ``directory``, the log offset of its trigger, and whether it was typed; or None."""
    command, typed = parse_header(directory), parse_header(directory, TYPED)
    if typed is not None and (command is None or command[1] <= typed[1]):
        return *typed, True
    return None if command is None else (*command, False)


def parse_header(directory: Path, name: str = "c") -> tuple[CommandRecord, int] | None:
    """Return the command in the header of a file in ``directory`` and the log offset of its trigger, or None."""
    try:
        with open(directory / name, "rb") as file:
            line = file.readline(65536)
    except OSError:
        return None
    _, found, text = line.partition(b"# ai-session ")
    if not found:
        return None
    try:
        data: dict[str, Any] = json.loads(text)
        record = CommandRecord(
            command_id=data["id"],
            seq=data["seq"],
            command=data["command"],
            status="running",
            started_at=data["at"],
            start_offset=data["offset"],
            cwd=data["cwd"],
            call_key=data["key"],
            stderr_path=data["stderr"],
        )
        return record, int(data["offset"])
    except (ValueError, KeyError, TypeError):
        return None


@lru_cache(maxsize=16)
def corrupted_by_cuts(version: str) -> bool:
    """Report whether ``version`` is of a bash that corrupts its memory evaluating a text cut within a substitution.

    Fixed in bash 5.2.21. Only bash itself writes its version in this form.
    """
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)\(", version)
    return numbers is not None and tuple(map(int, numbers.groups())) < (5, 2, 21)


def keep_stdin(directory: Path, data: bytes | None) -> str:
    """Store the standard input of the next command and return the file's path; empty if ``data`` is None."""
    if data is None:
        return ""
    path = directory / "stdin"
    path.write_bytes(data)
    return str(path)


def command_text(
    record: CommandRecord,
    nonce: str,
    trigger_offset: int,
    stdin_path: str,
    last_exit_code: int,
    flags: str,
    version: str = "",
    as_typed: bool = False,
    dropped: str = "",
    again: bool = False,
) -> CommandText:
    """Return what a shell of this ``version`` is to run for ``record``, with a title for people who watch."""
    first, _, rest = record.command.partition("\n")
    title = "".join(c if c.isprintable() else " " for c in brief(first, TITLE_CHARS)) + (" …" if rest else "")
    return CommandText(
        seq=record.seq,
        text=record.command,
        nonce=nonce,
        header=header_of(record, trigger_offset),
        stdin_path=stdin_path,
        stderr_path=record.stderr_path,
        last_exit_code=last_exit_code,
        flags=flags,
        title=title,
        dropped=brief(dropped, TITLE_CHARS),
        check=corrupted_by_cuts(version) and may_be_cut_off(record.command),
        as_typed=as_typed,
        sound=is_whole(record.command),
        line=in_one_line(record.command),
        again=again,
    )
