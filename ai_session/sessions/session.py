"""One terminal with one shell: execute, send, wait, snapshot, interrupt, resize, end.

Everything known about a command comes from marks in the log, from the kernel (foreground group, termios, exit status)
or from the caller; never from what the output looks like and never from time alone.

Reading, commands, and finding out what a silent shell does stand together: each decides by what runs, where the shell
is and what was typed, and changes all three.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ai_session.backends.base import Terminal
from ai_session.models import (
    CommandRecord,
    CommandStatus,
    ExitStatus,
    InputMode,
    SandboxLevel,
    ScreenSnapshot,
    SessionSpec,
    SessionState,
)
from ai_session.sessions import commands
from ai_session.sessions.commands import CommandHistory, LeftRunning, RunningCommand, begun_last, command_text
from ai_session.sessions.leftovers import Leftovers, Looks
from ai_session.sessions.recovery import LOOK_SECONDS, Evidence, Recovery, Step
from ai_session.sessions.shell_process import GONE, READS_LINES, ShellProcess
from ai_session.sessions.shell_state import ShellState
from ai_session.sessions.spec import last_use, note_use
from ai_session.sessions.typed_input import LINE_ENDS, TypedInput
from ai_session.shells.base import ANSWERED, BEGUN, Shell, dated, make_again
from ai_session.system import foreground, processes, terminal_device
from ai_session.system.shell_words import is_whole
from ai_session.system.turns import Result, Steps, Turns, resolve, within
from ai_session.terminal.display import Display, Drawn
from ai_session.terminal.log import FOLLOW_BYTES, OutputLog
from ai_session.terminal.marks import Mark, MarkKind, MarkScanner, caught_up, strip_marks
from ai_session.terminal.text import clean
from ai_session.terminal.timing import Timing

CATCH_UP_BYTES = 1 << 18
"""Read of the log at once where it is looked through for marks."""

UNSENT_BYTES = 16 << 20
"""Input that waits for a program to read it; more is refused."""

REPLY_BYTES = 1 << 16
"""With more input waiting, a program that asks its terminal something gets no answer: it does not read them."""

READ_SECONDS = 0.0002
"""How long one turn of reading lasts. Three or four such turns lie between a key that is typed in another session and
its echo: so many passes of the loop it takes from the one to the other."""

SHORT_BYTES = 2048
"""A read from a pseudo-terminal that gives less has emptied it."""

LINE_END, RETURN = b"\n", b"\r"
"""What ends a line; the second one does to a line editor, also where a person has given the first another meaning."""

CLEARS = b"\x1e\x15"
"""What clears a line in a line editor, before what is typed there."""

INTERRUPT = b"\x03"
"""What Ctrl-C sends."""

USE_SECONDS = 1.0
"""How much older the time of the last use may be that a daemon leaves to the next."""

READY_SECONDS = 0.3
"""How long the ready mark is waited for before typing ahead; a prompt replaced by the person sends none."""

RECOVERY_SECONDS = 3.0
"""How long a next command waits for it to be found out that the one before has ended."""

ANSWER_SECONDS = 0.02
"""How soon a shell that showed its prompt is looked at again."""

OLDEST = "4.4.0(1)"
"""The version of a bash that is not known."""

RETRIES = 3
"""How often what was typed in vain is typed again."""

FILES = 64
"""A shell that may open too few files to take commands is allowed so many."""

MOST_CAPTURES = 3
"""Looks at the screen that a backend keeps of a session which prints, to find one between two pieces of output."""

SPARE_FILES = 2
"""A shell that has fewer left, and does not answer, is allowed more."""

STARTUP_SECONDS = 15.0

PROMPT_SECONDS = 10.0
"""How long a program that has the terminal, with no prompt drawn since the last command, is taken for the prompt's."""

LEAVE_SECONDS = 0.5
"""How long a shell that is ended may take to leave by itself."""

UNANSWERED = "the shell does not answer: close_session, or create_session another"

TAKEN_SECONDS = 2.0
"""How long the shell may be at work on what was typed before it counts as busy."""

PROMPT_LOOKS = 10
"""How often it is looked where the shell reads at a prompt that it has shown."""

TYPED_LOOK_SECONDS = 0.02
"""The same while what was typed is being taken; the longest of these waits is ``LONG_LOOK_SECONDS``."""

LONG_LOOK_SECONDS = 1.0

MARK_SECONDS = 0.1
"""How long a mark of the session's own is waited for before another is printed."""

TRACE_BYTES = 4096
"""Most of what the shell traces of our own at the end of a command."""

LATE_BYTES = 4096
"""Most bytes of background output, printed at a prompt, that the next command's result contains."""


class Typist(Protocol):
    """A person who has taken a session over, and is the only one to type in it."""

    who: str

    def overtaken(self, by: str) -> None:
        """Somebody else types from now on."""
        ...


class Session:
    """A named terminal. All methods belong to the event loop.

    Its output is taken in by ``turns``, so what is known of it may lag behind what it has printed; everything is
    reported in the order it was printed.
    """

    def __init__(
        self,
        spec: SessionSpec,
        directory: Path,
        shell: Shell,
        log: OutputLog,
        terminal: Terminal | None,
        turns: Turns,
        looks: Looks,
    ) -> None:
        self.spec = spec
        self.directory = directory
        self.turns = turns
        self.shell = shell
        self.log = log
        self.terminal = terminal
        self.box_end: asyncio.Future[None] | None = None
        self._looks = looks
        self._leftovers = Leftovers(spec.cookie, looks)
        self.files = directory / "shell"
        self.history = CommandHistory(directory)
        self._timing = Timing(directory / "times")
        self._thinning: asyncio.Task[None] | None = None
        self.running: RunningCommand | None = None
        self.exit: ExitStatus | None = None if terminal else ExitStatus(lost=True)
        self.at = ShellState(spec.working_directory, line_editor=shell.line_editor)
        self._named = ""
        """What the kernel called the shell's directory at the last mark that could name it."""
        self.typed = TypedInput()
        self.ended_by = self._given_up = ""
        """The command with which the shell ended, where that is known; why the session ended it, if it did."""
        self._overdue = False
        """Whether a command was refused because the prompt took too long: the next one is refused sooner."""
        self.viewers = 0
        self._claimed = False
        self._dates_files = False
        """Whether it was seen that files here show that the shell has come to them."""
        self._seq = 0
        self.used_at = last_use(directory) or spec.created_at
        self._use_kept = self.used_at
        """When a command began or ended, somebody typed or stopped watching, or an agent looked at it, last."""
        self._shown = self._read_back = self._reads = 0
        self._enter = LINE_END
        self.own_size: tuple[int, int] | None = None
        self.sized_by = set[object]()
        """Who lends the session a size; ``own_size`` comes back when the last of them has left."""
        self.typist: Typist | None = None
        """Who has taken over and is the only one to type."""
        self.listeners = set[Callable[[], None]]()
        """Called at each wake-up."""
        self.watched: Callable[[Session], None] = lambda _: None
        self.became: Callable[[Session, str], None] = lambda _, __: None
        self.blocker = ""
        self._starting: asyncio.TimerHandle | None = None
        self._killing: asyncio.TimerHandle | None = None
        self._line = Recovery()
        self._line_watch: asyncio.TimerHandle | None = None
        self._learning: asyncio.TimerHandle | None = None
        self._looks_left = 0
        """How often it may still be looked where the shell reads at the prompt that it has shown."""
        self._withheld = b""
        """The terminal's reply to a query that arrived after a command was typed and before it began."""
        self._process = ShellProcess(terminal, spec.level, self.files) if terminal else None
        self._display = Display(log, spec.rows, spec.cols, turns, spec.session_id)
        self._waiters: set[asyncio.Future[bool]] = set()
        self._scanner = MarkScanner(spec.nonce, log.first)
        self._in_line = False
        self._left: ExitStatus | None = None
        self.left_running: tuple[LeftRunning, ...] = ()
        self.latest: RunningCommand | None = None
        """The command that was begun last, running or ended."""
        self._quiet_from = -1
        self._following: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._resumed: tuple[int, int] | None = None

    def start(self) -> None:
        """Begin to read the terminal; what it already printed into the log is taken in first."""
        assert self.terminal is not None
        self.terminal.start(self._on_output, self._on_exit)
        if not self.at.up:
            self._watch_start_files(None, 0)

    def resume(self) -> None:
        """Take up a terminal an earlier daemon left: what happened meanwhile is read from the log."""
        begun = begun_last(self.files)
        offset = self.log.first
        self.at.up = begun is not None or offset > 0
        self._seq = last.seq if (last := self.history.last) else 0
        if begun is not None:
            record, offset, typed = begun
            self._seq = record.seq
            self.at.cwd = record.cwd
            if self.history.get(record.command_id) is None:
                ended = asyncio.get_running_loop().create_future()
                self.running = RunningCommand(record, ended, offset, adopted=True, typed=typed)
                self.running.started = typed and not self.shell.line_editor
            # Beyond the end: somebody removed the log, and this is another one.
            offset = max(offset, self.log.first) if offset <= self.log.end else self.log.first
        self._scanner = MarkScanner(self.spec.nonce, offset)
        # The numbers of an earlier daemon's marks are lower.
        self._shown = int(time.time())
        self.typed.unsettled = True
        self._resumed = (offset, self.log.end)
        self._display.make_ready()
        self.log.rewind(offset)
        if self.terminal is None:
            self._on_exit(ExitStatus(lost=True))
        else:
            self._leftovers.hold(self.terminal.pid, self.spec.level)
            self.start()
            self._read()

    def _caught_up(self, offset: int) -> None:
        """All that an earlier daemon left from ``offset`` on is known."""
        self._resumed = None
        if self.running is not None or self.at.human_line:
            self._named = ""  # what runs may have left the directory that it began in
        if self.running is not None and self.running.typed:
            self._follow_typed(self.running)
            return
        lost = self.log.lost_bytes(offset, self.log.end)
        if self.running and (lost or not self.log.first <= self.running.trigger_offset <= self.log.end):
            self._doubt()
        if self.running is not None and self.terminal is not None:
            self._watch(self.running)

    async def work(self, steps: Steps[Result]) -> Result:
        """Does what is asked about the session's output, which may hold much, by its turns."""
        return await self.turns.run(self.spec.session_id, steps)

    async def up_to_date(self) -> None:
        """Returns when what an earlier daemon left is known, which takes moments where a session printed much."""
        while self._resumed is not None:
            await self.changed()

    def touch(self) -> None:
        """It is in use now, which is kept where the last time that is kept is older."""
        before = self.used_at
        self.used_at = time.time()
        if max(self.used_at - before, self.used_at - self._use_kept) >= USE_SECONDS:
            self._use_kept = self.used_at
            note_use(self.directory, self.used_at)

    @property
    def cwd(self) -> str:
        """The directory that the shell is in, by the shell's name for it, or the kernel's where that is another since;
        where nobody may know, and after the shell has ended, what the shell named last."""
        here = self._directory()
        return self.at.cwd if here in ("", self._named) else here

    def _directory(self) -> str:
        """What the kernel calls the shell's directory."""
        if self._process is None or self.exit is not None or not self.at.up:
            return ""
        return self._process.directory()

    @property
    def in_use(self) -> bool:
        """Whether a command runs, or begins, or somebody watches."""
        busy = self.running is not None or self._claimed or self.at.human_line
        return (busy and self.exit is None) or self.viewers > 0 or self.typist is not None

    def respawn(self, terminal: Terminal) -> None:
        """Go on with a new shell on a new terminal; the log and the history continue."""
        self.terminal = terminal
        self.exit = None
        self._process = ShellProcess(terminal, self.spec.level, self.files)
        self.at.reset()
        self.typed = TypedInput()
        self.ended_by = ""
        self._given_up = ""
        self._overdue = False
        self._leftovers = Leftovers(self.spec.cookie, self._looks)
        self._display = Display(self.log, self.spec.rows, self.spec.cols, self.turns, self.spec.session_id)
        self.start()

    async def wait_started(self) -> None:
        """Returns when the shell has read its start files or has ended; after 15 s, the state then says starting."""
        await self._until_started()
        self._display.make_ready()  # whoever opens a session need not wait for it
        if self.terminal is not None and self.exit is None:
            self._leftovers.hold(self.terminal.pid, self.spec.level)

    async def _until_started(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STARTUP_SECONDS
        while not (self.at.up and (self.at.ready or not self.shell.line_editor)) and self.exit is None:
            if self.blocker or not await self.changed(deadline - loop.time()):
                return

    async def close(self, grace_seconds: float) -> None:
        """End the shell and everything that carries the session's cookie, wherever it fled; killed after the grace."""
        if self.terminal is not None:
            await self.terminal.close()
        await self._leftovers.end(grace_seconds)
        self._resumed = None
        if self.exit is None:
            self._conclude(self._left or ExitStatus(signal=1))
        self.wake()
        self.release()

    def release(self) -> None:
        """Let go of files without ending anything."""
        if self.terminal is not None:
            self.terminal.detach()
        if self.running and self.running.watchdog:
            self.running.watchdog.cancel()
        for timer in (self._thinning, self._following, self._starting, self._killing, self._line_watch, self._learning):
            if timer is not None:
                timer.cancel()
        self._leftovers.release()
        for file in (self.log, self.history, self._timing):
            file.close()

    def _on_output(self) -> None:
        if not self._in_line and not self.turns.at_once(self.spec.session_id, self._read):
            self._line_up()

    def _line_up(self) -> None:
        if not self._in_line:
            self._in_line = True
            self.turns.add(self.spec.session_id, self._take_turn)

    def _take_turn(self) -> None:
        self._in_line = False
        if not self.log.closed:
            self._read()

    def _read(self) -> None:
        """Takes in what there is, for as long as a turn of reading; the rest gets a turn of its own."""
        terminal = self.terminal
        self._reads += 1
        lost = self.log.losing
        self.log.losing = terminal is not None and terminal.losing
        until, before = time.perf_counter() + READ_SECONDS, self.log.end
        more = self._look_through(until) or self._take_in(until)
        if self.log.end != before:
            self._timing.note(self.log.end)
            if self._timing.full and self._thinning is None:
                self._thinning = asyncio.ensure_future(self._thin())
        if terminal is not None:
            terminal.unread(self.log.size - self.log.end if more else 0)
        if self._resumed and (not more or self._scanner.offset >= self._resumed[1]):
            self._caught_up(self._resumed[0])
        if lost and not self.log.losing:
            if self.running is not None:
                self.running.miss()
            self._doubt()
        if more:
            self._line_up()
        elif self._left is not None:
            self._conclude(self._left)
        self.wake()

    async def _thin(self) -> None:
        try:
            await self.work(self._timing.thin(self.log.first))
        finally:
            self._thinning = None

    def _look_through(self, until: float) -> bool:
        """Takes in what the log holds already; whether it holds more."""
        while (offset := self._scanner.offset) < self.log.end:
            self._note(self.log.read(offset, offset + CATCH_UP_BYTES))
            if time.perf_counter() >= until:
                return self._scanner.offset < self.log.end
        return False

    def _take_in(self, until: float) -> bool:
        """Takes in what the terminal has printed; whether it may have printed more."""
        terminal = self.terminal
        source = terminal.read_into if terminal is not None else None
        while chunk := self.log.fill(source):
            if self.log.end - len(chunk) != self._scanner.offset:
                self._missed(self.log.end - len(chunk))
            self._note(chunk)
            if terminal is not None and not terminal.writes_log:
                self._display.answer(chunk, self._answer)
            if terminal is not None and len(chunk) < (FOLLOW_BYTES if terminal.writes_log else SHORT_BYTES):
                return False  # what is appended from now on to a log that somebody else writes is an event of its own
            if time.perf_counter() >= until:
                return True
        return False

    def _missed(self, offset: int) -> None:
        """What came before ``offset`` was let go of before it was looked at, and with it maybe marks."""
        self._scanner = MarkScanner(self.spec.nonce, offset)
        self._doubt()

    def _answer(self, reply: bytes) -> None:
        if self.running is not None and not self.running.started:
            # The prompt asked, but the command that follows would read the reply, or print it.
            self._withheld = reply
            return
        if self.terminal is not None and self.terminal.unsent < REPLY_BYTES:
            self.terminal.write(reply)

    def _note(self, chunk: bytes) -> None:
        for mark in self._scanner.feed(chunk, self.running.record.seq if self.running else None):
            self._on_mark(mark)

    def _on_mark(self, mark: Mark) -> None:
        running = self.running
        flags = self.at.flags
        self.at.apply(mark)
        if mark.kind in (MarkKind.COMMAND_FINISHED, MarkKind.PROMPT_START):
            self._named = self._directory()
            if not mark.cwd.startswith("/"):
                self.at.cwd = self._named or self.at.cwd
        if mark.kind is MarkKind.CAUGHT_UP:
            self._read_back = max(self._read_back, mark.seq or 0)
            if self.typed.reached(self._read_back, self.at.prompts) and running is not None:
                running.prompt = None
            return
        if mark.kind is (MarkKind.PROMPT_READY if self.shell.line_editor else MarkKind.PROMPT_START):
            self._quiet_from = mark.end
        if mark.kind is MarkKind.PROMPT_READY:
            self.typed.prompt_at(mark.end)
        if mark.kind is MarkKind.SHELL_EXITED:
            last = self.history.last if not self.typed.unsettled else None
            self.ended_by = running.record.command_id if running else last.command_id if last else ""
        if mark.kind is MarkKind.LINE_EXECUTED:
            self.typed.ran = True
            if running is None:
                self._line.again()
                self._watch_line()
        if mark.kind in (MarkKind.PROMPT_START, MarkKind.PROMPT_READY):
            self._learn_prompt_soon()
        if mark.kind is MarkKind.SHELL_STARTED and self._resumed is None and self._process is not None:
            self._process.started()
        if running is not None and running.typed:
            self._on_typed_mark(running, mark)
            return
        if running is None or mark.seq not in (None, running.record.seq):
            return
        if mark.kind is MarkKind.COMMAND_EXECUTED:
            if mark.seq and not running.started:
                running.start_at(mark.end)
                self._display.forget_questions(mark.end)
                # What was seen before it began says nothing of its end.
                running.quiet_end = None
                running.recovery.again()
        elif mark.kind is MarkKind.NEVER_BEGUN:
            self._begin_again(running, mark.exit_code)
        elif mark.seq:
            self._on_end_mark(running, mark, flags)
        elif mark.kind in (MarkKind.PROMPT_READY, MarkKind.AT_PROMPT, MarkKind.PROMPT_START):
            self._on_prompt(running)

    def _on_end_mark(self, running: RunningCommand, mark: Mark, flags: str) -> None:
        """What ended has begun, whether its start mark was lost or not. A shell that ends cannot say with which code: a
        signal may end it."""
        if mark.exit_code is None and mark.kind is not MarkKind.COMMAND_FINISHED:
            return
        if not running.started:
            running.start_at(running.trigger_offset)
        if mark.kind is MarkKind.SHELL_EXITED:
            return
        begun = dated(self.files, BEGUN)
        self._dates_files |= begun
        if not begun and self._dates_files:
            # What comes before the text ended the file: the status is not the command's. The prompt follows.
            asked, running.unbegun = running.unbegun, True
            if asked or mark.kind is MarkKind.PROMPT_START:
                self._begin_again(running, None)
            return
        end = mark.start if running.quiet_end is None else min(mark.start, running.quiet_end)
        if mark.exit_code is None:
            asked_again = bool(running.note)
            running.note = running.note or "it was aborted, or its shell was replaced: its exit status is unknown"
            self._end(running, "lost", end, None)
            if not asked_again:
                # What befell it may have taken away what reports the end.
                self._reintegrate(None, restore=False)
        else:
            self._finish(running, end, mark.exit_code, flags + mark.flags)

    def _on_prompt(self, running: RunningCommand) -> None:
        """A prompt before the end mark: it will not come any more, if this is not the text of an old one."""
        if running.unbegun:
            self._begin_again(running, None)
            return
        running.recovery.confirm()
        self._watch(running, seconds=ANSWER_SECONDS)

    def _on_typed_mark(self, running: RunningCommand, mark: Mark) -> None:
        self._news.set()
        if mark.kind is MarkKind.LINE_EXECUTED:
            running.prompt = None
            if not running.started:
                running.start_at(mark.end)
            if not running.asks:
                # What was seen before it began says nothing of its end.
                running.quiet_end = None
                running.recovery.again()
        elif mark.kind is MarkKind.SHELL_STARTED:
            running.prompt = None
            running.note = running.note or self._replaced_by()
            if not running.asks:
                self._end_typed(running)
        elif mark.kind is MarkKind.COMMAND_FINISHED and mark.seq is None and running.asks:
            running.prompt = mark
            self._end_typed(running)
        elif mark.kind is MarkKind.PROMPT_START and mark.seq is None and not running.asks:
            if running.started or not running.prompt_owed:
                running.prompt = mark
        elif mark.kind is MarkKind.PROMPT_READY or (mark.kind is MarkKind.AT_PROMPT and mark.flags == "p"):
            running.recovery.confirm()

    def _doubt(self) -> None:
        """Output was lost, and with it maybe marks: what they would have said is found out."""
        running = self.running
        if running is not None and not running.typed:
            running.lose(self.log.end)
            if self.terminal is not None:
                self._watch(running)
        elif self.typed.ended_at:
            self._doubt_line()

    def _doubt_line(self) -> None:
        """A line that was typed may run, or not be complete, until a prompt shows that it has ended."""
        if not self.at.human_line:
            self.at.human_line = True
            self.at.ready = False
            if self.running is None:
                self._line.again()
                self._watch_line()

    def _finish(self, running: RunningCommand, end: int, exit_code: int | None, flags: str) -> None:
        end = self._before_trace(running, end, flags)
        if self.terminal is not None:
            few = self._allow_files(running)
            running.note = running.note or few
            self._note_left(running)
            if few or running.cramped:
                # What it could not open for a redirection may be missing now.
                self._reintegrate(None, restore=False)
        status: CommandStatus = "interrupted" if running.interrupted and exit_code not in (0, None) else "finished"
        self._end(running, status, end, exit_code)

    def _note_left(self, running: RunningCommand) -> None:
        """Note the processes that the command leaves running with the terminal as their output."""
        if self.terminal is None:
            return
        record = running.record
        found = processes.left_on_terminal(self.terminal.pid, self.terminal.tty, running.newest_pid)
        # In a box these include the processes that make and keep it.
        known = {self.shell_pid, *(left.pid for left in self.left_running)}
        if not self.shell.copies_run:
            known |= {pid for pid, _ in found if processes.is_copy(pid, self.shell_pid)}
        left = [LeftRunning(record.command_id, record.command, *one) for one in found if one[0] not in known]
        self.left_running += tuple(left)

    def _before_trace(self, running: RunningCommand, end: int, flags: str) -> int:
        """Where its output ends without what the shell then traced or echoed of our own."""
        if "x" not in flags and "v" not in flags:
            return end
        tail = self.log.read(max(running.record.start_offset, self.log.first, end - TRACE_BYTES), end)
        return end - len(tail) + len(self.shell.strip_trace(tail, self.spec.nonce))

    def _end(self, running: RunningCommand, status: CommandStatus, end: int, exit_code: int | None) -> None:
        self.running = None
        if not running.typed:
            # What was typed meanwhile was the command's.
            self.typed.answered_all(self.at.prompts)
        self.touch()
        seconds = max(0.0, time.time() - running.record.started_at)
        self.history.append(running.finish(status, end, exit_code, self.cwd, seconds))

    def _on_exit(self, status: ExitStatus) -> None:
        self._left = status
        self._on_output()

    def _conclude(self, status: ExitStatus) -> None:
        """The shell has ended, and all it printed is known."""
        if status.lost and self.terminal is None:
            status = ExitStatus(code=self.at.exit_code, lost=self.at.exit_code is None)
        self._left = None
        self.exit = status = replace(self.at.exit_status(status, self.spec.level), reason=self._given_up)
        self.at.ready = False
        if self.spec.level is not SandboxLevel.NONE:
            # A box ends with its shell, and with what made it, of whose death the shell need not hear.
            self.box_end = asyncio.ensure_future(self._leftovers.end(0))
        if (running := self.running) is not None and not running.started:
            running.never_ran = running.typed or not dated(self.files, BEGUN)
            running.note = "" if running.never_ran else commands.LOST_TRACK
            self._end(running, "lost", self.log.end, None)
        elif running is not None:
            self.ended_by = running.record.command_id
            code = self.at.exit_code
            if code is None or status.signal is not None or (status.code or 0) > 128:
                # The shell's own word is the last status it knew, which a signal does not change.
                code = status.code if status.signal is None else 128 + status.signal
            self._end(running, "lost" if code is None else "finished", self.log.end, code)

    def wake(self) -> None:
        """Let everyone waiting for a change look again."""
        self.watched(self)
        for listener in tuple(self.listeners):
            listener()
        waiters = self._waiters
        self._waiters = set()
        for waiter in waiters:
            resolve(waiter, True)

    async def changed(self, timeout: float | None = None) -> bool:
        """Waits for the next output, mark or exit; False when ``timeout`` seconds passed without one."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            return await within(waiter, timeout)
        finally:
            self._waiters.discard(waiter)

    def _undecided(self, recovery: Recovery, evidence: Evidence) -> bool:
        return evidence.reads and not evidence.executing and not recovery.in_vain

    def may_have_ended(self) -> bool:
        """Whether the shell reads as it does at its prompt, and is being asked what became of what was running."""
        running = self.running
        if running is not None and not running.typed:
            return self._undecided(running.recovery, self._evidence())
        if (running is None and not self.at.human_line) or (self.at.human_line and self.at.incomplete):
            return False
        recovery = self._line if running is None else running.recovery
        return self._undecided(recovery, self._evidence(by_person=True))

    async def _found_out(self) -> None:
        """Returns when it is known of a command whose shell may be at its prompt whether it has ended."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RECOVERY_SECONDS
        while not self._claimed and (self._shows_prompt() or self.may_have_ended()):
            if not await self.changed(deadline - loop.time()):
                return

    def _shows_prompt(self) -> bool:
        """Whether there was a prompt since the running command began, and no other program has the terminal."""
        running = self.running
        if running is None or self.terminal is None or self.exit is not None:
            return False
        # What the integration starts, when it is read again, has the terminal for a moment.
        recovery = running.recovery
        return recovery.asking or (running.started and recovery.prompt and foreground.leads(self.shell_pid))

    async def begin(
        self,
        command: str,
        *,
        command_id: str,
        stdin: bytes | None = None,
        separate_stderr: bool = False,
        call_key: str = "",
    ) -> RunningCommand:
        """Start ``command`` and return at once; raises SessionBusy, SessionExited, IntegrationLost, StorageFull."""
        self.check_typist()
        self._learn_prompt()
        await self._found_out()
        await self._typed_command_ended()
        self._check_free()
        self._claimed = True
        try:
            await self._at_prompt()
            few = self._allow_files(None)
            await self._display.settled()  # else the answer to what the prompt asked would be input of the command
            await self._end_known()
            self._check_alive()
            self.check_typist()
            self.log.require_room()
        finally:
            self._claimed = False
        self._seq += 1
        stderr_path = str(self.files / f"out/stderr-{self._seq}") if separate_stderr else ""
        offset = self.log.end
        record = CommandRecord(
            command_id=command_id,
            seq=self._seq,
            command=command,
            status="running",
            started_at=time.time(),
            start_offset=offset,
            cwd=self.cwd,
            call_key=call_key,
            stderr_path=stderr_path,
        )
        running = RunningCommand(record, asyncio.get_running_loop().create_future(), offset)
        running.stdin_path = commands.keep_stdin(self.files, stdin)
        running.note = few
        running.dropped = self.typed.drop_half()
        self._look_for_others(running)
        more = self._write(running)
        self.running = self.latest = running
        self.touch()
        self._type_trigger(more)
        self._watch(running)
        return running

    def _write(self, running: RunningCommand) -> bytes:
        """Puts the command where the shell reads it; what is typed after the trigger. Raises OSError."""
        # An adopted shell has reported its version to an earlier daemon.
        if not running.retries:
            running.before = self.at.last_exit
        version = self.at.version or (OLDEST if os.path.basename(self.spec.shell) in ("bash", "sh") else "")
        text = command_text(
            running.record,
            self.spec.nonce,
            running.trigger_offset,
            running.stdin_path,
            running.before,
            self.at.flags,
            version,
            self.at.as_typed,
            running.dropped,
            again=running.retries > 0,
        )
        try:
            return self.shell.write_command(self.files, text)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._restore_files()
            return self.shell.write_command(self.files, text)

    def _restore_files(self) -> None:
        """What the shell reads of ours, where a command removed it. Raises OSError."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_again(self.files)
        if (self.files / "c").is_dir():
            (self.files / "c").rmdir()
        self._install(self.spec.shell)

    def _install(self, executable: str) -> None:
        self.shell.install(self.files, self.spec.nonce, executable=executable, user_rc=True, login_env=self.spec.env)

    @property
    def ending(self) -> ExitStatus | None:
        """How the shell has ended, or is just ending by its own last word."""
        if self.exit is None and self._given_up:
            return ExitStatus(signal=signal.SIGHUP, reason=self._given_up)
        if self.exit is None and self.at.exit_code is not None:
            return ExitStatus(code=self.at.exit_code)
        return self.exit

    async def ended(self) -> None:
        """Returns when a shell that has said its last word has gone, or is long in going."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TAKEN_SECONDS
        last = self.history.last if self.running is None else None
        if self.shell.exits_late and last and "exit" in last.command:
            while not self.at.ready and self.ending is None and await self.changed(deadline - loop.time()):
                pass
        if last and "exec" in last.command and self.shell.reads_input and (terminal := self.terminal) is not None:
            # Its input is another now, which it reads to the end.
            while self.ending is None and not processes.fed_by(self.shell_pid, terminal.tty):
                if not await self.changed(deadline - loop.time()):
                    break
        while self.exit is None and self.ending is not None and await self.changed(deadline - loop.time()):
            pass

    async def _end_known(self) -> None:
        """A terminal that has ended, or whose shell has, takes no output either: that is no lack of room."""
        if not self.log.losing or (terminal := self.terminal) is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STARTUP_SECONDS):
                await terminal.settled()
                while self.exit is None and (self._left is not None or not processes.alive(terminal.pid, None)):
                    await self.changed()

    async def _typed_command_ended(self) -> None:
        """Lines that were typed get the moment that they take, where they take one."""
        if (running := self.running) is not None and running.typed:
            await running.ends(TAKEN_SECONDS if not self.at.human_line else READY_SECONDS)

    def _look_for_others(self, running: RunningCommand) -> None:
        """What earlier commands left running may print beside this one, and may have printed since the prompt."""
        if 0 <= self._quiet_from < self.log.end and self.shell.draws_before_ready(self.at.version):
            printed = self.log.read(max(self._quiet_from, self.log.end - LATE_BYTES, self.log.first), self.log.end)
            running.late = clean(strip_marks(printed, self.spec.nonce)).strip("\n")
        earlier = self.left_running
        self.left_running = tuple(left for left in self._printing(earlier) if left.name)
        running.concurrent = earlier if running.late else self.left_running
        running.newest_pid = processes.newest()

    def _printing(self, left_running: Iterable[LeftRunning]) -> Iterator[LeftRunning]:
        """The same with their names as they are now; without one, where they do not print on the terminal any more."""
        tty = self.terminal.tty if self.terminal is not None else ""
        for left in left_running:
            yield replace(left, name=processes.printing(left.pid, left.started, tty))

    def concurrent(self, record: CommandRecord) -> list[LeftRunning]:
        """What earlier commands had left running when this one, the latest, began, and may have printed since."""
        latest = self.latest
        if latest is None or latest.record.command_id != record.command_id:
            return []
        now = zip(latest.concurrent, self._printing(latest.concurrent), strict=True)
        # One that lives and does not print had just been begun then, and had not yet found its output.
        return [
            new if new.name else known
            for known, new in now
            if new.name or not processes.alive(known.pid, known.started)
        ]

    def _check_free(self) -> None:
        if self.ending is not None or self.terminal is None:
            raise commands.ended(self.spec.name, self.ending)
        if self.running is not None or self._claimed:
            raise commands.busy(self.spec.name, self.running)

    async def _at_prompt(self) -> None:
        if not (self.at.up and self.at.ready):
            await self._prompt_drawn()
        self._overdue = False
        await self._editor_reads()
        if self.typed.unsettled or self.at.human_line:
            await self._typed_taken()
        await self._fed_by_terminal()

    async def _editor_reads(self) -> None:
        """Letters that are keys of the terminal are keys of a line editor, too: before that reads they could not be
        quoted."""
        if (
            self.shell.line_editor
            or self.terminal is None
            or not terminal_device.has_letters_as_keys(self.terminal.tty)
        ):
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TAKEN_SECONDS
        while self._is_at_work() and loop.time() < deadline:
            await self.changed(TYPED_LOOK_SECONDS)
            self._check_alive()

    async def _fed_by_terminal(self) -> None:
        """Raises SessionBusy where the shell reads its lines from elsewhere since `exec <`, and does not soon come to
        the end of that."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RECOVERY_SECONDS
        while self._fed_elsewhere():
            if not await self.changed(deadline - loop.time()):
                source = await asyncio.to_thread(processes.standard_input, self.shell_pid)
                raise commands.fed_elsewhere(self.spec.name, source)
            self._check_alive()

    def _fed_elsewhere(self) -> bool:
        if self.terminal is None or not self.shell.reads_input:
            return False
        return processes.fed_elsewhere(self.shell_pid, self.terminal.tty)

    async def _prompt_drawn(self) -> None:
        """Returns when the shell accepts a line, or after a while: not every prompt is marked."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (READY_SECONDS if self.at.up else STARTUP_SECONDS)
        was_up = self.at.up
        while not self.at.ready and not self.at.human_line and self.exit is None:
            if self.at.up and not was_up:
                deadline, was_up = loop.time() + READY_SECONDS, True
            if self.blocker or not await self.changed(deadline - loop.time()):
                break
        self._check_alive()
        if self.at.ready or self.at.human_line or self.terminal is None:
            return
        holder = await self._prompts_program(deadline + (0 if self._overdue else PROMPT_SECONDS))
        if holder is not None and not holder.leads_itself:
            raise commands.occupied(self.spec.name, holder.name)
        if holder is not None and self._draws_prompt():
            self._overdue = True
            raise commands.at_prompt_work(self.spec.name, PROMPT_SECONDS)
        if not self.at.up and self.blocker and self._present_shell()[0] is None:
            raise commands.became(self.spec.name, self.blocker)
        if not self.at.up and self.blocker:
            raise commands.asked_at_start(self.spec.name)
        if not self.at.up:
            raise commands.not_started(self.spec.name, STARTUP_SECONDS)

    async def _prompts_program(self, deadline: float) -> foreground.Foreground | None:
        """Who has the terminal; what the prompt runs, be it the shell itself, is waited for until then, as long as none
        is drawn."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while (holder := self.holder()) is not None and self.at.up:
            drawing = self._draws_prompt() or (loop.time() < begun + RECOVERY_SECONDS and self._prompt_reads())
            drawn = self.at.ready or self.at.human_line or (holder.leads_itself and not drawing)
            if drawn or loop.time() >= deadline:
                break
            # Not at what is printed, which may be much.
            await self._news_of_line(min(LOOK_SECONDS, deadline - loop.time()))
            self._check_alive()
        return holder

    def _draws_prompt(self) -> bool:
        """Whether the shell is known to be at work since its last command, with no prompt drawn."""
        if self.at.ready or self.at.human_line or not self.at.up or self._process is None:
            return False
        return self._process.is_busy() and not self._fed_elsewhere()

    def _prompt_reads(self) -> bool:
        """Report whether the shell seems to read for what draws its prompt, such as the terminal's cursor position."""
        undrawn = self.at.up and not self.at.ready and not self.at.human_line
        return undrawn and self._process is not None and self._process.reads_elsewhere(self.shell)

    async def _typed_taken(self) -> None:
        """Returns when the shell has taken all that was typed and is at its prompt; raises SessionBusy where it is not,
        so that nothing is typed into what a person runs."""
        loop = asyncio.get_running_loop()
        begun = refused = loop.time()
        while (back := await self._prompt_is_back(begun + TAKEN_SECONDS - loop.time())) is not True:
            self._check_alive()
            holder, now = self.holder(), loop.time()
            if holder is not None and not holder.leads_itself and now - begun >= READY_SECONDS:
                raise commands.occupied(self.spec.name, holder.name)
            if back is None:
                refused = now
            # Its prompt may have come without a word, which is being found out; a line editor works now and then.
            unsure = back is False and (self._is_at_work() or self.may_have_ended())
            patience = RECOVERY_SECONDS if unsure else READY_SECONDS
            left = min(refused + patience, begun + max(TAKEN_SECONDS, patience)) - now
            if left <= 0:
                raise commands.line_open(self.spec.name)
            if back is None:
                await self.changed(min(TYPED_LOOK_SECONDS, left))
            else:
                await self._news_of_line(left)
        self._settle_typed()

    async def _news_of_line(self, seconds: float) -> None:
        """Returns when the shell has reported something, or more was typed. What is printed says nothing, and a look
        prints."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds

        def known() -> tuple[object, ...]:
            return self.at.human_line, self.at.ready, self.at.prompts, self.typed.count, self.exit, self._line.in_vain

        before = known()
        while known() == before and await self.changed(deadline - loop.time()):
            pass

    async def _prompt_is_back(self, seconds: float) -> bool | None:
        """Whether the shell asks for its next line, now that it has taken what was typed; None: it is still at work.

        Decided by the kernel, that the shell waits for its terminal with nothing left to read, and by all the marks
        that it printed before.
        """
        count = self.typed.count
        if not self._took_lines() or not await self._caught_up_with_terminal(seconds):
            return None
        if not self._took_lines() or self.typed.count != count or self.exit is not None:
            return None
        unprompted = self._unprompted()
        back = not self.at.human_line and (not unprompted if self.shell.line_editor else self._reads_lines())
        if not back and self._evidence(by_person=True).at_prompt:
            self._prompt_proven()
            return True
        if unprompted and self.shell.asks:
            self._doubt_line()
        return back

    def _took_lines(self) -> bool:
        """Report whether the shell waits for its terminal with nothing left to read, or its line editor, which may
        always be busy, has shown a prompt for each line."""
        if not self._is_at_work():
            return True
        process = self._process
        shown = self.shell.line_editor and self.at.ready and self.typed.all_taken(self.at.lines)
        return shown and process is not None and foreground.leads(process.pid) and not process.owes()

    def _reads_lines(self) -> bool:
        """Whether a shell without a line editor, which waits for its terminal, does so at its prompt."""
        process = self._process
        mode = process.input_mode() if process is not None else None
        size = foreground.read_size(process.pid) if process is not None and mode == "line" else None
        edits = process is not None and mode == "raw" and process.edits_lines()
        if self._unprompted():
            # The Korn shells may read for their `read` as they do at a prompt.
            ahead = size is not None and size >= READS_LINES and "ksh" not in os.path.basename(self.spec.shell)
            return (edits or ahead) and self._completely_typed()
        if size is not None:
            return size >= READS_LINES
        answered = (edits and self._on_prompts_line()) or self.typed.answered(self.at.prompts)
        return answered or (edits and self._completely_typed())

    def _completely_typed(self) -> bool:
        """Whether a shell without a line editor, that reads its next line and has marked no prompt, surely is not
        within the last one."""
        lines = None if self.shell.line_editor else self.typed.lines()
        return bool(lines) and is_whole(lines)

    def _unprompted(self) -> bool:
        """Whether no prompt has followed the last typed line, in a shell that marks its prompts."""
        at, typed = self.at, self.typed
        if not at.prompt_end or not typed.expects_prompt:
            return False
        return at.prompt_end <= typed.ended_at if self.shell.line_editor else not typed.prompted(at.prompts)

    def _on_prompts_line(self) -> bool:
        """Whether the cursor has not left the line of the last prompt, as it does where a line continues."""
        shown = self.log.read(max(self._quiet_from, self.log.first), self.log.end) if self._quiet_from >= 0 else b"\n"
        return b"\n" not in shown

    def _is_at_work(self) -> bool:
        return self._process is None or self._process.is_at_work(self.holder())

    async def _caught_up_with_terminal(self, seconds: float) -> bool:
        """Whether all that was printed before this call is known now; a terminal that is held back says nothing."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        if (number := self._show_mark()) is None:
            return False
        again = loop.time() + MARK_SECONDS
        while self._read_back < number and self.exit is None:
            self._on_output()
            now = loop.time()
            if now >= deadline:
                return False
            if now >= again:
                # Output may be lost, and a later one says as much.
                self._show_mark()
                again = now + MARK_SECONDS
            if self._read_back < number:
                await self.changed(min(again, deadline) - loop.time())
        return self.exit is None

    def _show_mark(self) -> int | None:
        """Prints a mark on the terminal: what comes before it in the log was printed before."""
        self._shown += 1
        if self.terminal is None:
            return None
        mark = caught_up(self.spec.nonce, self._shown)
        return self._shown if terminal_device.show(self.terminal.tty, mark) else None

    def _check_alive(self) -> None:
        if self.ending is not None:
            self._check_free()

    def _type_trigger(self, more: bytes) -> None:
        assert self.terminal is not None
        self._quiet_from = -1
        traced = "x" in self.at.flags
        trigger = self.shell.trigger(ready=self.at.ready and self.shell.line_editor, traced=traced)
        self._type(trigger + more)
        self.at.ready = False

    def _type(self, line: bytes) -> None:
        """Types a line of the session's own."""
        assert self.terminal is not None
        terminal_device.let_print(self.terminal.tty)
        if not self.shell.line_editor and (quoted := terminal_device.quoted(self.terminal.tty, line)) != line:
            self.terminal.write(quoted)
            return
        undone = terminal_device.accept_text(self.terminal.tty, line_ends=not self.shell.line_editor)
        if undone and self.running is not None:
            settings = " ".join(undone)
            self.running.note = self.running.note or f"`stty {settings}` is undone: no command could be typed with it"
        self.terminal.write(line.replace(LINE_END, self._enter) if self.shell.line_editor else line)

    def _watch(
        self, running: RunningCommand, unread: tuple[int, int] | None = None, *, seconds: float = LOOK_SECONDS
    ) -> None:
        if running.watchdog is not None:
            running.watchdog.cancel()
        running.watchdog = asyncio.get_running_loop().call_later(seconds, self._look, running, unread)

    def _look(self, running: RunningCommand, unread: tuple[int, int] | None) -> None:
        """Nothing was reported since the last look: acts only on proof that the command does not run.

        ``unread``: how often output had been taken in at the last look, and where the log ended, if what was printed
        before was not known then.
        """
        if running is not self.running or self.terminal is None or self.exit is not None:
            return
        self._on_output()
        if running is not self.running:
            return
        known = unread is not None and unread[0] < self._reads and unread[1] <= self._scanner.offset
        behind = self._in_line and not known
        self._watch(running, (unread or (self._reads, self.log.size)) if behind else None)
        if not behind and not self.log.losing:
            terminal_device.let_print(self.terminal.tty)
            evidence = self._evidence(by_person=running.typed)
            self._answer_late(running, evidence)
            # A typed line is never begun again.
            started, answers = running.started or running.typed, bool(self.shell.asks)
            self._take(running, running.recovery.next(evidence, started=started, answers=answers), evidence)

    def _take(self, running: RunningCommand, step: Step, evidence: Evidence) -> None:
        assert self.terminal is not None
        if step is Step.WAIT:
            if not running.recovery.asking:
                running.quiet_end = None
            if running.recovery.in_vain:
                # Whoever waits until it is found out may continue.
                self.wake()
            return
        if step is Step.CONTINUE:
            processes.go_on(self.shell_pid)
        elif step is Step.STARTED:
            running.start_at(running.trigger_offset)
        else:
            # A command that reads with the line editor may still need those it has.
            used = 0 if step is Step.ASK else processes.files_open(self.shell_pid)
            if few := self._allow_files(running, used):
                running.note = running.note or few
                running.cramped = True
            if step is Step.GIVE_UP and not self._given_up and not dated(self.files, ANSWERED):
                example = f", as with {self.shell.silenced_by}" if self.shell.silenced_by else ""
                self._give_up(f"it did not execute what was typed{example}", running)
            if step is Step.GIVE_UP or self._given_up:
                running.note = running.note or self._given_up or UNANSWERED
                self._lose(running)
            elif step is Step.ASK:
                self._quiet_end(running)
                self.terminal.write(self.shell.asks)
            elif running.typed and not evidence.replaced and not self._may_be_asked(running):
                self._lose(running)
            else:
                self._probe(running, step)

    def _answer_late(self, running: RunningCommand, evidence: Evidence) -> None:
        """Send the terminal's withheld reply if the prompt waits for it and so does not take the command."""
        if running.started:
            self._withheld = b""
        waits = self._withheld and evidence.leads and not evidence.reads and self._process is not None
        if waits and self.terminal is not None and self._process is not None and self._process.input_mode():
            withheld, self._withheld = self._withheld, b""
            self.terminal.write(withheld)

    def _may_be_asked(self, running: RunningCommand) -> bool:
        """Report whether the shell knows how the typed line ended, and asking discards nothing typed since."""
        return running.started and not self.typed.half_line()

    def _lose(self, running: RunningCommand) -> None:
        if running.typed:
            self._end_typed(running)
        else:
            self._end(running, "lost", self._quiet_end(running), None)
        self.wake()

    def _quiet_end(self, running: RunningCommand) -> int:
        if running.quiet_end is None:
            running.quiet_end = self.log.end
        return running.quiet_end

    def _probe(self, running: RunningCommand, step: Step) -> None:
        """Has the shell say what became of the command. What cannot be written, as on a full disk, is asked again."""
        try:
            self._ask_shell(running, step)
        except OSError:
            running.recovery.untaken()

    def _ask_shell(self, running: RunningCommand, step: Step) -> None:
        assert self.terminal is not None
        self._quiet_end(running)
        edited = self._process is None or not self._process.reads_unedited()
        if step is Step.CLEAR:
            self.terminal.write(self._interrupt_key())
        if step in (Step.CLEAR, Step.REINTEGRATE, Step.RESTORE) and not running.started:
            self._enter = RETURN
        if step in (Step.REINTEGRATE, Step.RESTORE):
            self._reintegrate(running, restore=step is Step.RESTORE)
        stopped = running.interrupted or running.stopped_by_key
        aborted = 128 + signal.SIGINT if stopped else None
        running.asks += 1
        if running.typed:
            # Every other step changes the status that the line has left.
            question = self.shell.write_line_probe(self.files, status=step is Step.PROBE)
        else:
            question = self.shell.write_probe(self.files, running.record.seq, aborted, running.asks)
        # A key of the line editor's would be part of the line.
        self._type(question if edited else question.lstrip(CLEARS))
        self.at.ready = False

    def _reintegrate(self, running: RunningCommand | None, *, restore: bool) -> None:
        """Has the shell read the integration again, the one for what it is now."""
        assert self.terminal is not None
        notes = ["the shell did not report the end of this command, so it was queried"]
        shell, replaced = self._present_shell()
        if replaced and shell is not None:
            self._become(shell)
            notes = [self._replaced_by()]
        if running is not None:
            running.note = running.note or "; ".join(notes)
        if not (self.files / "integration").exists():
            with contextlib.suppress(OSError):
                self._restore_files()
        self._type(self.shell.reintegrate(self.files, restore=restore))

    def _replaced_by(self) -> str:
        return f"the shell was replaced by {os.path.basename(self.spec.shell)}, in which the session continues"

    def _allow_files(self, by: RunningCommand | None, used: int = 0) -> str:
        """Allows a shell more files that may open too few to take commands, and gives what is to be said of that; ends
        it where its hard limit forbids that. ``used`` of them are open."""
        pid, least = self.shell_pid, max(self.shell.files, used + SPARE_FILES)
        allowed = processes.files_allowed(pid)
        if allowed is None or allowed >= least or self._present_shell()[1]:
            return ""
        if processes.allow_files(pid, used + FILES, least):
            few = f"{allowed} were too few to take commands"
            return f"its shell may have {processes.files_allowed(pid)} files open (`ulimit -n`): {few}"
        self._end_shell(f"it may have only {allowed} files open (`ulimit -n`), too few to take commands", by)
        return ""

    def _give_up(self, why: str, running: RunningCommand) -> None:
        """Ends a shell that takes no commands any more, unless what is typed does not reach it."""
        if self._process is not None and (rival := self._process.rival()):
            running.note = f"{rival} reads the terminal of the session, too, and takes what is typed: end it elsewhere"
        else:
            self._end_shell(why, running)

    def _end_shell(self, why: str, by: RunningCommand | None) -> None:
        """Ends a shell that can take no commands any more."""
        self._given_up = why
        if by is not None:
            self.ended_by = by.record.command_id
        pid = self.shell_pid
        started = processes.start_time(pid)

        def end(number: signal.Signals) -> None:
            if self.exit is None and processes.alive(pid, started):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)

        end(signal.SIGHUP)
        self._killing = asyncio.get_running_loop().call_later(LEAVE_SECONDS, end, signal.SIGKILL)

    def _become(self, shell: Shell) -> None:
        """Continue with another shell than the one that was started."""
        executable = processes.program(self.shell_pid)
        if shell is self.shell and os.path.basename(executable) == os.path.basename(self.spec.shell):
            return
        self.shell = shell
        self._install(executable)
        self.at.line_editor = shell.line_editor
        self.became(self, executable)

    def _begin_again(self, running: RunningCommand, question: int | None) -> None:
        """The shell does not know the command: what was typed was lost, or what it needs to take one.

        Only the answer to the last question says so of all that was typed before.
        """
        if question not in (running.asks, None):
            return
        running.asks += 1
        running.retries += 1
        if begun := dated(self.files, BEGUN):
            running.note = commands.LOST_TRACK
        elif running.adopted or running.retries > RETRIES:
            running.note = commands.NEVER_BEGUN
        if begun or running.adopted:
            self._end(running, "lost", self._quiet_end(running), None)
            self._reintegrate(None, restore=False)
        elif running.retries > RETRIES:
            self._give_up(
                "it could no longer take commands, for example because an internal variable was made read-only", running
            )
            self._end(running, "lost", self._quiet_end(running), None)
        else:
            self._type_again(running)

    def _type_again(self, running: RunningCommand) -> None:
        try:
            if running.retries > 1:
                self._reintegrate(None, restore=running.retries > 2)
            more = self._write(running)
        except OSError:
            running.note = commands.NEVER_BEGUN
            self._end(running, "lost", self._quiet_end(running), None)
            return
        running.started = running.unbegun = False
        running.recovery.again()
        running.quiet_end = None
        running.note = ""
        self._type_trigger(more)

    def signal_begun(self, running: RunningCommand, number: signal.Signals) -> bool:
        """Send a signal to what ``running`` has begun; report whether anything of that lives."""
        if self.exit is not None or running.typed or running.adopted:
            return False
        return processes.signal_children(self.shell_pid, running.newest_pid, number)

    def probe_end(self) -> None:
        """After an interrupt: a shell that is back at its prompt but reported no end is asked for it."""
        running = self.running
        if running is not None and running.started and self.terminal is not None:
            evidence = self._evidence(by_person=running.typed)
            sure = evidence.replaced or evidence.at_prompt or not running.typed
            if evidence.reads and not evidence.executing and sure:
                self._probe(running, Step.REINTEGRATE if evidence.replaced else Step.PROBE)

    def _present_shell(self) -> tuple[Shell | None, bool]:
        return self._process.present(self.shell) if self._process is not None else (None, True)

    def _evidence(self, *, by_person: bool = False) -> Evidence:
        """What the kernel says of the shell now, which runs a command of ours or a line that a person typed."""
        if self._process is None or self.exit is not None:
            return GONE
        running = self.running
        # A line of our own that a key of the terminal's cut short, in a quote, seems to be a person's.
        ours = running is not None and not running.typed and not running.started and self.at.incomplete
        typed = running is not None and running.typed
        of_person = typed or (self.at.human_line and not ours) or (by_person and running is None)
        seen = self._process.evidence(self.shell, self.log.end, may_read=of_person == by_person, by_person=by_person)
        return replace(seen, at_prompt=False) if seen.at_prompt and not self._complete(by_person) else seen

    def _complete(self, by_person: bool) -> bool:
        """Report whether the typed lines are known to be complete; some shells read the rest of a command in the same
        place as its first line."""
        if self.shell.line_editor and self.at.human_line and self.at.incomplete:
            return False
        if not by_person or self.shell.continues_elsewhere:
            return True
        lines = self.typed.lines()
        return lines is not None and is_whole(lines)

    def _learn_prompt_soon(self) -> None:
        """Look soon: the shell reads at its prompt a moment after showing it."""
        if self._process is None or self._process.prompt_known:
            return
        self._looks_left = PROMPT_LOOKS
        if self._learning is None:
            self._learning = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._learn_prompt)

    def _learn_prompt(self) -> None:
        """Note where the shell reads at its prompt, the first time that it certainly does. Look again if it does not
        yet, but not for ever: the kernel may not show it, or the shell may not read as it should."""
        if self._learning is not None:
            self._learning.cancel()
            self._learning = None
        if self._process is None or self._process.prompt_known or self.exit is not None:
            return
        idle = self.at.ready and self.running is None and not self._claimed and not self.typed.unsettled
        if idle and foreground.leads(self.shell_pid):
            self._process.note_prompt(self.shell)
        if idle and not self._process.prompt_known and self._looks_left:
            self._looks_left -= 1
            self._learning = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._learn_prompt)

    def _prompt_proven(self) -> None:
        """Take the shell to be at its prompt, whatever it reported."""
        self.at.prompt_proven()
        lines = self.typed.lines()
        held = self.shell.line_editor and not self.typed.ran and lines is not None and not is_whole(lines)
        self.typed.prompt_proven(self.at.prompts, held=held)
        self.wake()

    def _watch_line(self) -> None:
        if self._line_watch is None and self.terminal is not None:
            self._line_watch = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look_at_line)

    def _look_at_line(self) -> None:
        """A line that a person typed may have ended without a word, too: only a prompt ends it."""
        self._line_watch = None
        if self.running is not None or not self.at.human_line or self.terminal is None or self.exit is not None:
            return
        self._on_output()
        self._watch_line()
        if self._in_line or self.log.losing:
            return
        terminal_device.let_print(self.terminal.tty)
        evidence = self._evidence(by_person=True)
        step = self._line.next(evidence, started=True, answers=bool(self.shell.asks))
        if step is not Step.WAIT and evidence.at_prompt:
            self._prompt_proven()
        elif step is Step.CONTINUE:
            processes.go_on(self.shell_pid)
        elif step is Step.ASK:
            self.terminal.write(self.shell.asks)
        elif step in (Step.REINTEGRATE, Step.RESTORE):
            self._reintegrate(None, restore=step is Step.RESTORE)
        elif self._line.in_vain:
            self.wake()

    def _watch_start_files(self, before: Evidence | None, tries: int) -> None:
        loop = asyncio.get_running_loop()
        self._starting = loop.call_later(LOOK_SECONDS, self._look_at_start, before, tries)

    def _look_at_start(self, before: Evidence | None, tries: int) -> None:
        """The start files may have replaced the shell by another one, or wait for somebody; or a mark was lost."""
        begun = self.at.up and (self.at.ready or self.at.human_line or not self.shell.line_editor)
        if begun or self.running is not None or self.exit is not None or self.terminal is None:
            return
        self._on_output()
        if self._in_line:
            self._watch_start_files(None, tries)
            return
        evidence = self._evidence()
        holder = self.holder() if evidence == before else None  # which looks at every process of the machine
        still = holder is not None and bool(holder.input_mode)
        self.blocker = holder.name if still and holder is not None and not evidence.reads else ""
        # What it started, as fish does the first time, may be at work in its group.
        if evidence == before and evidence.reads and tries < RETRIES:
            tries += 1
            if evidence.replaced:
                self._reintegrate(None, restore=tries > 1)
            elif self.at.up:
                self.terminal.write(self.shell.asks)
            elif self.shell.shows_command and processes.has_open(self.shell_pid, "/shell/rc") is False:
                self.at.up = True
                self.wake()
        if self.blocker:
            self.wake()
        self._watch_start_files(evidence, tries)

    @property
    def shell_pid(self) -> int:
        """The process of the shell; only while there is a terminal."""
        assert self._process is not None
        return self._process.pid

    def holder(self) -> foreground.Foreground | None:
        """The foreground process group as the kernel has it now."""
        if self.terminal is None or self._process is None or self.exit is not None:
            return None
        if self.log.losing:
            self.terminal.write(b"")
        return self._process.holder()

    def input_wanted(self) -> InputMode | None:
        """How the running command waits for input on the terminal; None when it does not, or when it may not.

        A shell that reads the terminal as it does at its prompt may just have ended the command.
        """
        holder = self.holder() if self.running is not None or self.at.human_line else None
        if holder is None or holder.input_mode is None:
            return None
        begun = self.running is None or self.running.started
        # What it was asked may lie unread, of which the kernel says that it does not read as at its prompt.
        asked = (self.running.recovery if self.running is not None else self._line).asking
        if holder.leads_itself and not (begun and not self.log.losing and not asked and not self.may_have_ended()):
            return None
        return holder.input_mode

    def state(self) -> SessionState:
        """Derived again from evidence each time."""
        if self.exit is not None:
            return SessionState.LOST if self.exit.lost else SessionState.EXITED
        if self.ending is not None:
            return SessionState.EXITED
        if not self.at.up:
            return SessionState.STARTING
        idle = self.running is None and not self.at.human_line
        if idle and (self._fed_elsewhere() or (self._overdue and self._draws_prompt())):
            return SessionState.RUNNING
        if idle and self.at.ready and not self.typed.unsettled:
            return SessionState.READY
        holder = self.holder()
        if idle and self.typed.unsettled and holder is not None and self._is_at_work():
            return SessionState.STOPPED if holder.stopped else SessionState.RUNNING
        if idle and self.typed.unsettled and not self.shell.line_editor and not self._reads_lines():
            return SessionState.WAITING_INPUT
        if holder is not None and holder.stopped:
            return SessionState.STOPPED
        if self.running is None and not self.at.human_line and (holder is None or holder.leads_itself):
            return SessionState.READY
        return SessionState.WAITING_INPUT if self.input_wanted() else SessionState.RUNNING

    async def screen(self) -> ScreenSnapshot:
        """The rendered screen: the backend's own where it keeps one, else from the log."""
        snapshot = await self.terminal.capture() if self.terminal and self.exit is None else None
        return snapshot or await self._display.snapshot()

    async def redraw(self) -> Drawn:
        """Bytes that draw the present screen on a terminal of the same size."""
        tries = MOST_CAPTURES
        while True:
            tries, offset = tries - 1, self.log.end
            data = await self.terminal.capture_ansi() if self.terminal and self.exit is None else None
            if data is None:
                return await self._display.drawn()
            if self.log.end == offset or not tries:
                return Drawn(data, offset)  # what was printed meanwhile is on the screen, and comes once more after it

    def check_typist(self, by: Typist | None = None) -> None:
        """Raises SessionTakenOver for everybody but the person who has taken the session over."""
        if self.typist is not None and self.typist is not by:
            raise commands.taken_over(self.spec.name, self.typist.who)

    async def resize(self, rows: int, cols: int, *, by: Typist | None = None) -> None:
        """Change the terminal's size; the foreground program is notified. Raises SessionTakenOver, SessionExited."""
        self.check_typist(by)
        self._check_alive()
        assert self.terminal is not None
        self._quiet_from = -1  # the line editor draws its line again
        await self.terminal.resize(rows, cols)
        self._timing.resized(self.log.end, rows, cols)
        self._display.resize(rows, cols)
        self.spec = replace(self.spec, rows=rows, cols=cols)

    async def lend_size(self, lender: object, rows: int, cols: int, *, by: Typist | None = None) -> None:
        """``resize`` for as long as ``lender`` stays; the session's own size comes back when the last one has left."""
        self.check_typist(by)
        self._check_alive()
        # Before it is done: whoever leaves meanwhile takes it along.
        self.own_size = self.own_size or (self.spec.rows, self.spec.cols)
        self.sized_by.add(lender)
        await self.resize(rows, cols, by=by)

    async def take_size_back(self, lender: object) -> None:
        """``lender`` has left. One that lent no size changes none."""
        self.sized_by.discard(lender)
        if not self.sized_by and self.own_size and self.exit is None:
            (rows, cols) = self.own_size
            self.own_size = None
            await self.resize(rows, cols, by=self.typist)

    def send(self, data: bytes, *, by: Typist | None = None) -> None:
        """Type ``data``; raises SessionTakenOver, SessionExited, LimitReached where what was typed is not read."""
        self.check_typist(by)
        self._check_alive()
        assert self.terminal is not None
        if self.terminal.unsent + len(data) > UNSENT_BYTES:
            raise commands.unread(self.spec.name, self.terminal.unsent)
        self.touch()
        terminal_device.let_print(self.terminal.tty)
        self._note_typed(data)
        self.terminal.write(data)

    async def send_lines(self, data: bytes, command_id: str) -> RunningCommand | None:
        """``send``; where that ends a line at the prompt, what the lines do is a command that can be waited for.

        It ends when the shell has taken all that was typed and its prompt is back. None: ``data`` is input of what
        runs, or half a line.
        """
        self.check_typist()
        if not LINE_ENDS.search(data):
            self.send(data)
            return None
        await self._takes_a_line()
        holder = self.holder()
        if not self._free_for_lines() or (holder is not None and not holder.leads_itself):
            self.send(data)
            return None
        record = CommandRecord(
            command_id=command_id,
            seq=self._seq,
            command=self.typed.text_with(data),
            status="running",
            started_at=time.time(),
            start_offset=self.log.end,
            cwd=self.cwd,
        )
        running = RunningCommand(record, asyncio.get_running_loop().create_future(), self.log.end, typed=True)
        running.started = not self.shell.line_editor
        running.prompt_owed = self.typed.unsettled or not self.at.ready
        commands.note_typed(self.files, record)
        self._look_for_others(running)
        self.send(data)
        self.running = self.latest = running
        self._follow_typed(running)
        return running

    def _free_for_lines(self) -> bool:
        busy = self.running is not None or self._claimed or self.at.human_line
        return self.at.up and not busy and self.ending is None

    async def _takes_a_line(self) -> None:
        """Return when the prompt is drawn and it is known where the shell reads there, or after a while. What is
        typed earlier may be taken by what draws the prompt, or by a key that drops a line."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while self._free_for_lines():
            left = begun + (RECOVERY_SECONDS if self._prompt_reads() else READY_SECONDS) - loop.time()
            if left <= 0:
                break
            if self.at.ready and self.typed.unsettled and await self._prompt_is_back(left):
                self._settle_typed()
            self._learn_prompt()
            known = self._process is None or self._process.prompt_known or not self._looks_left
            if self.at.ready and not self.typed.unsettled and known:
                break
            await self.changed(min(TYPED_LOOK_SECONDS, left))
        await self._display.settled()

    def _follow_typed(self, running: RunningCommand) -> None:
        self._following = asyncio.ensure_future(self._follow(running))
        self._watch(running)

    async def _follow(self, running: RunningCommand) -> None:
        """Ends the typed line as soon as the prompt is back. There is no event for when the shell begins to read
        again."""
        wait = TYPED_LOOK_SECONDS
        while running is self.running and self.exit is None:
            self._news.clear()
            back = await self._prompt_is_back(TAKEN_SECONDS)
            # A shell that ends cannot say with which code: a signal may end it.
            if back and running is self.running and self.at.exit_code is None:
                if running.prompt is not None or not running.started or running.recovery.in_vain:
                    self._lose(running)
                    return
                if not running.recovery.prompt:
                    self._on_prompt(running)
            wait = TYPED_LOOK_SECONDS if running.prompt else min(wait * 2, LONG_LOOK_SECONDS)
            if not self._in_line and self.terminal is not None:
                terminal_device.let_print(self.terminal.tty)
            with contextlib.suppress(TimeoutError):
                # A shell that waits within a line continues by what is typed, and says so.
                async with asyncio.timeout(None if back is False else wait):
                    await self._news.wait()

    def _end_typed(self, running: RunningCommand) -> None:
        """Without a prompt of their own the lines were not run: the line editor holds them, or asked for something."""
        self._settle_typed()
        self.at.human_line = False
        self._note_left(running)
        if (prompt := running.prompt) is None or prompt.exit_code is None:
            running.note = running.note or (commands.LOST_TRACK if running.started else commands.NOT_SEEN)
            self._end(running, "lost", self._quiet_end(running), None)
        else:
            interrupted = running.interrupted and prompt.exit_code != 0
            end = prompt.start if running.quiet_end is None else min(prompt.start, running.quiet_end)
            end = self._before_trace(running, end, prompt.flags)
            self._end(running, "interrupted" if interrupted else "finished", end, prompt.exit_code)

    def _settle_typed(self) -> None:
        """Note that the shell is at its prompt. A line editor holds the lines that it did not run."""
        self.typed.settle(self.at.prompts, held=self.shell.line_editor and not self.typed.ran)

    def _note_typed(self, data: bytes) -> None:
        self._quiet_from = -1
        interrupt = self._interrupt_key()
        if self.running is not None and interrupt in data:
            self.running.stopped_by_key = True
        if not self.shell.line_editor and (interrupt in data or LINE_ENDS.search(data)):
            settled = self.holder() is not None and not self._is_at_work()
            if (settled or interrupt in data) and (number := self._show_mark()) is not None:
                self.typed.begin_at(number)
        self.typed.add(data, interrupt, self.at.prompts, self.log.end, self.at.lines)
        if self.running is None and not self.at.ready and not self.at.human_line:
            self.typed.owe_prompt()
        self._news.set()

    def _interrupt_key(self) -> bytes:
        """The terminal's own; Ctrl-C where it has none now."""
        keys = terminal_device.signal_keys(self.terminal.tty) if self.terminal is not None else None
        return keys.interrupt if keys and keys.interrupt else INTERRUPT
