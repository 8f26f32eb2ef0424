"""Random walks of an agent in a session: commands, typed and half lines, interrupts and other shells in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

from ai_session.errors import SessionBusy
from ai_session.models import CommandRecord
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.system.terminal_device import unread_bytes
from tests.ai_session.contract.sessions.test_semantics import happened
from tests.ai_session.support.sessions import request, spin, until
from tests.support.bounds import BOUND_SECONDS

USABLE_SECONDS = 3.0
STEPS = 9
INTERRUPTED, NOT_FOUND = 130, 127
PROGRAM = "leave"


def write_program(directory: Path) -> None:
    """Write the program that walks in ``directory`` run, before the first of them begins."""
    program = directory / PROGRAM
    program.write_text('#!/bin/sh\necho x >>"$1"; echo out; exit "${1##*-}"\n')
    program.chmod(0o755)


class Walk:
    """One session of a ``shell`` and what was done in it. ``wrong`` says what was found."""

    def __init__(self, manager: SessionManager, shell: str, name: str, seed: int, directory: Path) -> None:
        self.manager = manager
        self.shell = shell
        self.name = name
        self.rng = Random(f"{shell} {seed}")
        self.directory = directory
        self.story: list[str] = []
        self.wrong: list[str] = []
        self.number = self.lost = 0
        self.refused = ""
        self.keyed = False
        """Whether a key was pressed since the last command: a shell that handles it drops what it has read meanwhile,
        so that of the next line nothing may run, or only the rest."""

    async def take(self, steps: int = STEPS) -> list[str]:
        """What is wrong on the way or at its end."""
        self.session = await self.manager.create(request(self.name, shell=self.shell))
        try:
            for _ in range(steps):
                step = self.rng.choice(self._steps())
                self.story.append(step.__name__.strip("_"))
                await step()
                if self.wrong:
                    break
            else:
                await self._usable()
        except TimeoutError:
            self.wrong.append(f"hangs, {self.session.state()}, was refused last with: {self.refused}")
        await self.manager.close(self.session)
        return [f"{self.shell}, {' '.join(self.story)}: {what}" for what in self.wrong]

    def _steps(self) -> Sequence[Callable[[], Awaitable[None]]]:
        any_time = [self._execute, self._typed, self._typed_and_left, self._interrupt, self._key, self._half_line]
        at_prompt = [self._interrupt_typed, self._key_typed, self._executed_exec, self._typed_exec]
        return any_time if self.session.running is not None else [*any_time, *any_time, *at_prompt]

    def _line(self) -> tuple[str, Path, int]:
        """A line that leaves a file, which one, and its exit code. A part of the line, which is what a key may leave,
        leaves another file or none, and reads nothing."""
        self.number += 1
        code = self.rng.randrange(1, 100)
        ran = self.directory / f"{self.name}-{self.number}-{code}"
        return f"{self.directory / PROGRAM} '{ran}'", ran, code

    async def _execute(self) -> None:
        line, ran, code = self._line()
        self._judge(await self._ended(await self._begun(line)), ran, code, lost=False)

    async def _typed(self) -> None:
        await self._type(wait_for_end=True)

    async def _typed_and_left(self) -> None:
        await self._type(wait_for_end=False)

    async def _type(self, *, wait_for_end: bool) -> None:
        line, ran, code = self._line()
        running = await self.session.typed_lines.send_lines(f"{line}\n".encode(), f"typed-{self.number}")
        if running is None:
            # It was typed for what still ran.
            self.story.append("(as input)")
        elif wait_for_end:
            self._judge(await self._ended_typed(running), ran, code, lost=True)
            if running.record.status == "lost":
                self.lost += 1

    async def _interrupt(self) -> None:
        running = await self._begun("sleep 1000")
        await until(self.session, lambda: running.started)
        if self.rng.random() < 0.7:
            await happened(self.session, "foreground")
        outcome = await wait.interrupt(self.session, 5.0)
        if not outcome.ended:
            self.wrong.append(f"an interrupted command did not end, {self.session.state()}")
        # zsh itself says 1 if it still reads the line.
        if running.record.exit_code not in (INTERRUPTED, None, *([1] if self.shell == "zsh" else [])):
            self.wrong.append(f"an interrupted command is said to have ended with {running.record.exit_code}")

    async def _key(self) -> None:
        self.keyed = True
        self.session.send(b"\x03")

    async def _half_line(self) -> None:
        self.session.send(b"echo 'half' ; ")
        # The key overtakes what the shell has not read.
        await asyncio.to_thread(spin, self._idle)

    def _idle(self) -> bool:
        """Whether a program has read all that was typed, and reads."""
        holder, terminal = self.session.holder(), self.session.terminal
        assert terminal is not None
        return (
            not terminal.unsent and not unread_bytes(terminal.tty) and (holder is None or holder.input_mode is not None)
        )

    async def _ended_typed(self, running: wait.RunningCommand) -> CommandRecord:
        async with asyncio.timeout(BOUND_SECONDS):
            while self.keyed and not (await asyncio.wait([running.finished], timeout=USABLE_SECONDS))[0]:
                if not self.session.is_at_work():
                    # Of the line, a key may have left a part that is not complete.
                    self.session.send(b"\x03")
            return await running.finished

    async def _interrupt_typed(self) -> None:
        running = await self.session.typed_lines.send_lines(b"sleep 1000\n", "typed-sleep")
        if running is not None:
            await happened(self.session, "foreground")
            outcome = await wait.interrupt(self.session, 5.0)
            if not outcome.ended or running.record.exit_code not in self._interrupted:
                self.wrong.append(f"an interrupted line: {running.record}")

    async def _key_typed(self) -> None:
        running = await self.session.typed_lines.send_lines(b"sleep 1000\n", "typed-sleep")
        if running is not None:
            await happened(self.session, "foreground")
            self.session.send(b"\x03")
            async with asyncio.timeout(BOUND_SECONDS):
                record = await running.finished
            if record.exit_code not in self._interrupted:
                self.wrong.append(f"Ctrl-C: {record}")

    @property
    def _interrupted(self) -> tuple[int | None, ...]:
        """The exit codes that an interrupted line may have: the rest of one may name no program."""
        return (INTERRUPTED, None, NOT_FOUND) if self.keyed else (INTERRUPTED, None)

    async def _executed_exec(self) -> None:
        self._judge_exec(await self._ended(await self._begun(f"exec {self.shell_line}")))

    async def _typed_exec(self) -> None:
        running = await self.session.typed_lines.send_lines(f"exec {self.shell_line}\n".encode(), "typed-exec")
        if running is not None:
            async with asyncio.timeout(BOUND_SECONDS):
                self._judge_exec(await running.finished)

    @property
    def shell_line(self) -> str:
        return "busybox sh" if self.shell == "busybox" else self.shell

    def _judge_exec(self, record: CommandRecord) -> None:
        if not self.keyed and ((record.status, record.exit_code) != ("lost", None) or not record.note):
            self.wrong.append(f"the end of a shell: {record}")

    def _judge(self, record: CommandRecord, ran: Path, code: int, *, lost: bool) -> None:
        times = ran.read_text().count("x") if ran.exists() else 0
        if lost and self.keyed and not times:
            return
        exact = (record.status, record.exit_code) == ("finished", code)
        if not (exact or (lost and (record.status, record.exit_code) == ("lost", None))):
            self.wrong.append(f"exit code {code} became {record}")
        if times > 1 or (exact and times != 1):
            self.wrong.append(f"ran {times} times: {record}")

    async def _begun(self, command: str) -> wait.RunningCommand:
        """The command, begun as soon as the session is no longer busy."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.number += 1
        async with asyncio.timeout(BOUND_SECONDS):
            while True:
                try:
                    running = await self.session.begin(command, command_id=f"cmd-{self.number}")
                    break
                except SessionBusy as busy:
                    self.refused = str(busy)
                    if self.keyed:
                        # The rest of a line may be one that is not complete.
                        self.keyed = False
                        self.session.send(b"\x03")
                    await asyncio.sleep(0)
        if loop.time() - began > USABLE_SECONDS:
            self.wrong.append(f"usable only after {loop.time() - began:.1f} s")
        self.keyed = False
        return running

    async def _ended(self, running: wait.RunningCommand) -> CommandRecord:
        async with asyncio.timeout(BOUND_SECONDS):
            return await running.finished

    async def _usable(self) -> None:
        for _ in range(2):
            await self._execute()
        await self._typed()
