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

from ai_session import commands, processes
from ai_session.backends.base import Terminal
from ai_session.commands import CommandHistory, RunningCommand, command_text, parse_header
from ai_session.display import Display
from ai_session.kernel_events import process_ended
from ai_session.marks import Mark, MarkKind, MarkScanner
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
from ai_session.output_log import OutputLog
from ai_session.shell_state import ShellState
from ai_session.shells.base import Shell
from ai_session.timing import Timing
from ai_session.turns import SLICE_SECONDS, Result, Steps, Turns

CATCH_UP_BYTES = 1 << 18
"""Read of the log at once where it is looked through for marks."""

UNSENT_BYTES = 16 << 20
"""Input that waits for a program to read it; more is refused."""

REPLY_BYTES = 1 << 16
"""With more input waiting, a program that asks its terminal something gets no answer: it does not read them."""

SHORT_BYTES = 2048
"""A read from a pseudo-terminal that gives less has emptied it."""

READY_SECONDS = 0.3
"""How long the ready mark is waited for before typing ahead; a prompt replaced by the person sends none."""

START_SECONDS = 1.0
"""How long the start mark may be missing before the kernel is asked what the shell does."""

STARTUP_SECONDS = 15.0


class Session:
    """A named terminal. All methods belong to the event loop.

    Its output is taken in by ``turns``, so what is known of it may be behind what it has printed; nothing is told in
    another order than it was printed in.
    """

    def __init__(
        self, spec: SessionSpec, directory: Path, shell: Shell, log: OutputLog, terminal: Terminal | None, turns: Turns
    ) -> None:
        self.spec, self.directory, self.turns = spec, directory, turns
        self.shell, self.log, self.terminal = shell, log, terminal
        self.box_end: asyncio.Future[int] | None = None
        self.files, self.history = directory / "shell", CommandHistory(directory)
        self._timing = Timing(directory / "times")
        self._thinning: asyncio.Task[None] | None = None
        self.running: RunningCommand | None = None
        self.exit: ExitStatus | None = None if terminal else ExitStatus(lost=True)
        self.at = ShellState(spec.working_directory, line_editor=shell.line_editor)
        self.viewers, self._claimed, self._seq = 0, False, 0
        self.own_size: tuple[int, int] | None = None
        self.watched: Callable[[Session], None] = lambda _: None
        self._shell_pid: int | None = None
        self._display = Display(log, spec.rows, spec.cols, turns, spec.session_id)
        self._waiters: set[asyncio.Future[None]] = set()
        self._scanner = MarkScanner(spec.nonce, log.first)
        self._in_line = False
        self._left: ExitStatus | None = None
        self._resumed: tuple[int, int] | None = None

    def start(self) -> None:
        """Begin to read the terminal; what it already printed into the log is taken in first."""
        assert self.terminal is not None
        self.terminal.start(self._on_output, self._on_exit)

    def resume(self) -> None:
        """Take up a terminal an earlier daemon left: what happened meanwhile is read from the log."""
        begun = parse_header(self.files)
        offset = self.log.first
        self.at.up = begun is not None or offset > 0
        self._seq = last.seq if (last := self.history.last) else 0
        if begun is not None:
            record, offset = begun
            self._seq, self.at.cwd = record.seq, record.cwd
            if self.history.get(record.command_id) is None:
                self.running = RunningCommand(record, asyncio.get_running_loop().create_future(), offset)
            # Beyond the end: somebody removed the log, and this is another one.
            offset = max(offset, self.log.first) if offset <= self.log.end else self.log.first
        self._scanner = MarkScanner(self.spec.nonce, offset)
        self._resumed = (offset, self.log.end)
        self.log.rewind(offset)
        if self.terminal is None:
            self._on_exit(ExitStatus(lost=True))
        else:
            self.start()
            self._read()

    def _caught_up(self, offset: int) -> None:
        """All that an earlier daemon left from ``offset`` on is known."""
        self._resumed = None
        lost = self.log.lost_bytes(offset, self.log.end)
        if self.running and (lost or not self.log.first <= self.running.trigger_offset <= self.log.end):
            self._ask_end()
        if self.running is not None and not self.running.started and self.terminal is not None:
            self._watch_start(self.running)

    async def work(self, steps: Steps[Result]) -> Result:
        """Does what is asked about the session's output, which may hold much, by its turns."""
        return await self.turns.run(self.spec.session_id, steps)

    async def up_to_date(self) -> None:
        """Returns when what an earlier daemon left is known, which takes moments where a session printed much."""
        while self._resumed is not None:
            await self.changed()

    def respawn(self, terminal: Terminal) -> None:
        """Go on with a new shell on a new terminal; the log and the history continue."""
        self.terminal, self.exit, self._shell_pid = terminal, None, None
        self.at.reset()
        self._display = Display(self.log, self.spec.rows, self.spec.cols, self.turns, self.spec.session_id)
        self.start()

    async def wait_started(self) -> None:
        """Returns when the shell has read its start files or has ended; after 15 s, the state then says starting."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STARTUP_SECONDS
        while not (self.at.up and (self.at.ready or not self.shell.line_editor)) and self.exit is None:
            if not await self.changed(deadline - loop.time()):
                return

    async def close(self, grace_seconds: float) -> None:
        """End the shell and everything that carries the session's cookie, wherever it fled; killed after the grace."""
        if self.terminal is not None:
            await self.terminal.close()
        asked = await asyncio.to_thread(processes.ask_to_leave, self.spec.cookie)
        # Not in a thread: there are few, and whoever closes many sessions would have them all for the whole grace.
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(grace_seconds):
                for pid in asked:
                    await process_ended(pid)
        await asyncio.to_thread(processes.sweep, self.spec.cookie)
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
        if self._thinning is not None:
            self._thinning.cancel()
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
        """Takes in what there is, for as long as a slice; the rest gets a turn of its own."""
        terminal = self.terminal
        lost = self.log.losing
        self.log.losing = terminal is not None and terminal.losing
        until, before = time.perf_counter() + SLICE_SECONDS, self.log.end
        more = self._look_through(until) or self._take_in(until)
        if self.log.end != before:
            self._timing.note(self.log.end)
            if self._timing.full and self._thinning is None:
                self._thinning = asyncio.ensure_future(self._thin())
        if terminal is not None:
            terminal.unread(self.log.size - self.log.end)
        if self._resumed and (not more or self._scanner.offset >= self._resumed[1]):
            self._caught_up(self._resumed[0])
        if lost and not self.log.losing:
            self._ask_end()
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
                if len(chunk) < SHORT_BYTES:
                    # A log that somebody else writes tells its end only by giving nothing.
                    return False
            if time.perf_counter() >= until:
                return True
        return False

    def _missed(self, offset: int) -> None:
        """What came before ``offset`` was let go of before it was looked at, and with it maybe marks."""
        self._scanner = MarkScanner(self.spec.nonce, offset)
        self._ask_end()

    def _answer(self, reply: bytes) -> None:
        if self.terminal is not None and self.terminal.unsent < REPLY_BYTES:
            self.terminal.write(reply)

    def _note(self, chunk: bytes) -> None:
        for mark in self._scanner.feed(chunk, self.running.record.seq if self.running else None):
            self._on_mark(mark)

    def _on_mark(self, mark: Mark) -> None:
        running = self.running
        flags = self.at.flags
        self.at.apply(mark)
        if running is None or mark.seq not in (None, running.record.seq):
            return
        if mark.kind is MarkKind.COMMAND_EXECUTED and mark.seq and not running.started:
            running.start_at(mark.end)
        elif running.started and running.gap and mark.seq is None:
            self._on_other_mark(running, mark)
        elif running.started and mark.seq and mark.exit_code is not None:
            self._finish(running, mark.start, mark.exit_code, flags + mark.flags)

    def _on_other_mark(self, running: RunningCommand, mark: Mark) -> None:
        """A shell that was asked and reports no open command has ended it; the end mark is in output that was lost."""
        if mark.kind is MarkKind.PROMPT_READY:
            self._ask_end()
        elif mark.kind in (MarkKind.PROMPT_START, MarkKind.COMMAND_FINISHED) and (running.asked or running.interrupted):
            known = mark.kind is MarkKind.PROMPT_START and not (running.disturbed or running.interrupted)
            self._end(running, "finished" if known else "lost", mark.start, mark.exit_code if known else None)

    def _ask_end(self) -> None:
        """Output was lost. An empty line makes an idle shell report a prompt with the exit code of the last command."""
        running, terminal, holder = self.running, self.terminal, self.holder()
        if running and terminal:
            running.lose(self.log.end)
            idle = holder is not None and holder.leads_itself and holder.input_mode == "raw"
            if idle and self.shell.line_editor and not self.viewers:
                running.asked = True
                terminal.write(b"\x1e\n")

    def _finish(self, running: RunningCommand, end: int, exit_code: int | None, flags: str) -> None:
        if "x" in flags or "v" in flags:
            tail = self.log.read(max(running.record.start_offset, self.log.first, end - 1024), end)
            end -= len(tail) - len(self.shell.strip_trace(tail, self.spec.nonce))
        status: CommandStatus = "interrupted" if running.interrupted and exit_code not in (0, None) else "finished"
        self._end(running, status, end, exit_code)

    def _end(self, running: RunningCommand, status: CommandStatus, end: int, exit_code: int | None) -> None:
        self.running = None
        seconds = max(0.0, time.time() - running.record.started_at)
        self.history.append(running.finish(status, end, exit_code, self.at.cwd, seconds))

    def _on_exit(self, status: ExitStatus) -> None:
        self._left = status
        self._on_output()

    def _conclude(self, status: ExitStatus) -> None:
        """The shell has ended, and all it printed is known."""
        if status.lost and self.terminal is None:
            status = ExitStatus(code=self.at.exit_code, lost=self.at.exit_code is None)
        self._left = None
        self.exit = status = self.at.exit_status(status, self.spec.level)
        self.at.ready = False
        if self.spec.level is not SandboxLevel.NONE:
            # A box ends with its shell, and with what made it, of whose death the shell need not hear.
            self.box_end = asyncio.get_running_loop().run_in_executor(None, processes.sweep, self.spec.cookie)
        if (running := self.running) is not None:
            code = status.code if status.signal is None else 128 + status.signal
            self._end(running, "lost" if status.lost else "finished", self.log.end, None if status.lost else code)

    def wake(self) -> None:
        """Let everyone waiting for a change look again."""
        self.watched(self)
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def changed(self, timeout: float | None = None) -> bool:
        """Waits for the next output, mark or exit; False when ``timeout`` seconds passed without one."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(future)
        done, _ = await asyncio.wait((future,), timeout=max(0.0, timeout) if timeout is not None else None)
        self._waiters.discard(future)
        return bool(done)

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
        self._check_free()
        self._claimed = True
        try:
            await self._at_prompt()
            await self._display.settled()  # else the answer to what the prompt asked would be input of the command
            self._check_alive()
            self.log.require_room()
        finally:
            self._claimed = False
        self._seq += 1
        stderr_path = str(self.files / f"out/stderr-{self._seq}") if separate_stderr else ""
        offset = self.log.end
        record = CommandRecord(
            command_id=command_id, seq=self._seq, command=command, status="running", started_at=time.time(),
            start_offset=offset, cwd=self.at.cwd, call_key=call_key, stderr_path=stderr_path,
        )  # fmt: skip
        stdin_path = commands.keep_stdin(self.files, stdin)
        running = RunningCommand(record, asyncio.get_running_loop().create_future(), offset)
        self.shell.write_command(
            self.files, command_text(record, self.spec.nonce, offset, stdin_path, self.at.last_exit, self.at.flags)
        )
        self.running = running
        self._type_trigger()
        self._watch_start(running)
        return running

    def _check_free(self) -> None:
        if self.exit is not None or self.terminal is None:
            raise commands.ended(self.spec.name, self.exit)
        if self.running is not None or self._claimed:
            raise commands.busy(self.spec.name, self.running)

    async def _at_prompt(self) -> None:
        if self.at.up and self.at.ready:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (READY_SECONDS if self.at.up else STARTUP_SECONDS)
        was_up = self.at.up
        while not self.at.ready and self.exit is None:
            if self.at.up and not was_up:
                deadline, was_up = loop.time() + READY_SECONDS, True
            if not await self.changed(deadline - loop.time()):
                break
        self._check_alive()
        if self.at.ready or self.terminal is None:
            return
        holder = self.holder()
        if holder is not None and not holder.leads_itself:
            raise commands.occupied(self.spec.name, holder.name)
        if not self.at.up:
            raise commands.not_started(self.spec.name, STARTUP_SECONDS)

    def _check_alive(self) -> None:
        if self.exit is not None:
            self._check_free()

    def _type_trigger(self) -> None:
        assert self.terminal is not None
        self.terminal.write(self.shell.trigger(ready=self.at.ready and self.shell.line_editor))
        self.at.ready = False

    def _watch_start(self, running: RunningCommand, unread: int = 0) -> None:
        loop = asyncio.get_running_loop()
        running.watchdog = loop.call_later(START_SECONDS, self._check_started, running, unread)

    def _check_started(self, running: RunningCommand, unread: int) -> None:
        """The start mark is late: act only on proof that the idle shell never got the trigger.

        ``unread``: where the log ended at the last look, if what lay before that was not known then.
        """
        terminal = self.terminal
        if running is not self.running or running.started or terminal is None or self.exit is not None:
            return
        self._on_output()
        if running.started:
            return
        if self._in_line and not 0 < unread <= self._scanner.offset:
            self._watch_start(running, unread or self.log.size)
            return
        holder = self.holder()
        idle = holder is not None and holder.leads_itself and bool(holder.input_mode) and not self.at.human_line
        if not running.started and idle and not self.log.losing:
            running.retries += 1
            if running.retries > 4:
                self._end(running, "lost", self.log.end, None)
                self.wake()
                return
            if running.retries == 3:
                terminal.write(self.shell.reintegrate(self.files))
            if running.retries > 1:
                if running.retries == 2:
                    terminal.write(b"\x03")
                self._type_trigger()
        if not running.started:
            self._watch_start(running)

    def probe_end(self) -> None:
        """After an interrupt: a shell that is back at its prompt but lost its hooks is asked for the end mark."""
        if self.running is not None and self.running.started and self.terminal is not None and not self.at.ready:
            holder = self.holder()
            if holder is not None and holder.leads_itself and holder.input_mode == "raw":
                self.shell.write_probe(self.files, 130)
                self.terminal.write(self.shell.trigger(ready=True))

    def holder(self) -> processes.Foreground | None:
        """The foreground process group as the kernel has it now."""
        if self.terminal is None or self.exit is not None:
            return None
        if self.log.losing:
            self.terminal.write(b"")
        self._shell_pid = self._shell_pid or processes.boxed(self.terminal.pid, self.spec.level)
        return processes.foreground(self._shell_pid or self.terminal.pid, self.terminal.tty)

    def input_wanted(self) -> InputMode | None:
        """How the running command waits for input on the terminal; None when it does not, or when it may not.

        A shell that reads the terminal as it does at its prompt may just have ended the command.
        """
        holder = self.holder() if self.running is not None or self.at.human_line else None
        if holder is None or (holder.leads_itself and not (self.shell.line_editor and holder.input_mode != "raw")):
            return None
        return holder.input_mode

    def state(self) -> SessionState:
        """Derived anew from evidence each time."""
        if self.exit is not None:
            return SessionState.LOST if self.exit.lost else SessionState.EXITED
        if not self.at.up:
            return SessionState.STARTING
        if self.running is None and self.at.ready and not self.at.human_line:
            return SessionState.READY
        holder = self.holder()
        if holder is not None and holder.stopped:
            return SessionState.STOPPED
        if self.running is None and not self.at.human_line and (holder is None or holder.leads_itself):
            return SessionState.READY
        return SessionState.WAITING_INPUT if self.input_wanted() else SessionState.RUNNING

    async def screen(self) -> ScreenSnapshot:
        """The rendered screen: the backend's own where it keeps one, else from the log."""
        snapshot = await self.terminal.capture() if self.terminal and self.exit is None else None
        return snapshot or await self._display.snapshot()

    async def redraw(self) -> bytes:
        """Bytes that draw the present screen on a terminal of the same size."""
        data = await self.terminal.capture_ansi() if self.terminal and self.exit is None else None
        return data if data is not None else await self._display.ansi()

    async def resize(self, rows: int, cols: int) -> None:
        """Change the terminal's size; the foreground program is told."""
        self._check_alive()
        assert self.terminal is not None
        await self.terminal.resize(rows, cols)
        self._timing.resized(self.log.end, rows, cols)
        self._display.resize(rows, cols)
        self.spec = replace(self.spec, rows=rows, cols=cols)

    def send(self, data: bytes) -> None:
        """Type ``data``; raises SessionExited, LimitReached where what was typed before is not read."""
        self._check_alive()
        assert self.terminal is not None
        if self.terminal.unsent + len(data) > UNSENT_BYTES:
            raise commands.unread(self.spec.name, self.terminal.unsent)
        if self.running is not None and self.log.losing:
            self.running.disturbed = True
        self.terminal.write(data)
