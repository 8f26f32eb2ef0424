"""What is done about a shell that reports nothing: it is checked, queried, given back its integration, or ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from ai_session.sessions import commands
from ai_session.sessions.commands import RunningCommand
from ai_session.sessions.executor import CLEARS, RETURN, Executor
from ai_session.sessions.facts import (
    ANSWER_SECONDS,
    SessionFacts,
)
from ai_session.sessions.reader import OutputReader
from ai_session.sessions.recovery import LOOK_SECONDS, Evidence, Recovery, Step
from ai_session.shells.base import ANSWERED, BEGUN, SILENCED, Shell, dated
from ai_session.system import processes, terminal_device

ASKS = 2
"""How often a shell that starts is asked whether it is at its prompt before nobody waits for that."""

RETRIES = 3
"""How often a command that was typed in vain is typed again."""

FILES = 64
"""How many files a shell whose limit is too low may open in addition."""

SPARE_FILES = 2
"""A shell that has fewer files left, and does not answer, may open more."""

LEAVE_SECONDS = 0.5
"""How long a shell that is ended may take to leave by itself."""

UNANSWERED = "the shell does not answer: close_session, or create_session another"


class Watchdog:
    """Checks a silent shell at intervals and acts on proof only: on what the kernel says, never on time alone."""

    def __init__(self, session: SessionFacts, reader: OutputReader, executor: Executor) -> None:
        self._session = session
        self._reader = reader
        self._executor = executor
        self.became: Callable[[str], None] = lambda _: None
        """Called with the executable of another shell in which the session continues."""
        self.line = Recovery()
        """What is known of a line that a person typed and whose end was not reported."""
        self._line_watch: asyncio.TimerHandle | None = None
        self._starting: asyncio.TimerHandle | None = None
        self.start_in_vain = False
        """Whether a shell that starts reads, and nothing shows that it does so at its prompt."""
        self._killing: asyncio.TimerHandle | None = None

    def release(self) -> None:
        """Stop checking."""
        running = self._session.running
        for timer in (running.watchdog if running else None, self._line_watch, self._starting, self._killing):
            if timer is not None:
                timer.cancel()

    def watch(
        self, running: RunningCommand, unread: tuple[int, int] | None = None, *, seconds: float = LOOK_SECONDS
    ) -> None:
        """Check ``running`` at intervals, first in so many seconds."""
        if running.watchdog is not None:
            running.watchdog.cancel()
        running.watchdog = asyncio.get_running_loop().call_later(seconds, self._look, running, unread)

    def _look(self, running: RunningCommand, unread: tuple[int, int] | None) -> None:
        """Check a command of which nothing was reported, and act if it is proven not to run.

        ``unread``: how many turns of reading there had been at the last check, and where the log ended, if what was
        printed before was not read then.
        """
        session = self._session
        if running is not session.running or session.terminal is None or session.exit is not None:
            return
        self._reader.read_now()
        if running is not session.running:
            return
        known = unread is not None and unread[0] < self._reader.turns_read and unread[1] <= self._reader.scanner.offset
        behind = self._reader.queued and not known
        self.watch(running, (unread or (self._reader.turns_read, session.log.size)) if behind else None)
        if not behind and not session.log.losing:
            terminal_device.let_print(session.terminal.tty)
            evidence = session.evidence(by_person=running.typed)
            self._answer_late(running, evidence)
            # A typed line is never begun again.
            started, answers = running.started or running.typed, bool(session.shell.asks)
            self._take(running, running.recovery.next(evidence, started=started, answers=answers), evidence)

    def _take(self, running: RunningCommand, step: Step, evidence: Evidence) -> None:
        session = self._session
        assert session.terminal is not None
        if step is Step.WAIT:
            if not running.recovery.asking:
                running.quiet_end = None
            if running.recovery.in_vain:
                # Callers that wait for the result may continue.
                session.wake()
            return
        if step is Step.CONTINUE:
            processes.go_on(session.shell_pid)
        elif step is Step.STARTED:
            running.start_at(running.trigger_offset)
        else:
            # A command that reads with the line editor may still need those it has.
            used = 0 if step is Step.ASK else processes.files_open(session.shell_pid)
            if few := self.allow_files(running, used):
                running.note = running.note or few
                running.cramped = True
            if step is Step.GIVE_UP and not session.given_up and not dated(session.files, ANSWERED):
                example = f", as with {session.shell.silenced_by}" if session.shell.silenced_by else ""
                self._give_up(f"it did not execute what was typed{example}, or could not answer", running)
            if step is Step.GIVE_UP or session.given_up:
                running.note = running.note or session.given_up or UNANSWERED
                self._executor.lose(running)
            elif step is Step.ASK:
                self._executor.quiet_end(running)
                session.terminal.write(session.shell.asks)
            elif running.typed and not evidence.replaced and not self._may_be_asked(running):
                self._executor.lose(running)
            else:
                self._probe(running, step)

    def _answer_late(self, running: RunningCommand, evidence: Evidence) -> None:
        """Send the terminal's withheld reply if the prompt waits for it and so does not take the command."""
        session = self._session
        if running.started:
            session.withheld = b""
        waits = session.withheld and evidence.leads and not evidence.reads and session.process is not None
        if waits and session.terminal is not None and session.process is not None and session.process.input_mode():
            withheld, session.withheld = session.withheld, b""
            session.terminal.write(withheld)

    def _may_be_asked(self, running: RunningCommand) -> bool:
        """Report whether the shell knows how the typed line ended, and asking discards nothing typed since."""
        return running.started and not self._session.typed.half_line()

    def _probe(self, running: RunningCommand, step: Step) -> None:
        """Ask the shell what became of the command; ask again later if the question cannot be written."""
        try:
            self._ask_shell(running, step)
        except OSError:
            running.recovery.untaken()

    def _ask_shell(self, running: RunningCommand, step: Step) -> None:
        session = self._session
        assert session.terminal is not None
        self._executor.quiet_end(running)
        edited = session.process is None or not session.process.reads_unedited()
        if step is Step.CLEAR:
            session.terminal.write(session.interrupt_key())
        if step in (Step.CLEAR, Step.REINTEGRATE, Step.RESTORE) and not running.started:
            self._executor.enter = RETURN
        if step in (Step.REINTEGRATE, Step.RESTORE):
            self.reintegrate(running, restore=step is Step.RESTORE)
        stopped = running.interrupted or running.stopped_by_key
        aborted = 128 + signal.SIGINT if stopped else None
        running.asks += 1
        running.reached = dated(session.files, BEGUN)
        if running.typed:
            # Every other step changes the status that the line has left.
            question = session.shell.write_line_probe(session.files, status=step is Step.PROBE)
        else:
            question = session.shell.write_probe(session.files, running.record.seq, aborted, running.asks)
        if not edited:
            question = self._executor.after_clearing(question) if session.shell.line_editor else question.lstrip(CLEARS)
        self._executor.type_line(question)
        session.at.ready = False

    def probe_end(self) -> None:
        """Ask a shell for the end of the command if it is back at its prompt after an interrupt and reported none."""
        session = self._session
        running = session.running
        if running is not None and running.started and session.terminal is not None:
            evidence = session.evidence(by_person=running.typed)
            sure = evidence.replaced or evidence.at_prompt or not running.typed
            if evidence.reads and not evidence.executing and sure:
                self._probe(running, Step.REINTEGRATE if evidence.replaced else Step.PROBE)

    def signal_begun(self, running: RunningCommand, number: signal.Signals) -> bool:
        """Send a signal to the processes that ``running`` has begun. Report whether any of them is alive."""
        if self._session.exit is not None or running.adopted:
            return False
        return processes.signal_children(self._session.shell_pid, running.begun_ticks, running.newest_pid, number)

    def prompt_seen(self, running: RunningCommand) -> None:
        """Note a prompt without an end mark before it: no mark will come, unless this is the text of an old prompt."""
        if running.unbegun:
            self.begin_again(running, None)
            return
        running.recovery.confirm()
        self.watch(running, seconds=ANSWER_SECONDS)

    def begin_again(self, running: RunningCommand, question: int | None) -> None:
        """Type a command again that the shell does not know: it was lost, or what the shell needs to take it.

        ``question`` is the number of the question that the shell answers; only the last one counts.
        """
        if question not in (running.asks, None):
            return
        begun = dated(self._session.files, BEGUN)
        if begun and question is not None and not running.reached and not running.adopted:
            # It came to the text after the question, perhaps after its answer.
            running.recovery.again()
            return
        running.asks += 1
        running.retries += 1
        if begun:
            running.note = commands.LOST_TRACK
        elif running.adopted or running.retries > RETRIES:
            running.note = commands.NEVER_BEGUN
        if begun or running.adopted:
            self._executor.end(running, "lost", self._executor.quiet_end(running), None)
            self.reintegrate(None, restore=False)
        elif running.retries > RETRIES:
            self._give_up(
                "it could no longer take commands, for example because an internal variable was made read-only", running
            )
            self._executor.end(running, "lost", self._executor.quiet_end(running), None)
        else:
            self._type_again(running)

    def _type_again(self, running: RunningCommand) -> None:
        try:
            if running.retries > 1:
                self.reintegrate(None, restore=running.retries > 2)
            more = self._executor.write(running)
        except OSError:
            running.note = commands.NEVER_BEGUN
            self._executor.end(running, "lost", self._executor.quiet_end(running), None)
            return
        running.started = running.unbegun = False
        running.recovery.again()
        running.quiet_end = None
        running.note = ""
        self._executor.type_trigger(more)

    def may_have_ended(self) -> bool:
        """Report whether the shell reads as at its prompt, and is being asked what became of what was running."""
        session = self._session
        running = session.running
        if running is not None and not running.typed:
            return self._undecided(running.recovery, session.evidence())
        if (running is None and not session.at.human_line) or (session.at.human_line and session.at.incomplete):
            return False
        recovery = self.line if running is None else running.recovery
        return self._undecided(recovery, session.evidence(by_person=True))

    def _undecided(self, recovery: Recovery, evidence: Evidence) -> bool:
        return evidence.reads and not evidence.executing and not recovery.in_vain

    def doubt(self) -> None:
        """Find out what lost output may have reported."""
        session = self._session
        running = session.running
        if running is not None and not running.typed:
            running.lose(session.log.end)
            if session.terminal is not None:
                self.watch(running)
        elif session.typed.ended_at:
            self.doubt_line()

    def doubt_line(self) -> None:
        """Take the typed line to run, or to be incomplete, until a prompt shows that it has ended."""
        session = self._session
        if not session.at.human_line:
            session.at.human_line = True
            session.at.ready = False
            if session.running is None:
                self.line.again()
                self.watch_line()

    def watch_line(self) -> None:
        """Check the typed line at intervals until it has ended."""
        if self._line_watch is None and self._session.terminal is not None:
            self._line_watch = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look_at_line)

    def _look_at_line(self) -> None:
        """Check a typed line, whose end the shell may not have reported: only a prompt ends it."""
        session = self._session
        self._line_watch = None
        if (
            session.running is not None
            or not session.at.human_line
            or session.terminal is None
            or session.exit is not None
        ):
            return
        self._reader.read_now()
        self.watch_line()
        if self._reader.queued or session.log.losing:
            return
        terminal_device.let_print(session.terminal.tty)
        evidence = session.evidence(by_person=True)
        step = self.line.next(evidence, started=True, answers=bool(session.shell.asks))
        if step is not Step.WAIT and evidence.at_prompt:
            session.prompt_proven()
        elif step is Step.CONTINUE:
            processes.go_on(session.shell_pid)
        elif step is Step.ASK:
            session.terminal.write(session.shell.asks)
        elif step in (Step.REINTEGRATE, Step.RESTORE):
            self.reintegrate(None, restore=step is Step.RESTORE)
        elif self.line.in_vain:
            session.wake()

    def watch_start_files(self, before: Evidence | None = None, tries: int = 0) -> None:
        """Check at intervals how the shell gets on with its start files, until it is at its prompt."""
        loop = asyncio.get_running_loop()
        if self._starting is not None:
            self._starting.cancel()  # of the shell before, which has just ended
        self._starting = loop.call_later(LOOK_SECONDS, self._look_at_start, before, tries)

    def _look_at_start(self, before: Evidence | None, tries: int) -> None:
        """Check start files: they may have replaced the shell, or wait for input; or a mark was lost."""
        session = self._session
        begun = session.at.up and (session.at.ready or session.at.human_line or not session.shell.line_editor)
        if begun or session.running is not None or session.exit is not None or session.terminal is None:
            return
        self._reader.read_now()
        if self._reader.queued:
            self.watch_start_files(None, tries)
            return
        evidence = session.evidence()
        holder = session.holder() if evidence == before else None  # which looks at every process of the machine
        self.start_in_vain = evidence == before and evidence.reads and tries >= ASKS
        # Looking took a while, in which the shell may have come to its prompt.
        still = holder is not None and bool(holder.input_mode) and session.evidence() == evidence
        session.blocker = holder.name if still and holder is not None and not evidence.reads else ""
        # What it started, as fish does the first time, may be at work in its group.
        if evidence == before and evidence.reads and tries < RETRIES:
            tries += 1
            if evidence.replaced:
                self.reintegrate(None, restore=tries > 1)
            elif session.at.up:
                session.terminal.write(session.shell.asks)
            elif session.shell.shows_command and processes.has_open(session.shell_pid, "/shell/rc") is False:
                session.at.up = True
                session.wake()
        if session.blocker or self.start_in_vain:
            session.wake()
        self.watch_start_files(evidence, tries)

    def reintegrate(self, running: RunningCommand | None, *, restore: bool) -> None:
        """Have the shell read the integration again, the one for the shell that it is now."""
        session = self._session
        assert session.terminal is not None
        notes = ["the shell did not report the end of this command, so it was queried"]
        shell, replaced = session.present_shell()
        if replaced and shell is not None:
            self._become(shell)
            notes = [session.replaced_by()]
        if running is not None:
            running.note = running.note or "; ".join(notes)
        if not (session.files / "integration").exists():
            with contextlib.suppress(OSError):
                self._executor.restore_files()
        self._executor.type_line(session.shell.reintegrate(session.files, restore=restore))

    def _become(self, shell: Shell) -> None:
        """Continue with another shell than the one that was started."""
        session = self._session
        executable = processes.program(session.shell_pid)
        if shell is session.shell and os.path.basename(executable) == os.path.basename(session.spec.shell):
            return
        session.shell = shell
        self._executor.install(executable)
        session.at.line_editor = shell.line_editor
        self.became(executable)

    def allow_files(self, by: RunningCommand | None, used: int = 0) -> str:
        """Let a shell open more files if it may open too few to take commands. Return the note about that, if any.

        End the shell if its hard limit forbids more. ``used`` of its files are open.
        """
        session = self._session
        pid, least = session.shell_pid, max(session.shell.files, used + SPARE_FILES)
        allowed = processes.files_allowed(pid)
        if allowed is None or allowed >= least or session.present_shell()[1]:
            return ""
        if processes.allow_files(pid, max(used + FILES, least), least):
            few = f"{allowed} were too few to take commands"
            return f"its shell may have {processes.files_allowed(pid)} files open (`ulimit -n`): {few}"
        self._end_shell(f"it may have only {allowed} files open (`ulimit -n`), too few to take commands", by)
        return ""

    def _give_up(self, why: str, running: RunningCommand) -> None:
        """End a shell that takes no commands any more, unless what is typed does not reach it."""
        if self._session.process is not None and (rival := self._session.process.rival()):
            running.note = f"{rival} reads the terminal of the session, too, and takes what is typed: end it elsewhere"
        else:
            with contextlib.suppress(OSError):
                (self._session.files / SILENCED).touch(mode=0o600)
            self._end_shell(why, running)

    def _end_shell(self, why: str, by: RunningCommand | None) -> None:
        """End a shell that can take no commands any more."""
        session = self._session
        session.given_up = why
        if by is not None:
            session.ended_by = by.record.command_id
        pid = session.shell_pid
        started = processes.start_time(pid)

        def end(number: signal.Signals) -> None:
            if session.exit is None and processes.alive(pid, started):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)

        end(signal.SIGHUP)
        self._killing = asyncio.get_running_loop().call_later(LEAVE_SECONDS, end, signal.SIGKILL)
