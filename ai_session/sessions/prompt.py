"""Whether the shell is at its prompt, so that a line may be typed there."""

from __future__ import annotations

import asyncio
import os

from ai_session.sessions import commands
from ai_session.sessions.facts import (
    ANSWER_SECONDS,
    READY_SECONDS,
    RECOVERY_SECONDS,
    STARTUP_SECONDS,
    TAKEN_SECONDS,
    TYPED_LOOK_SECONDS,
    SessionFacts,
)
from ai_session.sessions.reader import OutputReader
from ai_session.sessions.recovery import LOOK_SECONDS
from ai_session.sessions.shell_process import READS_LINES
from ai_session.sessions.watchdog import Watchdog
from ai_session.system import foreground, processes, terminal_device
from ai_session.system.shell_words import is_whole
from ai_session.terminal.marks import caught_up

PROMPT_SECONDS = 10.0
"""How long a program that has the terminal, with no prompt drawn since the last command, is taken for the prompt's."""

PROMPT_LOOKS = 10
"""How often we check where the shell reads at a prompt that it has shown."""

MARK_SECONDS = 0.1
"""How long a mark of the session's own is awaited before another is printed."""


class Prompt:
    """The prompt of a session's shell, judged by marks and by what the kernel says, never by what it looks like.

    ``overdue``: a command was refused because the prompt took too long; the next one is refused sooner. ``shown`` is
    the number of the last mark that the session printed on its terminal, ``read_back`` that of the last one found in
    its output. ``looks_left``: how often it may still be checked where the shell reads at its prompt.
    """

    def __init__(self, session: SessionFacts, reader: OutputReader, watchdog: Watchdog) -> None:
        self._session = session
        self._reader = reader
        self._watchdog = watchdog
        self.overdue = False
        self.shown = 0
        self.read_back = 0
        self.looks_left = 0
        self._learning: asyncio.TimerHandle | None = None

    def release(self) -> None:
        """Stop checking."""
        if self._learning is not None:
            self._learning.cancel()

    async def reached(self) -> None:
        """Wait until a command may be typed. Raises SessionBusy, SessionExited, IntegrationLost."""
        session = self._session
        if not (session.at.up and session.at.ready):
            await self._prompt_drawn()
        self.overdue = False
        await self._editor_reads()
        if session.typed.unsettled or session.at.human_line:
            await self._typed_taken()
        await self._fed_by_terminal()

    async def _prompt_drawn(self) -> None:
        """Wait until the shell accepts a line, or for a while: not every prompt is marked."""
        session = self._session
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (READY_SECONDS if session.at.up else STARTUP_SECONDS)
        was_up = session.at.up
        while not session.at.ready and not session.at.human_line and session.exit is None:
            if session.at.up and not was_up:
                deadline, was_up = loop.time() + READY_SECONDS, True
            if session.blocker or not await session.changed(deadline - loop.time()):
                break
        session.check_alive()
        if session.at.ready or session.at.human_line or session.terminal is None:
            return
        holder = await self._prompts_program(deadline + (0 if self.overdue else PROMPT_SECONDS))
        if session.at.up and session.asks_before_prompt():
            raise commands.asked_at_prompt(session.spec.name)
        if holder is not None and not holder.leads_itself:
            raise commands.occupied(session.spec.name, holder.name)
        if holder is not None and session.draws_prompt():
            self.overdue = True
            raise commands.at_prompt_work(session.spec.name, PROMPT_SECONDS)
        if not session.at.up and session.blocker and session.present_shell()[0] is None:
            raise commands.became(session.spec.name, session.blocker)
        if not session.at.up and (session.blocker or self._watchdog.start_in_vain):
            raise commands.asked_at_start(session.spec.name)
        if not session.at.up:
            raise commands.not_started(session.spec.name, STARTUP_SECONDS)

    async def _prompts_program(self, deadline: float) -> foreground.Foreground | None:
        """Wait until ``deadline`` while the prompt, or a program of its own, draws. Return who has the terminal."""
        session = self._session
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while (holder := session.holder()) is not None and session.at.up:
            drawing = session.draws_prompt() or (loop.time() < begun + RECOVERY_SECONDS and self.is_being_drawn())
            drawn = session.at.ready or session.at.human_line or (holder.leads_itself and not drawing)
            asked = loop.time() >= begun + RECOVERY_SECONDS and session.asks_before_prompt()
            if drawn or asked or loop.time() >= deadline:
                break
            # Output alone, which may be much, is no reason to check again.
            await self._news_of_line(min(LOOK_SECONDS, deadline - loop.time()))
            session.check_alive()
        return holder

    def is_being_drawn(self) -> bool:
        """Report whether the shell seems to read for what draws its prompt, such as the terminal's cursor position."""
        session = self._session
        undrawn = session.at.up and not session.at.ready and not session.at.human_line
        elsewhere = undrawn and session.process is not None and session.process.reads_elsewhere(session.shell)
        return elsewhere or (undrawn and session.asks_before_prompt())

    async def _editor_reads(self) -> None:
        """Wait until the shell's editor reads: before that, letters that are keys of the terminal cannot be quoted."""
        session = self._session
        if (
            session.shell.line_editor
            or session.terminal is None
            or not terminal_device.has_letters_as_keys(session.terminal.tty)
        ):
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TAKEN_SECONDS
        while session.is_at_work() and loop.time() < deadline:
            await session.changed(TYPED_LOOK_SECONDS)
            session.check_alive()

    async def _typed_taken(self) -> None:
        """Wait until the shell has taken all that was typed and is at its prompt. Raise SessionBusy if it is not:
        nothing may be typed into what a person runs."""
        session = self._session
        loop = asyncio.get_running_loop()
        begun = refused = loop.time()
        while (back := await self.is_back(begun + TAKEN_SECONDS - loop.time())) is not True:
            session.check_alive()
            holder, now = session.holder(), loop.time()
            if holder is not None and not holder.leads_itself and now - begun >= READY_SECONDS:
                raise commands.occupied(session.spec.name, holder.name)
            if back is None:
                refused = now
            # Its prompt may have come without a word, which is being found out; a line editor works now and then.
            unsure = back is False and (session.is_at_work() or self._watchdog.may_have_ended())
            patience = RECOVERY_SECONDS if unsure else READY_SECONDS
            left = min(refused + patience, begun + max(TAKEN_SECONDS, patience)) - now
            if left <= 0:
                raise commands.line_open(session.spec.name)
            if back is None:
                await session.changed(min(TYPED_LOOK_SECONDS, left))
            else:
                await self._news_of_line(left)
        session.settle_typed()

    async def _news_of_line(self, seconds: float) -> None:
        """Wait until the shell reports something, or more is typed. Output is ignored: each check prints a mark."""
        session = self._session
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds

        def known() -> tuple[object, ...]:
            at, typed = session.at, session.typed
            return at.human_line, at.ready, at.prompts, typed.count, session.exit, self._watchdog.line.in_vain

        before = known()
        while known() == before and await session.changed(deadline - loop.time()):
            pass

    async def _fed_by_terminal(self) -> None:
        """Raise SessionBusy if the shell reads its lines from elsewhere since `exec <`, and does not soon reach the end
        of that."""
        session = self._session
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RECOVERY_SECONDS
        while session.fed_elsewhere():
            if not await session.changed(deadline - loop.time()):
                source = await asyncio.to_thread(processes.standard_input, session.shell_pid)
                raise commands.fed_elsewhere(session.spec.name, source)
            session.check_alive()

    async def end_found_out(self) -> None:
        """Wait until it is known whether a command, whose shell may be at its prompt, has ended; 3 s at most."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RECOVERY_SECONDS
        while not self._session.claimed and (self._shows_prompt() or self._watchdog.may_have_ended()):
            if not await self._session.changed(deadline - loop.time()):
                return

    def _shows_prompt(self) -> bool:
        """Report whether there was a prompt since the running command began, and no other program has the terminal."""
        session = self._session
        running = session.running
        if running is None or session.terminal is None or session.exit is not None:
            return False
        # What the integration starts, when it is read again, has the terminal for a moment.
        recovery = running.recovery
        return recovery.asking or (running.started and recovery.prompt and foreground.leads(session.shell_pid))

    async def is_back(self, seconds: float) -> bool | None:
        """Report whether the shell asks for its next line after all that was typed; None if it is still at work.

        Decided by the kernel, that the shell waits for its terminal with nothing left to read, and by all the marks
        that it printed before.
        """
        session = self._session
        count = session.typed.count
        if not self._took_lines() or not await self._caught_up_with_terminal(seconds):
            return None
        if not self._took_lines() or session.typed.count != count or session.exit is not None:
            return None
        unprompted = self._unprompted()
        back = not session.at.human_line and (not unprompted if session.shell.line_editor else self.reads_lines())
        if not back and session.evidence(by_person=True).at_prompt:
            session.prompt_proven()
            return True
        if unprompted and session.shell.asks:
            self._watchdog.doubt_line()
        return back

    def _took_lines(self) -> bool:
        """Report whether the shell waits for its terminal with nothing left to read, or its line editor, which may
        always be busy, has shown a prompt for each line."""
        session = self._session
        if not session.is_at_work():
            return True
        process = session.process
        shown = session.shell.line_editor and session.at.ready and session.typed.all_taken(session.at.lines)
        return shown and process is not None and foreground.leads(process.pid) and not process.owes()

    def reads_lines(self) -> bool:
        """Report whether a shell without a line editor, which waits for its terminal, does so at its prompt."""
        session = self._session
        process = session.process
        mode = process.input_mode() if process is not None else None
        size = foreground.read_size(process.pid) if process is not None and mode == "line" else None
        edits = process is not None and mode == "raw" and process.edits_lines()
        if self._unprompted():
            # The Korn shells may read for their `read` as they do at a prompt.
            ahead = size is not None and size >= READS_LINES and "ksh" not in os.path.basename(session.spec.shell)
            return (edits or ahead) and self._completely_typed()
        if size is not None:
            return size >= READS_LINES
        answered = (edits and self._on_prompts_line()) or session.typed.answered(session.at.prompts)
        return answered or (edits and self._completely_typed())

    def _completely_typed(self) -> bool:
        """Report whether a shell without a line editor, which reads on and has marked no prompt, is certainly not
        within its last line."""
        lines = None if self._session.shell.line_editor else self._session.typed.lines()
        return bool(lines) and is_whole(lines)

    def _unprompted(self) -> bool:
        """Report whether no prompt has followed the last typed line, in a shell that marks its prompts."""
        session = self._session
        at, typed = session.at, session.typed
        if not at.prompt_end or not typed.expects_prompt:
            return False
        return at.prompt_end <= typed.ended_at if session.shell.line_editor else not typed.prompted(at.prompts)

    def _on_prompts_line(self) -> bool:
        """Report whether the cursor is still on the line of the last prompt, which it leaves if a line continues."""
        session = self._session
        if session.quiet_from < 0:
            return False
        return b"\n" not in session.log.read(max(session.quiet_from, session.log.first), session.log.end)

    async def _caught_up_with_terminal(self, seconds: float) -> bool:
        """Read all that was printed before this call. Return False if the terminal is held back for so many seconds."""
        session = self._session
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        if (number := self.show_mark()) is None:
            return False
        again = loop.time() + MARK_SECONDS
        while self.read_back < number and session.exit is None:
            self._reader.read_now()
            now = loop.time()
            if now >= deadline:
                return False
            if now >= again:
                # Output may be lost, and a later one says as much.
                self.show_mark()
                again = now + MARK_SECONDS
            if self.read_back < number:
                await session.changed(min(again, deadline) - loop.time())
        return session.exit is None

    def show_mark(self) -> int | None:
        """Print a mark on the terminal, and return its number: what precedes it in the log was printed before."""
        session = self._session
        self.shown += 1
        if session.terminal is None:
            return None
        mark = caught_up(session.spec.nonce, self.shown)
        return self.shown if terminal_device.show(session.terminal.tty, mark) else None

    def learn_soon(self) -> None:
        """Check soon where the shell reads at its prompt, which it does a moment after showing it."""
        if self._session.process is None or self._session.process.prompt_known:
            return
        self.looks_left = PROMPT_LOOKS
        if self._learning is None:
            self._learning = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self.learn)

    def learn(self) -> None:
        """Note where the shell reads at its prompt, the first time that it certainly does. Check again if it does not
        yet, but not for ever: the kernel may not show it, or the shell may not read as it should."""
        session = self._session
        if self._learning is not None:
            self._learning.cancel()
            self._learning = None
        if session.process is None or session.process.prompt_known or session.exit is not None:
            return
        idle = session.at.ready and session.running is None and not session.claimed and not session.typed.unsettled
        if idle and foreground.leads(session.shell_pid):
            session.process.note_prompt(session.shell)
        if idle and not session.process.prompt_known and self.looks_left:
            self.looks_left -= 1
            self._learning = asyncio.get_running_loop().call_later(LOOK_SECONDS, self.learn)
