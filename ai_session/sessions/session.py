"""One terminal with one shell: execute, send, wait, snapshot, interrupt, resize, end.

Everything known about a command comes from marks in the log, from the kernel (foreground group, termios, exit status)
or from the caller; never from what the output looks like and never from time alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

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
from ai_session.sessions.commands import RunningCommand, begun_last
from ai_session.sessions.executor import Executor
from ai_session.sessions.facts import STARTUP_SECONDS, TAKEN_SECONDS, SessionFacts, Typist
from ai_session.sessions.leftovers import Leftovers, Looks
from ai_session.sessions.prompt import Prompt
from ai_session.sessions.reader import OutputReader
from ai_session.sessions.typed_lines import TypedLines
from ai_session.sessions.watchdog import Watchdog
from ai_session.shells.base import BEGUN, Shell, dated
from ai_session.system import processes
from ai_session.system.turns import Turns
from ai_session.terminal.display import Drawn
from ai_session.terminal.log import OutputLog
from ai_session.terminal.marks import Mark, MarkKind, MarkScanner

MOST_CAPTURES = 3
"""How often the backend's screen is captured to get one during which nothing was printed."""


class Session(SessionFacts):
    """A named terminal. All methods belong to the event loop.

    The work is divided: ``reader`` reads the output, ``executor`` types commands, ``typed_lines`` types what callers
    send, ``prompt`` judges whether the shell takes a line, and ``watchdog`` finds out what a silent shell does.
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
        super().__init__(spec, directory, shell, log, terminal, turns)
        self.reader = OutputReader(self, self)
        self.executor = Executor(self)
        self.watchdog = Watchdog(self, self.reader, self.executor)
        self.prompt = Prompt(self, self.reader, self.watchdog)
        self.typed_lines = TypedLines(self, self.reader, self.executor, self.watchdog, self.prompt)
        self._looks = looks
        self._leftovers = Leftovers(spec.cookie, looks)
        self.box_end: asyncio.Future[None] | None = None
        """The end of everything in the box of an ended shell."""
        self._dates_files = False
        """Whether it was seen that files here show that the shell has come to them."""
        self.viewers = 0
        self.own_size: tuple[int, int] | None = None
        self.sized_by = set[object]()
        """Who lends the session a size; ``own_size`` comes back when the last of them has left."""
        self.watched: Callable[[Session], None] = lambda _: None
        """Called at each change."""
        self.became: Callable[[Session, str], None] = lambda _, __: None
        """Called with the executable of another shell in which the session continues."""
        self.listeners.add(lambda: self.watched(self))
        self.watchdog.became = lambda executable: self.became(self, executable)

    def start(self) -> None:
        """Begin to read the terminal; what is in the log already is read first."""
        assert self.terminal is not None
        self.terminal.start(self.reader.read_now, self.reader.terminal_exited)
        if not self.at.up:
            self.watchdog.watch_start_files()

    def resume(self) -> None:
        """Continue with a terminal that an earlier daemon left: what happened meanwhile is read from the log."""
        begun = begun_last(self.files)
        offset = self.log.first
        self.at.up = begun is not None or offset > 0
        self.executor.seq = last.seq if (last := self.history.last) else 0
        if begun is not None:
            record, offset, typed = begun
            self.executor.seq = record.seq
            self.at.cwd = record.cwd
            if self.history.get(record.command_id) is None:
                ended = asyncio.get_running_loop().create_future()
                self.running = RunningCommand(record, ended, offset, adopted=True, typed=typed)
                self.running.started = typed and not self.shell.line_editor
            # An offset beyond the end means that the log was removed, and this is another one.
            offset = max(offset, self.log.first) if offset <= self.log.end else self.log.first
        self.reader.scanner = MarkScanner(self.spec.nonce, offset)
        # The numbers of an earlier daemon's marks are lower.
        self.prompt.shown = int(time.time())
        self.typed.unsettled = True
        self.reader.resumed = (offset, self.log.end)
        self.display.make_ready()
        self.log.rewind(offset)
        if self.terminal is None:
            self.reader.terminal_exited(ExitStatus(lost=True))
        else:
            self._leftovers.hold(self.terminal.pid, self.spec.level)
            self.start()
            self.reader.read()

    def on_caught_up(self, offset: int) -> None:
        """Continue after everything that an earlier daemon left from ``offset`` on was read."""
        self.reader.resumed = None
        if self.running is not None or self.at.human_line:
            self.named_directory = ""  # what runs may have left the directory that it began in
        if self.running is not None and self.running.typed:
            self.typed_lines.follow(self.running)
            return
        lost = self.log.lost_bytes(offset, self.log.end)
        if self.running and (lost or not self.log.first <= self.running.trigger_offset <= self.log.end):
            self.watchdog.doubt()
        if self.running is not None and self.terminal is not None:
            self.watchdog.watch(self.running)

    @property
    def in_use(self) -> bool:
        """Whether a command runs or is about to begin, or a person watches or types."""
        busy = self.running is not None or self.claimed or self.at.human_line
        return (busy and self.exit is None) or self.viewers > 0 or self.typist is not None

    def respawn(self, terminal: Terminal) -> None:
        """Continue with a new shell on a new terminal, with the same log and history."""
        self.take_up(terminal)
        self.prompt.overdue = False
        self._leftovers = Leftovers(self.spec.cookie, self._looks)
        self.start()

    async def wait_started(self) -> None:
        """Wait until the shell has read its start files or has ended, or no more can be found out; 15 s at most, then
        it is still starting."""
        await self._until_started()
        self.display.make_ready()  # opening a session does not wait for it
        if self.terminal is not None and self.exit is None:
            self._leftovers.hold(self.terminal.pid, self.spec.level)

    async def _until_started(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STARTUP_SECONDS
        while not (self.at.up and (self.at.ready or not self.shell.line_editor)) and self.exit is None:
            in_vain = self.blocker or self.watchdog.start_in_vain
            if in_vain or not await self.changed(deadline - loop.time()):
                return

    async def close(self, grace_seconds: float) -> None:
        """End the shell and every process that carries the session's cookie; kill them after ``grace_seconds``.

        A shell that does not ignore or handle SIGHUP runs nothing more of a list of commands.
        """
        self.closed = True
        await self._leftovers.end(grace_seconds, self.terminal.close if self.terminal is not None else None)
        self.reader.resumed = None
        if self.exit is None:
            self.on_exit(self.reader.exit_seen or ExitStatus(signal=1))
        self.wake()
        self.release()

    def release(self) -> None:
        """Release files and timers without ending anything."""
        if self.terminal is not None:
            self.terminal.detach()
        for part in (self.reader, self.watchdog, self.prompt, self.typed_lines, self._leftovers):
            part.release()
        self.log.close()
        self.history.close()

    def on_gap(self) -> None:
        """Find out what lost output may have reported."""
        self.watchdog.doubt()

    def on_mark(self, mark: Mark) -> None:
        """Apply a mark to the facts and to what runs."""
        running = self.running
        flags = self.at.flags
        self.at.apply(mark)
        if mark.kind in (MarkKind.COMMAND_FINISHED, MarkKind.PROMPT_START):
            self.named_directory = self.kernel_directory()
            if not mark.cwd.startswith("/"):
                self.at.cwd = self.named_directory or self.at.cwd
        if mark.kind is MarkKind.CAUGHT_UP:
            self.prompt.read_back = max(self.prompt.read_back, mark.seq or 0)
            if self.typed.reached(self.prompt.read_back, self.at.prompts) and running is not None:
                running.prompt = None
            return
        if mark.kind is (MarkKind.PROMPT_READY if self.shell.line_editor else MarkKind.PROMPT_START):
            self.quiet_from = mark.end
        if mark.kind is MarkKind.PROMPT_READY:
            self.typed.prompt_at(mark.end)
        if mark.kind is MarkKind.SHELL_EXITED:
            last = self.history.last if not self.typed.unsettled else None
            self.ended_by = running.record.command_id if running else last.command_id if last else ""
        if mark.kind is MarkKind.LINE_EXECUTED:
            self.typed.ran = True
            if running is None:
                self.watchdog.line.again()
                self.watchdog.watch_line()
        if mark.kind in (MarkKind.PROMPT_START, MarkKind.PROMPT_READY):
            self.prompt.learn_soon()
        if mark.kind is MarkKind.SHELL_STARTED and self.reader.resumed is None and self.process is not None:
            self.process.started()
        if running is not None and running.typed:
            self.typed_lines.on_mark(running, mark)
            return
        if running is None or mark.seq not in (None, running.record.seq):
            return
        if mark.kind is MarkKind.COMMAND_EXECUTED:
            if mark.seq and not running.started:
                running.start_at(mark.end)
                self.display.forget_questions(mark.end)
                # What was seen before it began does not concern its end.
                running.quiet_end = None
                running.recovery.again()
        elif mark.kind is MarkKind.NEVER_BEGUN:
            self.watchdog.begin_again(running, mark.exit_code)
        elif mark.seq:
            self._on_end_mark(running, mark, flags)
        elif mark.kind in (MarkKind.PROMPT_READY, MarkKind.AT_PROMPT, MarkKind.PROMPT_START):
            self.watchdog.prompt_seen(running)

    def _on_end_mark(self, running: RunningCommand, mark: Mark, flags: str) -> None:
        """End the running command, which has begun even if its start mark was lost."""
        if mark.exit_code is None and mark.kind is not MarkKind.COMMAND_FINISHED:
            return  # a shell that ends cannot report its exit code: a signal may end it
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
                self.watchdog.begin_again(running, None)
            return
        end = mark.start if running.quiet_end is None else min(mark.start, running.quiet_end)
        if mark.exit_code is None:
            asked_again = bool(running.note)
            running.note = running.note or "it was aborted, or its shell was replaced: its exit status is unknown"
            self.executor.end(running, "lost", end, None)
            if not asked_again:
                # The hooks that report an end may be gone as well.
                self.watchdog.reintegrate(None, restore=False)
        else:
            self._finish(running, end, mark.exit_code, flags + mark.flags)

    def _finish(self, running: RunningCommand, end: int, exit_code: int | None, flags: str) -> None:
        end = self.executor.before_trace(running, end, flags)
        if self.terminal is not None:
            few = self.watchdog.allow_files(running)
            running.note = running.note or few
            self.executor.note_left(running)
            if few or running.cramped:
                # What it could not open for a redirection may be missing now.
                self.watchdog.reintegrate(None, restore=False)
        status: CommandStatus = "interrupted" if running.interrupted and exit_code not in (0, None) else "finished"
        self.executor.end(running, status, end, exit_code)

    def on_exit(self, status: ExitStatus) -> None:
        """Note how the shell ended, after all its output was read; end what ran in it."""
        if status.lost and self.terminal is None:
            status = ExitStatus(code=self.at.exit_code, lost=self.at.exit_code is None)
        self.reader.exit_seen = None
        self.exit = status = replace(self.at.exit_status(status, self.spec.level), reason=self.given_up)
        self.at.ready = False
        if self.spec.level is not SandboxLevel.NONE:
            # A box ends with its shell, and with the process that made it, whose death the shell may not notice.
            self.box_end = asyncio.ensure_future(self._leftovers.end(0))
        if (running := self.running) is not None and not running.started:
            running.never_ran = running.typed or not dated(self.files, BEGUN)
            running.note = "" if running.never_ran else commands.LOST_TRACK
            self.executor.end(running, "lost", self.log.end, None)
        elif running is not None:
            self.ended_by = running.record.command_id
            code = self.at.exit_code
            if self.closed:
                code = None
            elif code is None or status.signal is not None or (status.code or 0) > 128:
                # The shell reported the last status it knew, which a signal does not change.
                code = status.code if status.signal is None else 128 + status.signal
            self.executor.end(running, "lost" if code is None else "finished", self.log.end, code)

    async def begin(
        self,
        command: str,
        *,
        command_id: str,
        stdin: bytes | None = None,
        separate_stderr: bool = False,
        call_key: str = "",
    ) -> RunningCommand:
        """Start ``command`` and return at once.

        Raises SessionTakenOver, SessionBusy, SessionExited, IntegrationLost, StorageFull.
        """
        self.check_typist()
        self.prompt.learn()
        await self.prompt.end_found_out()
        await self.typed_lines.ended_soon()
        self.check_free()
        self.claimed = True
        try:
            await self.prompt.reached()
            few = self.watchdog.allow_files(None)
            await self.display.settled()  # else the answer to what the prompt asked would be input of the command
            await self._end_known()
            self.check_alive()
            self.check_typist()
            self.log.require_room()
        finally:
            self.claimed = False
        self.executor.seq += 1
        stderr_path = str(self.files / f"out/stderr-{self.executor.seq}") if separate_stderr else ""
        offset = self.log.end
        record = CommandRecord(
            command_id=command_id,
            seq=self.executor.seq,
            command=command,
            status="running",
            started_at=time.time(),
            start_offset=offset,
            cwd=self.cwd,
            call_key=call_key,
            stderr_path=stderr_path,
        )
        running = RunningCommand(record, asyncio.get_running_loop().create_future(), offset)
        running.note = few
        self.executor.start(running, stdin)
        self.watchdog.watch(running)
        return running

    async def ended(self) -> None:
        """Wait until a shell that is about to end has ended; 2 s at most."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TAKEN_SECONDS
        last = self.history.last if self.running is None else None
        if self.shell.exits_late and last and "exit" in last.command:
            while not self.at.ready and self.ending is None and await self.changed(deadline - loop.time()):
                pass
        if last and "exec" in last.command and self.shell.reads_input and (terminal := self.terminal) is not None:
            # It may read its commands from elsewhere now, to the end.
            while self.ending is None and not processes.fed_by(self.shell_pid, terminal.tty):
                if not await self.changed(deadline - loop.time()):
                    break
        while self.exit is None and self.ending is not None and await self.changed(deadline - loop.time()):
            pass

    async def _end_known(self) -> None:
        """Wait for the end of a terminal that takes no output because it, or its shell, has ended."""
        if not self.log.losing or (terminal := self.terminal) is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STARTUP_SECONDS):
                await terminal.settled()
                while self.exit is None and (
                    self.reader.exit_seen is not None or not processes.alive(terminal.pid, None)
                ):
                    await self.changed()

    def input_wanted(self) -> InputMode | None:
        """Return how the running command waits for input on the terminal; None if it does not, or may not.

        A shell that reads the terminal as it does at its prompt may just have ended the command.
        """
        if self.process is None or (self.running is None and not self.at.human_line):
            return None
        before = processes.switches(self.shell_pid)
        holder = self.holder()
        if holder is None or holder.input_mode is None:
            return None
        begun = self.running is None or self.running.started
        # A question that the shell has not read yet makes it look as if it did not read at its prompt.
        asked = (self.running.recovery if self.running is not None else self.watchdog.line).asking
        if holder.leads_itself and not (
            begun and not self.log.losing and not asked and not self.watchdog.may_have_ended()
        ):
            return None
        # What was seen is of one moment only if the shell has slept meanwhile.
        same = self.holder() == holder and processes.switches(self.shell_pid) == before
        return holder.input_mode if same else None

    def state(self) -> SessionState:
        """Return the present state, derived from evidence at each call."""
        if self.exit is not None:
            return SessionState.LOST if self.exit.lost else SessionState.EXITED
        if self.ending is not None:
            return SessionState.EXITED
        if not self.at.up:
            return SessionState.STARTING
        idle = self.running is None and not self.at.human_line
        if idle and (self.fed_elsewhere() or (self.prompt.overdue and self.draws_prompt())):
            return SessionState.RUNNING
        if idle and self.at.ready and not self.typed.unsettled:
            return SessionState.READY
        if idle and self.asks_before_prompt():
            return SessionState.WAITING_INPUT
        holder = self.holder()
        if idle and self.typed.unsettled and holder is not None and self.is_at_work():
            return SessionState.STOPPED if holder.stopped else SessionState.RUNNING
        if idle and self.typed.unsettled and not self.shell.line_editor and not self.prompt.reads_lines():
            return SessionState.WAITING_INPUT
        if holder is not None and holder.stopped:
            return SessionState.STOPPED
        if self.running is None and not self.at.human_line and (holder is None or holder.leads_itself):
            return SessionState.READY
        return SessionState.WAITING_INPUT if self.input_wanted() else SessionState.RUNNING

    async def screen(self) -> ScreenSnapshot:
        """Return the rendered screen: the backend's own if it has one, otherwise the one drawn from the log."""
        snapshot = await self.terminal.capture() if self.terminal and self.exit is None else None
        return snapshot or await self.display.snapshot()

    async def redraw(self) -> Drawn:
        """Return bytes that draw the present screen on a terminal of the same size."""
        tries = MOST_CAPTURES
        while True:
            tries, offset = tries - 1, self.log.end
            data = await self.terminal.capture_ansi() if self.terminal and self.exit is None else None
            if data is None:
                return await self.display.drawn()
            if self.log.end == offset or not tries:
                return Drawn(data, offset)  # output since then is on the screen already, and follows once more

    async def resize(self, rows: int, cols: int, *, by: Typist | None = None) -> None:
        """Change the terminal's size; the foreground program is notified. Raises SessionTakenOver, SessionExited."""
        self.check_typist(by)
        self.check_alive()
        assert self.terminal is not None
        self.quiet_from = -1  # the line editor draws its line again
        await self.terminal.resize(rows, cols)
        self.reader.timing.resized(self.log.end, rows, cols)
        self.display.resize(rows, cols)
        self.spec = replace(self.spec, rows=rows, cols=cols)

    async def lend_size(self, lender: object, rows: int, cols: int, *, by: Typist | None = None) -> None:
        """``resize`` for as long as ``lender`` stays; the own size returns when the last lender has left."""
        self.check_typist(by)
        self.check_alive()
        # Noted before the resize, because a lender that leaves meanwhile takes its size back.
        self.own_size = self.own_size or (self.spec.rows, self.spec.cols)
        self.sized_by.add(lender)
        await self.resize(rows, cols, by=by)

    async def take_size_back(self, lender: object) -> None:
        """Note that ``lender`` has left. A viewer that lent no size changes nothing."""
        self.sized_by.discard(lender)
        if not self.sized_by and self.own_size and self.exit is None:
            (rows, cols) = self.own_size
            self.own_size = None
            await self.resize(rows, cols, by=self.typist)

    def send(self, data: bytes, *, by: Typist | None = None) -> None:
        """Type ``data``. Raises SessionTakenOver, SessionExited, LimitReached if earlier input is not read."""
        self.typed_lines.send(data, by=by)
