"""A session in random hands beside a model of it: what both say must agree after every step."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from ai_session.errors import SessionBusy, SessionExited
from ai_session.models import ExitStatus, SessionState
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.report import transcript
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession, SessionDefaults
from ai_session.system import membership
from ai_session.system.turns import finished
from tests.ai_session.torture.kills import spin
from tests.ai_session.torture.random_material import characters
from tests.ai_session.torture.random_posix import quote
from tests.support.bounds import BOUND_SECONDS

NAMES = ("v1", "v2", "v3")


@dataclass
class Begun:
    """A command that is under way: what it has printed, what it waits for."""

    kind: str
    command_id: str
    code: int
    text: str = ""
    reads: int = 0
    ends_shell: bool = False


@dataclass
class Ended:
    """An ended command; ``loosely``: the shell may have added an end of line."""

    command_id: str
    text: str
    code: int | None
    status: str
    loosely: bool = False


@dataclass
class Model:
    """What must be true of the session."""

    cwd: str
    variables: dict[str, str] = field(default_factory=dict[str, str])
    exported: dict[str, str] = field(default_factory=dict[str, str])
    saved: dict[str, str] = field(default_factory=dict[str, str])
    size: tuple[int, int] = (50, 200)
    begun: Begun | None = None
    exit: ExitStatus | None = None
    fresh: bool = True
    ended: list[Ended] = field(default_factory=list[Ended])

    @property
    def last_code(self) -> int:
        """What $? holds; 0 in a new shell."""
        return 0 if self.fresh or not self.ended else self.ended[-1].code or 0


class SessionMachine:
    """``step`` does something that is possible now, and compares."""

    def __init__(self, backend: str, home: Path, seed: int) -> None:
        self.backend = backend
        self.rng = Random(seed)
        self.story: list[str] = []
        self.runtime = home / "run"
        self.runtime.mkdir(mode=0o700)
        self.directories = [str(home), "/usr", str(home / "a b'ü")]
        Path(self.directories[2]).mkdir()
        self.fifo = home / "fifo"
        os.mkfifo(self.fifo)
        self.model = Model(str(home))
        self.request = NewSession(
            name="main", working_directory=str(home), client_env=dict(os.environ), env={}, shell="bash"
        )

    async def start(self) -> None:
        self.manager = SessionManager(self.runtime, SessionDefaults(backend=self.backend))
        self.session: Session = await self.manager.create(self.request)

    async def stop(self) -> None:
        cookie = self.session.spec.cookie
        await self.manager.stop()
        assert membership.members(cookie) == []

    async def step(self) -> None:
        """One random step; ``story`` names it."""
        action = self.rng.choice(self._offered())
        self.story.append(action.__name__.strip("_"))
        async with asyncio.timeout(2 * BOUND_SECONDS):
            await action()
            await self._agrees()

    def _offered(self) -> list[Callable[[], Awaitable[None]]]:
        always: list[Callable[[], Awaitable[None]]] = [self._another_daemon]
        if self.model.exit is not None:
            return [*always, self._respawn, self._respawn]
        always += [self._resize, self._kill, self._another_daemon_after_a_kill]
        if self.model.begun is None:
            short = [self._assign, self._assign, self._change_directory, self._show, self._show, self._show]
            return [*always, *short, self._begin_reader, self._begin_reader, self._begin_sleeper, self._begin_waiter]
        always += [self._wait_in_vain, self._interrupt]
        if self.model.begun.kind == "reader":
            return [*always, self._answer, self._answer]
        if self.model.begun.kind == "waiter":
            return [*always, self._feed, self._another_daemon_after_the_end, self._another_daemon_after_the_end]
        return always

    # Short commands.

    async def _assign(self) -> None:
        name, value = self.rng.choice(NAMES), characters(self.rng)
        export = self.rng.random() < 0.5 or name in self.model.exported
        self.model.variables[name] = value
        if export:
            self.model.exported[name] = value
        await self._execute(f"{'export ' if export else ''}{name}={quote(value)}", "", 0)

    async def _change_directory(self) -> None:
        self.model.cwd = self.rng.choice(self.directories)
        await self._execute(f"cd {quote(self.model.cwd)}", "", 0)

    async def _show(self) -> None:
        listed = "".join(f"<{self.model.variables.get(name, '')}>" for name in NAMES)
        (rows, cols), code = self.model.size, self.rng.randrange(256)
        command = f'printf "<%s><%s><%s>\\n" "$v1" "$v2" "$v3"; pwd; stty size; (exit {code})'
        await self._execute(command, f"{listed}\n{self.model.cwd}\n{rows} {cols}\n", code)

    async def _execute(self, command: str, text: str, code: int) -> None:
        running = await self.session.begin(command, command_id=self._new_id())
        assert await wait.for_command(self.session, running, BOUND_SECONDS, until_input=False) == "finished"
        self.model.ended.append(Ended(running.record.command_id, text, code, "finished"))
        self.model.fresh = False

    def _new_id(self) -> str:
        return f"cmd_{len(self.story)}"

    # Long ones.

    async def _begin_reader(self) -> None:
        reads, code = self.rng.randint(1, 3), self.rng.randrange(256)
        command = "IFS= read -r x; printf '[%s]\\n' \"$x\"; " * reads + f"(exit {code})"
        await self._begin(command, Begun("reader", self._new_id(), code, reads=reads))

    async def _begin_sleeper(self) -> None:
        await self._begin("echo on; sleep 1000", Begun("sleeper", self._new_id(), 0, "on\n"))

    async def _begin_waiter(self) -> None:
        code, ends_shell = self.rng.randrange(256), self.rng.random() < 0.5
        end = f"exit {code}" if ends_shell else f"(exit {code})"
        begun = Begun("waiter", self._new_id(), code, ends_shell=ends_shell)
        await self._begin(f"cat {quote(str(self.fifo))}; echo fed; {end}", begun)

    async def _begin(self, command: str, begun: Begun) -> None:
        running = await self.session.begin(command, command_id=begun.command_id)
        assert await wait.for_output(self.session, BOUND_SECONDS, lambda: running.started)
        self.model.begun = begun
        await self._until_shown()
        if begun.kind != "reader":
            # No event tells that a program runs; what bash's child is told before it is one may be forgotten.
            holder = self.session.holder
            await asyncio.to_thread(spin, lambda: (h := holder()) and h.name in ("cat", "sleep"), "no foreground")

    async def _until_shown(self) -> None:
        begun, running = self.model.begun, self.session.running
        assert begun
        assert running
        assert await wait.for_output(self.session, BOUND_SECONDS, lambda: running.started)
        seen = lambda: finished(transcript(self.session, running.record).render(9999)).text  # noqa: E731
        assert await wait.for_output(self.session, BOUND_SECONDS, lambda: len(seen()) >= len(begun.text))
        if begun.kind == "reader":
            assert await wait.for_command(self.session, running, BOUND_SECONDS, until_input=True) == "input"
        assert seen() == begun.text, (seen(), begun)

    async def _wait_in_vain(self) -> None:
        running, begun = self.session.running, self.model.begun
        assert running
        assert begun
        assert await wait.for_command(self.session, running, 0.0, until_input=False) == "timeout"
        assert (running.record.status, running.record.command_id) == ("running", begun.command_id)
        with pytest.raises(SessionBusy, match=begun.command_id):
            await self.session.begin("echo never", command_id="cmd_never")

    async def _answer(self) -> None:
        begun, running = self.model.begun, self.session.running
        assert begun
        assert running
        line = characters(self.rng).replace("\n", "").replace("\t", "")
        self.session.send(line.encode() + b"\n")
        begun.text += f"{line}\n[{line}]\n"
        begun.reads -= 1
        if begun.reads:
            await self._until_shown()
        else:
            assert await wait.for_command(self.session, running, BOUND_SECONDS, until_input=False) == "finished"
            self._end("finished", begun.code)

    async def _interrupt(self) -> None:
        begun = self.model.begun
        assert begun
        outcome = await wait.interrupt(self.session, 5.0)
        assert (outcome.steps, outcome.ended) == (("Ctrl-C",), True), outcome
        # bash tells of an interrupted builtin what stood in $? before, where that was 128 or more.
        builtin_first = begun.kind == "reader" and not begun.text
        code = self.model.last_code if builtin_first and self.model.last_code >= 128 else 130
        begun.text += "^C"
        self._end("interrupted", code, loosely=True)

    async def _feed(self) -> None:
        await asyncio.to_thread(self.fifo.write_text, "food\n")
        await self._fed()

    async def _fed(self) -> None:
        begun = self.model.begun
        assert begun
        if (running := self.session.running) is not None:
            assert await wait.for_command(self.session, running, BOUND_SECONDS, until_input=False) == "finished"
        begun.text += "food\nfed\n"
        if begun.ends_shell:
            await self._until_dead(ExitStatus(code=begun.code))
            self.model.saved = dict(self.model.exported)
        self._end("finished", begun.code)

    def _end(self, status: str, code: int | None, *, loosely: bool = False) -> None:
        begun = self.model.begun
        self.model.begun = None
        assert begun
        self.model.ended.append(Ended(begun.command_id, begun.text, code, status, loosely))
        self.model.fresh = False

    # What befalls the session as a whole.

    async def _resize(self) -> None:
        self.model.size = (self.rng.randint(10, 60), self.rng.randint(40, 300))
        await self.manager.resize(self.session, *self.model.size)

    async def _another_daemon(self) -> None:
        await self.manager.aclose()
        await self._adopt()

    async def _another_daemon_after_the_end(self) -> None:
        await self.manager.aclose()
        await asyncio.to_thread(self.fifo.write_text, "food\n")
        await self._adopt()
        await self._fed()

    async def _another_daemon_after_a_kill(self) -> None:
        assert self.session.terminal
        pid = self.session.terminal.pid
        await self.manager.aclose()
        os.kill(pid, signal.SIGKILL)
        await self._adopt()
        await self._killed()

    async def _adopt(self) -> None:
        self.manager = SessionManager(self.runtime, SessionDefaults(backend=self.backend))
        assert await self.manager.adopt() == 1
        (self.session,) = self.manager.all()
        if self.model.exit is not None:
            await self._until_dead(self.model.exit)

    async def _kill(self) -> None:
        assert self.session.terminal
        os.kill(self.session.terminal.pid, signal.SIGKILL)
        await self._killed()

    async def _killed(self) -> None:
        await self._until_dead(ExitStatus(signal=signal.SIGKILL))
        if self.model.begun is not None:
            self._end("finished", 128 + signal.SIGKILL)

    async def _until_dead(self, status: ExitStatus) -> None:
        assert await wait.for_output(self.session, BOUND_SECONDS, lambda: self.session.exit is not None)
        assert self.session.exit == status, self.session.exit
        self.model.exit = status

    async def _respawn(self) -> None:
        with pytest.raises(SessionExited):
            await self.session.begin("echo never", command_id="cmd_never")
        assert await self.manager.create(self.request) is self.session
        self.model.exit = None
        self.model.fresh = True
        # Only an orderly exit saves anything but the directory.
        self.model.exported = dict(self.model.saved)
        self.model.variables = dict(self.model.saved)

    async def _agrees(self) -> None:
        model, session = self.model, self.session
        if model.exit is not None:
            assert session.state() is SessionState.EXITED, session.exit
            assert session.exit == model.exit, session.exit
        elif model.begun is None:
            # A change of size, which taking a session up is too, wakes its shell for a moment.
            await asyncio.to_thread(spin, lambda: session.state() is SessionState.READY, "the shell is not ready")
        else:
            # So it does a reader.
            await self._until_shown()
            reads = model.begun.kind == "reader"
            state = session.state()
            assert state is (SessionState.WAITING_INPUT if reads else SessionState.RUNNING), state
        assert session.cwd == model.cwd, session.cwd
        for ended in model.ended[-6:]:
            record = session.history.get(ended.command_id)
            assert record
            text = finished(transcript(session, record).render(9999)).text
            text = text.removesuffix("\n") if ended.loosely else text
            found = Ended(ended.command_id, text, record.exit_code, record.status, ended.loosely)
            assert found == ended, (found, ended)
