"""Typing of commands into the shell, and the record of how they ended."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ai_session.models import (
    CommandRecord,
    CommandStatus,
)
from ai_session.sessions import commands
from ai_session.sessions.commands import LeftRunning, RunningCommand, command_text
from ai_session.sessions.facts import (
    SessionFacts,
)
from ai_session.shells.base import make_again
from ai_session.system import processes, terminal_device
from ai_session.terminal.marks import strip_marks
from ai_session.terminal.text import clean

LINE_END = b"\n"
"""The byte that ends a line."""

RETURN = b"\r"
"""The byte that ends a line in a line editor, also where a person has given the newline another meaning."""

CLEARS = b"\x1e\x15"
"""The keys that clear a line in a line editor before we type there."""

OLDEST = "4.4.0(1)"
"""The version assumed of a bash whose version is not known."""

TRACE_BYTES = 4096
"""The most that a shell traces of our own text at the end of a command."""

LATE_BYTES = 4096
"""The most bytes of background output, printed at a prompt, that the next command's result contains."""


class Executor:
    """Hands commands to the shell of a session and ends them. ``seq`` is the number of the last command."""

    def __init__(self, session: SessionFacts) -> None:
        self._session = session
        self.seq = 0
        self.enter = LINE_END
        """What ends a line of our own in the line editor."""
        self._left_running: tuple[LeftRunning, ...] = ()

    def start(self, running: RunningCommand, stdin: bytes | None) -> None:
        """Have the shell run a new command, which becomes the running one. Raises OSError."""
        session = self._session
        running.stdin_path = commands.keep_stdin(session.files, stdin)
        running.dropped = session.typed.drop_half()
        self.note_concurrent(running)
        more = self.write(running)
        session.running = session.latest = running
        session.touch()
        self.type_trigger(more)

    def write(self, running: RunningCommand) -> bytes:
        """Write the command where the shell reads it. Return what is to be typed after the trigger. Raises OSError."""
        session = self._session
        if not running.retries:
            running.before = session.at.last_exit
        # An adopted shell has reported its version to an earlier daemon.
        version = session.at.version or (OLDEST if os.path.basename(session.spec.shell) in ("bash", "sh") else "")
        text = command_text(
            running.record,
            session.spec.nonce,
            running.trigger_offset,
            running.stdin_path,
            running.before,
            session.at.flags,
            version,
            session.at.as_typed,
            running.dropped,
            again=running.retries > 0,
        )
        try:
            return session.shell.write_command(session.files, text)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self.restore_files()
            return session.shell.write_command(session.files, text)

    def type_trigger(self, more: bytes) -> None:
        """Type the line that makes the shell run the command that was written."""
        session = self._session
        assert session.terminal is not None
        session.quiet_from = -1
        traced = "x" in session.at.flags
        trigger = session.shell.trigger(ready=session.at.ready and session.shell.line_editor, traced=traced)
        self.type_line(self.after_clearing(trigger) + more)
        session.at.ready = False

    def after_clearing(self, line: bytes) -> bytes:
        """Return ``line``, which begins with keys that clear the line editor. If the terminal edits lines itself, these
        would be part of the line: they are followed by the terminal's own key, or left out if it has dropped its line
        without one."""
        session = self._session
        assert session.terminal is not None
        bare = line.lstrip(CLEARS)
        editor = session.shell.line_editor and bare != line
        kill = terminal_device.line_killer(session.terminal.tty) if editor else None
        if kill is None:
            return line
        return line.removesuffix(bare) + kill + bare if kill else bare

    def type_line(self, line: bytes) -> None:
        """Type a line of the session's own."""
        session = self._session
        assert session.terminal is not None
        terminal_device.let_print(session.terminal.tty)
        if not session.shell.line_editor and (quoted := terminal_device.quoted(session.terminal.tty, line)) != line:
            session.terminal.write(quoted)
            return
        undone = terminal_device.accept_text(session.terminal.tty, line_ends=not session.shell.line_editor)
        if undone and session.running is not None:
            settings = " ".join(undone)
            undone_note = f"`stty {settings}` is undone: no command could be typed with it"
            session.running.note = session.running.note or undone_note
        session.terminal.write(line.replace(LINE_END, self.enter) if session.shell.line_editor else line)

    def restore_files(self) -> None:
        """Write again what the shell reads of ours, after a command has removed it. Raises OSError."""
        session = self._session
        session.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_again(session.files)
        if (session.files / "c").is_dir():
            (session.files / "c").rmdir()
        self.install(session.spec.shell)

    def install(self, executable: str) -> None:
        """Write what the shell reads of ours, for the shell ``executable``. Raises OSError."""
        session = self._session
        spec = session.spec
        session.shell.install(session.files, spec.nonce, executable=executable, user_rc=True, login_env=spec.env)

    def end(self, running: RunningCommand, status: CommandStatus, end: int, exit_code: int | None) -> None:
        """Record how the running command ended; its output ends at ``end`` in the log."""
        session = self._session
        session.running = None
        if not running.typed:
            # What was typed meanwhile was the command's.
            session.typed.answered_all(session.at.prompts)
        session.touch()
        seconds = max(0.0, time.time() - running.record.started_at)
        session.history.append(running.finish(status, end, exit_code, session.cwd, seconds))

    def end_typed(self, running: RunningCommand) -> None:
        """End typed lines. Without a prompt of their own they were not run: the line editor holds them, or asked for
        something."""
        self._session.settle_typed()
        self._session.at.human_line = False
        self.note_left(running)
        if (prompt := running.prompt) is None or prompt.exit_code is None:
            running.note = running.note or (commands.LOST_TRACK if running.started else commands.NOT_SEEN)
            self.end(running, "lost", self.quiet_end(running), None)
        else:
            interrupted = running.interrupted and prompt.exit_code != 0
            end = prompt.start if running.quiet_end is None else min(prompt.start, running.quiet_end)
            end = self.before_trace(running, end, prompt.flags)
            self.end(running, "interrupted" if interrupted else "finished", end, prompt.exit_code)

    def lose(self, running: RunningCommand) -> None:
        """End a command of which no more can be found out."""
        if running.typed:
            self.end_typed(running)
        else:
            self.end(running, "lost", self.quiet_end(running), None)
        self._session.wake()

    def quiet_end(self, running: RunningCommand) -> int:
        """Return where its output ended before the shell was first asked what became of it."""
        if running.quiet_end is None:
            running.quiet_end = self._session.log.end
        return running.quiet_end

    def before_trace(self, running: RunningCommand, end: int, flags: str) -> int:
        """Return where its output ends, without what the shell then traced or echoed of our own text."""
        session = self._session
        if "x" not in flags and "v" not in flags:
            return end
        tail = session.log.read(max(running.record.start_offset, session.log.first, end - TRACE_BYTES), end)
        return end - len(tail) + len(session.shell.strip_trace(tail, session.spec.nonce))

    def note_left(self, running: RunningCommand) -> None:
        """Note the processes that the command leaves running with the terminal as their output."""
        session = self._session
        if session.terminal is None:
            return
        record = running.record
        found = processes.left_on_terminal(session.terminal.pid, session.terminal.tty, running.newest_pid)
        # In a box these include the processes that make and keep it.
        known = {session.shell_pid, *(left.pid for left in self._left_running)}
        if not session.shell.copies_run:
            known |= {pid for pid, _ in found if processes.is_copy(pid, session.shell_pid)}
        left = [LeftRunning(record.command_id, record.command, *one) for one in found if one[0] not in known]
        self._left_running += tuple(left)

    def note_concurrent(self, running: RunningCommand) -> None:
        """Note what earlier commands left running and may print during this one, or has printed since the prompt."""
        session = self._session
        log = session.log
        if 0 <= session.quiet_from < log.end and session.shell.draws_before_ready(session.at.version):
            printed = log.read(max(session.quiet_from, log.end - LATE_BYTES, log.first), log.end)
            running.late = clean(strip_marks(printed, session.spec.nonce)).strip("\n")
        earlier = self._left_running
        self._left_running = tuple(left for left in self._printing(earlier) if left.name)
        running.concurrent = earlier if running.late else self._left_running
        running.begun_ticks, running.newest_pid = processes.ticks(), processes.newest()

    def concurrent(self, record: CommandRecord) -> list[LeftRunning]:
        """Return what earlier commands had left running when ``record``, the latest, began, if it may have printed."""
        latest = self._session.latest
        if latest is None or latest.record.command_id != record.command_id:
            return []
        now = zip(latest.concurrent, self._printing(latest.concurrent), strict=True)
        # One that lives and does not print had just been begun then, and had not yet found its output.
        return [
            new if new.name else known
            for known, new in now
            if new.name or not processes.alive(known.pid, known.started)
        ]

    def _printing(self, left_running: Iterable[LeftRunning]) -> Iterator[LeftRunning]:
        """Yield the same with their present names; empty for those that no longer print on the terminal."""
        tty = self._session.terminal.tty if self._session.terminal is not None else ""
        for left in left_running:
            yield replace(left, name=processes.printing(left.pid, left.started, tty))
