"""Reports of a command's state to a caller, as text and structured content with the same facts.

Half of the clients show the model only the text, half only the structured content, and most keep only the head of a
long text, so the first line has the status, the exit code, what was cut and where to continue reading.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Any

from ai_session.errors import CommandNotFound
from ai_session.models import CommandRecord, InputMode, ToolResult
from ai_session.sessions.session import Session
from ai_session.system.turns import Steps, finished
from ai_session.terminal.masking import Hiding, Spans
from ai_session.terminal.recording import Source
from ai_session.terminal.text import cleaning
from ai_session.terminal.timing import read_ticks
from ai_session.terminal.transcript import Transcript

STDERR_READ_BYTES = 1 << 20
MOST_OTHERS = 3

INPUT_HINT: dict[InputMode, str] = {
    "line": "it waits for a line of input: send_input",
    "password": "it waits for a password or other hidden input: send_input, or ask the person",
    "raw": "it waits for keys (full-screen or prompt): read_screen, then send_input",
}


def transcript(session: Session, record: CommandRecord, spans: Spans | None = None) -> Transcript:
    """Return the output of ``record``, which grows while it runs; ``spans`` finds the secrets in it.

    It is empty until the command has started: output before that is of other programs, or the echo of the command.
    """
    running = session.running
    waits = running is not None and not running.started and running.record.command_id == record.command_id
    end = record.start_offset if waits else record.end_offset
    return Transcript(session.log, record.start_offset, end, session.spec.nonce, spans)


def find_command(session: Session, command_id: str) -> CommandRecord:
    """Return the command's record; ``all`` is the whole output, empty the latest command. Raises CommandNotFound."""
    running = session.running.record if session.running else None
    if command_id == "all":
        return CommandRecord("all", 0, "", "running", session.spec.created_at, 0)
    if not command_id:
        if latest := running or session.history.last:
            return latest
        raise CommandNotFound(
            f"session {session.spec.name!r} has run no command yet",
            suggestion="use execute_command, or command_id='all' for what the terminal printed",
        )
    if running and running.command_id == command_id:
        return running
    if record := session.history.get(command_id):
        return record
    raise CommandNotFound(
        f"session {session.spec.name!r} ran no command {command_id[:60]!r}, or it is no longer known",
        suggestion="leave command_id out for the latest command, or use command_id='all' with an offset",
    )


def record_facts(record: CommandRecord) -> dict[str, Any]:
    """Return the status, exit code and duration of a command, without its output."""
    facts: dict[str, Any] = {"status": record.status, "exit_code": record.exit_code}
    if record.duration_seconds is not None:
        facts["duration_seconds"] = round(record.duration_seconds, 3)
    return facts


def headline(facts: dict[str, Any]) -> str:
    """Return the beginning of the first line: status, exit code and duration."""
    code = facts.get("exit_code")
    words = [f"exit code {code}"] if code is not None else []
    words.insert(0 if facts["status"] != "finished" else 1, facts["status"])
    if "duration_seconds" in facts:
        words.append(f"{facts['duration_seconds']:g} s")
    return "[" + ", ".join(words)


def result(
    facts: dict[str, Any],
    output: str,
    *,
    notes: list[str],
    extra: dict[str, Any] | None = None,
    stderr: str | None = None,
) -> ToolResult:
    """Join facts, notes and output into a result. The output is last, so that a cut tail costs the least."""
    structured = {k: v for k, v in facts.items() if v is not None}
    structured |= extra or {}
    if notes:
        structured["note"] = "; ".join(notes)
    head = headline(facts)
    for name, value in (extra or {}).items():
        head += f", {name} {value}"
    text = head + ("; " + "; ".join(notes) if notes else "") + "]"
    structured["output"] = output
    text += "\n" + output if output else ""
    if stderr is not None:
        structured["stderr"] = stderr
        text += ("" if text.endswith("\n") else "\n") + f"[stderr]\n{stderr}"
    return ToolResult(text=text, structured=structured)


def cut(text: str, start: int, stop: int, spans: Spans | None) -> str:
    """Return the few characters from ``start`` to ``stop``, without the remains of secrets cut in two. Blocks."""
    return finished(Hiding(spans).cut(text, start, stop)) if spans else text[start:stop]


def read_stderr(
    path: str, max_chars: int, spans: Spans | None = None, *, growing: bool = False
) -> Steps[tuple[str, int]]:
    """Return the separate standard error, cleaned and cut to its last ``max_chars``, and the number of omitted bytes.

    The shell may replace the file, so a link is not followed and a pipe is not waited for.
    """
    data, size = b"", 0
    with contextlib.suppress(OSError), open(path, "rb", opener=open_plain) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - STDERR_READ_BYTES))
        data = file.read()
    text = yield from cleaning(data)
    begin = max(0, len(text) - max_chars)
    kept = text[begin:]
    if spans and (begin or growing):
        kept = yield from Hiding(spans).cut(text, begin, len(text), growing)
    return kept, size - len(data) + len(text[:begin].encode())


def open_plain(path: str, flags: int) -> int:
    """Open a file that the shell may have replaced. Raises OSError if it is a link or not a regular file."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError("not a regular file")
    return fd


def note_lost(session: Session, record: CommandRecord, notes: list[str]) -> None:
    """Add notes of the command's output that the disk had no room for, in the past or now."""
    end = session.log.end if record.end_offset is None else record.end_offset
    if lost := session.log.lost_bytes(record.start_offset, end):
        notes.append(f"{lost} bytes of output are lost: the disk was full")
    if session.log.losing and record.end_offset is None:
        notes.append(
            "output cannot be stored now (is the disk full?): whether the command has ended will be known when there"
            " is space"
        )


def note_ending(session: Session, record: CommandRecord, notes: list[str]) -> None:
    """Add a note if the command was the last one of its shell."""
    if session.ended_by == record.command_id and session.closed:
        notes.append("the session was closed while it ran")
    elif session.ended_by == record.command_id and (ending := session.ending) is not None:
        notes.append(f"the session's shell has ended ({ending}): create_session with its name starts it again")


def note_others(session: Session, record: CommandRecord, notes: list[str]) -> None:
    """Add a note of other programs whose output may be mixed with the command's: a terminal does not separate them."""
    others = session.executor.concurrent(record)
    if others and (session.log.end if record.end_offset is None else record.end_offset) > record.start_offset:
        names = ", ".join(dict.fromkeys(map(str, others[-MOST_OTHERS:])))
        where = "printed late_output" if late_output(session, record) else "may print among this output"
        notes.append(f"programs left running by earlier commands {where}: {names}")


def late_output(session: Session, record: CommandRecord) -> str:
    """Return what was printed at the prompt before the command, if it is the latest; else an empty text."""
    latest = session.latest
    return latest.late if latest is not None and latest.record.command_id == record.command_id else ""


def command_result(
    session: Session,
    record: CommandRecord,
    max_chars: int,
    notes: list[str],
    spans: Spans | None = None,
    **extra: Any,
) -> Steps[ToolResult]:
    """Return the result of ``execute_command``: the whole output if it fits, else its head and tail.

    A separate standard error shares the room: each has at least half of it, and what the other leaves.
    """
    stderr = None
    omitted = 0
    room = max_chars
    growing = record.status == "running"
    if record.stderr_path:
        stderr, omitted = yield from read_stderr(record.stderr_path, max_chars, spans, growing=growing)
        room = max(max_chars - max_chars // 2, max_chars - len(stderr))
    rendering = yield from transcript(session, record, spans).render(room)
    if stderr is not None and len(stderr) > (room := max_chars - len(rendering.text)):
        stderr, omitted = yield from read_stderr(record.stderr_path, room, spans, growing=growing)
    note_lost(session, record, notes)
    if record.note:
        notes.append(record.note)
    note_ending(session, record, notes)
    note_others(session, record, notes)
    if rendering.omitted_bytes:
        notes.append(
            f"{rendering.omitted_bytes} bytes omitted from the middle: read_output(command_id='{record.command_id}', "
            f"offset={rendering.next_offset})"
        )
    if omitted:
        notes.append(f"first {omitted} bytes of stderr omitted")
    facts = record_facts(record)
    more: dict[str, Any] = {"command_id": record.command_id, "cwd": session.cwd}
    if late := late_output(session, record):
        more["late_output"] = cut(late, 0, len(late), spans)
    if rendering.omitted_bytes:
        more |= {"omitted_bytes": rendering.omitted_bytes, "next_offset": rendering.next_offset}
    elif growing:
        more["next_offset"] = rendering.next_offset
    return result(facts, rendering.text, notes=notes, extra=more | extra, stderr=stderr)


def recording_source(session: Session) -> Steps[Source]:
    """Return the source of a recording of the session as it is now. Its ``read`` may be called on any thread."""
    path = session.directory / "log"
    ticks = yield from read_ticks(session.directory / "times")

    def read(start: int, end: int) -> bytes:
        with path.open("rb") as file:
            return os.pread(file.fileno(), end - start, start)

    return Source(
        name=session.spec.name,
        nonce=session.spec.nonce,
        rows=session.spec.rows,
        cols=session.spec.cols,
        read=read,
        first=session.log.first,
        end=session.log.end,
        ticks=ticks,
        commands=session.history.all(),
        exit_code=session.exit.code if session.exit else None,
    )
