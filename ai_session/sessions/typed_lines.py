"""Lines typed at the prompt, by people and agents: each ends when the prompt is back."""

from __future__ import annotations

import asyncio
import contextlib
import time

from ai_session.models import (
    CommandRecord,
)
from ai_session.sessions import commands
from ai_session.sessions.commands import RunningCommand
from ai_session.sessions.executor import Executor
from ai_session.sessions.facts import (
    READY_SECONDS,
    RECOVERY_SECONDS,
    TAKEN_SECONDS,
    TYPED_LOOK_SECONDS,
    SessionFacts,
    Typist,
)
from ai_session.sessions.prompt import Prompt
from ai_session.sessions.reader import OutputReader
from ai_session.sessions.typed_input import LINE_ENDS
from ai_session.sessions.watchdog import Watchdog
from ai_session.system import terminal_device
from ai_session.terminal.marks import Mark, MarkKind

LONG_LOOK_SECONDS = 1.0
"""The longest interval between two checks while the shell takes in typed lines."""

UNSENT_BYTES = 16 << 20
"""The most input that may wait for a program to read it; more is refused."""


class TypedLines:
    """Types text into the terminal of a session, and follows the lines in it to their end."""

    def __init__(
        self, session: SessionFacts, reader: OutputReader, executor: Executor, watchdog: Watchdog, prompt: Prompt
    ) -> None:
        self._session = session
        self._reader = reader
        self._executor = executor
        self._watchdog = watchdog
        self._prompt = prompt
        self._following: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def release(self) -> None:
        """Stop following."""
        if self._following is not None:
            self._following.cancel()

    def send(self, data: bytes, *, by: Typist | None = None) -> None:
        """Type ``data``. Raises SessionTakenOver, SessionExited, LimitReached if earlier input is not read."""
        session = self._session
        session.check_typist(by)
        session.check_alive()
        assert session.terminal is not None
        if session.terminal.unsent + len(data) > UNSENT_BYTES:
            raise commands.unread(session.spec.name, session.terminal.unsent)
        session.touch()
        terminal_device.let_print(session.terminal.tty)
        self._note(data)
        session.terminal.write(data)

    def _note(self, data: bytes) -> None:
        """Note what is about to be typed, for the judgement of the prompt and of interrupts."""
        session = self._session
        session.quiet_from = -1
        interrupt = session.interrupt_key()
        if session.running is not None and interrupt in data:
            session.running.stopped_by_key = True
        if not session.shell.line_editor and (interrupt in data or LINE_ENDS.search(data)):
            settled = session.holder() is not None and not session.is_at_work()
            if (settled or interrupt in data) and (number := self._prompt.show_mark()) is not None:
                session.typed.begin_at(number)
        self._news.set()
        session.blocker = ""  # which may be answered now
        if session.asks_before_prompt():
            return  # the answer to that is no line of the shell's
        session.typed.add(data, interrupt, session.at.prompts, session.log.end, session.at.lines)
        if session.running is None and not session.at.ready and not session.at.human_line:
            session.typed.owe_prompt()

    async def send_lines(self, data: bytes, command_id: str) -> RunningCommand | None:
        """Type ``data``. If it ends a line at the prompt, return what the lines do, as a command that can be awaited.

        It ends when the shell has taken all that was typed and its prompt is back. None: ``data`` is input of what
        runs, what draws the prompt, or half a line. Raises SessionTakenOver, SessionExited, LimitReached.
        """
        session = self._session
        session.check_typist()
        if not LINE_ENDS.search(data):
            self.send(data)
            return None
        await self.until_begun()
        await self._takes_a_line()
        holder = session.holder()
        foreign = holder is not None and not holder.leads_itself
        if not self._free_for_lines() or foreign or session.asks_before_prompt():
            self.send(data)
            return None
        record = CommandRecord(
            command_id=command_id,
            seq=self._executor.seq,
            command=session.typed.text_with(data),
            status="running",
            started_at=time.time(),
            start_offset=session.log.end,
            cwd=session.cwd,
        )
        running = RunningCommand(record, asyncio.get_running_loop().create_future(), session.log.end, typed=True)
        running.started = not session.shell.line_editor
        running.prompt_owed = session.typed.unsettled or not session.at.ready
        commands.note_typed(session.files, record)
        self._executor.note_concurrent(running)
        self.send(data)
        session.running = session.latest = running
        self.follow(running)
        return running

    def _free_for_lines(self) -> bool:
        session = self._session
        busy = session.running is not None or session.claimed or session.at.human_line
        return session.at.up and not busy and session.ending is None

    async def until_begun(self) -> None:
        """Wait until the command that was started last has begun, or for a while. Before that a line editor may have
        the terminal, where Enter is a carriage return: a program that reads it later waits for the end of the line."""
        session = self._session
        running = session.running
        deadline = asyncio.get_running_loop().time() + RECOVERY_SECONDS
        while running is not None and running is session.running and not running.started:
            if session.at.incomplete or not await session.changed(deadline - asyncio.get_running_loop().time()):
                return

    async def _takes_a_line(self) -> None:
        """Wait until the prompt is drawn and it is known where the shell reads there, or for a while. What is typed
        earlier may be taken by what draws the prompt, or be dropped with an interrupted line."""
        session = self._session
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while self._free_for_lines():
            left = begun + (RECOVERY_SECONDS if self._prompt.is_being_drawn() else READY_SECONDS) - loop.time()
            if left <= 0:
                break
            if session.at.ready and session.typed.unsettled and await self._prompt.is_back(left):
                session.settle_typed()
            self._prompt.learn()
            known = session.process is None or session.process.prompt_known or not self._prompt.looks_left
            if session.at.ready and not session.typed.unsettled and known:
                break
            await session.changed(min(TYPED_LOOK_SECONDS, left))
        await session.display.settled()

    def follow(self, running: RunningCommand) -> None:
        """End the typed lines ``running`` as soon as the prompt is back."""
        self._following = asyncio.ensure_future(self._follow_to_end(running))
        self._watchdog.watch(running)

    async def _follow_to_end(self, running: RunningCommand) -> None:
        # There is no event for when the shell begins to read again.
        session = self._session
        wait = TYPED_LOOK_SECONDS
        while running is session.running and session.exit is None:
            self._news.clear()
            back = await self._prompt.is_back(TAKEN_SECONDS)
            # A shell that ends cannot say with which code: a signal may end it.
            if back and running is session.running and session.at.exit_code is None:
                if running.prompt is not None or not running.started or running.recovery.in_vain:
                    self._executor.lose(running)
                    return
                if not running.recovery.prompt:
                    self._watchdog.prompt_seen(running)
            wait = TYPED_LOOK_SECONDS if running.prompt else min(wait * 2, LONG_LOOK_SECONDS)
            if not self._reader.queued and session.terminal is not None:
                terminal_device.let_print(session.terminal.tty)
            with contextlib.suppress(TimeoutError):
                # A shell that waits within a line continues by what is typed, and says so.
                async with asyncio.timeout(None if back is False else wait):
                    await self._news.wait()

    def on_mark(self, running: RunningCommand, mark: Mark) -> None:
        """Handle a mark while the typed lines ``running`` run."""
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
            running.note = running.note or self._session.replaced_by()
            if not running.asks:
                self._executor.end_typed(running)
        elif mark.kind is MarkKind.COMMAND_FINISHED and mark.seq is None and running.asks:
            running.prompt = mark
            self._executor.end_typed(running)
        elif mark.kind is MarkKind.PROMPT_START and mark.seq is None and not running.asks:
            if running.started or not running.prompt_owed:
                running.prompt = mark
        elif mark.kind is MarkKind.PROMPT_READY or (mark.kind is MarkKind.AT_PROMPT and mark.flags == "p"):
            running.recovery.confirm()

    async def ended_soon(self) -> None:
        """Wait a moment for the end of lines that were typed."""
        if (running := self._session.running) is not None and running.typed:
            await running.ends(TAKEN_SECONDS if not self._session.at.human_line else READY_SECONDS)
